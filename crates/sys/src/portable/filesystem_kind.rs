//! Stands in for the distinction between file systems in memory and on disk, because POSIX doesn't have a call for it.

use std::io;
use std::path::Path;

use crate::FilesystemKind;

/// Returns [`FilesystemKind::Disk`], so that pgfresh doesn't select a place in memory unless the user does.
#[expect(clippy::unnecessary_wraps, reason = "Linux asks the kernel, which may refuse")]
pub(crate) fn filesystem_kind(_path: &Path) -> io::Result<FilesystemKind> {
    Ok(FilesystemKind::Disk)
}
