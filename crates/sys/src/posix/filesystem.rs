//! Determines a file system's kind and free space.

use std::io;
use std::path::Path;

use crate::system::filesystem_kind::filesystem_kind;

/// The kind of storage that holds a file system's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilesystemKind {
    /// tmpfs or ramfs.
    Memory,
    /// Any other file system.
    Disk,
}

/// A file system, as described by `statvfs(3)`.
#[derive(Debug, Clone, Copy)]
pub struct Filesystem {
    /// Memory or disk.
    pub kind: FilesystemKind,
    /// Size in bytes, or `u64::MAX` for a tmpfs without a size limit.
    pub total: u64,
    /// Number of bytes that an unprivileged process can still write, or `u64::MAX` without a size limit.
    pub free: u64,
    /// Number of files that can still be created, or `u64::MAX` without a limit.
    pub free_files: u64,
}

impl Filesystem {
    /// Returns the file system that contains `path`.
    pub fn of(path: &Path) -> io::Result<Self> {
        let stat = rustix::fs::statvfs(path)?;
        let kind = filesystem_kind(path)?;
        let unbounded = kind == FilesystemKind::Memory && stat.f_blocks == 0;
        let bytes = |blocks: u64| if unbounded { u64::MAX } else { blocks.saturating_mul(stat.f_frsize) };
        let free_files = if stat.f_files == 0 { u64::MAX } else { stat.f_ffree };
        Ok(Self { kind, total: bytes(stat.f_blocks), free: bytes(stat.f_bavail), free_files })
    }
}
