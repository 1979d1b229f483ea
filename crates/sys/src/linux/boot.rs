//! When the machine was started.

use std::fs;

/// A name that each start of the machine has for itself; empty where there is none. Source: random(4).
#[must_use]
pub fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}
