//! Creates and locks run directories. A run directory contains everything that a server needs
//! while it runs, and each server has its own private one. The owner and the server's processes
//! lock files in this directory, so that a sweep can recognize and remove an abandoned one.
//!
//! ```text
//! pgfresh-UID/1a2b3c4d/   ours: no other user can write here
//!   owner.lock  server.lock  helper.lock  log
//!   data/                 owned by the server's account
//!   socket/               owned by the server's account
//!   persistent            instead of data/: a link to persistent data
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sys::{Directory, Lock};

use crate::file_error::{Attempt, FileError};
use crate::replace::random_name;
use crate::{Account, PersistentData, Place, place, private};

/// Maximum length of a run directory's path, in bytes. A socket's path ends with `/socket` and a name of up to 14
/// bytes.
const MAX_PATH_LENGTH: usize = sys::MAX_SOCKET_PATH_LENGTH - "/socket".len() - 14;

/// The directory with the server's files.
const DATA: &str = "data";
/// The directory with the server's socket.
const SOCKET: &str = "socket";

/// The owner's lock file.
pub(crate) const OWNER_LOCK: &str = "owner.lock";
/// The lock file of the server's processes.
pub(crate) const SERVER_LOCK: &str = "server.lock";
/// The lock file of other processes that work for the owner.
pub(crate) const HELPER_LOCK: &str = "helper.lock";

/// How long to wait for an earlier server's processes in the same directory to exit.
const LOCK_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// A link to the persistent data.
const PERSISTENT: &str = "persistent";

/// Prefix of the name of a directory that pgfresh retains for the user to inspect.
pub(crate) const KEPT_PREFIX: &str = "kept-";
/// Extension of the name of a directory being removed.
pub(crate) const REMOVAL_EXTENSION: &str = "dead";

/// A single server's directory, locked by its owner.
///
/// Dropping this value releases the lock. The guard (a process that cleans up after pgfresh), or else the
/// next sweep, then removes the directory.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    address: PathBuf,
    owner: Option<Lock>,
    persistent: Option<PersistentData>,
}

impl RunDirectory {
    /// Creates and locks a new directory in `place`, for a server that runs as `account`.
    ///
    /// Calls `announce` with the path before anything exists there, so that the guard can clean up even if we
    /// die right afterwards. If another process takes the path first, this tries another path and calls
    /// `announce` again. Returns the directory and the result of the last `announce` call.
    ///
    /// # Errors
    /// Returns the error of `announce`. Also returns an error if the directory can't be created, or if
    /// another user can write to its parent. No directory is left behind.
    pub fn create<T>(
        place: &Place,
        account: &Account,
        announce: impl Fn(&Path) -> Result<T, FileError>,
    ) -> Result<(Self, T), FileError> {
        let root = run_root(place.root());
        loop {
            let path = root.join(random_name()?);
            let announced = announce(&path)?;
            private::ensure(&root, private::parent_mode())?;
            match DirBuilder::new().mode(0o700).create(&path) {
                // Between the two calls, a sweep removed the empty root, or another process took this name.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) =>
                {
                    continue;
                }
                other => other.attempt("create", &path)?,
            }
            let lock = path.join(OWNER_LOCK);
            match Lock::try_take(&lock) {
                Ok(Some(owner)) => {
                    let mut run = Self { address: path.clone(), path, owner: Some(owner), persistent: None };
                    let mode = fs::Permissions::from_mode(private::parent_mode());
                    fs::set_permissions(&run.path, mode).attempt("change the mode of", &run.path)?;
                    run.create_directory(SOCKET, account)?;
                    run.link_short_address()?;
                    return Ok((run, announced));
                }
                // A sweep locked the new directory before we did, and will remove it.
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    remove_if_empty(&path);
                    return Err(error).attempt("lock", &lock);
                }
            }
        }
    }

    /// Creates a short link to the directory if its path is unsuitable for a socket: too long, or containing
    /// a comma, which libpq treats as a separator between hosts.
    fn link_short_address(&mut self) -> Result<(), FileError> {
        let path = self.path.as_os_str();
        if path.len() <= MAX_PATH_LENGTH && !path.as_encoded_bytes().contains(&b',') {
            return Ok(());
        }
        let root = run_root(Path::new("/tmp"));
        let short = root.join(self.path.file_name().unwrap_or_default());
        loop {
            private::ensure(&root, private::parent_mode())?;
            match symlink(&self.path, &short) {
                // Between the two calls, a sweep removed the empty root.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                made => {
                    made.attempt("create", &short)?;
                    self.address = short;
                    return Ok(());
                }
            }
        }
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a path to the directory that is short enough for a socket inside it.
    #[must_use]
    pub fn address(&self) -> &Path {
        &self.address
    }

    /// Returns the path of the socket directory, which is short enough for a socket inside it.
    #[must_use]
    pub fn socket_directory(&self) -> PathBuf {
        self.address.join(SOCKET)
    }

    /// Returns the path of the data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.persistent.as_ref().map_or_else(|| self.path.join(DATA), PersistentData::data)
    }

    /// Returns the path of the data directory inside the run directory at `path`, for processes that don't
    /// own the run directory.
    #[must_use]
    pub fn data_at(path: &Path) -> PathBuf {
        fs::read_link(path.join(PERSISTENT)).unwrap_or_else(|_| path.join(DATA))
    }

    /// Returns the path of the socket directory inside the run directory at `path`, like [`Self::data_at`].
    #[must_use]
    pub fn socket_directory_at(path: &Path) -> PathBuf {
        path.join(SOCKET)
    }

    /// Makes the server use persistent data, which survives the removal of the run directory.
    ///
    /// # Errors
    /// Returns the error of the file system, with the path.
    pub fn use_persistent(&mut self, data: PersistentData) -> Result<(), FileError> {
        let link = self.path.join(PERSISTENT);
        symlink(data.data(), &link).attempt("create", &link)?;
        self.persistent = Some(data);
        Ok(())
    }

    /// Returns the persistent data that the server uses, if any.
    #[must_use]
    pub fn persistent(&self) -> Option<&PersistentData> {
        self.persistent.as_ref()
    }

    /// Returns the persistent data's lock for the server's processes to inherit. The lock keeps other owners
    /// out until the last of these processes has exited. Returns `None` if the data isn't persistent.
    ///
    /// # Errors
    /// Returns the error of the file system, with the path.
    pub fn data_lock(&self) -> Result<Option<OwnedFd>, FileError> {
        self.persistent.as_ref().map(PersistentData::lock).transpose()
    }

    /// Creates an empty data directory for `account` if it doesn't exist yet.
    ///
    /// # Errors
    /// Returns the error of the file system, with the path.
    pub fn create_data(&self, account: &Account) -> Result<(), FileError> {
        if self.data().is_dir() { Ok(()) } else { self.create_directory(DATA, account) }
    }

    /// Creates the subdirectory `name` for `account`.
    fn create_directory(&self, name: &str, account: &Account) -> Result<(), FileError> {
        let path = self.path.join(name);
        let run = Directory::open(&self.path).attempt("open", &self.path)?;
        let directory = run.create_directory(name).attempt("create", &path)?;
        account.change_owner(&directory).attempt("change the owner of", &path)
    }

    /// Writes a new file in the data directory and makes `account` its owner. An existing file or link is
    /// removed first, so that no link is followed.
    ///
    /// # Errors
    /// Returns the error of the file system, with the path.
    pub fn rewrite(&self, name: &str, text: &str, account: &Account) -> Result<(), FileError> {
        let path = self.data().join(name);
        let data = Directory::open(&self.data()).attempt("open", &self.data())?;
        data.remove_file(name).attempt("remove", &path)?;
        let mut file = data.create_file(name).attempt("create", &path)?;
        account.change_owner(&file).attempt("change the owner of", &path)?;
        file.write_all(text.as_bytes()).attempt("write", &path)
    }

    /// Returns the path of the server's log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Renames the directory so that sweeps ignore it and the user can inspect it. Returns the new path.
    ///
    /// # Errors
    /// Returns an error if the directory can't be renamed. In that case, the directory isn't kept.
    pub fn keep(&self) -> Result<PathBuf, FileError> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let kept = self.path.with_file_name(format!("{KEPT_PREFIX}{name}"));
        fs::rename(&self.path, &kept).attempt("rename", &self.path)?;
        Ok(kept)
    }

    /// Releases the owner's lock and the persistent data. After this call, any process can remove the
    /// directory.
    pub fn release(&mut self) {
        self.owner = None;
        self.persistent = None;
    }

    /// Returns the path of the server's lock file.
    #[must_use]
    pub fn server_lock_path(&self) -> PathBuf {
        self.path.join(SERVER_LOCK)
    }

    /// Acquires the server's lock for its processes to inherit. The caller must release the lock once they
    /// have inherited it. Waits up to 10 seconds for an earlier server to shut down.
    ///
    /// # Errors
    /// Returns an error of the kind [`io::ErrorKind::TimedOut`] if the earlier server hasn't ended after 10
    /// seconds.
    pub fn server_lock(&self) -> Result<Lock, FileError> {
        let path = self.server_lock_path();
        let lock = Lock::take_within(&path, LOCK_TIMEOUT).attempt("lock", &path)?;
        lock.ok_or(io::ErrorKind::TimedOut).attempt("lock", &path)
    }

    /// Acquires a shared lock for the owner's other processes to inherit.
    ///
    /// # Errors
    /// Returns an error of the kind [`io::ErrorKind::WouldBlock`] if another process has the exclusive lock,
    /// because it is removing the directory.
    pub fn helper_lock(&self) -> Result<Lock, FileError> {
        let path = self.path.join(HELPER_LOCK);
        let file =
            File::options().append(true).create(true).mode(0o600).open(&path).attempt("create", &path)?;
        let shared = Lock::share(file, &path).attempt("lock", &path)?;
        shared.ok_or(io::ErrorKind::WouldBlock).attempt("lock", &path)
    }

    /// Opens the file `name` for appending, creating it if it doesn't exist, and makes `account` its owner.
    ///
    /// # Errors
    /// Returns the error of the file system, with the path.
    pub fn create_file(&self, name: &str, account: &Account) -> Result<File, FileError> {
        let path = self.path.join(name);
        let file =
            File::options().append(true).create(true).mode(0o600).open(&path).attempt("create", &path)?;
        account.change_owner(&file).attempt("change the owner of", &path)?;
        Ok(file)
    }
}

/// Returns the directory in `place` that contains our user's run directories.
pub(crate) fn run_root(place: &Path) -> PathBuf {
    place.join(format!("pgfresh-{}", sys::user()))
}

/// Returns all directories that can contain our run directories. `disk` is the [`Place::choose`] argument of
/// that name, and `named` is the place the user chose.
#[must_use]
pub fn run_roots(disk: &Path, named: Option<&Path>) -> Vec<PathBuf> {
    let mut roots: Vec<_> =
        place::candidates(disk).iter().map(PathBuf::as_path).chain(named).map(run_root).collect();
    roots.sort();
    roots.dedup();
    roots
}

/// Removes `folder` if it is empty.
pub(crate) fn remove_if_empty(folder: &Path) {
    use io::ErrorKind::{DirectoryNotEmpty, NotFound};
    if let Err(error) = fs::remove_dir(folder)
        && !matches!(error.kind(), DirectoryNotEmpty | NotFound)
    {
        tracing::debug!(%error, path = %folder.display(), "could not remove a folder");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Abandoned, PlaceRequest};

    fn fixture() -> (tempfile::TempDir, Place, Account) {
        let directory = tempfile::tempdir().unwrap();
        let account = Account::ours();
        let place =
            Place::choose(&PlaceRequest::At(directory.path().into()), 0, Path::new("/nowhere"), &account)
                .unwrap();
        (directory, place, account)
    }

    fn create(place: &Place, account: &Account) -> RunDirectory {
        RunDirectory::create(place, account, |_| Ok(())).unwrap().0
    }

    #[test]
    fn run_directory_announced_before_creation_removed_after_owner() {
        let (directory, place, account) = fixture();
        let empty = || fs::read_dir(directory.path()).unwrap().count() == 0;
        let (mut run, announced) = RunDirectory::create(&place, &account, |path| {
            assert!(empty(), "nothing may be there yet");
            Ok(path.to_owned())
        })
        .unwrap();
        assert_eq!(run.path(), announced);
        assert!(Abandoned::at(&announced).unwrap().is_none(), "it has an owner");
        let path = announced.clone();
        let waiter = std::thread::spawn(move || Abandoned::wait_for_owner(&path).unwrap().unwrap().remove());
        run.release();
        waiter.join().unwrap().unwrap();
        assert!(empty());
        fs::create_dir(run_root(place.root())).unwrap();
        assert!(Abandoned::wait_for_owner(&announced).unwrap().is_none());
        assert!(empty(), "a root without a directory is left by who dies in between");
    }

    #[test]
    fn sweep_keeps_held_and_removes_abandoned_run_directory() {
        let (directory, place, account) = fixture();
        let root = run_root(place.root());
        let held = create(&place, &account);
        let dead = create(&place, &account).path().to_owned();
        fs::write(dead.join("data"), "x").unwrap();
        let found = Abandoned::find(&root).unwrap();
        assert_eq!(found.iter().map(Abandoned::path).collect::<Vec<_>>(), [dead.as_path()]);
        assert!(Abandoned::find(&root).unwrap().is_empty(), "two sweepers do not take the same directory");
        for abandoned in found {
            abandoned.remove().unwrap();
        }
        assert!(!dead.exists() && held.path().exists());
        drop(held);
        for abandoned in Abandoned::find(&root).unwrap() {
            abandoned.remove().unwrap();
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn server_lock_wait_ends_at_release_or_timeout() {
        let (_directory, place, account) = fixture();
        let run = create(&place, &account);
        let lock = run.server_lock().unwrap();
        assert_eq!(run.server_lock().unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(lock);
        run.server_lock().unwrap();
    }

    #[test]
    fn long_path_gets_short_alias_removed_with_it() {
        let (directory, ..) = fixture();
        let deep = directory.path().join("d".repeat(90));
        fs::create_dir(&deep).unwrap();
        let account = fixture().2;
        let place = Place::choose(&PlaceRequest::At(deep), 0, Path::new("/nowhere"), &account).unwrap();
        let run = create(&place, &account);
        assert!(run.address().as_os_str().len() <= MAX_PATH_LENGTH);
        let (short, path) = (run.address().to_owned(), run.path().to_owned());
        assert_eq!(short.canonicalize().unwrap(), path.canonicalize().unwrap());
        drop(run);
        for abandoned in Abandoned::find(path.parent().unwrap()).unwrap() {
            abandoned.remove().unwrap();
        }
        assert!(!short.is_symlink() && !path.exists());
    }

    #[test]
    fn concurrent_creation_and_sweep_both_succeed() {
        let (_directory, place, account) = fixture();
        let root = run_root(place.root());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let run = create(&place, &account);
                        fs::write(run.path().join("mine"), "x").unwrap();
                        assert!(run.path().join("owner.lock").exists());
                        assert!(run.path().join("mine").exists(), "a sweeper took a living directory");
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..200 {
                    for abandoned in Abandoned::find(&root).unwrap() {
                        abandoned.remove().unwrap();
                    }
                }
            });
        });
        for abandoned in Abandoned::find(&root).unwrap() {
            abandoned.remove().unwrap();
        }
        assert!(!root.exists());
    }
}
