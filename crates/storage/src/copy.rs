//! Copying an entry's files to where a server will write in them: sharing blocks where the file system can, else with
//! all cores, inside the kernel, without its holes.
//!
//! Nothing is ever hard-linked: a server writes in place.

use std::cell::Cell;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, io};

use sys::Directory;

use crate::Account;
use crate::attempt::Attempt;
use crate::entry::Entry;
use crate::error::CopyError;
use crate::manifest::{self, Manifest};
use crate::tree::{self, Tree};
use crate::verified::Verified;

/// Bytes moved at once: between two looks at whether to stop, and at progress.
const CHUNK: u64 = 32 << 20;
/// How often the observer of a copy hears of it.
const BEAT: Duration = Duration::from_millis(100);

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

/// Files that may still be on their way when [`Copying::begin`] returns.
#[derive(Debug, Clone, Copy)]
pub struct Deferred<'a> {
    /// Those whose path starts so are copied in the background.
    pub below: &'a str,
    /// Those of this name are copied once all others are there, unless the user of the copy has made them by then.
    pub last: Option<&'a str>,
}

/// A copy under way. Dropping it stops the copy soon and waits for that.
#[derive(Debug)]
pub struct Copying {
    job: Arc<Job>,
    /// Files that wait until all others are there: their numbers in the manifest.
    last: Vec<usize>,
    threads: Vec<JoinHandle<Result<(), CopyError>>>,
    /// Disconnected when all threads have ended.
    ended: Receiver<()>,
}

/// What the threads of one copy share.
#[derive(Debug)]
struct Job {
    manifest: Arc<Manifest>,
    /// The files still to be copied: their numbers in the manifest.
    files: Vec<usize>,
    from: Tree,
    to: Tree,
    account: Account,
    method: Method,
    verified: Verified,
    /// Whether bytes were compared for the first time.
    compared: AtomicBool,
    next: AtomicUsize,
    /// Bytes physically written.
    bytes: AtomicU64,
    /// Bytes of `files` that are where they belong, counting holes and shared blocks; a little behind.
    done: AtomicU64,
    stop: AtomicBool,
}

impl Copying {
    /// Makes `to` and copies the files of `entry` into it. When this returns, all directories are there, and all files but
    /// those that are deferred.
    ///
    /// The background threads leave one core to the caller, who has something to do meanwhile.
    pub fn begin(
        entry: &Entry,
        to: &Path,
        account: &Account,
        deferred: Deferred<'_>,
    ) -> Result<Self, CopyError> {
        let manifest = entry.manifest();
        let data = entry.data();
        let top = tree::reach(Directory::open(&data), &data)?;
        let from = Tree::open(&data, top, &manifest)?;
        let to = Tree::make(to, &manifest, account)?;
        let path = |&index: &usize| manifest.files[index].path.as_str();
        let is_last = |index: &usize| path(index).rsplit('/').next() == deferred.last;
        let (last, others): (Vec<_>, Vec<_>) = (0..manifest.files.len()).partition(is_last);
        let (behind, first): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|index| path(index).starts_with(deferred.below));
        let mut job = Job {
            manifest,
            files: first,
            from,
            to,
            account: account.clone(),
            method: Method::Reflink,
            verified: Verified::of(entry.directory()),
            compared: AtomicBool::new(false),
            next: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        };
        job.prove_method()?;
        job.work(&|| ())?;
        job.files = behind;
        job.next = AtomicUsize::new(0);
        job.done = AtomicU64::new(0);
        let job = Arc::new(job);
        let (running, ended) = channel();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..cores.saturating_sub(1).clamp(1, 8))
            .map(|_| {
                let (job, running) = (Arc::clone(&job), running.clone());
                std::thread::spawn(move || {
                    let _running = running;
                    job.work(&|| ())
                })
            })
            .collect();
        Ok(Self { job, last, threads, ended })
    }

    /// Waits until every file is there, lending a hand. `watch` hears now and then how many bytes of how many are,
    /// of the files that were left to the background.
    pub fn finish(mut self, watch: &dyn Fn(u64, u64)) -> Result<Copied, CopyError> {
        let size = |&index: &usize| self.job.manifest.files[index].size;
        let total = self.job.files.iter().chain(&self.last).map(size).sum();
        let report = || watch(self.job.done.load(Ordering::Relaxed), total);
        let last = Cell::new(Instant::now());
        let beat = || {
            if last.get().elapsed() >= BEAT {
                last.set(Instant::now());
                report();
            }
        };
        let mut result = self.job.work(&beat);
        while self.ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
            report();
        }
        for thread in self.threads.drain(..) {
            result = result.and(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        result?;
        for index in std::mem::take(&mut self.last) {
            match self.job.copy_file(index, &beat) {
                Err(CopyError::File(error)) if error.kind() == io::ErrorKind::AlreadyExists => {}
                copied => drop(copied?),
            }
        }
        if self.job.compared.load(Ordering::Relaxed) {
            self.job.verified.renew();
        }
        Ok(Copied {
            method: self.job.method,
            files: self.job.manifest.files.len(),
            bytes: self.job.bytes.load(Ordering::Relaxed),
        })
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        self.job.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that copies has panicked");
            }
        }
    }
}

impl Job {
    /// Copies the first file that has bytes, to see whether the two places can share blocks.
    fn prove_method(&mut self) -> Result<(), CopyError> {
        let with_bytes = |&index: &usize| self.manifest.files[index].size > 0;
        let Some(at) = self.files.iter().position(with_bytes) else { return Ok(()) };
        let index = self.files.swap_remove(at);
        self.method = self.copy_file(index, &|| ())?;
        Ok(())
    }

    /// Takes one file after another until none is left, and calls `beat` often meanwhile.
    fn work(&self, beat: &dyn Fn()) -> Result<(), CopyError> {
        while !self.stop.load(Ordering::Relaxed) {
            let Some(&index) = self.files.get(self.next.fetch_add(1, Ordering::Relaxed)) else { break };
            if let Err(error) = self.copy_file(index, beat) {
                self.stop.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    }

    fn copy_file(&self, index: usize, beat: &dyn Fn()) -> Result<Method, CopyError> {
        let file = &self.manifest.files[index];
        let source = self.from.root.join(&file.path);
        let Some((folder, name)) = self.manifest.folder_of(&file.path) else {
            return Err(CopyError::Damaged { path: source, what: "lies in no directory of the entry" });
        };
        let from = tree::reach(self.from.directories[folder].file(name), &source)?;
        let (stored, compared) = check(file, &from, source, &self.verified)?;
        self.compared.fetch_or(compared, Ordering::Relaxed);

        let target = self.to.root.join(&file.path);
        let to = self.to.directories[folder].create_file(name).attempt("create", &target)?;
        self.account.give(&to).attempt("change the owner of", &target)?;
        if file.size == 0 {
            return Ok(self.method);
        }
        if self.method == Method::Reflink && sys::reflink(&from, &to).attempt("clone", &target)? {
            self.done.fetch_add(file.size, Ordering::Relaxed);
            return Ok(Method::Reflink);
        }
        if stored < file.size {
            self.copy_extents(&from, &to, file.size, beat).attempt("write", &target)?;
        } else {
            self.transfer(&from, &to, file.size, beat).attempt("write", &target)?;
        }
        Ok(Method::Copy)
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
fn check(
    file: &manifest::File,
    from: &fs::File,
    path: PathBuf,
    verified: &Verified,
) -> Result<(u64, bool), CopyError> {
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

impl Account {
    /// Gives a file that we made to this account, where that is not ours anyway.
    pub(crate) fn give(&self, file: impl std::os::fd::AsFd) -> io::Result<()> {
        if self.foreign {
            fchown(file, Some(self.uid), Some(self.gid))?;
        }
        Ok(())
    }
}
