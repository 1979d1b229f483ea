//! Cache entry: a complete, immutable directory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::attempt::{Attempt, FileError};
use crate::manifest::{File, Manifest};
use crate::replace::{replace, unless_read_only};

/// Limit for a note, in bytes. A longer file does not count as a note.
const LONGEST_NOTE: u64 = 64 << 20;

/// Complete, immutable directory in the cache. The cache does not evict it while any process holds a value of this
/// type.
#[derive(Debug, Clone)]
pub struct Entry {
    directory: PathBuf,
    manifest: Arc<Manifest>,
    in_use: Arc<sys::Lock>,
}

impl Entry {
    pub(crate) fn new(directory: PathBuf, manifest: Manifest, in_use: sys::Lock) -> Self {
        Self { directory, manifest: Arc::new(manifest), in_use: Arc::new(in_use) }
    }

    /// Returns the size of all files in bytes, including holes. A copy may grow to this size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.manifest.bytes()
    }

    /// Returns the size in bytes of the files directly in `directory`, including holes.
    #[must_use]
    pub fn bytes_in(&self, directory: &str) -> u64 {
        self.files_in(directory).map(|(file, _)| file.size).sum()
    }

    /// Returns the names of the files directly in `directory`.
    pub fn names_in<'a>(&'a self, directory: &'a str) -> impl Iterator<Item = &'a str> {
        self.files_in(directory).map(|(_, name)| name)
    }

    /// Returns the files directly in `directory`, with their names.
    pub(crate) fn files_in<'a>(&'a self, directory: &'a str) -> impl Iterator<Item = (&'a File, &'a str)> {
        self.manifest.files.iter().filter_map(move |file| {
            let (folder, name) = file.path.rsplit_once('/')?;
            (folder == directory).then_some((file, name))
        })
    }

    /// Whether `directory` has subdirectories.
    #[must_use]
    pub fn has_directories_in(&self, directory: &str) -> bool {
        let is_below = |path: &String| path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
        self.manifest.directories.iter().any(is_below)
    }

    /// Number of files.
    #[must_use]
    pub fn files(&self) -> usize {
        self.manifest.files.len()
    }

    /// Returns the path of the directory with the files. Callers must not write in it.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Returns the builder's description; empty if there is none.
    #[must_use]
    pub fn about(&self) -> String {
        fs::read_to_string(self.directory.join("about")).unwrap_or_default()
    }

    /// Returns a digest that differs between any two entries, even between builds of one fingerprint.
    #[must_use]
    pub fn identity(&self) -> String {
        blake3::hash(self.manifest.to_text().as_bytes()).to_hex().to_string()
    }

    /// Returns the note that a user of the entry left under `name`, if any.
    ///
    /// A rebuilt entry may have replaced this one, and the note may be about that. Notes about one build must include
    /// its [`Self::identity`].
    #[must_use]
    pub fn recall(&self, name: &str) -> Option<String> {
        let path = self.directory.join(name);
        let is_one = path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= LONGEST_NOTE);
        if is_one { fs::read_to_string(path).ok() } else { None }
    }

    /// Saves a note for the next process that uses the entry. Does nothing in a read-only cache. `name` must be a valid
    /// file name other than `data`, `about`, `manifest` and `verified`.
    pub fn remember(&self, name: &str, text: &str) -> Result<(), FileError> {
        unless_read_only(replace(&self.directory.join(name), text))
    }

    /// Returns the time of the last [`crate::Cache::look_up`].
    pub fn last_use(&self) -> Result<SystemTime, FileError> {
        let path = self.directory.join("manifest");
        path.metadata().and_then(|meta| meta.modified()).attempt("examine", &path)
    }

    /// Returns the bytes that the files occupy on disk, including blocks shared with other files. Examines each file.
    /// Missing files count as 0.
    pub fn occupied(&self) -> Result<u64, FileError> {
        let data = self.data();
        self.manifest.files.iter().try_fold(0, |sum, file| {
            let path = data.join(&file.path);
            match path.symlink_metadata() {
                Err(error) if sys::is_absent(&error) => Ok(sum),
                meta => Ok(sum + meta.attempt("examine", &path)?.blocks() * 512),
            }
        })
    }

    pub(crate) fn manifest(&self) -> Arc<Manifest> {
        Arc::clone(&self.manifest)
    }

    /// Returns the entry's name in the cache.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether the cache still has this entry, rather than a newer one of the same fingerprint.
    pub(crate) fn is_current(&self) -> bool {
        self.in_use.is_at(&self.directory.join("manifest"))
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}
