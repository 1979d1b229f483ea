//! Implements the floor for every start: the minimum work that any program has to do.
//!
//! The floor copies all bytes with all CPUs, then boots the server. It doesn't look anything up, doesn't have a guard
//! and doesn't check anything. Unlike pgfresh, it doesn't boot the server during the copy.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{Gid, Mode, OFlags, SeekFrom, Uid, fchown, mkdirat, openat, seek};
use storage::{Account, Attempt, FileError};

/// A file tree, which is listed before the measurement.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    /// The tree's directories. Each directory comes after its parent, starting with the root.
    directories: Vec<PathBuf>,
    /// The tree's files. Each entry has the index of the file's directory and the file's name in that directory.
    files: Vec<(usize, PathBuf)>,
}

impl Tree {
    /// Lists all directories and files below `root`.
    pub(crate) fn list(root: &Path) -> Result<Self, FileError> {
        let mut tree = Self { root: root.to_owned(), directories: vec![PathBuf::new()], files: Vec::new() };
        let mut next = 0;
        while let Some(directory) = tree.directories.get(next).cloned() {
            let path = root.join(&directory);
            for entry in fs::read_dir(&path).attempt("read", &path)?.flatten() {
                if entry.file_type().attempt("examine", &path)?.is_dir() {
                    tree.directories.push(directory.join(entry.file_name()));
                } else {
                    tree.files.push((next, entry.file_name().into()));
                }
            }
            next += 1;
        }
        Ok(tree)
    }

    /// Copies the tree to `to`, using all CPUs.
    pub(crate) fn copy(&self, to: &Path, account: &Account) -> Result<(), FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &Path| rustix::fs::open(path, flags, Mode::empty()).attempt("open", path);
        let mut folders = Vec::with_capacity(self.directories.len());
        for directory in &self.directories {
            let path = if directory.as_os_str().is_empty() { to.to_owned() } else { to.join(directory) };
            mkdirat(rustix::fs::CWD, &path, Mode::RWXU).attempt("create", &path)?;
            let made = open(&path)?;
            change_owner(account, &made).attempt("change the owner of", &path)?;
            folders.push((open(&self.root.join(directory))?, made));
        }
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((folder, name)) = self.files.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (from, to) = &folders[*folder];
                copy_file(from, to, name, account).attempt("copy", &self.root.join(name))?;
            }
            Ok(())
        };
        let others = std::thread::available_parallelism().map_or(0, |cores| cores.get() - 1);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..others).map(|_| scope.spawn(work)).collect();
            threads.into_iter().fold(work(), |result, thread| {
                result.and(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })
        })
    }
}

/// Copies the parts of a file that contain data, preserving the holes between them.
fn copy_file(from: &OwnedFd, to: &OwnedFd, name: &Path, account: &Account) -> io::Result<()> {
    let from = File::from(openat(from, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let to = File::from(openat(to, name, flags, Mode::RUSR | Mode::WUSR)?);
    change_owner(account, &to)?;
    let stat = rustix::fs::fstat(&from)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let stored = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
    let mut at = 0;
    while at < size {
        let mut end = size;
        if stored < size {
            at = match seek(&from, SeekFrom::Data(at)) {
                Err(rustix::io::Errno::NXIO) => break,
                other => other?,
            };
            end = seek(&from, SeekFrom::Hole(at))?;
            seek(&from, SeekFrom::Start(at))?;
            seek(&to, SeekFrom::Start(at))?;
        }
        if sys::transfer(&from, &to, end - at)? < end - at {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        at = end;
    }
    if stored < size { to.set_len(size) } else { Ok(()) }
}

fn change_owner(account: &Account, file: impl std::os::fd::AsFd) -> io::Result<()> {
    if account.foreign {
        fchown(file, Some(Uid::from_raw(account.uid)), Some(Gid::from_raw(account.gid)))?;
    }
    Ok(())
}
