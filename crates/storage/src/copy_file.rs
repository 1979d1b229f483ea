//! Copies a single file of an entry. If the file system supports it, the copy shares the file's blocks.
//! Otherwise, the kernel copies the bytes and preserves the holes.

use std::io::{Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{fs, io};

use sys::Directory;

use crate::Account;
use crate::entry::Entry;
use crate::error::CopyError;
use crate::file_error::Attempt;
use crate::manifest::{self, File};
use crate::tree;
use crate::verified::Verified;

/// Number of bytes in each copy call. Between calls, the copier reports progress and checks for cancellation.
const CHUNK: u64 = 32 << 20;

/// How the bytes were copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The files share blocks until one of them is modified (`FICLONE`, `clonefile`).
    Reflink,
    /// The bytes were copied, so the files share no blocks.
    Copy,
}

/// The result of a complete copy.
#[derive(Debug, Clone, Copy)]
pub struct Copied {
    /// The method that worked for the first non-empty file.
    pub method: Method,
    /// Number of files created, including empty ones.
    pub files: usize,
    /// Number of bytes physically written. Reflinks and holes count as 0.
    pub bytes: u64,
}

/// Copies an entry's files and makes one account their owner.
#[derive(Debug)]
pub(crate) struct FileCopier {
    account: Account,
    /// The method to try first.
    pub(crate) method: Method,
    verified: Verified,
    /// True once at least one file has been compared with its digest.
    compared: AtomicBool,
    /// Number of bytes physically written.
    bytes: AtomicU64,
    /// Number of bytes already in the target, including holes and shared blocks. The actual number can be
    /// higher by up to one chunk per file in progress.
    pub(crate) done: AtomicU64,
    /// If set, the copy stops after the current chunk.
    pub(crate) stop: AtomicBool,
}

/// The open directory that contains a file, and the file's full path for error messages.
pub(crate) type Location<'a> = (&'a Directory, PathBuf);

impl FileCopier {
    pub(crate) fn new(entry: &Entry, account: &Account) -> Self {
        Self {
            account: account.clone(),
            method: Method::Reflink,
            verified: Verified::of(entry.directory()),
            compared: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// Copies `file`, which is called `name` in both directories. Calls `beat` after each chunk.
    pub(crate) fn copy(
        &self,
        file: &File,
        name: &str,
        (source, source_path): Location<'_>,
        (target, path): Location<'_>,
        beat: &dyn Fn(),
    ) -> Result<Method, CopyError> {
        let from = tree::with_path(source.file(name), &source_path)?;
        let (stored, compared) = check(file, &from, source_path, &self.verified)?;
        self.compared.fetch_or(compared, Ordering::Relaxed);

        if file.size > 0
            && self.method == Method::Reflink
            && let Some(to) = target.clone_file(name, &from).attempt("clone", &path)?
        {
            self.account.change_owner(&to).attempt("change the owner of", &path)?;
            self.done.fetch_add(file.size, Ordering::Relaxed);
            return Ok(Method::Reflink);
        }
        let to = target.create_file(name).attempt("create", &path)?;
        self.account.change_owner(&to).attempt("change the owner of", &path)?;
        if file.size == 0 {
            return Ok(self.method);
        }
        if stored < file.size {
            self.copy_extents(&from, &to, file.size, beat).attempt("write", &path)?;
        } else {
            self.transfer(&from, &to, file.size, beat).attempt("write", &path)?;
        }
        Ok(Method::Copy)
    }

    /// Records that the whole entry is undamaged, provided that this copy compared at least one file with its
    /// digest. Call this only after all files have been copied.
    pub(crate) fn record_comparison(&self) {
        if self.compared.load(Ordering::Relaxed) {
            self.verified.record_now();
        }
    }

    /// Returns the result of a copy that consists of `files` files.
    pub(crate) fn copied(&self, files: usize) -> Copied {
        Copied { method: self.method, files, bytes: self.bytes.load(Ordering::Relaxed) }
    }

    /// Copies the data in a sparse file, preserving its holes.
    fn copy_extents(&self, from: &fs::File, to: &fs::File, size: u64, beat: &dyn Fn()) -> io::Result<()> {
        let mut at = 0;
        while at < size {
            let start = sys::next_data(from, at)?.unwrap_or(size);
            self.done.fetch_add(start - at, Ordering::Relaxed);
            at = start;
            if start < size {
                at = sys::next_hole(from, start)?;
                (&mut &*from).seek(SeekFrom::Start(start))?;
                (&mut &*to).seek(SeekFrom::Start(start))?;
                self.transfer(from, to, at - start, beat)?;
            }
        }
        to.set_len(size)
    }

    /// Copies `length` bytes. Stops early at the end of the file, or when [`Self::stop`] is set.
    fn transfer(&self, from: &fs::File, to: &fs::File, length: u64, beat: &dyn Fn()) -> io::Result<()> {
        let mut left = length;
        while left > 0 && !self.stop.load(Ordering::Relaxed) {
            let moved = sys::transfer(from, to, left.min(CHUNK))?;
            self.bytes.fetch_add(moved, Ordering::Relaxed);
            self.done.fetch_add(moved, Ordering::Relaxed);
            if moved == 0 {
                break;
            }
            left -= moved;
            beat();
        }
        Ok(())
    }
}

/// Checks an open file against its line in the manifest. Returns the number of bytes it occupies on disk, and
/// whether its content was read and compared.
///
/// The size is always compared. The content is compared only if the file may have changed since the last
/// comparison or if its modification time differs from the manifest. The latter happens when the entry was
/// unpacked from an archive without times.
fn check(file: &File, from: &fs::File, path: PathBuf, verified: &Verified) -> Result<(u64, bool), CopyError> {
    let meta = from.metadata().attempt("examine", &path)?;
    if meta.len() != file.size {
        return Err(CopyError::Damaged { path, what: "has another size than when it was published" });
    }
    let compare =
        file.size > 0 && (manifest::modified(&meta) != file.modified || !verified.is_verified(&meta));
    if compare {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(from).attempt("read", &path)?;
        if hasher.finalize() != file.digest {
            return Err(CopyError::Damaged { path, what: "has other bytes than when it was published" });
        }
        (&mut &*from).rewind().attempt("rewind", &path)?;
    }
    Ok((meta.blocks().saturating_mul(512), compare))
}
