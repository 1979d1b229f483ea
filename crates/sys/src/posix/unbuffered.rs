//! Opens files for synchronous or direct writes, so that benchmarks measure the disk and not the page cache.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::system;

/// The moment at which a write returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The write returns once the data is in the page cache.
    Not,
    /// The write returns once the data is on disk, with the metadata required to read it (`O_DSYNC`).
    ForData,
    /// The write returns once the data is on disk, with all metadata (`O_SYNC`).
    ForAll,
}

/// Opens an existing file for reading and writing. If `direct` is true, writes bypass the page cache
/// (`O_DIRECT`), so the memory address, the offset and the length must be multiples of the sector size.
/// Source: open(2).
///
/// # Errors
/// Returns `EINVAL` if `direct` is true and the file system or the operating system doesn't support direct writes.
pub fn open_for_writes(path: &Path, waiting: Waiting, direct: bool) -> io::Result<File> {
    // rustix 1 confuses O_DSYNC with O_SYNC, so the constants come from libc.
    let waiting = match waiting {
        Waiting::Not => 0,
        Waiting::ForData => libc::O_DSYNC,
        Waiting::ForAll => libc::O_SYNC,
    };
    let flags = match (direct, system::unbuffered::DIRECT) {
        (false, _) => waiting,
        (true, Some(direct)) => waiting | direct,
        (true, None) => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
    };
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

/// Returns the part of `buffer` that starts at the first multiple of 4096.
///
/// # Panics
/// Panics if `buffer` is shorter than 4096 bytes.
#[must_use]
pub fn page_aligned(buffer: &[u8]) -> &[u8] {
    let offset = buffer.as_ptr().align_offset(4096);
    &buffer[offset..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
    fn open_flags_match_waiting_for_data_or_all() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let flags = |waiting| {
            let file = open_for_writes(file.path(), waiting, false).unwrap();
            let text = std::fs::read_to_string(format!(
                "/proc/self/fdinfo/{}",
                std::os::fd::AsRawFd::as_raw_fd(&file)
            ));
            let line = text
                .unwrap()
                .lines()
                .find_map(|line| line.strip_prefix("flags:").map(str::to_owned))
                .unwrap();
            i32::from_str_radix(line.trim(), 8).unwrap() & libc::O_SYNC
        };
        assert_eq!(
            [Waiting::Not, Waiting::ForData, Waiting::ForAll].map(flags),
            [0, libc::O_DSYNC, libc::O_SYNC]
        );
    }

    #[test]
    fn page_aligned_buffer_suits_direct_writes() {
        for shift in 0..3 {
            let buffer = vec![0; 16384];
            let aligned = page_aligned(&buffer[shift..]);
            assert!(aligned.as_ptr().addr().is_multiple_of(4096) && aligned.len() > 8192);
        }
    }
}
