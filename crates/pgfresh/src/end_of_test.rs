//! Prints what `pgfresh reset` and `pgfresh release` report about the test that has ended.

use std::process::ExitCode;

use contract::EndOfTest;
use gateway::UnfiredFault;

use crate::{over_budget, unfired_faults};

/// Prints a message if the test exceeded its budget, or if a fault never fired. Doesn't mention the budget of an
/// unnamed test, because the run's final message does. Lists all unfired faults, because the final message
/// doesn't list them.
pub(crate) fn report(test: Option<&str>, database: &str, ended: EndOfTest) -> ExitCode {
    let is_beyond = test.is_some_and(|test| over_budget::print_response(test, &ended));
    let test = test.filter(|test| !test.is_empty()).unwrap_or(database);
    let named = |fault| UnfiredFault { database: test.to_owned(), fault };
    let unfired: Vec<_> = ended.unfired_faults.into_iter().map(named).collect();
    if !unfired.is_empty() {
        unfired_faults::print(&unfired);
    }
    match (is_beyond, unfired.is_empty()) {
        (true, _) => ExitCode::from(over_budget::EXIT),
        (false, false) => ExitCode::from(unfired_faults::EXIT),
        (false, true) => ExitCode::SUCCESS,
    }
}
