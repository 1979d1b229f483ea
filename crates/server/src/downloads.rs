//! Determines where downloaded installations are.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Directory in the cache that contains the downloaded installations.
pub(crate) const FOLDER: &str = "installations";
/// Directory for the libraries of added extensions, relative to the installation's prefix.
pub(crate) const LIBRARIES: &str = "extensions/lib";

/// Returns the prefix of the installation whose binaries are in `bin`. `None` if pgfresh didn't download it.
pub(crate) fn downloaded_prefix(bin: &Path) -> Option<PathBuf> {
    let bin = bin.canonicalize().ok()?;
    // The user may have moved the folder of downloaded installations and replaced it with a link.
    let is_version =
        |name: &OsStr| name.to_string_lossy().starts_with(|letter: char| letter.is_ascii_digit());
    let is_ours = bin.ancestors().filter(|path| path.file_name().is_some_and(is_version)).any(|path| {
        let link = path.join("bin");
        link.is_symlink() && link.canonicalize().is_ok_and(|target| target == bin)
    });
    is_ours.then(|| bin.parent().map(Path::to_owned)).flatten()
}

/// Returns the directory with the libraries of added extensions. `None` if the installation whose binaries are in `bin`
/// has no such libraries.
pub(crate) fn added_libraries(bin: &Path) -> Option<PathBuf> {
    Some(downloaded_prefix(bin)?.join(LIBRARIES)).filter(|folder| folder.is_dir())
}
