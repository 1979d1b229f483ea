//! Copies an entry's files to a data directory. Since this is the largest part of a server's startup, it uses
//! all cores. If the file system can share blocks between files, no bytes are copied.
//!
//! Files are never hard-linked, because a server modifies its files in place.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sys::Directory;

use crate::Account;
use crate::copy_file::{Copied, FileCopier, Method};
use crate::entry::Entry;
use crate::error::CopyError;
use crate::manifest::Manifest;
use crate::tree::{self, Tree};

/// Minimum interval between two progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Selects the files that [`BackgroundCopy::begin`] leaves to background threads or to [`BackgroundCopy::finish`].
#[derive(Debug, Clone, Copy)]
pub struct Deferred<'a> {
    /// Files whose path starts with this prefix are copied by background threads.
    pub below: &'a str,
    /// Files with this name are copied after all others. If the server has already created a file at the same
    /// path, it isn't overwritten.
    pub last: Option<&'a str>,
}

/// A copy in progress. Dropping it cancels the copy and waits for its threads.
#[derive(Debug)]
pub struct BackgroundCopy {
    job: Arc<Job>,
    /// Indexes (in the manifest) of the files to copy last.
    last: Vec<usize>,
    threads: Vec<JoinHandle<Result<(), CopyError>>>,
    /// Disconnects when the last thread has finished.
    ended: Receiver<()>,
}

/// The state shared by the threads of one copy.
#[derive(Debug)]
struct Job {
    manifest: Arc<Manifest>,
    /// Indexes (in the manifest) of the files to copy.
    files: Vec<usize>,
    from: Tree,
    to: Tree,
    copier: FileCopier,
    next: AtomicUsize,
}

impl BackgroundCopy {
    /// Creates the data directory `to` with all its subdirectories and copies the files that aren't deferred.
    /// Then starts background threads that copy the rest.
    ///
    /// The threads leave one core to the caller.
    ///
    /// # Errors
    /// Returns [`CopyError::Damaged`] if the entry differs from its manifest, and [`CopyError::File`] if a
    /// file can't be read or written. The files copied so far stay.
    pub fn begin(
        entry: &Entry,
        to: &Path,
        account: &Account,
        deferred: Deferred<'_>,
    ) -> Result<Self, CopyError> {
        let manifest = entry.manifest();
        let data = entry.data();
        let top = tree::with_path(Directory::open(&data), &data)?;
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
            copier: FileCopier::new(entry, account),
            next: AtomicUsize::new(0),
        };
        job.choose_method()?;
        job.copy_files(&|| ())?;
        job.files = behind;
        job.next = AtomicUsize::new(0);
        job.copier.done = AtomicU64::new(0);
        let job = Arc::new(job);
        let (running, ended) = channel();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..cores.saturating_sub(1).clamp(1, 8))
            .filter_map(|_| {
                let (job, running) = (Arc::clone(&job), running.clone());
                let work = move || {
                    let _running = running;
                    job.copy_files(&|| ())
                };
                // `finish` also copies files, so a thread that fails to start only costs time.
                std::thread::Builder::new().spawn(work).ok()
            })
            .collect();
        Ok(Self { job, last, threads, ended })
    }

    /// Helps the threads copy until all files are complete. Calls `watch` at most every 100 ms with the
    /// number of bytes copied so far and the total. Both numbers cover only the deferred files.
    ///
    /// # Errors
    /// Returns the first error of any thread, of the same kinds as [`Self::begin`]. The files copied so far
    /// stay.
    pub fn finish(mut self, watch: &dyn Fn(u64, u64)) -> Result<Copied, CopyError> {
        let size = |&index: &usize| self.job.manifest.files[index].size;
        let total = self.job.files.iter().chain(&self.last).map(size).sum();
        let report = || watch(self.job.copier.done.load(Ordering::Relaxed), total);
        let last = Cell::new(Instant::now());
        let beat = || {
            if last.get().elapsed() >= PROGRESS_INTERVAL {
                last.set(Instant::now());
                report();
            }
        };
        let mut result = self.job.copy_files(&beat);
        while self.ended.recv_timeout(PROGRESS_INTERVAL) == Err(RecvTimeoutError::Timeout) {
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
        self.job.copier.record_comparison();
        Ok(self.job.copier.copied(self.job.manifest.files.len()))
    }
}

impl Drop for BackgroundCopy {
    fn drop(&mut self) {
        self.job.copier.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that copies has panicked");
            }
        }
    }
}

impl Job {
    /// Copies the first non-empty file, to find out whether the source and the target can share blocks.
    fn choose_method(&mut self) -> Result<(), CopyError> {
        let with_bytes = |&index: &usize| self.manifest.files[index].size > 0;
        let Some(at) = self.files.iter().position(with_bytes) else { return Ok(()) };
        let index = self.files.swap_remove(at);
        self.copier.method = self.copy_file(index, &|| ())?;
        Ok(())
    }

    /// Copies files until none is left. Calls `beat` after each chunk.
    fn copy_files(&self, beat: &dyn Fn()) -> Result<(), CopyError> {
        while !self.copier.stop.load(Ordering::Relaxed) {
            let Some(&index) = self.files.get(self.next.fetch_add(1, Ordering::Relaxed)) else { break };
            if let Err(error) = self.copy_file(index, beat) {
                self.copier.stop.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    }

    fn copy_file(&self, index: usize, beat: &dyn Fn()) -> Result<Method, CopyError> {
        let file = &self.manifest.files[index];
        let Some((folder, name)) = self.manifest.parent_of(&file.path) else {
            let path = self.from.root.join(&file.path);
            return Err(CopyError::Damaged { path, what: "is not in a directory of the entry" });
        };
        let [from, to] =
            [&self.from, &self.to].map(|tree| (&tree.directories[folder], tree.root.join(&file.path)));
        self.copier.copy(file, name, from, to, beat)
    }
}
