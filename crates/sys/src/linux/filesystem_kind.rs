//! Distinguishes file systems in memory from those on disk.

use std::io;
use std::path::Path;

use crate::FilesystemKind;

/// The `f_type` of tmpfs. Source: statfs(2).
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// The `f_type` of ramfs, which doesn't have a size limit.
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// Returns whether the file system that contains `path` is in memory or on disk.
pub(crate) fn filesystem_kind(path: &Path) -> io::Result<FilesystemKind> {
    let magic = u64::try_from(rustix::fs::statfs(path)?.f_type).unwrap_or(0) & 0xffff_ffff;
    Ok(if magic == TMPFS_MAGIC || magic == RAMFS_MAGIC {
        FilesystemKind::Memory
    } else {
        FilesystemKind::Disk
    })
}
