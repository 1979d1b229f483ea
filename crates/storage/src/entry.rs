//! An entry of the cache: a complete, immutable directory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::attempt::{Attempt, FileError};
use crate::manifest::{File, Manifest};
use crate::replace::{replace, unless_read_only};

/// What is longer is no note, in bytes.
const LONGEST_NOTE: u64 = 64 << 20;

/// A complete, immutable directory in the cache. It is not evicted as long as a value of this is alive anywhere.
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

    /// Bytes of all files, counting holes: what a copy may come to occupy.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.manifest.bytes()
    }

    /// The same of the files in one directory.
    #[must_use]
    pub fn bytes_in(&self, directory: &str) -> u64 {
        self.files_in(directory).map(|(file, _)| file.size).sum()
    }

    /// The names of the files in one directory, by its path.
    pub fn names_in<'a>(&'a self, directory: &'a str) -> impl Iterator<Item = &'a str> {
        self.files_in(directory).map(|(_, name)| name)
    }

    /// The files in one directory with their names; not those of directories in it.
    pub(crate) fn files_in<'a>(&'a self, directory: &'a str) -> impl Iterator<Item = (&'a File, &'a str)> {
        self.manifest.files.iter().filter_map(move |file| {
            let (folder, name) = file.path.rsplit_once('/')?;
            (folder == directory).then_some((file, name))
        })
    }

    /// Whether there are directories in one, by its path.
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

    /// The directory with the files. Read it, never write in it.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// What its maker wrote about it; empty if that was nothing.
    #[must_use]
    pub fn about(&self) -> String {
        fs::read_to_string(self.directory.join("about")).unwrap_or_default()
    }

    /// Tells it from every other one, also from one of the same name that was made before or after it.
    #[must_use]
    pub fn identity(&self) -> String {
        blake3::hash(self.manifest.to_text().as_bytes()).to_hex().to_string()
    }

    /// A note that was left under its name, if there is one. Another one of the same name may have taken its place meanwhile:
    /// what holds for this one alone has its [`Self::identity`] in it.
    #[must_use]
    pub fn recall(&self, name: &str) -> Option<String> {
        let path = self.directory.join(name);
        let is_one = path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= LONGEST_NOTE);
        if is_one { fs::read_to_string(path).ok() } else { None }
    }

    /// Leaves a note with it, for the next process that uses it; in a cache that we may only read, nothing is left. `name` is
    /// fit for a file name, and none that the entry itself has: `data`, `about`, `manifest`, `verified`.
    pub fn remember(&self, name: &str, text: &str) -> Result<(), FileError> {
        unless_read_only(replace(&self.directory.join(name), text))
    }

    /// When it was last looked up.
    pub fn last_use(&self) -> Result<SystemTime, FileError> {
        let path = self.directory.join("manifest");
        path.metadata().and_then(|meta| meta.modified()).attempt("examine", &path)
    }

    /// Bytes that it occupies on disk, those that it shares with others included. Looks at each file; one that is missing
    /// has none.
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

    /// Its name in the cache.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether it is still the one of its name.
    pub(crate) fn is_current(&self) -> bool {
        self.in_use.is_at(&self.directory.join("manifest"))
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}
