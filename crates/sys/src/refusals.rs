//! Remembers which calls the system refuses, so that pgfresh can say once that it works without them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

use crate::lock;

/// The refused calls, and the error of the first attempt.
static REFUSALS: Mutex<BTreeMap<&'static str, String>> = Mutex::new(BTreeMap::new());

/// Records that the system refuses `call`.
pub(crate) fn note_refusal(call: &'static str, error: &io::Error) {
    lock(&REFUSALS).entry(call).or_insert_with(|| error.to_string());
}

/// Returns the calls that the system has refused so far, each with its error. This crate does the same by other
/// calls, at a higher cost.
#[must_use]
pub fn refusals() -> Vec<(&'static str, String)> {
    lock(&REFUSALS).iter().map(|(call, error)| (*call, error.clone())).collect()
}
