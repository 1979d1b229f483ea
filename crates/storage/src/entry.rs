//! Provides read access to a cache entry, which is a complete, immutable directory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::file_error::{Attempt, FileError};
use crate::manifest::{File, Manifest};
use crate::replace::{ignore_read_only, replace_file};

/// Maximum size of a saved text, in bytes. Longer files are ignored.
const MAX_TEXT_SIZE: u64 = 64 << 20;

/// A complete, immutable directory in the cache. As long as any process holds a value of this type, the cache
/// doesn't evict the entry.
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

    /// Returns the total size of all files in bytes, including holes. A copy can grow to this size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.manifest.bytes()
    }

    /// Returns the total size of the files directly in `directory` in bytes, including holes.
    #[must_use]
    pub fn bytes_in(&self, directory: &str) -> u64 {
        self.files_in(directory).map(|(file, _)| file.size).sum()
    }

    /// Returns the names of the files directly in `directory`.
    pub fn names_in<'a>(&'a self, directory: &'a str) -> impl Iterator<Item = &'a str> {
        self.files_in(directory).map(|(_, name)| name)
    }

    /// Returns the files directly in `directory`, each with its name.
    pub(crate) fn files_in<'a>(&'a self, directory: &'a str) -> impl Iterator<Item = (&'a File, &'a str)> {
        self.manifest.files.iter().filter_map(move |file| {
            let (folder, name) = file.path.rsplit_once('/')?;
            (folder == directory).then_some((file, name))
        })
    }

    /// Returns true if `directory` has subdirectories.
    #[must_use]
    pub fn has_directories_in(&self, directory: &str) -> bool {
        let is_below = |path: &String| path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
        self.manifest.directories.iter().any(is_below)
    }

    /// Returns the number of files.
    #[must_use]
    pub fn files(&self) -> usize {
        self.manifest.files.len()
    }

    /// Returns the path of the directory with the files. Callers must not write to it.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Returns the builder's description, or an empty string if the builder didn't provide one.
    #[must_use]
    pub fn about(&self) -> String {
        fs::read_to_string(self.directory.join("about")).unwrap_or_default()
    }

    /// Returns a digest that differs between any two entries, even between two builds with the same
    /// fingerprint.
    #[must_use]
    pub fn identity(&self) -> String {
        blake3::hash(self.manifest.to_text().as_bytes()).to_hex().to_string()
    }

    /// Returns the text that [`Self::remember`] saved under `name`, if any.
    ///
    /// If the entry was rebuilt in the meantime, the saved text can describe the newer build. Text about one
    /// specific build must therefore contain that build's [`Self::identity`].
    #[must_use]
    pub fn recall(&self, name: &str) -> Option<String> {
        let path = self.directory.join(name);
        let is_one = path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= MAX_TEXT_SIZE);
        if is_one { fs::read_to_string(path).ok() } else { None }
    }

    /// Saves `text` for the next process that uses the entry. Does nothing if the cache is read-only. `name`
    /// must be a valid file name other than `data`, `about`, `manifest` and `verified`.
    ///
    /// # Errors
    /// Returns an error if the file can't be written. An earlier text stays in that case.
    pub fn remember(&self, name: &str, text: &str) -> Result<(), FileError> {
        ignore_read_only(replace_file(&self.directory.join(name), text))
    }

    /// Returns the time of the last [`crate::Cache::look_up`].
    ///
    /// # Errors
    /// Returns the error of the file system, with the path.
    pub fn last_use(&self) -> Result<SystemTime, FileError> {
        let path = self.directory.join("manifest");
        path.metadata().and_then(|meta| meta.modified()).attempt("examine", &path)
    }

    /// Returns the number of bytes that the files occupy on disk, including blocks shared with other files.
    /// Missing files count as 0. This is slow for a large entry, because it examines each file.
    ///
    /// # Errors
    /// Returns the error of the file system, with the path.
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

    /// Returns true if this entry is still in the cache, and false if it was removed or replaced by a newer
    /// entry with the same fingerprint.
    pub(crate) fn is_current(&self) -> bool {
        self.in_use.is_at(&self.directory.join("manifest"))
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}
