//! Publication of an entry: copies a tree, writes its manifest, makes both durable, and renames them into place.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sys::{Directory, FileKind};

use crate::attempt::{Attempt, FileError};
use crate::entry::Entry;
use crate::error::CacheError;
use crate::manifest::{self, Manifest};
use crate::removal::remove_tree;

/// Unit in which zeros become holes, in bytes.
const CHUNK: u64 = 64 << 10;

/// Exclusive right to build one entry, held until dropped.
#[derive(Debug)]
pub struct Building {
    pub(crate) entry: PathBuf,
    pub(crate) lock: PathBuf,
    pub(crate) _held: sys::Lock,
}

impl Building {
    /// Removes the entry, which proved `damaged`. Does nothing if another process has replaced it.
    pub fn discard(&self, damaged: &Entry) -> Result<(), FileError> {
        if damaged.is_current() { self.remove() } else { Ok(()) }
    }

    /// Removes the entry, if it exists.
    pub(crate) fn remove(&self) -> Result<(), FileError> {
        let staging = self.staging();
        match fs::rename(&self.entry, &staging) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.attempt("rename", &self.entry)?,
        }
        remove_tree(&staging)
    }

    /// Publishes the directory tree `from` as the entry, with the description `about`. Leaves out the files at the top
    /// that `without` names.
    ///
    /// Long runs of zeros become holes. All files are durable before the rename, so the entry is either complete or
    /// absent, even after a crash. A failed publication leaves no entry.
    pub fn publish(self, from: &Path, without: &[&str], about: &str) -> Result<Entry, CacheError> {
        self.publish_staged(about, |staging| stage(from, without, staging))
    }

    /// Publishes the files that `stage` writes into the staging directory.
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
        // Locked before the rename, so that no process can evict the entry before its first use.
        let file = File::open(&path).attempt("open", &path)?;
        let in_use = sys::Lock::share(file, &path).attempt("lock", &path)?;
        let in_use = in_use.ok_or(io::ErrorKind::NotFound).attempt("lock", &path)?;
        // An existing entry is damaged, or the caller wants to replace it.
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
        // The lock is still held. A process that waits for this file notices that its name is gone and opens a new one.
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

/// Creates the data directory and all directories of `manifest` in `staging`, and returns the former. Fails, naming
/// `entry`, if the file system has no room for the files.
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
        let what = "it is larger than what the cache's file system has left";
        return Err(CacheError::Unfit { path: entry.to_owned(), what });
    }
    for path in &manifest.directories {
        make(&data.join(path))?;
    }
    Ok(data)
}

/// Directory of the tree to publish.
struct Source<'a> {
    /// Open directory. A user who can write in it cannot redirect us to another one.
    folder: &'a Directory,
    /// Path for error messages.
    path: &'a Path,
    /// Path below the top; empty for the top.
    relative: &'a str,
}

/// Copies the content of a directory to `to` and adds it to the manifest.
fn add_folder(
    from: &Source<'_>,
    without: &[&str],
    to: &Path,
    manifest: &mut Manifest,
) -> Result<(), CacheError> {
    let Source { folder, path, relative } = *from;
    for (name, kind) in folder.entries().attempt("read", path)? {
        let path = path.join(&name);
        let unfit = |what| CacheError::Unfit { path: path.clone(), what };
        let name = name.to_str().filter(|name| manifest::safe(name).is_some());
        let name = name.ok_or_else(|| unfit("its name is no plain text"))?;
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
                manifest.files.push(take_in(&mut source, &path, below, to)?);
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

/// Copies the bytes of `source`, whose path is `from`, in one pass that also computes the digest. Zeros become holes.
pub(crate) fn take_in(
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
    while source.by_ref().take(CHUNK).read_to_end(&mut chunk).attempt("read", from)? > 0 {
        hasher.update(&chunk);
        size += chunk.len() as u64;
        if chunk.iter().all(|&byte| byte == 0) {
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
