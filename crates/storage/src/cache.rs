//! The cache on disk: immutable entries by fingerprint, built once under a lock, published by one rename.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::attempt::{Attempt, FileError};
use crate::copy::modified;
use crate::manifest::{self, Manifest};
use crate::private;

/// Marks a directory that backups may leave out. Source: bford.info/cachedir.
const TAG: &str =
    "Signature: 8a477f597d28d172789f06886806bc55\n# Made by pgfresh; may be deleted at any time.\n";

/// A cache directory of ours.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// Why there is no cache, or why an entry did not come into it.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The operating system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// What was to be published holds something that a copy could not give every server for itself.
    #[error("cannot cache \"{}\": {what}", path.display())]
    Unfit {
        /// The file in question.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
}

impl Cache {
    /// The cache in `chosen`, or else in the usual place: for root `/var/cache/pgfresh`, for others
    /// `$XDG_CACHE_HOME/pgfresh` or `~/.cache/pgfresh`, and where that cannot be written `/var/tmp/pgfresh-UID/cache`.
    ///
    /// # Errors
    /// A `chosen` directory that cannot be used, or none of the usual ones.
    pub fn locate(chosen: Option<&Path>) -> Result<Self, CacheError> {
        if let Some(chosen) = chosen {
            return Ok(Self::open(chosen)?);
        }
        let user = rustix::process::geteuid();
        let usual = if user.is_root() {
            Some(PathBuf::from("/var/cache"))
        } else {
            let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
            absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        };
        if let Some(cache) = usual.and_then(|folder| Self::open(&folder.join("pgfresh")).ok()) {
            return Ok(cache);
        }
        let fallback = PathBuf::from(format!("/var/tmp/pgfresh-{}", user.as_raw()));
        private::ensure(&fallback, private::passable())?;
        Ok(Self::open(&fallback.join("cache"))?)
    }

    fn open(root: &Path) -> Result<Self, FileError> {
        if let Some(parent) = root.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).attempt("create", parent)?;
        }
        private::ensure(root, private::passable())?;
        let root = root.canonicalize().attempt("resolve", root)?;
        let cache = Self { root };
        let images = cache.images();
        private::ensure(&images, 0o700)?;
        let tag = cache.root.join("CACHEDIR.TAG");
        if !tag.exists() {
            fs::write(&tag, TAG).attempt("write", &tag)?;
        }
        // Proves that we may write here before anything is built.
        rustix::fs::access(&images, rustix::fs::Access::WRITE_OK).attempt("write in", &images)?;
        Ok(cache)
    }

    /// Where it is: canonical.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    /// The entry of that fingerprint, if it is complete. One whose manifest is cut short or of another kind is none.
    pub fn look_up(&self, fingerprint: &str) -> Result<Option<Entry>, FileError> {
        let directory = self.images().join(fingerprint);
        let path = directory.join("manifest");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).attempt("read", &path),
        };
        let manifest = std::str::from_utf8(&text).ok().and_then(Manifest::parse);
        Ok(manifest.map(|manifest| Entry { directory, manifest: Arc::new(manifest) }))
    }

    /// Takes the right to build that entry, after `waiting` was called if somebody else has it now.
    ///
    /// Look it up again before building: who had the right may have published.
    pub fn building(&self, fingerprint: &str, waiting: impl FnOnce()) -> Result<Building, FileError> {
        let lock = self.images().join(format!("{fingerprint}.lock"));
        let held = if let Some(held) = sys::Lock::try_take(&lock).attempt("lock", &lock)? {
            held
        } else {
            waiting();
            sys::Lock::take(&lock).attempt("lock", &lock)?
        };
        let building = Building { entry: self.images().join(fingerprint), lock, _held: held };
        remove_tree(&building.staging())?;
        Ok(building)
    }

    /// What was remembered under `name`, if anything.
    #[must_use]
    pub fn recall(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.root.join("notes").join(name)).ok()
    }

    /// Remembers `text` under `name`, which must be fit for a file name, for the next process that asks.
    pub fn remember(&self, name: &str, text: &str) -> Result<(), FileError> {
        let folder = self.root.join("notes");
        private::ensure(&folder, 0o700)?;
        let path = folder.join(name);
        let staging = folder.join(format!("{name}.{}", std::process::id()));
        fs::write(&staging, text).attempt("write", &staging)?;
        fs::rename(&staging, &path).attempt("rename", &path)
    }
}

/// A complete, immutable directory in the cache.
#[derive(Debug, Clone)]
pub struct Entry {
    directory: PathBuf,
    manifest: Arc<Manifest>,
}

impl Entry {
    /// Bytes of all files, counting holes: what a copy may come to occupy.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.manifest.bytes()
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

    pub(crate) fn manifest(&self) -> Arc<Manifest> {
        Arc::clone(&self.manifest)
    }
}

/// The right to build one entry; nobody else has it as long as this lives.
#[derive(Debug)]
pub struct Building {
    entry: PathBuf,
    lock: PathBuf,
    _held: sys::Lock,
}

impl Building {
    /// Removes the entry, which proved damaged.
    pub fn discard(&self) -> Result<(), FileError> {
        let staging = self.staging();
        match fs::rename(&self.entry, &staging) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.attempt("rename", &self.entry)?,
        }
        remove_tree(&staging)
    }

    /// Makes the directory tree `from` the entry, leaving out the files at its top that are named in `without`.
    ///
    /// Long runs of zeros become holes. Everything is made durable before the rename, so that the entry is complete
    /// or absent whatever happens. On any error it is absent.
    pub fn publish(self, from: &Path, without: &[&str]) -> Result<Entry, CacheError> {
        let staging = self.staging();
        let result = self.stage(from, without, &staging);
        if result.is_err() {
            let _ = remove_tree(&staging);
        }
        result
    }

    fn stage(&self, from: &Path, without: &[&str], staging: &Path) -> Result<Entry, CacheError> {
        let data = staging.join("data");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&data).attempt("create", &data)?;
        let mut manifest = Manifest::default();
        add_folder(from, "", without, &data, &mut manifest)?;
        manifest.directories.sort();
        let path = staging.join("manifest");
        fs::write(&path, manifest.to_text()).attempt("write", &path)?;
        let root = File::open(staging).attempt("open", staging)?;
        sys::sync_filesystem(&root).attempt("sync", staging)?;
        // An entry that is there now is a damaged one: look-up found none.
        remove_tree(&self.entry)?;
        fs::rename(staging, &self.entry).attempt("publish", &self.entry)?;
        Ok(Entry { directory: self.entry.clone(), manifest: Arc::new(manifest) })
    }

    fn staging(&self) -> PathBuf {
        self.entry.with_added_extension("staging")
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        // Still locked: whoever waits for this file finds that it has lost its name and takes a new one.
        let _ = fs::remove_file(&self.lock);
    }
}

/// Copies what lies in folder `relative` of `from` to `to`, and writes it down.
fn add_folder(
    from: &Path,
    relative: &str,
    without: &[&str],
    to: &Path,
    manifest: &mut Manifest,
) -> Result<(), CacheError> {
    let folder = from.join(relative);
    for entry in fs::read_dir(&folder).attempt("read", &folder)? {
        let entry = entry.attempt("read", &folder)?;
        let name = entry.file_name();
        let unfit = |what| CacheError::Unfit { path: entry.path(), what };
        let name = name.to_str().filter(|name| manifest::safe(name).is_some());
        let name = name.ok_or_else(|| unfit("its name is no plain text"))?;
        if relative.is_empty() && without.contains(&name) {
            continue;
        }
        let path = if relative.is_empty() { name.to_owned() } else { format!("{relative}/{name}") };
        let kind = entry.file_type().attempt("examine", &entry.path())?;
        if kind.is_dir() {
            let target = to.join(&path);
            fs::DirBuilder::new().mode(0o700).create(&target).attempt("create", &target)?;
            add_folder(from, &path, without, to, manifest)?;
            manifest.directories.push(path);
        } else if kind.is_file() {
            manifest.files.push(add_file(&entry.path(), path, to)?);
        } else if kind.is_symlink() {
            return Err(unfit(
                "a symbolic link (a tablespace outside?) leads to files that every copy would share",
            ));
        } else {
            return Err(unfit("it is neither a regular file nor a directory"));
        }
    }
    Ok(())
}

/// Copies one file, in one pass: hashed, and with holes where it is zero.
fn add_file(from: &Path, relative: String, folder: &Path) -> Result<manifest::File, CacheError> {
    let to = folder.join(&relative);
    let mut source = File::open(from).attempt("open", from)?;
    let mut target =
        File::options().write(true).create_new(true).mode(0o600).open(&to).attempt("create", &to)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut size = 0;
    loop {
        let count = fill(&mut source, &mut buffer).attempt("read", from)?;
        let chunk = &buffer[..count];
        if count == 0 {
            break;
        }
        hasher.update(chunk);
        size += count as u64;
        if chunk.iter().all(|&byte| byte == 0) {
            target.seek(io::SeekFrom::Start(size)).attempt("seek in", &to)?;
        } else {
            target.write_all(chunk).attempt("write", &to)?;
        }
    }
    target.set_len(size).attempt("write", &to)?;
    let stat = rustix::fs::fstat(&target).attempt("examine", &to)?;
    Ok(manifest::File { path: relative, size, modified: modified(&stat), digest: hasher.finalize() })
}

/// Reads until `buffer` is full or the file ends.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match file.read(&mut buffer[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Removes a directory tree; one that is not there, or goes away meanwhile, is no error.
pub(crate) fn remove_tree(path: &Path) -> Result<(), FileError> {
    loop {
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match path.symlink_metadata() {
                // Somebody else removes it too: what is left is still ours to remove.
                Ok(meta) if meta.nlink() > 0 => {}
                _ => return Ok(()),
            },
            Err(error) => return Err(error).attempt("remove", path),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::{Account, CopyError, Copying, Method};

    struct Fixture {
        _directory: tempfile::TempDir,
        cache: Cache,
        tree: PathBuf,
        out: PathBuf,
    }

    fn fixture() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::locate(Some(&directory.path().join("cache"))).unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("base/1")).unwrap();
        fs::create_dir_all(tree.join("empty")).unwrap();
        fs::write(tree.join("base/1/rows"), "some rows").unwrap();
        fs::write(tree.join("top"), "").unwrap();
        fs::write(tree.join("pid"), "not this").unwrap();
        let mut log = vec![0; 1 << 20];
        log[300_000] = 7;
        fs::write(tree.join("log"), log).unwrap();
        let out = directory.path().join("out");
        Fixture { _directory: directory, cache, tree, out }
    }

    fn account() -> Account {
        Account { uid: 0, gid: 0, foreign: false }
    }

    fn publish(fixture: &Fixture) -> Entry {
        let building = fixture.cache.building("abc", || panic!("nobody builds")).unwrap();
        building.publish(&fixture.tree, &["pid"]).unwrap()
    }

    #[test]
    fn what_was_published_is_copied_with_its_holes_and_without_what_was_left_out() {
        let fixture = fixture();
        assert!(fixture.cache.look_up("abc").unwrap().is_none());
        publish(&fixture);
        let entry = fixture.cache.look_up("abc").unwrap().unwrap();
        assert_eq!((entry.files(), entry.bytes()), (3, (1 << 20) + 9));
        let copied = Copying::begin(&entry, &fixture.out, &account(), "base/").unwrap().finish().unwrap();
        assert_eq!(fs::read(fixture.out.join("base/1/rows")).unwrap(), b"some rows");
        assert_eq!(fs::read(fixture.out.join("log")).unwrap(), fs::read(fixture.tree.join("log")).unwrap());
        assert!(fixture.out.join("empty").is_dir());
        assert!(!fixture.out.join("pid").exists());
        let rows = fixture.out.join("base/1/rows").metadata().unwrap();
        assert_eq!((rows.permissions().mode() & 0o7777, rows.nlink()), (0o600, 1));
        assert_eq!(copied.files, 3);
        if copied.method == Method::Copy {
            assert!(copied.bytes < 200_000, "holes were written: {} bytes", copied.bytes);
        }
        assert!(!fixture.cache.images().join("abc.lock").exists());
    }

    #[test]
    fn a_damaged_entry_is_noticed_and_can_be_discarded() {
        let fixture = fixture();
        let entry = publish(&fixture);
        let rows = entry.data().join("base/1/rows");
        let begin = |name: &str| Copying::begin(&entry, &fixture.out.join(name), &account(), "base/");
        fs::create_dir(&fixture.out).unwrap();

        fs::write(&rows, "SOME ROWS").unwrap();
        assert!(begin("1").and_then(Copying::finish).unwrap_err().is_damage());
        fs::write(&rows, "some rows").unwrap();
        begin("2").unwrap().finish().expect("the same bytes with another time are as good");
        fs::write(&rows, "some").unwrap();
        assert!(begin("3").and_then(Copying::finish).unwrap_err().is_damage());
        fs::remove_file(&rows).unwrap();
        assert!(matches!(
            begin("4").and_then(Copying::finish),
            Err(CopyError::Damaged { what: "is missing", .. })
        ));

        fixture.cache.building("abc", || ()).unwrap().discard().unwrap();
        assert!(fixture.cache.look_up("abc").unwrap().is_none());
    }

    #[test]
    fn a_manifest_cut_short_is_no_entry_and_a_link_is_not_published() {
        let fixture = fixture();
        let entry = publish(&fixture);
        let manifest = entry.directory.join("manifest");
        let text = fs::read_to_string(&manifest).unwrap();
        fs::write(&manifest, &text[..text.len() / 2]).unwrap();
        assert!(fixture.cache.look_up("abc").unwrap().is_none());

        std::os::unix::fs::symlink("/etc", fixture.tree.join("link")).unwrap();
        let building = fixture.cache.building("def", || ()).unwrap();
        assert!(matches!(building.publish(&fixture.tree, &[]), Err(CacheError::Unfit { .. })));
        assert!(!fixture.cache.images().join("def.staging").exists());
    }

    #[test]
    fn one_builds_and_the_other_waits_and_says_so() {
        let fixture = fixture();
        let building = fixture.cache.building("abc", || panic!("nobody builds")).unwrap();
        let (said, hears) = std::sync::mpsc::channel();
        let cache = fixture.cache.clone();
        let second = std::thread::spawn(move || {
            let building = cache.building("abc", || said.send(()).unwrap()).unwrap();
            let found = cache.look_up("abc").unwrap().is_some();
            drop(building);
            found
        });
        hears.recv().unwrap();
        building.publish(&fixture.tree, &[]).unwrap();
        assert!(second.join().unwrap(), "the waiter finds what the builder published");
    }
}
