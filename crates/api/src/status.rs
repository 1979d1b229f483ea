//! Returns the current status as JSON, either once or every second.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use contract::{
    DifferenceEntry, KeptEntry, LeakEntry, LeaseEntry, SessionCounts, StatusResponse, TemplateEntry,
    WorkTotal,
};
use futures_util::stream;
use gateway::{KeptDatabase, StatementHistory};
use lease::{Difference, SharedStateChange, Status};
use tokio::time::{MissedTickBehavior, interval};

use crate::blocking::blocking;
use crate::json::Json;
use crate::problem::Problem;
use crate::{ApiState, SharedState};

/// Interval between events.
const PERIOD: Duration = Duration::from_secs(1);

fn report(status: Status, kept: Vec<KeptDatabase>, uptime: Duration) -> StatusResponse {
    let work = |(count, spent): (u64, Duration)| WorkTotal { count, seconds: seconds(spent) };
    let by_name = |counts: Vec<(&str, u64)>| {
        counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect::<BTreeMap<_, _>>()
    };
    let leases = status.leases.into_iter().map(|lease| LeaseEntry {
        database: lease.database,
        template: lease.template,
        sessions: lease.sessions,
        age_seconds: seconds(lease.age),
    });
    let differences = status.differences.into_iter();
    let leaks = status.leaks.into_iter();
    StatusResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: seconds(uptime),
        templates: status.ready.into_iter().map(|(name, ready)| TemplateEntry { name, ready }).collect(),
        leases: leases.collect(),
        created: work(status.created),
        recycled: work(status.recycled),
        dropped: by_name(status.dropped),
        sessions: SessionCounts { warm: status.warm, cold: status.cold },
        differences: differences
            .map(|Difference { database, relation }| DifferenceEntry { database, relation })
            .collect(),
        leaks: leaks
            .map(|SharedStateChange { what, suspects, count }| LeakEntry {
                what: what.to_owned(),
                suspects,
                count,
            })
            .collect(),
        errors: by_name(status.errors),
        kept: kept.into_iter().map(|kept| KeptEntry { database: kept.name, test: kept.test }).collect(),
    }
}

async fn current(api: &ApiState) -> Result<StatusResponse, Problem> {
    let kept = api.history().map_or_else(Vec::new, StatementHistory::kept_databases);
    Ok(report(look(api).await?, kept, api.since.elapsed()))
}

/// Returns seconds rounded to microseconds, because further digits would only be noise.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

/// Returns the current status.
pub(crate) async fn look(api: &ApiState) -> Result<Status, Problem> {
    blocking(&api.leases, |leases| Ok(leases.status())).await
}

/// `GET /v1/status`: returns the status once.
pub(crate) async fn once(State(api): SharedState) -> Result<Json<StatusResponse>, Problem> {
    current(&api).await.map(Json)
}

/// `GET /v1/events`: streams the status as server-sent events. Slow clients miss some events, because pgfresh creates
/// the next event only when there is room for it. Source: WHATWG HTML, 9.2.
pub(crate) async fn events(State(api): SharedState) -> impl IntoResponse {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let events = stream::unfold((api, ticks), async |(api, mut ticks)| {
        ticks.tick().await;
        let status = current(&api).await.ok()?;
        Some((event(&status), (api, ticks)))
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events))
}

fn event(status: &StatusResponse) -> serde_json::Result<String> {
    // JSON text contains no line breaks, so it fits on one `data` line.
    Ok(format!("data: {}\n\n", serde_json::to_string(status)?))
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
        let event = event(&report(status, vec![kept], Duration::from_secs(9))).unwrap();
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
