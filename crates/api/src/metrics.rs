//! Reports metrics for Prometheus, in its text exposition format 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use lease::Status;

use crate::problem::Problem;
use crate::{SharedState, status};

const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `GET /metrics`: returns all metrics.
pub(crate) async fn metrics(State(api): SharedState) -> Result<impl IntoResponse, Problem> {
    let text = render(&status::look(&api).await?, api.since.elapsed());
    Ok(([(CONTENT_TYPE, TYPE)], text))
}

fn render(status: &Status, uptime: Duration) -> String {
    let mut by_template: BTreeMap<&str, (usize, usize)> =
        status.ready.iter().map(|(template, _)| (template.as_str(), (0, 0))).collect();
    for lease in &status.leases {
        let (leases, sessions) = by_template.entry(&lease.template).or_default();
        *leases += 1;
        *sessions += lease.sessions;
    }
    let mut page = Page::default();
    page.family("pgfresh_build_info", "gauge", "Always 1; the version is in the label.");
    page.sample("pgfresh_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.family("pgfresh_uptime_seconds", "gauge", "Time since the gateway was opened.");
    page.sample("pgfresh_uptime_seconds", &[], uptime.as_secs_f64());
    page.family("pgfresh_ready_databases", "gauge", "Databases that are ready to be leased.");
    for (template, ready) in &status.ready {
        page.sample("pgfresh_ready_databases", &[("template", template)], ready);
    }
    page.family("pgfresh_leases", "gauge", "Databases that are leased.");
    for (template, (leases, _)) in &by_template {
        page.sample("pgfresh_leases", &[("template", template)], leases);
    }
    page.family("pgfresh_sessions", "gauge", "Open sessions in leased databases.");
    for (template, (_, sessions)) in &by_template {
        page.sample("pgfresh_sessions", &[("template", template)], sessions);
    }
    since_the_start(&mut page, status);
    page.0.concat()
}

/// Adds the counters, which are values that only increase.
fn since_the_start(page: &mut Page, status: &Status) {
    page.work("pgfresh_database_creation_seconds", "Databases copied from a template.", status.created);
    page.work(
        "pgfresh_database_recycling_seconds",
        "Databases returned to their template's state.",
        status.recycled,
    );
    page.family("pgfresh_databases_dropped_total", "counter", "Databases that were not recycled, by reason.");
    for (reason, count) in &status.dropped {
        page.sample("pgfresh_databases_dropped_total", &[("reason", reason)], count);
    }
    page.family("pgfresh_background_errors_total", "counter", "Background tasks that failed, by task.");
    for (task, count) in &status.errors {
        page.sample("pgfresh_background_errors_total", &[("task", task)], count);
    }
    page.family(
        "pgfresh_sessions_started_total",
        "counter",
        "Sessions begun, with a warm backend or a new one.",
    );
    page.sample("pgfresh_sessions_started_total", &[("backend", "warm")], status.warm);
    page.sample("pgfresh_sessions_started_total", &[("backend", "cold")], status.cold);
    page.family(
        "pgfresh_differences_total",
        "counter",
        "Recycled databases that were not fresh. Any value above 0 is a bug in pgfresh.",
    );
    page.sample("pgfresh_differences_total", &[], status.differences.len());
    page.family(
        "pgfresh_leaks_total",
        "counter",
        "Changes to objects that all databases share, by kind of object.",
    );
    for leak in &status.leaks {
        page.sample("pgfresh_leaks_total", &[("what", leak.what)], leak.count);
    }
}

/// The lines of the response, in order.
#[derive(Default)]
struct Page(Vec<String>);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.0.push(format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escape(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        self.0.push(format!("{name}{labels} {value}\n"));
    }

    /// Adds a summary: the number of operations and their total time.
    fn work(&mut self, name: &str, help: &str, (count, spent): (u64, Duration)) {
        self.family(name, "summary", help);
        self.sample(&format!("{name}_sum"), &[], spent.as_secs_f64());
        self.sample(&format!("{name}_count"), &[], count);
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use lease::{Isolation, LeaseStatus, SharedStateChange};

    use super::*;

    #[test]
    fn metrics_have_help_type_values_and_escaped_labels() {
        let lease = |template: &str, sessions| LeaseStatus {
            database: "a".into(),
            template: template.into(),
            isolation: Isolation::Clone,
            sessions,
            since: Instant::now(),
            age: Duration::ZERO,
        };
        let status = Status {
            ready: vec![("shop".into(), 3), ("a\"\\\n".into(), 0)],
            leases: vec![lease("shop", 2), lease("shop", 1), lease("gone", 0)],
            created: (4, Duration::from_millis(80)),
            recycled: (2, Duration::from_millis(3)),
            dropped: vec![("schema changed", 1)],
            warm: 5,
            cold: 1,
            differences: Vec::new(),
            leaks: vec![SharedStateChange { what: "roles", suspects: Vec::new(), count: 2 }],
            errors: vec![("drop a database", 2)],
        };
        let text = render(&status, Duration::from_millis(1500));
        for line in [
            "# HELP pgfresh_leases Databases that are leased.",
            "# TYPE pgfresh_leases gauge",
            "pgfresh_uptime_seconds 1.5",
            "pgfresh_ready_databases{template=\"shop\"} 3",
            "pgfresh_ready_databases{template=\"a\\\"\\\\\\n\"} 0",
            "pgfresh_leases{template=\"shop\"} 2",
            "pgfresh_leases{template=\"gone\"} 1",
            "pgfresh_sessions{template=\"shop\"} 3",
            "pgfresh_database_creation_seconds_sum 0.08",
            "pgfresh_database_creation_seconds_count 4",
            "pgfresh_database_recycling_seconds_count 2",
            "pgfresh_databases_dropped_total{reason=\"schema changed\"} 1",
            "pgfresh_sessions_started_total{backend=\"cold\"} 1",
            "pgfresh_differences_total 0",
            "pgfresh_background_errors_total{task=\"drop a database\"} 2",
            "pgfresh_leaks_total{what=\"roles\"} 2",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is missing in\n{text}");
        }
        assert!(text.ends_with('\n'));
    }
}
