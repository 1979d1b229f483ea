//! Prints messages about tests that exceeded their budget.

use contract::EndOfTest;
use gateway::TestOverBudget;
use server::printable;

use crate::notice::notice;

/// Exit code if tests exceeded their budget but everything else succeeded.
pub(crate) const EXIT: u8 = 1;

/// Message for the user if all tests have a budget, but the command used no fresh database.
pub(crate) const UNUSED: &str = "[budget] had no effect, because the command did not connect to a fresh database, only to those of the server.";

/// Message for the user if all tests have a budget, but `run --compare` or `bench suite` compares servers.
pub(crate) const NOT_COMPARED: &str = "[budget] has no effect, because comparisons only measure times.";

/// Prints the tests that exceeded their budget, each with its statements. `more` is the number of further tests that
/// exceeded their budget but aren't in `tests`.
pub(crate) fn print(tests: &[TestOverBudget], more: usize) {
    match tests.len() + more {
        1 => notice!("pgfresh: a test exceeded its budget"),
        count => notice!("pgfresh: {count} tests exceeded their budget"),
    }
    for TestOverBudget { database, message } in tests {
        notice!("{}: {message}", printable(database));
    }
    if more > 0 {
        notice!("… and {more} more tests");
    }
}

/// Prints a message and returns true if the test exceeded its budget.
pub(crate) fn print_response(test: &str, ended: &EndOfTest) -> bool {
    let Some(message) = ended.measurement.as_ref().and_then(|measured| measured.message.clone()) else {
        return false;
    };
    print(&[TestOverBudget { database: test.to_owned(), message }], 0);
    true
}
