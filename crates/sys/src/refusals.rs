//! Remembers which optional calls the system has refused, so that `pgfresh run -v` can name them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

use rustix::io::Errno;

use crate::lock;

/// Names of the refused calls. Each has the error of the first attempt until [`take_refusals`] returns it.
static REFUSALS: Mutex<BTreeMap<&'static str, Option<String>>> = Mutex::new(BTreeMap::new());

/// Records that the system refused `call` with `error`. Keeps only the first error of each call.
pub(crate) fn note_refusal(call: &'static str, error: &io::Error) {
    lock(&REFUSALS).entry(call).or_insert_with(|| Some(error.to_string()));
}

/// Returns true if an error can mean that the kernel doesn't support a call or that a
/// system call filter rejects it. Source: the manual pages `syscalls` and `seccomp`.
#[cfg_attr(target_os = "macos", expect(dead_code, reason = "macOS has no such filters"))]
pub(crate) fn is_refused(error: Errno) -> bool {
    matches!(error, Errno::NOSYS | Errno::PERM)
}

/// Returns the calls that the system has refused, each with the error of the first attempt. Returns
/// each call only once. This crate replaces a refused call with other calls, at a higher cost.
#[must_use]
pub fn take_refusals() -> Vec<(&'static str, String)> {
    lock(&REFUSALS).iter_mut().filter_map(|(call, error)| Some((*call, error.take()?))).collect()
}
