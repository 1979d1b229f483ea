//! Provides advisory locks on files. A held lock proves that its holder is alive. pgfresh doesn't
//! accept any other evidence. A pid in a file, for example, could belong to a different process by now.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

/// An exclusive or shared `flock(2)` on an existing file. The lock is held until all duplicates of its
/// descriptor are closed.
///
/// The descriptor is close-on-exec. A child retains the lock after we exit only if it inherits a duplicate
/// through [`crate::inherit`].
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Acquires the exclusive lock on `path`, creating the file if necessary. Returns `None` if another
    /// process holds the lock.
    ///
    /// # Errors
    /// Returns an error if the file can't be opened or created, for example because the directory doesn't
    /// exist.
    pub fn try_take(path: &Path) -> io::Result<Option<Self>> {
        let file = open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_still_at(&file, path) => Ok(Some(Self(file))),
            Ok(()) | Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Acquires the exclusive lock on `path`, creating the file if necessary. Blocks while another process
    /// holds the lock.
    ///
    /// This doesn't poll: the kernel wakes us when the holder releases the lock or dies.
    ///
    /// # Errors
    /// Returns the errors of [`Self::try_take`].
    pub fn take(path: &Path) -> io::Result<Self> {
        loop {
            let file = open(path)?;
            rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
            if is_still_at(&file, path) {
                return Ok(Self(file));
            }
        }
    }

    /// Like [`Self::take`], but returns `None` if another process still holds the lock after the timeout `patience`.
    ///
    /// # Errors
    /// Returns the errors of [`Self::try_take`]. Also returns an error if no thread can be started.
    pub fn take_within(path: &Path, patience: Duration) -> io::Result<Option<Self>> {
        if let Some(lock) = Self::try_take(path)? {
            return Ok(Some(lock));
        }
        let (sender, receiver) = channel();
        let path = path.to_owned();
        // If the thread acquires the lock after the timeout, the receiver is gone, so the thread releases it
        // immediately.
        thread::Builder::new().spawn(move || sender.send(Self::take(&path)))?;
        receiver.recv_timeout(patience).ok().transpose()
    }

    /// Acquires a shared lock on `file`, which was opened from `path`. Returns `None` if another process
    /// holds the lock exclusively or has removed the file.
    pub fn share(file: File, path: &Path) -> io::Result<Option<Self>> {
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) if is_still_at(&file, path) => Ok(Some(Self(file))),
            Ok(()) | Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns true if any process currently holds the lock on `path`, and false if the file doesn't exist.
    pub fn is_held(path: &Path) -> io::Result<bool> {
        match File::open(path) {
            Ok(file) => match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => Ok(false),
                Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
                Err(error) => Err(error.into()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns true if the locked file is still at `path`.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        is_still_at(&self.0, path)
    }

    /// Duplicates the descriptor for [`crate::inherit`]. The duplicate also holds the lock.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Returns true if `file` is still at `path`. The lock's previous holder may have removed the file while we
/// were waiting. If so, our lock is useless, because other processes will lock a new file at `path`.
fn is_still_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(ours), Ok(named)) => ours.dev() == named.dev() && ours.ino() == named.ino(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::polling::poll_until;

    /// Returns true once the lock is free. A child that another test forks shares our locks until it runs its program.
    fn is_released(path: &Path) -> bool {
        poll_until(|| Ok(!Lock::is_held(path)?)).unwrap()
    }

    #[test]
    fn try_take_fails_until_first_lock_is_released() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = Lock::try_take(&path).unwrap().unwrap();
        assert!(Lock::try_take(&path).unwrap().is_none());
        assert!(Lock::is_held(&path).unwrap());
        drop(first);
        assert!(is_released(&path));
        assert!(Lock::try_take(&path).unwrap().is_some());
    }

    #[test]
    fn lock_wait_ends_at_release_or_timeout() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = Lock::take(&path).unwrap();
        assert!(Lock::take_within(&path, Duration::from_millis(20)).unwrap().is_none());
        let holder = thread::spawn(move || drop(first));
        assert!(Lock::take_within(&path, Duration::from_mins(1)).unwrap().is_some());
        holder.join().unwrap();
        assert!(Lock::take_within(&directory.path().join("no/lock"), Duration::ZERO).is_err());
    }

    #[test]
    fn shared_and_exclusive_locks_exclude_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        std::fs::write(&path, "").unwrap();
        let share = || Lock::share(File::open(&path).unwrap(), &path).unwrap();
        let (one, other) = (share().unwrap(), share().unwrap());
        drop(one);
        assert!(Lock::try_take(&path).unwrap().is_none());
        drop(other);
        assert!(is_released(&path));
        let taken = Lock::try_take(&path).unwrap().unwrap();
        assert!(share().is_none());
        drop(taken);
    }

    #[test]
    fn duplicate_descriptor_keeps_lock_after_original_closes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = Lock::try_take(&path).unwrap().unwrap();
        let duplicate = lock.descriptor().unwrap();
        drop(lock);
        assert!(Lock::is_held(&path).unwrap());
        drop(duplicate);
        assert!(is_released(&path));
    }

    #[test]
    fn lock_on_removed_file_blocks_no_new_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = Lock::take(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = Lock::take(&path).unwrap();
        assert!(Lock::is_held(&path).unwrap());
        drop((first, second));
    }
}
