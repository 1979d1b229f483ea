//! Identifies the current boot, so that pgfresh can tell whether a record predates a reboot.

use std::fs;

/// Returns a random id that changes with each boot, or an empty string if the kernel doesn't provide one.
/// Source: random(4).
#[must_use]
pub fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}
