//! Prints a message about failed tests that read from a replica while the replica lagged.

use gateway::TestOnLaggingReplica;
use lease::ReplicaLag;
use server::printable;

use crate::notice::notice;

/// Prints the tests, each with the statements that ran on the replica.
pub(crate) fn print(tests: &[TestOnLaggingReplica]) {
    match tests.len() {
        0 => return,
        1 => notice!("pgfresh: a failed test has read from a replica that lagged"),
        count => notice!("pgfresh: {count} failed tests have read from a replica that lagged"),
    }
    for TestOnLaggingReplica { test, reads } in tests {
        notice!("{}:", printable(test));
        for read in reads {
            let lag = match read.lag {
                ReplicaLag::Paused => "replay paused".to_owned(),
                lag => format!("lag {lag}"),
            };
            notice!("  {} ({lag})", printable(&read.statement));
        }
    }
}
