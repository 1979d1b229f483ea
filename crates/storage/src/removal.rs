//! Removes many files quickly, on all cores and within a time limit. Otherwise, every test run would have to
//! wait for its server's files to be removed.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sys::{Directory, FileKind};

use crate::file_error::{Attempt, FileError};

/// Background threads that remove the files in each subdirectory of a directory. They only
/// give the later removal of the whole tree a head start, so their errors don't matter.
///
/// The threads leave one core to the caller. Dropping this value stops the threads and waits for them.
#[derive(Debug)]
pub struct BackgroundRemoval {
    job: Arc<Job>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Job {
    folders: Vec<Directory>,
    /// The files to remove. Each consists of its directory's index in [`Self::folders`] and its name in that
    /// directory.
    files: Vec<(usize, OsString)>,
    next: AtomicUsize,
    stop: AtomicBool,
}

impl BackgroundRemoval {
    /// Starts removing the files in each subdirectory of `root`/`name`, without following links below `root`.
    #[must_use]
    pub fn begin(root: &Path, name: &str) -> Self {
        let job = Arc::new(Job::list(root, name).unwrap_or_default());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..cores.saturating_sub(1).clamp(1, 4))
            .filter_map(|_| {
                let job = Arc::clone(&job);
                // `finish` also removes files, so a thread that fails to start only costs time.
                std::thread::Builder::new().spawn(move || job.remove_files(None)).ok()
            })
            .collect();
        Self { job, threads }
    }

    /// Helps the threads remove files until all files are gone or `timeout` expires.
    pub fn finish(self, timeout: Duration) {
        self.job.remove_files(Some(Instant::now() + timeout));
    }
}

impl Drop for BackgroundRemoval {
    fn drop(&mut self) {
        self.job.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that removes has panicked");
            }
        }
    }
}

impl Job {
    fn list(root: &Path, name: &str) -> io::Result<Self> {
        let parent = Directory::open(root)?.directory(name)?;
        let mut job = Self::default();
        let mut places = Vec::new();
        for (name, kind) in parent.entries()? {
            if kind != FileKind::Directory {
                continue;
            }
            let Ok(folder) = parent.directory(&name) else { continue };
            let files = folder.entries()?.into_iter().filter(|(_, kind)| *kind == FileKind::File);
            places.extend(files.enumerate().map(|(place, (name, _))| (place, job.folders.len(), name)));
            job.folders.push(folder);
        }
        // Alternate between directories: the kernel has one lock per directory, so concurrent removals in the
        // same directory would block each other.
        places.sort_unstable_by_key(|(place, folder, _)| (*place, *folder));
        job.files = places.into_iter().map(|(_, folder, name)| (folder, name)).collect();
        Ok(job)
    }

    #[expect(
        clippy::let_underscore_must_use,
        reason = "what is left, such as a directory, is for the process that removes the tree"
    )]
    fn remove_files(&self, end: Option<Instant>) {
        while !self.stop.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end) {
            let Some((folder, name)) = self.files.get(self.next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            let _ = self.folders[*folder].remove_file(name);
        }
    }
}

/// Removes a directory tree. A missing tree isn't an error, nor is a concurrent removal by another process.
pub(crate) fn remove_tree(path: &Path) -> Result<(), FileError> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    // The `.` makes this call follow links in the parent directory's path. Links inside the tree are never
    // followed.
    match Directory::open(&folder.join(".")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.and_then(|folder| folder.remove_tree(name)).attempt("remove", path),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn removal_deletes_only_files_one_level_below() {
        let directory = tempfile::tempdir().unwrap();
        let root = &directory.path().join("root");
        fs::create_dir(root).unwrap();
        for folder in ["1", "2", "2/deep"] {
            fs::create_dir(root.join(folder)).unwrap();
            for name in 0..50 {
                fs::write(root.join(folder).join(name.to_string()), "x").unwrap();
            }
        }
        fs::write(root.join("top"), "x").unwrap();
        BackgroundRemoval::begin(directory.path(), "root").finish(Duration::from_mins(1));
        let count = |folder: &str| fs::read_dir(root.join(folder)).unwrap().count();
        assert_eq!((count("1"), count("2"), count("2/deep")), (0, 1, 50));
        assert!(root.join("top").exists());
        BackgroundRemoval::begin(root, "missing").finish(Duration::from_mins(1));
    }

    #[test]
    fn removal_ends_at_its_timeout() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("root/1")).unwrap();
        for name in 0..2000 {
            fs::write(directory.path().join("root/1").join(name.to_string()), "").unwrap();
        }
        let begun = Instant::now();
        BackgroundRemoval::begin(directory.path(), "root").finish(Duration::ZERO);
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
