//! Copying one file of an entry: its blocks are shared where the file system can do that, else its bytes are moved inside the
//! kernel, without its holes.

use std::io::{Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{fs, io};

use sys::Directory;

use crate::Account;
use crate::attempt::Attempt;
use crate::entry::Entry;
use crate::error::CopyError;
use crate::manifest::{self, File};
use crate::tree;
use crate::verified::Verified;

/// Bytes moved at once: between two looks at whether to stop, and at progress.
const CHUNK: u64 = 32 << 20;

/// How the bytes came to where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Blocks are shared until one side writes (`FICLONE`).
    Reflink,
    /// All bytes are there twice.
    Copy,
}

/// What a finished copy did.
#[derive(Debug, Clone, Copy)]
pub struct Copied {
    /// Proven on the first file that has bytes.
    pub method: Method,
    /// Files made, empty ones too.
    pub files: usize,
    /// Bytes physically written: none for a reflink or a hole.
    pub bytes: u64,
}

/// Copies files of one entry for one account.
#[derive(Debug)]
pub(crate) struct FileCopier {
    account: Account,
    /// What is tried first.
    pub(crate) method: Method,
    verified: Verified,
    /// Whether bytes were compared for the first time.
    compared: AtomicBool,
    /// Bytes physically written.
    bytes: AtomicU64,
    /// Bytes that are where they belong, counting holes and shared blocks; a little behind.
    pub(crate) done: AtomicU64,
    /// Whether copying ends soon, in the middle of a file, too.
    pub(crate) stop: AtomicBool,
}

/// A file's directory, held open, and its whole path for people.
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

    /// Makes a copy of `file`, called `name` in both places, and calls `beat` often meanwhile.
    pub(crate) fn copy(
        &self,
        file: &File,
        name: &str,
        (source, source_path): Location<'_>,
        (target, path): Location<'_>,
        beat: &dyn Fn(),
    ) -> Result<Method, CopyError> {
        let from = tree::reach(source.file(name), &source_path)?;
        let (stored, compared) = check(file, &from, source_path, &self.verified)?;
        self.compared.fetch_or(compared, Ordering::Relaxed);

        let to = target.create_file(name).attempt("create", &path)?;
        self.account.give(&to).attempt("change the owner of", &path)?;
        if file.size == 0 {
            return Ok(self.method);
        }
        if self.method == Method::Reflink && sys::reflink(&from, &to).attempt("clone", &path)? {
            self.done.fetch_add(file.size, Ordering::Relaxed);
            return Ok(Method::Reflink);
        }
        if stored < file.size {
            self.copy_extents(&from, &to, file.size, beat).attempt("write", &path)?;
        } else {
            self.transfer(&from, &to, file.size, beat).attempt("write", &path)?;
        }
        Ok(Method::Copy)
    }

    /// Takes note that the whole entry is undamaged, once all its files were copied.
    pub(crate) fn note_comparison(&self) {
        if self.compared.load(Ordering::Relaxed) {
            self.verified.renew();
        }
    }

    /// What was done, once all of the `files` are there.
    pub(crate) fn copied(&self, files: usize) -> Copied {
        Copied { method: self.method, files, bytes: self.bytes.load(Ordering::Relaxed) }
    }

    /// Copies what is stored of a file with holes, and keeps the holes.
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

    /// Copies `length` bytes, or fewer if the file ends or the caller wants it to stop.
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

/// Compares an opened file of an entry with its manifest; returns the bytes that it occupies, and whether all were read.
///
/// The time of a file may be lost on the way (an archive of the cache that was unpacked): its bytes decide then, as
/// they do where they were never compared.
fn check(file: &File, from: &fs::File, path: PathBuf, verified: &Verified) -> Result<(u64, bool), CopyError> {
    let meta = from.metadata().attempt("examine", &path)?;
    if meta.len() != file.size {
        return Err(CopyError::Damaged { path, what: "has another size than when it was published" });
    }
    let compare = file.size > 0 && (manifest::modified(&meta) != file.modified || !verified.covers(&meta));
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
