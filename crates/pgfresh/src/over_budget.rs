//! Messages about tests that exceeded their budget.

use std::process::ExitCode;

use gateway::TestOverBudget;
use serde_json::Value;
use server::printable;

use crate::notice::notice;

/// Exit code if nothing else failed.
pub(crate) const EXIT: u8 = 1;

/// Prints the tests and their statements. `more` is the number of tests that `tests` leaves out.
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

/// Prints a test if the API's response contains a budget message. Returns whether it does.
fn print_response(test: &str, answer: &Value) -> bool {
    let Some(message) = answer["message"].as_str() else { return false };
    print(&[TestOverBudget { database: test.to_owned(), message: message.to_owned() }], 0);
    true
}

/// Prints a message if a test exceeded its budget. Tests without a name are reported at the end of the run.
pub(crate) fn end_of_test(test: Option<&str>, answer: &Value) -> ExitCode {
    let is_beyond = test.is_some_and(|test| print_response(test, answer));
    if is_beyond { ExitCode::from(EXIT) } else { ExitCode::SUCCESS }
}
