//! The current status as JSON, either once or every second.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use futures_util::stream;
use gateway::{KeptDatabase, StatementHistory};
use lease::{Difference, SharedStateChange, Status};
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use crate::blocking::blocking;
use crate::json::Json;
use crate::problem::Problem;
use crate::{ApiState, SharedState};

/// Time between two events.
const PERIOD: Duration = Duration::from_secs(1);

/// Machine-readable [`Status`]. Times are in seconds, and counts begin at the server's start.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    version: &'static str,
    uptime_seconds: f64,
    templates: Vec<TemplateReport>,
    leases: Vec<LeaseReport>,
    created: Work,
    recycled: Work,
    /// Number of databases that were not recycled, by reason.
    dropped: BTreeMap<&'static str, u64>,
    sessions: Sessions,
    /// Recycled databases that turned out not to be fresh.
    differences: Vec<Difference>,
    leaks: Vec<SharedStateChange>,
    /// Number of failed background tasks, by task.
    errors: BTreeMap<&'static str, u64>,
    /// Databases that pgfresh has kept because a test failed.
    kept: Vec<KeptReport>,
}

/// A kept database, and the test that failed.
#[derive(Debug, Serialize)]
struct KeptReport {
    database: String,
    test: String,
}

#[derive(Debug, Serialize)]
struct TemplateReport {
    name: String,
    ready: usize,
}

#[derive(Debug, Serialize)]
struct LeaseReport {
    database: String,
    template: String,
    sessions: usize,
    age_seconds: f64,
}

/// Number of databases created or recycled, and the total time.
#[derive(Debug, Serialize)]
struct Work {
    count: u64,
    seconds: f64,
}

/// Number of sessions that began with a warm backend (one that was already waiting), and with a cold one.
#[derive(Debug, Serialize)]
struct Sessions {
    warm: u64,
    cold: u64,
}

impl Report {
    fn new(status: Status, kept: Vec<KeptDatabase>, uptime: Duration) -> Self {
        let templates = status.ready.into_iter().map(|(name, ready)| TemplateReport { name, ready });
        let leases = status.leases.into_iter().map(|lease| LeaseReport {
            database: lease.database,
            template: lease.template,
            sessions: lease.sessions,
            age_seconds: seconds(lease.age),
        });
        let work = |(count, spent): (u64, Duration)| Work { count, seconds: seconds(spent) };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: seconds(uptime),
            templates: templates.collect(),
            leases: leases.collect(),
            created: work(status.created),
            recycled: work(status.recycled),
            dropped: status.dropped.into_iter().collect(),
            sessions: Sessions { warm: status.warm, cold: status.cold },
            differences: status.differences,
            leaks: status.leaks,
            errors: status.errors.into_iter().collect(),
            kept: kept.into_iter().map(|kept| KeptReport { database: kept.name, test: kept.test }).collect(),
        }
    }

    async fn of(api: &ApiState) -> Result<Self, Problem> {
        let kept = api.history().map_or_else(Vec::new, StatementHistory::kept_databases);
        Ok(Self::new(look(api).await?, kept, api.since.elapsed()))
    }
}

/// Returns seconds, rounded to microseconds because more digits would be noise.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

/// Returns the current status.
pub(crate) async fn look(api: &ApiState) -> Result<Status, Problem> {
    blocking(&api.leases, |leases| Ok(leases.status())).await
}

/// `GET /v1/status`: returns the status once.
pub(crate) async fn once(State(api): SharedState) -> Result<Json<Report>, Problem> {
    Report::of(&api).await.map(Json)
}

/// `GET /v1/events`: streams the status as server-sent events. A client that reads slowly misses some events, because
/// pgfresh creates the next one only when there is room for it. Source: WHATWG HTML, 9.2.
pub(crate) async fn events(State(api): SharedState) -> impl IntoResponse {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let events = stream::unfold((api, ticks), async |(api, mut ticks)| {
        ticks.tick().await;
        let report = Report::of(&api).await.ok()?;
        Some((event(&report), (api, ticks)))
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events))
}

fn event(report: &Report) -> serde_json::Result<String> {
    // JSON text contains no line breaks, so it fits on one `data` line.
    Ok(format!("data: {}\n\n", serde_json::to_string(report)?))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use lease::{Isolation, LeaseStatus};

    use super::*;

    #[test]
    fn the_status_is_in_seconds_and_counts() {
        let lease = LeaseStatus {
            database: "a\nb".into(),
            template: "shop".into(),
            isolation: Isolation::Clone,
            sessions: 2,
            since: Instant::now(),
            age: Duration::from_millis(1500),
        };
        let status = Status {
            ready: vec![("shop".into(), 3)],
            leases: vec![lease],
            created: (4, Duration::from_millis(80)),
            recycled: (2, Duration::from_millis(3)),
            dropped: vec![("schema changed", 1)],
            warm: 5,
            cold: 1,
            differences: vec![Difference { database: "d".into(), relation: "public.t".into() }],
            leaks: vec![SharedStateChange { what: "roles", suspects: vec!["a".into()], count: 2 }],
            errors: vec![("drop a database", 2)],
        };
        let kept = KeptDatabase {
            inherited: false,
            name: "a_failed_1".into(),
            test: "a::b".into(),
            template: Some("shop".into()),
            statements: Vec::new(),
        };
        let event = event(&Report::new(status, vec![kept], Duration::from_secs(9))).unwrap();
        let expected = concat!(
            r#"data: {"version":""#,
            env!("CARGO_PKG_VERSION"),
            r#"","uptime_seconds":9.0,"templates":[{"name":"shop","ready":3}],"#,
            r#""leases":[{"database":"a\nb","template":"shop","sessions":2,"age_seconds":1.5}],"#,
            r#""created":{"count":4,"seconds":0.08},"recycled":{"count":2,"seconds":0.003},"#,
            r#""dropped":{"schema changed":1},"sessions":{"warm":5,"cold":1},"#,
            r#""differences":[{"database":"d","relation":"public.t"}],"leaks":[{"what":"roles","suspects":["a"],"count":2}],"errors":{"drop a database":2},"#,
            r#""kept":[{"database":"a_failed_1","test":"a::b"}]}"#,
            "\n\n"
        );
        assert_eq!(event, expected);
    }
}
