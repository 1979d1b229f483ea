//! Publishes an entry in the cache. It copies the tree, writes the manifest, and flushes both to disk. A
//! rename then puts them in place, so that no process ever sees an incomplete entry.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sys::{Directory, FileKind};

use crate::entry::Entry;
use crate::error::CacheError;
use crate::file_error::{Attempt, FileError};
use crate::manifest::{self, Manifest};
use crate::removal::remove_tree;

/// Size in bytes of the blocks checked for zeros. A block of zeros becomes a hole.
const ZERO_BLOCK: usize = 64 << 10;
static ZEROS: [u8; ZERO_BLOCK] = [0; ZERO_BLOCK];

/// The exclusive right to build one entry, held until this value is dropped.
#[derive(Debug)]
pub struct Building {
    pub(crate) entry: PathBuf,
    pub(crate) lock: PathBuf,
    pub(crate) _held: sys::Lock,
}

impl Building {
    /// Removes the `damaged` entry from the cache. Does nothing if another process has already replaced the
    /// entry.
    ///
    /// # Errors
    /// Returns the error of the file system, with the path.
    pub fn discard(&self, damaged: &Entry) -> Result<(), FileError> {
        if damaged.is_current() { self.remove() } else { Ok(()) }
    }

    /// Removes the entry if it exists.
    pub(crate) fn remove(&self) -> Result<(), FileError> {
        let staging = self.staging();
        match fs::rename(&self.entry, &staging) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.attempt("rename", &self.entry)?,
        }
        remove_tree(&staging)
    }

    /// Publishes the directory tree `from` as the entry, with the description `about`. Skips the top-level
    /// files listed in `without`.
    ///
    /// Long runs of zeros become holes. All files are flushed to disk before the rename, so even after a
    /// crash the entry is either complete or absent. A failed publication leaves no entry behind.
    ///
    /// # Errors
    /// Returns [`CacheError::Invalid`] if the tree contains anything but directories and regular files, and
    /// [`CacheError::File`] if a file can't be read or written.
    pub fn publish(self, from: &Path, without: &[&str], about: &str) -> Result<Entry, CacheError> {
        self.publish_staged(about, |staging| stage(from, without, staging))
    }

    /// Publishes the files that `stage` writes to the staging directory.
    pub(crate) fn publish_staged<E: From<CacheError>>(
        &self,
        about: &str,
        stage: impl FnOnce(&Path) -> Result<Manifest, E>,
    ) -> Result<Entry, E> {
        let staging = self.staging();
        let result = fs::DirBuilder::new()
            .mode(0o700)
            .create(&staging)
            .attempt("create", &staging)
            .and_then(|()| {
                let path = staging.join("about");
                fs::write(&path, about).attempt("write", &path)
            })
            .map_err(|error| CacheError::from(error).into())
            .and_then(|()| stage(&staging))
            .and_then(|manifest| Ok(self.finish(manifest, &staging)?));
        if result.is_err()
            && let Err(error) = remove_tree(&staging)
        {
            tracing::warn!(%error, "could not remove what was not finished");
        }
        result
    }

    fn finish(&self, manifest: Manifest, staging: &Path) -> Result<Entry, CacheError> {
        let path = staging.join("manifest");
        fs::write(&path, manifest.to_text()).attempt("write", &path)?;
        let root = File::open(staging).attempt("open", staging)?;
        sys::sync_filesystem(&root).attempt("sync", staging)?;
        // Lock the manifest before the rename, so that no process can evict the entry before its first use.
        let file = File::open(&path).attempt("open", &path)?;
        let in_use = sys::Lock::share(file, &path).attempt("lock", &path)?;
        let in_use = in_use.ok_or(io::ErrorKind::NotFound).attempt("lock", &path)?;
        // An entry that already exists is either damaged or to be replaced.
        remove_tree(&self.entry)?;
        fs::rename(staging, &self.entry).attempt("publish", &self.entry)?;
        Ok(Entry::new(self.entry.clone(), manifest, in_use))
    }

    pub(crate) fn staging(&self) -> PathBuf {
        self.entry.with_added_extension("staging")
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        // Remove the lock file while we still hold its lock. A process waiting for
        // this lock will notice that the file has been removed and create a new file.
        if let Err(error) = fs::remove_file(&self.lock) {
            tracing::debug!(%error, path = %self.lock.display(), "could not remove a lock");
        }
    }
}

/// Copies `from` to `staging` and returns the manifest of the copy.
fn stage(from: &Path, without: &[&str], staging: &Path) -> Result<Manifest, CacheError> {
    let data = staging.join("data");
    fs::DirBuilder::new().mode(0o700).create(&data).attempt("create", &data)?;
    let mut manifest = Manifest::default();
    let folder = Directory::open(from).attempt("open", from)?;
    add_folder(&Source { folder: &folder, path: from, relative: "" }, without, &data, &mut manifest)?;
    manifest.directories.sort();
    Ok(manifest)
}

/// Creates the data directory in `staging` with all directories that `manifest` lists, and returns
/// its path. If the file system doesn't have room for the files, returns an error about `entry`.
pub(crate) fn make_directories(
    manifest: &Manifest,
    staging: &Path,
    entry: &Path,
) -> Result<PathBuf, CacheError> {
    let data = staging.join("data");
    let make =
        |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(path).attempt("create", path);
    make(&data)?;
    if manifest.bytes() > sys::Filesystem::of(staging).attempt("examine", staging)?.free {
        let what = "it is larger than the free space in the cache's file system";
        return Err(CacheError::Invalid { path: entry.to_owned(), what });
    }
    for path in &manifest.directories {
        make(&data.join(path))?;
    }
    Ok(data)
}

/// A directory in the tree being published.
struct Source<'a> {
    /// The open directory. Because it stays open, a user who can write to the tree can't redirect us
    /// elsewhere.
    folder: &'a Directory,
    /// The path, for error messages.
    path: &'a Path,
    /// The path relative to the top, or an empty string for the top itself.
    relative: &'a str,
}

/// Copies a directory's contents to `to` and adds them to the manifest.
fn add_folder(
    from: &Source<'_>,
    without: &[&str],
    to: &Path,
    manifest: &mut Manifest,
) -> Result<(), CacheError> {
    let Source { folder, path, relative } = *from;
    for (name, kind) in folder.entries().attempt("read", path)? {
        let path = path.join(&name);
        let unfit = |what| CacheError::Invalid { path: path.clone(), what };
        let name = name.to_str().filter(|name| manifest::path_inside_entry(name).is_some());
        let name = name.ok_or_else(|| unfit("its name is not plain text"))?;
        if relative.is_empty() && without.contains(&name) {
            continue;
        }
        let below = if relative.is_empty() { name.to_owned() } else { format!("{relative}/{name}") };
        match kind {
            FileKind::Directory => {
                let target = to.join(&below);
                fs::DirBuilder::new().mode(0o700).create(&target).attempt("create", &target)?;
                let folder = folder.directory(name).attempt("open", &path)?;
                let from = Source { folder: &folder, path: &path, relative: &below };
                add_folder(&from, without, to, manifest)?;
                manifest.directories.push(below);
            }
            FileKind::File => {
                let mut source = folder.file(name).attempt("open", &path)?;
                manifest.files.push(copy_and_digest(&mut source, &path, below, to)?);
            }
            FileKind::Link => {
                return Err(unfit(
                    "a symbolic link (a tablespace outside?) leads to files that every copy would share",
                ));
            }
            FileKind::Other => return Err(unfit("it is neither a regular file nor a directory")),
        }
    }
    Ok(())
}

/// Copies the bytes of `source` and computes their digest in one pass. Blocks of zeros become holes. `from`
/// is the path of `source`, for error messages.
pub(crate) fn copy_and_digest(
    source: &mut impl Read,
    from: &Path,
    relative: String,
    folder: &Path,
) -> Result<manifest::File, CacheError> {
    let to = folder.join(&relative);
    let mut target =
        File::options().write(true).create_new(true).mode(0o600).open(&to).attempt("create", &to)?;
    let mut hasher = blake3::Hasher::new();
    let mut chunk = Vec::new();
    let mut size = 0;
    while source.by_ref().take(ZERO_BLOCK as u64).read_to_end(&mut chunk).attempt("read", from)? > 0 {
        hasher.update(&chunk);
        size += chunk.len() as u64;
        // The comparison calls memcmp, which is fast in debug builds, too.
        if chunk == ZEROS[..chunk.len()] {
            target.seek(io::SeekFrom::Start(size)).attempt("seek in", &to)?;
        } else {
            target.write_all(&chunk).attempt("write", &to)?;
        }
        chunk.clear();
    }
    target.set_len(size).attempt("write", &to)?;
    let meta = target.metadata().attempt("examine", &to)?;
    Ok(manifest::File {
        path: relative,
        size,
        modified: manifest::modified(&meta),
        digest: hasher.finalize(),
    })
}
