//! Stores immutable entries on disk, so that each template is built only once. Each entry's key is its
//! fingerprint. A process that builds an entry holds a lock during the build, then publishes the entry with a
//! single rename.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::entry::Entry;
use crate::error::CacheError;
use crate::file_error::{Attempt, FileError};
use crate::manifest::Manifest;
use crate::private;
use crate::publish::Building;
use crate::removal::remove_tree;
use crate::replace::{ignore_read_only, replace_file};

/// Content of the file that tells backup programs to skip the cache directory. Source: bford.info/cachedir.
const CACHE_TAG: &str =
    "Signature: 8a477f597d28d172789f06886806bc55\n# Made by pgfresh; may be deleted at any time.\n";

/// Age at which a saved log is removed.
const MAX_LOG_AGE: Duration = Duration::from_hours(7 * 24);

/// The current user's cache directory.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
    is_chosen: bool,
}

impl Cache {
    /// Opens the cache in `chosen`, which can be read-only.
    ///
    /// If `chosen` is `None`, opens the cache in its usual location: `/var/cache/pgfresh` for root, and
    /// `$XDG_CACHE_HOME/pgfresh` or `~/.cache/pgfresh` for other users. If that directory isn't writable,
    /// `/var/tmp/pgfresh-UID/cache` is used instead.
    ///
    /// # Errors
    /// Returns an error if the `chosen` directory, or every usual location, can't be used.
    pub fn locate(chosen: Option<&Path>) -> Result<Self, CacheError> {
        if let Some(chosen) = chosen {
            return Ok(Self { is_chosen: true, ..Self::open(chosen)? });
        }
        let writable =
            |folder: &Path| Self::open(folder).and_then(|cache| cache.expect_writable().map(|()| cache));
        let usual = if sys::is_root() {
            Some(PathBuf::from("/var/cache"))
        } else {
            let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
            absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        };
        if let Some(cache) = usual.and_then(|folder| writable(&folder.join("pgfresh")).ok()) {
            return Ok(cache);
        }
        let fallback = fallback();
        private::ensure(&fallback, private::parent_mode())?;
        Ok(Self::open(&fallback.join("cache"))?)
    }

    fn open(root: &Path) -> Result<Self, FileError> {
        if let Some(parent) = root.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).attempt("create", parent)?;
        }
        private::ensure(root, private::parent_mode())?;
        let root = root.canonicalize().attempt("resolve", root)?;
        let cache = Self { root, is_chosen: false };
        let images = cache.images();
        private::ensure(&images, 0o700)?;
        let tag = cache.root.join("CACHEDIR.TAG");
        // A read-only cache doesn't need a tag. If the cache doesn't have any entries yet, it is useless anyway.
        if !tag.exists() && cache.expect_writable().is_ok() {
            fs::write(&tag, CACHE_TAG).attempt("write", &tag)?;
        }
        Ok(cache)
    }

    fn expect_writable(&self) -> Result<(), FileError> {
        let images = self.images();
        sys::expect_writable(&images).attempt("write in", &images)
    }

    /// Returns the directory for the records of running servers: the cache itself, or a private directory in
    /// `/var/tmp` if the cache is read-only.
    ///
    /// # Errors
    /// Returns an error if another user owns the private directory, or can write to it.
    pub fn state(&self) -> Result<PathBuf, FileError> {
        if self.expect_writable().is_ok() {
            return Ok(self.root.clone());
        }
        let ours = fallback();
        private::ensure(&ours, private::parent_mode())?;
        let name = blake3::hash(self.root.as_os_str().as_encoded_bytes()).to_hex();
        let state = ours.join(format!("state-{}", &name[..16]));
        private::ensure(&state, 0o700)?;
        Ok(state)
    }

    /// Returns the canonical path of the cache.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns true if the user chose this directory.
    #[must_use]
    pub fn is_chosen(&self) -> bool {
        self.is_chosen
    }

    fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    /// Returns the complete entry for `fingerprint` and sets its last use to now. Returns `None` if
    /// the entry doesn't exist, or if its manifest is damaged or has a different format version.
    ///
    /// # Errors
    /// Returns an error if the entry exists but can't be read.
    pub fn look_up(&self, fingerprint: &str) -> Result<Option<Entry>, FileError> {
        self.open_entry(fingerprint, true)
    }

    /// Like [`Self::look_up`], but doesn't change the time of the entry's last use.
    ///
    /// # Errors
    /// Returns the errors of [`Self::look_up`].
    pub fn examine(&self, fingerprint: &str) -> Result<Option<Entry>, FileError> {
        self.open_entry(fingerprint, false)
    }

    fn open_entry(&self, fingerprint: &str, use_it: bool) -> Result<Option<Entry>, FileError> {
        let directory = self.images().join(fingerprint);
        let path = directory.join("manifest");
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).attempt("open", &path),
        };
        let mut text = Vec::new();
        file.read_to_end(&mut text).attempt("read", &path)?;
        let Some(manifest) = std::str::from_utf8(&text).ok().and_then(Manifest::parse) else {
            return Ok(None);
        };
        if use_it {
            // Nothing is evicted from a read-only cache, so the time of last use doesn't matter there.
            ignore_read_only(file.set_modified(SystemTime::now()).attempt("touch", &path))?;
        }
        // If a process holds the exclusive lock, it is about to remove the entry.
        let in_use = sys::Lock::share(file, &path).attempt("lock", &path)?;
        Ok(in_use.map(|in_use| Entry::new(directory, manifest, in_use)))
    }

    /// Returns the fingerprints of all entries, including incomplete ones.
    ///
    /// # Errors
    /// Returns an error if the cache can't be read.
    pub fn fingerprints(&self) -> Result<Vec<String>, FileError> {
        let images = self.images();
        let names = fs::read_dir(&images).attempt("read", &images)?.flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.filter(|name| !name.contains('.')).collect())
    }

    /// Removes an entry. Returns false if another process is using or building it.
    ///
    /// # Errors
    /// Returns an error if a file can't be removed. The entry is gone by then, and [`Self::tidy`] removes
    /// the rest.
    pub fn remove(&self, fingerprint: &str) -> Result<bool, FileError> {
        let Some(building) = self.try_building(fingerprint)? else { return Ok(false) };
        let manifest = self.images().join(fingerprint).join("manifest");
        let _alone = if manifest.exists() {
            let Some(alone) = sys::Lock::try_take(&manifest).attempt("lock", &manifest)? else {
                return Ok(false);
            };
            Some(alone)
        } else {
            None
        };
        building.remove()?;
        Ok(true)
    }

    /// Removes incomplete entries and the lock files of dead builders. Returns the removed paths.
    ///
    /// # Errors
    /// Returns the error of the file system, with the path.
    pub fn tidy(&self) -> Result<Vec<PathBuf>, FileError> {
        let images = self.images();
        let mut left = BTreeMap::<_, Vec<_>>::new();
        for entry in fs::read_dir(&images).attempt("read", &images)?.flatten() {
            let name = entry.file_name();
            if let Some((fingerprint, "staging" | "lock")) =
                name.to_str().and_then(|name| name.rsplit_once('.'))
            {
                left.entry(fingerprint.to_owned()).or_default().push(entry.path());
            }
        }
        let mut removed = Vec::new();
        for (fingerprint, mut paths) in left {
            // `try_building` removes the staging directory, and dropping the result removes the lock file.
            if self.try_building(&fingerprint)?.is_some() {
                paths.sort();
                removed.extend(paths);
            }
        }
        Ok(removed)
    }

    /// Acquires the exclusive right to build an entry. If another process is building it, calls `waiting` and
    /// then blocks until that process is done.
    ///
    /// After this call, look up the entry again, because the other process may have published it.
    ///
    /// # Errors
    /// Returns an error if the lock file can't be opened, or if a dead builder's files can't be removed.
    pub fn building(&self, fingerprint: &str, waiting: impl FnOnce()) -> Result<Building, FileError> {
        if let Some(building) = self.try_building(fingerprint)? {
            return Ok(building);
        }
        waiting();
        let lock = self.lock(fingerprint);
        let held = sys::Lock::take(&lock).attempt("lock", &lock)?;
        self.start_build(fingerprint, held)
    }

    fn try_building(&self, fingerprint: &str) -> Result<Option<Building>, FileError> {
        let lock = self.lock(fingerprint);
        let held = sys::Lock::try_take(&lock).attempt("lock", &lock)?;
        held.map(|held| self.start_build(fingerprint, held)).transpose()
    }

    fn start_build(&self, fingerprint: &str, held: sys::Lock) -> Result<Building, FileError> {
        let entry = self.images().join(fingerprint);
        let building = Building { entry, lock: self.lock(fingerprint), _held: held };
        remove_tree(&building.staging())?;
        Ok(building)
    }

    fn lock(&self, fingerprint: &str) -> PathBuf {
        self.images().join(format!("{fingerprint}.lock"))
    }

    /// Returns the text that [`Self::remember`] saved under `name`, if any.
    #[must_use]
    pub fn recall(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.root.join("notes").join(name)).ok()
    }

    /// Saves a copy of the file `log` under `name`, so that the user can read it later. Saved logs older than
    /// a week are removed.
    ///
    /// # Errors
    /// Returns the error of the file system, with the path.
    pub fn keep_log(&self, name: &str, log: &Path) -> Result<PathBuf, FileError> {
        let folder = self.root.join("logs");
        private::ensure(&folder, 0o700)?;
        for entry in fs::read_dir(&folder).attempt("read", &folder)?.flatten() {
            let age =
                entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|time| time.elapsed().ok());
            if age.is_some_and(|age| age > MAX_LOG_AGE)
                && let Err(error) = fs::remove_file(entry.path())
            {
                tracing::debug!(%error, path = %entry.path().display(), "could not remove an old log");
            }
        }
        let path = folder.join(name);
        fs::copy(log, &path).attempt("write", &path)?;
        Ok(path)
    }

    /// Saves `text` under `name`, which must be a valid file name. Does nothing if the cache is read-only.
    ///
    /// # Errors
    /// Returns an error if the file can't be written. An earlier text stays in that case.
    pub fn remember(&self, name: &str, text: &str) -> Result<(), FileError> {
        ignore_read_only(self.write_note(name, text))
    }

    fn write_note(&self, name: &str, text: &str) -> Result<(), FileError> {
        let folder = self.root.join("notes");
        private::ensure(&folder, 0o700)?;
        replace_file(&folder.join(name), text)
    }
}

/// Returns the directory to use if none of the usual locations is writable. Only our own user can access it.
fn fallback() -> PathBuf {
    PathBuf::from(format!("/var/tmp/pgfresh-{}", sys::user()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::{Account, BackgroundCopy, CopyError, Deferred, Method};

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

    /// Defers the copies of all files below `base`.
    const BASE: Deferred<'_> = Deferred { below: "base/", last: None };

    fn publish(fixture: &Fixture) -> Entry {
        let building = fixture.cache.building("abc", || panic!("no process builds it")).unwrap();
        building.publish(&fixture.tree, &["pid"], "about it").unwrap()
    }

    #[test]
    fn cache_copy_keeps_holes_and_omits_excluded_files() {
        let fixture = fixture();
        assert!(fixture.cache.look_up("abc").unwrap().is_none());
        publish(&fixture);
        let entry = fixture.cache.look_up("abc").unwrap().unwrap();
        assert_eq!((entry.files(), entry.bytes()), (3, (1 << 20) + 9));
        let copied = BackgroundCopy::begin(&entry, &fixture.out, &Account::ours(), BASE)
            .unwrap()
            .finish(&|_, _| ())
            .unwrap();
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
    fn deferred_files_are_copied_last_and_never_overwrite() {
        let fixture = fixture();
        for folder in ["", "base/1/"] {
            fs::write(fixture.tree.join(format!("{folder}last")), "old").unwrap();
        }
        let entry = publish(&fixture);
        let deferred = Deferred { below: "base/", last: Some("last") };
        let copying = BackgroundCopy::begin(&entry, &fixture.out, &Account::ours(), deferred).unwrap();
        assert!(fixture.out.join("log").exists() && !fixture.out.join("last").exists());
        fs::write(fixture.out.join("last"), "new").unwrap();
        copying.finish(&|_, _| ()).unwrap();
        let [made, copied] = ["last", "base/1/last"].map(|path| fs::read(fixture.out.join(path)).unwrap());
        assert_eq!((made.as_slice(), copied.as_slice()), (&b"new"[..], &b"old"[..]));
    }

    #[test]
    fn damaged_entry_is_detected_and_can_be_discarded() {
        let fixture = fixture();
        let entry = publish(&fixture);
        let rows = entry.data().join("base/1/rows");
        let begin =
            |name: &str| BackgroundCopy::begin(&entry, &fixture.out.join(name), &Account::ours(), BASE);
        fs::create_dir(&fixture.out).unwrap();

        fs::write(&rows, "SOME ROWS").unwrap();
        assert!(begin("1").and_then(|copying| copying.finish(&|_, _| ())).unwrap_err().is_damage());
        fs::write(&rows, "some rows").unwrap();
        begin("2").unwrap().finish(&|_, _| ()).expect("the same bytes with another time are as good");
        let rewritten = rows.metadata().unwrap().modified().unwrap();
        begin("2a").unwrap().finish(&|_, _| ()).unwrap();
        fs::write(&rows, "some rowS").unwrap();
        File::options().write(true).open(&rows).unwrap().set_modified(rewritten).unwrap();
        let flipped = begin("2b").and_then(|copying| copying.finish(&|_, _| ())).unwrap_err();
        assert!(flipped.is_damage(), "size and time are as they were");
        fs::write(&rows, "some").unwrap();
        assert!(begin("3").and_then(|copying| copying.finish(&|_, _| ())).unwrap_err().is_damage());
        fs::remove_file(&rows).unwrap();
        assert!(matches!(
            begin("4").and_then(|copying| copying.finish(&|_, _| ())),
            Err(CopyError::Damaged { what: "is missing", .. })
        ));

        fixture.cache.building("abc", || ()).unwrap().discard(&entry).unwrap();
        assert!(fixture.cache.look_up("abc").unwrap().is_none());
    }

    #[test]
    fn discard_of_damaged_entry_keeps_its_replacement() {
        let fixture = fixture();
        let damaged = publish(&fixture);
        let other = damaged.clone();
        fixture.cache.building("abc", || ()).unwrap().discard(&damaged).unwrap();
        publish(&fixture);
        fixture.cache.building("abc", || ()).unwrap().discard(&other).unwrap();
        assert!(fixture.cache.look_up("abc").unwrap().is_some());
    }

    #[test]
    fn missing_file_occupies_no_space() {
        let fixture = fixture();
        let entry = publish(&fixture);
        let all = entry.occupied().unwrap();
        let rows = entry.data().join("base/1/rows");
        let its = rows.metadata().unwrap().blocks() * 512;
        fs::remove_file(&rows).unwrap();
        assert_eq!(entry.occupied().unwrap(), all - its);
    }

    #[test]
    fn threads_can_save_same_note_concurrently() {
        let fixture = fixture();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        fixture.cache.remember("note", "text").unwrap();
                        assert_eq!(fixture.cache.recall("note").as_deref(), Some("text"));
                    }
                });
            }
        });
        let notes = fs::read_dir(fixture.cache.root().join("notes")).unwrap();
        assert_eq!(notes.count(), 1);
    }

    #[test]
    fn cache_rejects_truncated_manifest_and_symlink_in_tree() {
        let fixture = fixture();
        let entry = publish(&fixture);
        let manifest = entry.directory().join("manifest");
        let text = fs::read_to_string(&manifest).unwrap();
        fs::write(&manifest, &text[..text.len() / 2]).unwrap();
        assert!(fixture.cache.look_up("abc").unwrap().is_none());

        std::os::unix::fs::symlink("/etc", fixture.tree.join("link")).unwrap();
        let building = fixture.cache.building("def", || ()).unwrap();
        assert!(matches!(building.publish(&fixture.tree, &[], ""), Err(CacheError::Invalid { .. })));
        assert!(!fixture.cache.images().join("def.staging").exists());
    }

    #[test]
    fn cache_keeps_used_entry_and_tidies_build_leftovers() {
        let fixture = fixture();
        let entry = publish(&fixture);
        assert_eq!(entry.about(), "about it");
        assert!(entry.occupied().unwrap() < entry.bytes());
        assert_eq!(fixture.cache.fingerprints().unwrap(), ["abc"]);
        let again = fixture.cache.look_up("abc").unwrap().unwrap();
        drop(entry);
        assert!(!fixture.cache.remove("abc").unwrap(), "it is in use");
        drop(again);
        assert!(fixture.cache.remove("abc").unwrap());
        assert!(fixture.cache.look_up("abc").unwrap().is_none());

        let staging = fixture.cache.images().join("def.staging");
        fs::create_dir(&staging).unwrap();
        let building = fixture.cache.building("ghi", || ()).unwrap();
        fs::create_dir(building.staging()).unwrap();
        let abandoned = fixture.cache.images().join("jkl.lock");
        fs::write(&abandoned, "").unwrap();
        assert_eq!(fixture.cache.tidy().unwrap(), [staging.clone(), abandoned.clone()]);
        assert!(!staging.exists() && !abandoned.exists() && building.staging().exists());
        assert!(fixture.cache.tidy().unwrap().is_empty());
    }

    #[test]
    fn examination_does_not_change_last_use() {
        let fixture = fixture();
        let entry = publish(&fixture);
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let manifest = File::options().write(true).open(entry.directory().join("manifest")).unwrap();
        manifest.set_modified(long_ago).unwrap();
        let examined = fixture.cache.examine("abc").unwrap().unwrap();
        assert_eq!(examined.last_use().unwrap(), long_ago);
        let used = fixture.cache.look_up("abc").unwrap().unwrap();
        assert!(used.last_use().unwrap() > long_ago);
    }

    #[test]
    fn second_builder_waits_and_announces_it() {
        let fixture = fixture();
        let building = fixture.cache.building("abc", || panic!("no process builds it")).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let cache = fixture.cache.clone();
        let second = std::thread::spawn(move || {
            let building = cache.building("abc", || sender.send(()).unwrap()).unwrap();
            let found = cache.look_up("abc").unwrap().is_some();
            drop(building);
            found
        });
        receiver.recv().unwrap();
        building.publish(&fixture.tree, &[], "").unwrap();
        assert!(second.join().unwrap(), "the waiter finds what the builder published");
    }
}
