//! Run directories: one for each server, private, locked while a process needs it, swept afterwards.
//!
//! ```text
//! pgfresh-UID/1a2b3c4d/   ours: nobody else can put anything here
//!   owner.lock  server.lock  helper.lock  log
//!   data/                 the server account's
//!   socket/               the server account's
//!   persistent            instead of data/: a link to data that stay
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sys::{Directory, Lock};

use crate::attempt::{Attempt, FileError};
use crate::removal::remove_tree;
use crate::replace::random_name;
use crate::{Account, PersistentData, Place, place, private};

/// Bytes of the longest path: what a socket's may have, less its final zero, and less what comes behind this one: `/`, the
/// directory of the socket, and the 14 bytes of a name in it. Source: unix(7).
const LONGEST: usize = 107 - "/socket".len() - 14;

/// The directory of the server's files.
const DATA: &str = "data";
/// The directory of the server's socket.
const SOCKET: &str = "socket";

/// The file that its owner has locked.
const OWNER_LOCK: &str = "owner.lock";
/// The file that a server's processes have locked.
const SERVER_LOCK: &str = "server.lock";
/// The file that other processes of the owner's have locked.
const HELPER_LOCK: &str = "helper.lock";

/// How long processes of an earlier server in the same directory may take to end.
const LOCK_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// The link to data that stay when the directory goes.
const PERSISTENT: &str = "persistent";

/// What the name of a directory begins with that people want to look at.
const KEPT: &str = "kept-";
/// The extension of the name of a directory that is being removed.
const DEAD: &str = "dead";

/// The directory of one server, held by its owner.
///
/// Dropping it lets go of the lock, and leaves the directory to its guard or to the next sweep.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    address: PathBuf,
    owner: Option<Lock>,
    persistent: Option<PersistentData>,
}

impl RunDirectory {
    /// Makes a new directory in `place`, for a server that runs as `account`, and locks it. `announce` hears its path
    /// before anything is there, so that it can be cleared away whenever we die; what it returned for this path comes
    /// back with it.
    pub fn create<T>(
        place: &Place,
        account: &Account,
        announce: impl Fn(&Path) -> Result<T, FileError>,
    ) -> Result<(Self, T), FileError> {
        let root = run_root(place.root());
        loop {
            let path = root.join(random_name()?);
            let announced = announce(&path)?;
            private::ensure(&root, private::passable())?;
            match DirBuilder::new().mode(0o700).create(&path) {
                // A sweeper removed the empty root between our two steps, or another process has drawn this name.
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
                    let mode = fs::Permissions::from_mode(private::passable());
                    fs::set_permissions(&run.path, mode).attempt("change the mode of", &run.path)?;
                    run.create_directory(SOCKET, account)?;
                    run.shorten_address()?;
                    return Ok((run, announced));
                }
                // A sweeper came between mkdir and lock: leave that one to it.
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    remove_if_empty(&path);
                    return Err(error).attempt("lock", &lock);
                }
            }
        }
    }

    /// Where a socket's address would be too long, gives the directory a second, short name.
    fn shorten_address(&mut self) -> Result<(), FileError> {
        if self.path.as_os_str().len() <= LONGEST {
            return Ok(());
        }
        let root = run_root(Path::new("/tmp"));
        let short = root.join(self.path.file_name().unwrap_or_default());
        loop {
            private::ensure(&root, private::passable())?;
            match symlink(&self.path, &short) {
                // A sweeper removed the empty root between our two steps.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                made => {
                    made.attempt("create", &short)?;
                    self.address = short;
                    return Ok(());
                }
            }
        }
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name of the directory that is short enough for a socket in it.
    #[must_use]
    pub fn address(&self) -> &Path {
        &self.address
    }

    /// Where the server's socket belongs, under such a name.
    #[must_use]
    pub fn socket_directory(&self) -> PathBuf {
        self.address.join(SOCKET)
    }

    /// Where the data directory belongs.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.persistent.as_ref().map_or_else(|| self.path.join(DATA), PersistentData::data)
    }

    /// The same, for those who find the directory at `path`.
    #[must_use]
    pub fn data_at(path: &Path) -> PathBuf {
        fs::read_link(path.join(PERSISTENT)).unwrap_or_else(|_| path.join(DATA))
    }

    /// Lets the server work on data that stay when the directory goes.
    pub fn use_persistent(&mut self, data: PersistentData) -> Result<(), FileError> {
        let link = self.path.join(PERSISTENT);
        symlink(data.data(), &link).attempt("create", &link)?;
        self.persistent = Some(data);
        Ok(())
    }

    /// The data that stay when the directory goes, if the server works on such.
    #[must_use]
    pub fn persistent(&self) -> Option<&PersistentData> {
        self.persistent.as_ref()
    }

    /// What the server's processes have to inherit, so that no process takes its data as long as one is there.
    pub fn data_lock(&self) -> Result<Option<OwnedFd>, FileError> {
        self.persistent.as_ref().map(PersistentData::lock).transpose()
    }

    /// Makes an empty data directory, the account's own, if there is none.
    pub fn create_data(&self, account: &Account) -> Result<(), FileError> {
        if self.data().is_dir() { Ok(()) } else { self.create_directory(DATA, account) }
    }

    /// Makes a directory of the account's in the directory.
    fn create_directory(&self, name: &str, account: &Account) -> Result<(), FileError> {
        let path = self.path.join(name);
        let run = Directory::open(&self.path).attempt("open", &self.path)?;
        let directory = run.create_directory(name).attempt("create", &path)?;
        account.give(&directory).attempt("change the owner of", &path)
    }

    /// Writes a file of the data directory anew, the account's own. Whatever has its name is removed, not followed.
    pub fn rewrite(&self, name: &str, text: &str, account: &Account) -> Result<(), FileError> {
        let path = self.data().join(name);
        let data = Directory::open(&self.data()).attempt("open", &self.data())?;
        data.remove_file(name).attempt("remove", &path)?;
        let mut file = data.create_file(name).attempt("create", &path)?;
        account.give(&file).attempt("change the owner of", &path)?;
        file.write_all(text.as_bytes()).attempt("write", &path)
    }

    /// Where the server's log belongs.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Leaves the directory where people can look at it, under a name that no sweep takes; returns its new path.
    pub fn keep(&self) -> Result<PathBuf, FileError> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let kept = self.path.with_file_name(format!("{KEPT}{name}"));
        fs::rename(&self.path, &kept).attempt("rename", &self.path)?;
        Ok(kept)
    }

    /// Lets go of the owner's lock: the directory is anybody's to clear away. So is what it has of persistent data.
    pub fn let_go(&mut self) {
        self.owner = None;
        self.persistent = None;
    }

    /// The file that the server's processes have locked.
    #[must_use]
    pub fn server_lock_path(&self) -> PathBuf {
        self.path.join(SERVER_LOCK)
    }

    /// The server's lock, for its processes to inherit. Let go of it once they have.
    pub fn server_lock(&self) -> Result<Lock, FileError> {
        let path = self.server_lock_path();
        let lock = Lock::take_within(&path, LOCK_TIMEOUT).attempt("lock", &path)?;
        lock.ok_or(io::ErrorKind::TimedOut).attempt("lock", &path)
    }

    /// A share of the lock of whatever else works in the directory for its owner, for those processes to inherit.
    pub fn helper_lock(&self) -> Result<Lock, FileError> {
        let path = self.path.join(HELPER_LOCK);
        let file =
            File::options().append(true).create(true).mode(0o600).open(&path).attempt("create", &path)?;
        let shared = Lock::share(file, &path).attempt("lock", &path)?;
        shared.ok_or(io::ErrorKind::WouldBlock).attempt("lock", &path)
    }

    /// Makes a file of the account's in the directory, for appending.
    pub fn create_file(&self, name: &str, account: &Account) -> Result<File, FileError> {
        let path = self.path.join(name);
        let file =
            File::options().append(true).create(true).mode(0o600).open(&path).attempt("create", &path)?;
        account.give(&file).attempt("change the owner of", &path)?;
        Ok(file)
    }
}

/// The directory in `place` that holds our user's run directories.
fn run_root(place: &Path) -> PathBuf {
    place.join(format!("pgfresh-{}", sys::user()))
}

/// All directories that may hold run directories of ours. `disk` as for [`Place::choose`]; `named` is the user's own.
#[must_use]
pub fn run_roots(disk: &Path, named: Option<&Path>) -> Vec<PathBuf> {
    let mut roots: Vec<_> =
        place::candidates(disk).iter().map(PathBuf::as_path).chain(named).map(run_root).collect();
    roots.sort();
    roots.dedup();
    roots
}

/// A run directory whose owner is gone, ours to remove: stop what [`Abandoned::locks`] say is alive, then
/// [`Abandoned::remove`] it.
#[derive(Debug)]
pub struct Abandoned {
    path: PathBuf,
    _owner: Lock,
}

impl Abandoned {
    /// Finds and takes what lies in `root` without an owner. Empty roots are removed on the way.
    pub fn find(root: &Path) -> Result<Vec<Self>, FileError> {
        let mut found = Vec::new();
        for entry in entries(root)? {
            let path = entry.path();
            let kind = entry.file_type().attempt("examine", &path)?;
            if kind.is_symlink() {
                // A short name that leads nowhere any more.
                if !path.exists()
                    && let Err(error) = fs::remove_file(&path)
                {
                    tracing::debug!(%error, path = %path.display(), "could not remove a short name");
                }
            } else if kind.is_dir() && is_run_name(&path) {
                found.extend(Self::at(&path).ok().flatten());
            }
        }
        remove_if_empty(root);
        Ok(found)
    }

    /// Takes the directory at `path`; `None` if it is not there, or a process has it.
    pub fn at(path: &Path) -> Result<Option<Self>, FileError> {
        Self::of(path, Lock::try_take)
    }

    /// Waits until no process has the directory at `path`, and takes it; `None` if it is not there.
    pub fn after_its_owner(path: &Path) -> Result<Option<Self>, FileError> {
        Self::of(path, |lock| Lock::take(lock).map(Some))
    }

    fn of(path: &Path, take: impl Fn(&Path) -> io::Result<Option<Lock>>) -> Result<Option<Self>, FileError> {
        // Who removed it may have died half-way.
        let dead = path.with_extension(DEAD);
        for path in [path, &dead] {
            let lock = path.join(OWNER_LOCK);
            match take(&lock) {
                Ok(owner) => return Ok(owner.map(|owner| Self { path: path.to_owned(), _owner: owner })),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).attempt("lock", &lock),
            }
        }
        // Its owner may have died when only the root was there.
        path.parent().into_iter().for_each(remove_if_empty);
        Ok(None)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files that its helpers and its server's processes have locked, if any is alive.
    #[must_use]
    pub fn locks(&self) -> [PathBuf; 2] {
        [HELPER_LOCK, SERVER_LOCK].map(|name| self.path.join(name))
    }

    /// Removes the directory with all that is in it, its short name, and the folder above if it was the last there.
    pub fn remove(self) -> Result<(), FileError> {
        let (Some(root), Some(name)) = (self.path.parent(), self.path.file_stem()) else { return Ok(()) };
        // Renamed first: who draws this name now, or waits for the lock, finds a directory of its own.
        let dead = self.path.with_extension(DEAD);
        match fs::rename(&self.path, &dead) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.attempt("rename", &self.path)?,
        }
        remove_tree(&dead)?;
        let short_root = run_root(Path::new("/tmp"));
        let short = short_root.join(name);
        if short.is_symlink() {
            fs::remove_file(&short).attempt("remove", &short)?;
            remove_if_empty(&short_root);
        }
        remove_if_empty(root);
        Ok(())
    }
}

/// Removes from `root` what [`RunDirectory::keep`] left there; returns it.
pub fn remove_kept(root: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut removed = Vec::new();
    for entry in entries(root)? {
        if entry.file_name().to_string_lossy().starts_with(KEPT) {
            remove_tree(&entry.path())?;
            removed.push(entry.path());
        }
    }
    remove_if_empty(root);
    Ok(removed)
}

/// Removes a folder in which nothing is left.
fn remove_if_empty(folder: &Path) {
    use io::ErrorKind::{DirectoryNotEmpty, NotFound};
    if let Err(error) = fs::remove_dir(folder)
        && !matches!(error.kind(), DirectoryNotEmpty | NotFound)
    {
        tracing::debug!(%error, path = %folder.display(), "could not remove a folder");
    }
}

/// What lies in `root`; nothing if there is none, or another sweeper has just removed it.
fn entries(root: &Path) -> Result<Vec<fs::DirEntry>, FileError> {
    if !private::ensure_existing(root)? {
        return Ok(Vec::new());
    }
    match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listing => Ok(listing.attempt("read", root)?.flatten().collect()),
    }
}

/// Eight hex digits, or such a name that is being removed.
fn is_run_name(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let extension = path.extension();
    stem.len() == 8
        && stem.bytes().all(|byte| byte.is_ascii_hexdigit())
        && extension.is_none_or(|extension| extension == DEAD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PlaceRequest;

    fn setting() -> (tempfile::TempDir, Place, Account) {
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
    fn a_directory_is_announced_before_it_is_there_and_taken_after_its_owner() {
        let (directory, place, account) = setting();
        let empty = || fs::read_dir(directory.path()).unwrap().count() == 0;
        let (mut run, announced) = RunDirectory::create(&place, &account, |path| {
            assert!(empty(), "nothing may be there yet");
            Ok(path.to_owned())
        })
        .unwrap();
        assert_eq!(run.path(), announced);
        assert!(Abandoned::at(&announced).unwrap().is_none(), "it has an owner");
        let path = announced.clone();
        let waiter = std::thread::spawn(move || Abandoned::after_its_owner(&path).unwrap().unwrap().remove());
        run.let_go();
        waiter.join().unwrap().unwrap();
        assert!(empty());
        fs::create_dir(run_root(place.root())).unwrap();
        assert!(Abandoned::after_its_owner(&announced).unwrap().is_none());
        assert!(empty(), "a root without a directory is left by who dies in between");
    }

    #[test]
    fn a_held_directory_is_left_and_a_dead_one_is_removed_with_its_root() {
        let (directory, place, account) = setting();
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
    fn a_server_s_lock_is_waited_for_and_not_for_ever() {
        let (_directory, place, account) = setting();
        let run = create(&place, &account);
        let lock = run.server_lock().unwrap();
        assert_eq!(run.server_lock().unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(lock);
        run.server_lock().unwrap();
    }

    #[test]
    fn a_long_path_gets_a_short_name_that_goes_with_it() {
        let (directory, ..) = setting();
        let deep = directory.path().join("d".repeat(90));
        fs::create_dir(&deep).unwrap();
        let account = setting().2;
        let place = Place::choose(&PlaceRequest::At(deep), 0, Path::new("/nowhere"), &account).unwrap();
        let run = create(&place, &account);
        assert!(run.address().as_os_str().len() <= LONGEST);
        let (short, path) = (run.address().to_owned(), run.path().to_owned());
        assert_eq!(short.canonicalize().unwrap(), path.canonicalize().unwrap());
        drop(run);
        for abandoned in Abandoned::find(path.parent().unwrap()).unwrap() {
            abandoned.remove().unwrap();
        }
        assert!(!short.is_symlink() && !path.exists());
    }

    #[test]
    fn makers_and_sweepers_do_not_disturb_each_other() {
        let (_directory, place, account) = setting();
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
