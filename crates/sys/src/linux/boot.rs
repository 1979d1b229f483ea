//! Identity of the current boot.

use std::fs;

/// Returns a random id that changes with each boot; empty if the kernel has none. Source: random(4).
#[must_use]
pub fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}
