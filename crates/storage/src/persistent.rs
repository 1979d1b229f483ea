//! Stores the data of named servers. Unlike other data, it survives the server, so that the next server with
//! the same name can use it.
//!
//! ```text
//! ROOT/NAME/lock     locked by the owner, and by all processes of the server
//! ROOT/NAME/about    the owner's record, which also says whether the data is complete
//! ROOT/NAME/data/    owned by the server's account
//! ```
//! Our own user owns everything except `data`. After [`PersistentData::remember`] returns, `about` and `data`
//! survive a crash of the operating system.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sys::Lock;

use crate::file_error::{Attempt, FileError};
use crate::removal::remove_tree;
use crate::{Account, private};

/// How long to wait for an earlier server's processes to exit after its owner was killed.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The data directory of a named server, locked by its owner.
#[derive(Debug)]
pub struct PersistentData {
    path: PathBuf,
    lock: Lock,
}

impl PersistentData {
    /// Returns the directory that contains the data of all named servers: `$XDG_DATA_HOME/pgfresh`, or if
    /// that variable is unset, `/var/lib/pgfresh` for root and `~/.local/share/pgfresh` for other users.
    ///
    /// # Errors
    /// Returns an error if neither `XDG_DATA_HOME` nor `HOME` is an absolute path, unless we are root.
    pub fn root() -> Result<PathBuf, FileError> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let folder = absolute("XDG_DATA_HOME").or_else(|| {
            if sys::is_root() {
                Some("/var/lib".into())
            } else {
                absolute("HOME").map(|home| home.join(".local/share"))
            }
        });
        let folder = folder.ok_or_else(|| io::Error::other("neither XDG_DATA_HOME nor HOME is set"));
        Ok(folder.attempt("find", Path::new("~/.local/share"))?.join("pgfresh"))
    }

    /// Opens the data called `name` below `root`, for a server that runs as `account`. New data is empty.
    ///
    /// Waits up to 10 seconds for an earlier server to shut down. Returns `None` if a process is still using
    /// the data after that.
    ///
    /// # Errors
    /// Returns an error if another user can write to the directories, or if `account` can't enter them.
    pub fn open(root: &Path, name: &str, account: &Account) -> Result<Option<Self>, FileError> {
        let parent = root.parent().unwrap_or(root);
        if !parent.exists() {
            let above = parent.parent().unwrap_or(parent);
            DirBuilder::new().recursive(true).mode(0o700).create(above).attempt("create", above)?;
            private::ensure(parent, private::parent_mode())?;
        }
        private::ensure(root, private::parent_mode())?;
        let path = root.join(name);
        private::ensure(&path, private::parent_mode())?;
        if !account.can_reach(&path) {
            let why = format!("the server's account (uid {}) cannot enter it", account.uid);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why)).attempt("use", &path);
        }
        let lock = path.join("lock");
        let taken = Lock::take_within(&lock, LOCK_TIMEOUT).attempt("lock", &lock)?;
        Ok(taken.map(|lock| Self { path, lock }))
    }

    /// Returns the directory that contains the lock, the owner's record and the data.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the data directory, which might not exist yet.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// Duplicates the lock, so that the server's processes can inherit it.
    pub(crate) fn lock(&self) -> Result<OwnedFd, FileError> {
        self.lock.descriptor().attempt("duplicate", &self.path)
    }

    fn about(&self) -> PathBuf {
        self.path.join("about")
    }

    /// Returns the record that the last owner saved, or `None` if no owner saved one.
    ///
    /// # Errors
    /// Returns the error of the file system, with the path.
    pub fn recall(&self) -> Result<Option<String>, FileError> {
        match fs::read_to_string(self.about()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            text => text.map(Some).attempt("read", &self.about()),
        }
    }

    /// Saves `text` as the owner's record, and flushes the record and the data to disk.
    ///
    /// # Errors
    /// Returns an error if the record or the data can't be flushed. The earlier record stays unless only the
    /// last flush failed.
    pub fn remember(&self, text: &str) -> Result<(), FileError> {
        let staging = self.path.join("about.new");
        let mut open = File::options();
        let open = open.write(true).create(true).truncate(true).mode(0o600).open(&staging);
        let mut file = open.attempt("write", &staging)?;
        file.write_all(text.as_bytes()).attempt("write", &staging)?;
        sys::sync_filesystem(&file).attempt("sync", &staging)?;
        fs::rename(&staging, self.about()).attempt("rename", &staging)?;
        File::open(&self.path).and_then(|folder| folder.sync_all()).attempt("sync", &self.path)
    }

    /// Removes the data but retains the owner's record.
    ///
    /// # Errors
    /// Returns the error of the file system, with the path.
    pub fn clear(&self) -> Result<(), FileError> {
        if self.data().exists() { remove_tree(&self.data()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn owner_is_exclusive_and_record_outlives_cleared_data() {
        let folder = tempfile::tempdir().unwrap();
        let (root, account) = (folder.path().join("a/pgfresh"), Account::ours());
        let open = || PersistentData::open(&root, "dev", &account).unwrap();
        let data = open().unwrap();
        assert!(Lock::try_take(&root.join("dev/lock")).unwrap().is_none());
        assert_eq!((data.recall().unwrap(), data.clear().unwrap()), (None, ()));
        fs::create_dir_all(data.data().join("base")).unwrap();
        data.remember("one").unwrap();
        data.remember("two").unwrap();
        drop(data);
        let data = open().unwrap();
        assert_eq!(data.recall().unwrap().as_deref(), Some("two"));
        let mode = fs::metadata(data.about()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        data.clear().unwrap();
        assert!(!data.data().exists() && data.recall().unwrap().is_some());
        // `open` waits for a server that is shutting down.
        let ending = std::thread::spawn(move || drop(data));
        assert!(open().is_some());
        ending.join().unwrap();
    }
}
