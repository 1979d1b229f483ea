//! Stands in for the distinction between file systems in memory and on disk, for which POSIX has no call.

use std::io;
use std::path::Path;

use crate::FilesystemKind;

/// Returns [`FilesystemKind::Disk`], so that pgfresh chooses no place in memory by itself.
#[expect(clippy::unnecessary_wraps, reason = "Linux asks the kernel, which may refuse")]
pub(crate) fn filesystem_kind(_path: &Path) -> io::Result<FilesystemKind> {
    Ok(FilesystemKind::Disk)
}
