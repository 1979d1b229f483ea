//! Parses a replica's lag, and reports the statements that ran on a lagging replica.

use std::time::Duration;

use contract::LaggingStatement;
use gateway::{TestOnLaggingReplica, parse_span};
use lease::ReplicaLag;

use crate::ApiState;
use crate::blocking::blocking;
use crate::problem::Problem;

/// Maximum lag of a replica. `recovery_min_apply_delay` can't store more milliseconds.
const LONGEST_DELAY: Duration = Duration::from_hours(24 * 24);

/// Parses a lag: `none`, `paused`, or a duration with a unit.
pub(crate) fn parse_lag(text: &str) -> Result<ReplicaLag, Problem> {
    match text {
        "none" => return Ok(ReplicaLag::None),
        "paused" => return Ok(ReplicaLag::Paused),
        _ => {}
    }
    match parse_span(text).filter(|time| *time <= LONGEST_DELAY) {
        Some(Duration::ZERO) => Ok(ReplicaLag::None),
        Some(time) => Ok(ReplicaLag::Delay(time)),
        None => {
            let hint = "Write \"none\", \"paused\", or a time with a unit, of at most \"576h\": \"500ms\", \"2s\", \"10min\".";
            Err(Problem::invalid("lag", text, hint))
        }
    }
}

/// Returns a failed test's statements that ran on the replica while it lagged. pgfresh lists them again when it exits.
pub(crate) async fn lagging_statements(
    api: &ApiState,
    name: &str,
    test: Option<&str>,
) -> Result<Vec<LaggingStatement>, Problem> {
    let database = name.to_owned();
    let watch = blocking(&api.leases, move |leases| Ok(leases.replica_watch(&database))).await?;
    let reads = watch.map(|watch| watch.reads()).unwrap_or_default();
    if !reads.is_empty() {
        let test = test.unwrap_or(name).to_owned();
        api.recorder.add_lagging(TestOnLaggingReplica { test, reads: reads.clone() });
    }
    let described = reads
        .into_iter()
        .map(|read| LaggingStatement { statement: read.statement, lag: read.lag.to_string() });
    Ok(described.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_a_word_or_a_time() {
        let delay = |milliseconds| Some(ReplicaLag::Delay(Duration::from_millis(milliseconds)));
        for (text, lag) in [
            ("none", Some(ReplicaLag::None)),
            ("0s", Some(ReplicaLag::None)),
            ("paused", Some(ReplicaLag::Paused)),
            ("500ms", delay(500)),
            ("576h", delay(576 * 3_600_000)),
            ("577h", None),
            ("500", None),
            ("Paused", None),
            ("", None),
        ] {
            assert_eq!(parse_lag(text).ok(), lag, "{text}");
        }
    }
}
