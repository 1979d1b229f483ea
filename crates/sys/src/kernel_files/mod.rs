//! Reads the files below `/proc` and `/sys` that describe a machine and its disks. Only
//! Linux has these files, but the caller can also pass copies from a different machine,
//! so this module compiles on every system. Without the files, every fact is unknown.

pub(crate) mod disk;
#[cfg(test)]
mod fake_machine;
pub(crate) mod mount;
pub(crate) mod nvme;
pub(crate) mod readings;
pub(crate) mod shortage;
pub(crate) mod storage_stack;

/// Returns the number of bytes in a line such as `MemTotal:   2000 kB`. `text` has the format of
/// `/proc/meminfo`.
pub(crate) fn bytes_of(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}
