//! Searches a folder for the files that match a pattern.
//!
//! The search skips hidden files, files that git ignores, and unreadable files. It follows links.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use globset::GlobMatcher;

use super::repository::{GitStatus, Scope};

/// Folders that never contain inputs, even if `.gitignore` doesn't list them.
const SKIPPED_FOLDERS: [&str; 3] = ["__pycache__", "node_modules", ".git"];

/// A path that a search couldn't read.
#[derive(Debug)]
pub(crate) struct Skipped {
    /// Path, relative to the folder of the patterns.
    pub(crate) path: String,
    pub(crate) error: io::Error,
    /// True if the path itself matches the pattern. Otherwise, the path is a folder that might contain matching files.
    pub(crate) is_match: bool,
}

/// The files that match a pattern, and unreadable paths that might hide more of them.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Paths, relative to the folder of the patterns.
    pub(super) files: BTreeSet<String>,
    pub(super) skipped: Vec<Skipped>,
    /// The path of a matching file that isn't valid UTF-8, and therefore isn't in `files`.
    pub(super) invalid: Option<PathBuf>,
}

impl Found {
    pub(super) fn of_file(path: &str) -> Self {
        Self { files: [path.to_owned()].into(), ..Self::default() }
    }
}

pub(super) struct Search<'a> {
    glob: &'a GlobMatcher,
    start: &'a Path,
    /// Maximum number of slashes in a path that the pattern can match.
    slashes: usize,
    found: Found,
    /// Device and inode of the current folder and all folders above it in the search.
    open: Vec<(u64, u64)>,
}

impl<'a> Search<'a> {
    /// Searches the folder `start` for files that match `glob`. `pattern` is the text of `glob`, and `shown` is the
    /// folder's path as it appears in patterns.
    ///
    /// # Errors
    /// Returns an error if the folder itself can't be read.
    pub(super) fn run(
        glob: &'a GlobMatcher,
        pattern: &str,
        start: &'a Path,
        shown: &str,
    ) -> io::Result<Found> {
        let any_depth = pattern.contains("**") || pattern.contains('{');
        let slashes = if any_depth { usize::MAX } else { pattern.matches('/').count() };
        let mut search = Self { glob, start, slashes, found: Found::default(), open: Vec::new() };
        let scope = Scope::of_start(&start.canonicalize()?);
        search.read_folder(start, shown, &start.metadata()?, &scope)?;
        Ok(search.found)
    }

    fn read_folder(&mut self, path: &Path, shown: &str, meta: &Metadata, scope: &Scope) -> io::Result<()> {
        let identity = (meta.dev(), meta.ino());
        if self.open.contains(&identity) {
            // This is a link that leads back to a folder above it. The search finds that folder's files anyway, under
            // shorter paths.
            return Ok(());
        }
        self.open.push(identity);
        let result = fs::read_dir(path).and_then(|entries| {
            for entry in entries {
                self.visit(&entry?, shown, scope);
            }
            Ok(())
        });
        self.open.pop();
        result
    }

    /// Adds the entry if it is a matching file, or searches it if it is a folder. Unreadable entries are skipped.
    fn visit(&mut self, entry: &DirEntry, folder: &str, scope: &Scope) {
        let name = entry.file_name();
        if name.as_bytes().starts_with(b".") || SKIPPED_FOLDERS.iter().any(|never| name == *never) {
            return;
        }
        let shown = match folder {
            "" => name.to_string_lossy().into_owned(),
            folder => format!("{}/{}", folder.trim_end_matches('/'), name.to_string_lossy()),
        };
        let is_match = self.glob.is_match(&shown);
        if !is_match && shown.matches('/').count() >= self.slashes {
            return;
        }
        if let Err(error) = self.add_entry(entry, &name, &shown, is_match, scope) {
            self.found.skipped.push(Skipped { path: shown, error, is_match });
        }
    }

    fn add_entry(
        &mut self,
        entry: &DirEntry,
        name: &OsStr,
        shown: &str,
        is_match: bool,
        scope: &Scope,
    ) -> io::Result<()> {
        let kind = entry.file_type()?;
        let verdict = scope.git_status(name.as_bytes(), kind.is_dir());
        if verdict == GitStatus::Ignored || (kind.is_file() && !is_match) {
            return Ok(());
        }
        let path = entry.path();
        let meta = path.metadata()?;
        if meta.is_dir() {
            let scope = if kind.is_symlink() {
                // The link may lead to a folder in another repository, where that repository's rules apply.
                Scope::of_start(&path.canonicalize()?)
            } else {
                scope.enter(name.as_bytes(), &path, verdict)
            };
            return self.read_folder(&path, shown, &meta, &scope);
        }
        if meta.is_file() && is_match {
            if path.strip_prefix(self.start).is_ok_and(|inner| inner.to_str().is_none()) {
                self.found.invalid = Some(path);
            } else {
                self.found.files.insert(shown.to_owned());
            }
        }
        Ok(())
    }
}
