//! Stands in for facts about the machine and its load. The portable
//! code can't determine them, so all functions return `None`.

use std::time::Duration;

/// The paths of sysfs and procfs. Files can't exist at these paths.
pub(crate) const KERNEL_FILES: [&str; 2] = ["/dev/null/sys", "/dev/null/proc"];

/// Returns `None` in place of the kernel release.
#[must_use]
pub fn kernel() -> Option<String> {
    None
}

/// Returns `None` in place of the number of tasks that are running or waiting for a processor.
#[must_use]
pub fn runnable_tasks() -> Option<usize> {
    None
}

/// Returns `None` in place of the time that the calling thread has waited for a processor.
#[must_use]
pub fn run_delay() -> Option<Duration> {
    None
}

/// Returns `None` in place of the model name of the processors.
#[must_use]
pub fn processor() -> Option<String> {
    None
}

/// Returns `None` in place of the total memory in bytes.
#[must_use]
pub fn total_memory() -> Option<u64> {
    None
}
