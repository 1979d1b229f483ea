//! Paths of downloaded installations.

use std::path::{Path, PathBuf};

/// Directory in the cache that contains the downloaded installations.
pub(crate) const FOLDER: &str = "installations";
/// Libraries of added extensions, below the installation's prefix.
pub(crate) const LIBRARIES: &str = "extensions/lib";

/// Returns the prefix of an installation with these binaries, or `None` if pgfresh has not downloaded it.
pub(crate) fn downloaded_prefix(bin: &Path) -> Option<PathBuf> {
    let bin = bin.canonicalize().ok()?;
    let is_ours = bin.ancestors().any(|path| path.file_name().is_some_and(|name| name == FOLDER));
    is_ours.then(|| bin.parent().map(Path::to_owned)).flatten()
}

/// Returns the directory with the libraries of added extensions, if the installation with these binaries has one.
pub(crate) fn added_libraries(bin: &Path) -> Option<PathBuf> {
    Some(downloaded_prefix(bin)?.join(LIBRARIES)).filter(|folder| folder.is_dir())
}
