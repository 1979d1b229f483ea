//! Messages about tests that exceeded their budget.

use contract::EndOfTest;
use gateway::TestOverBudget;
use server::printable;

use crate::aside::aside;

/// Exit code if nothing else failed.
pub(crate) const EXIT: u8 = 1;

/// Prints the tests and their statements. `more` is the number of tests that `tests` leaves out.
pub(crate) fn tell(tests: &[TestOverBudget], more: usize) {
    match tests.len() + more {
        1 => aside!("pgfresh: a test exceeded its budget"),
        count => aside!("pgfresh: {count} tests exceeded their budget"),
    }
    for TestOverBudget { database, message } in tests {
        aside!("{}: {message}", printable(database));
    }
    if more > 0 {
        aside!("… and {more} more tests");
    }
}

/// Prints a test if it exceeded its budget. Returns whether it did.
pub(crate) fn tell_answer(test: &str, ended: &EndOfTest) -> bool {
    let Some(message) = ended.measurement.as_ref().and_then(|measured| measured.message.clone()) else {
        return false;
    };
    tell(&[TestOverBudget { database: test.to_owned(), message }], 0);
    true
}
