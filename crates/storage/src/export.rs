//! Exports and imports entries, so that one machine can build a template for others to use. An exported entry
//! is a plain directory that any tool can transport.
//!
//! An import reads every file and compares it with the manifest. The manifest shows that the entry is intact,
//! and a signature shows who made it. A cache with trusted keys requires a signature.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::cache::Cache;
use crate::cancel::check_cancelled;
use crate::copy::{BackgroundCopy, Deferred};
use crate::entry::Entry;
use crate::error::{CacheError, CopyError};
use crate::file_error::{Attempt, FileError};
use crate::head::Head;
use crate::removal::remove_tree;
use crate::signing::{Signed, SigningKey, TrustedKey};
use crate::unchecked_entry::{HEAD, SIGNATURE, UncheckedEntry, is_fingerprint};
use crate::{Account, private};

/// Prefix of an incomplete export's extension. The exporting process's pid follows.
const STAGING: &str = "staging-";
/// Name of the lock file in an incomplete export, held by the exporting process.
const LOCK: &str = "lock";

impl Entry {
    /// Copies this entry into `folder`, as a directory named after the fingerprint, and signs the copy if
    /// there is a `key`. Creates `folder` if it doesn't exist.
    ///
    /// Returns an error soon after `cancelled` is set. A failed export leaves no files behind.
    ///
    /// # Errors
    /// Returns [`CopyError::Damaged`] if the entry differs from its manifest, and [`CopyError::File`] if a
    /// file can't be read or written, or after a cancellation.
    pub fn export(
        &self,
        folder: &Path,
        key: Option<&SigningKey>,
        cancelled: &AtomicBool,
    ) -> Result<(), CopyError> {
        self.export_into(folder, key, cancelled).map_err(|error| match error {
            CopyError::File(error) => error.given_in(folder).into(),
            damaged @ CopyError::Damaged { .. } => damaged,
        })
    }

    fn export_into(
        &self,
        folder: &Path,
        key: Option<&SigningKey>,
        cancelled: &AtomicBool,
    ) -> Result<(), CopyError> {
        if folder.is_file() {
            let why = "it is a file, not a directory";
            Err(io::Error::new(io::ErrorKind::NotADirectory, why)).attempt("create", folder)?;
        }
        fs::create_dir_all(folder).attempt("create", folder)?;
        let target = folder.join(self.fingerprint());
        remove_unfinished(folder, &format!("{}.{STAGING}", self.fingerprint()))?;
        let staging = target.with_added_extension(format!("{STAGING}{}", std::process::id()));
        private::ensure(&staging, 0o700)?;
        let lock = staging.join(LOCK);
        let _at_work = sys::Lock::take(&lock).attempt("lock", &lock)?;
        let result = self.export_to(&staging, key).and_then(|()| {
            check_cancelled(cancelled).attempt("write", &target)?;
            fs::remove_file(&lock).attempt("remove", &lock)?;
            remove_tree(&target)?;
            Ok(fs::rename(&staging, &target).attempt("rename", &staging)?)
        });
        if result.is_err()
            && let Err(error) = remove_tree(&staging)
        {
            tracing::warn!(%error, "could not remove what was not finished");
        }
        result
    }

    fn export_to(&self, staging: &Path, key: Option<&SigningKey>) -> Result<(), CopyError> {
        BackgroundCopy::begin(
            self,
            &staging.join("data"),
            &Account::ours(),
            Deferred { below: "base/", last: None },
        )?
        .finish(&|_, _| ())?;
        let read = |name| {
            let path = self.directory().join(name);
            fs::read_to_string(&path).attempt("read", &path)
        };
        let (about, manifest) = (read("about")?, read("manifest")?);
        let head = key.map(|_| Head::new(&self.fingerprint(), &manifest, &about));
        for (name, text) in [("about", about), ("manifest", manifest)] {
            let to = staging.join(name);
            fs::write(&to, text).attempt("write", &to)?;
        }
        if let (Some(head), Some(key)) = (head, key) {
            write_signed(&head, key, staging)?;
        }
        Ok(())
    }
}

/// Writes the head and its signature into `folder`.
fn write_signed(head: &Head, key: &SigningKey, folder: &Path) -> Result<(), FileError> {
    let text = head.to_text();
    let signature = head.sign(key);
    for (name, text) in [(HEAD, text), (SIGNATURE, signature)] {
        let path = folder.join(name);
        // Remove existing files instead of overwriting them, so that a link can't redirect the write.
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.attempt("remove", &path)?,
        }
        let mut file = fs::File::create_new(&path).attempt("create", &path)?;
        file.write_all(text.as_bytes()).attempt("write", &path)?;
    }
    Ok(())
}

/// Compares the files of the exported entry at `folder` with its manifest, then signs the entry.
///
/// # Errors
/// Returns [`CacheError::Invalid`] if a file differs from the
/// manifest. In that case, the entry doesn't get a new signature.
pub fn sign(folder: &Path, key: &SigningKey, cancelled: &AtomicBool) -> Result<(), CacheError> {
    let head = UncheckedEntry::open(folder)?.new_head(cancelled)?;
    Ok(write_signed(&head, key, folder).map_err(|error| error.given_in(folder))?)
}

/// Checks that a trusted key signed the entry at `folder`, and that the files match the signed manifest.
///
/// # Errors
/// Returns an error if the entry has no signature from a trusted key, or if it differs from its signed
/// manifest.
pub fn verify(folder: &Path, trusted: &[TrustedKey], cancelled: &AtomicBool) -> Result<Signed, CacheError> {
    let arrival = UncheckedEntry::open(folder)?;
    let statement = arrival.read_claims(trusted)?;
    let not_signed =
        || CacheError::Untrusted { path: folder.to_owned(), what: "no key is trusted".to_owned() };
    let signed = statement.signed.ok_or_else(not_signed)?;
    arrival.check(&statement.manifest, cancelled)?;
    Ok(signed)
}

/// Removes unfinished exports of dead processes from `folder`. `prefix` is the common prefix of their names.
fn remove_unfinished(folder: &Path, prefix: &str) -> Result<(), FileError> {
    for entry in fs::read_dir(folder).attempt("read", folder)?.flatten() {
        let path = entry.path();
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
        if ours && sys::Lock::try_take(&path.join(LOCK)).attempt("lock", &path)?.is_some() {
            remove_tree(&path)?;
        }
    }
    Ok(())
}

impl Cache {
    /// Imports the entry at `folder`, whose name is its fingerprint. Returns false if the cache already has
    /// the entry.
    ///
    /// If `trusted` contains keys, one of them must have signed the entry. Returns an error soon after
    /// `cancelled` is set. A failed import leaves no files in the cache.
    ///
    /// # Errors
    /// Returns [`CacheError::Invalid`] if the entry differs from its manifest, and [`CacheError::Untrusted`] if
    /// no trusted key has signed it.
    pub fn import(
        &self,
        folder: &Path,
        trusted: &[TrustedKey],
        cancelled: &AtomicBool,
    ) -> Result<bool, CacheError> {
        let arrival = UncheckedEntry::open(folder)?;
        let statement = arrival.read_claims(trusted)?;
        let building = self.building(arrival.fingerprint(), || ())?;
        if self.examine(arrival.fingerprint())?.is_some() {
            return Ok(false);
        }
        building.publish_staged(&statement.about, |staging| arrival.stage(&statement, staging, cancelled))?;
        Ok(true)
    }
}

/// Returns the paths of the exported entries in `folder`, sorted.
///
/// # Errors
/// Returns the error of the file system, with the path.
pub fn exported_entries(folder: &Path) -> Result<Vec<std::path::PathBuf>, FileError> {
    let found = fs::read_dir(folder).attempt("read", folder)?.flatten();
    let mut found: Vec<_> = found.map(|entry| entry.path()).collect();
    found.retain(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(is_fingerprint)
            // A directory with any one of these files counts as an entry. If some of the others are missing,
            // the import must report the damage.
            && ["manifest", "about", "data", HEAD, SIGNATURE].iter().any(|name| path.join(name).symlink_metadata().is_ok())
    });
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    mod signed;

    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;
    use crate::manifest::{File, Manifest};

    /// Files and directories in the exported tree.
    const FILES: [&str; 4] = ["base/1/rows", "base/1/holes", "top", "base/2/empty"];
    const FOLDERS: [&str; 4] = ["base", "base/1", "base/2", "nothing"];

    /// Damage to an exported entry while it is in transit.
    #[derive(Debug, Clone)]
    enum Damage {
        Longer(usize, u64),
        Shorter(usize),
        Flipped(usize),
        Missing(usize),
        Replaced(usize, Replacement),
        Extra(usize, Replacement),
        Said(ManifestDamage),
        Cut(usize),
    }

    #[derive(Debug, Clone, Copy)]
    enum Replacement {
        Link,
        Pipe,
        Directory,
        File,
    }

    /// A forged manifest line. The digest at the end of the manifest is nevertheless correct.
    #[derive(Debug, Clone)]
    enum ManifestDamage {
        Path(&'static str),
        Twice(usize),
        Huge(usize, u64),
        Folder(&'static str),
    }

    fn damages() -> impl Strategy<Value = Damage> {
        let file = 0..FILES.len();
        let thing = prop::sample::select(vec![
            Replacement::Link,
            Replacement::Pipe,
            Replacement::Directory,
            Replacement::File,
        ]);
        let path =
            prop::sample::select(vec!["../out", "/etc/passwd", "base/../top", "base/3/none", "top/under"]);
        // An index for everything that can be replaced: the manifest, the description, the data directory,
        // and its files and directories.
        let any = 0..3 + FILES.len() + FOLDERS.len();
        prop_oneof![
            (file.clone(), prop_oneof![Just(1), Just(70_000), Just(1 << 42)])
                .prop_map(|(at, by)| Damage::Longer(at, by)),
            file.clone().prop_map(Damage::Shorter),
            file.clone().prop_map(Damage::Flipped),
            any.clone().prop_map(Damage::Missing),
            (any.clone(), thing.clone()).prop_map(|(at, thing)| Damage::Replaced(at, thing)),
            (0..=FOLDERS.len(), thing).prop_map(|(at, thing)| Damage::Extra(at, thing)),
            path.clone().prop_map(|path| Damage::Said(ManifestDamage::Path(path))),
            path.prop_map(|path| Damage::Said(ManifestDamage::Folder(path))),
            file.clone().prop_map(|at| Damage::Said(ManifestDamage::Twice(at))),
            (file, prop_oneof![Just(u64::MAX), Just(1 << 43), Just(0)])
                .prop_map(|(at, size)| Damage::Said(ManifestDamage::Huge(at, size))),
            (0_usize..2000).prop_map(Damage::Cut),
        ]
    }

    fn put(thing: Replacement, path: &Path) {
        match thing {
            Replacement::Link => symlink("/etc", path).unwrap(),
            Replacement::Pipe => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
            Replacement::Directory => fs::create_dir(path).unwrap(),
            Replacement::File => fs::write(path, "x").unwrap(),
        }
    }

    #[expect(clippy::let_underscore_must_use, reason = "there may be nothing to damage")]
    fn remove(path: &Path) {
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap();
        } else {
            let _ = fs::remove_file(path);
        }
    }

    /// Applies `mishap` to the entry in `folder`. Does nothing if an earlier mishap removed the target.
    fn apply_damage(mishap: &Damage, folder: &Path) {
        let data = folder.join("data");
        let open = |at: usize| fs::File::options().write(true).read(true).open(data.join(FILES[at])).ok();
        let any = |at: usize| {
            let own = ["manifest", "about", "data"];
            let inside = FILES.iter().chain(&FOLDERS).map(|path| data.join(path));
            own.iter().map(|name| folder.join(name)).chain(inside).nth(at).unwrap()
        };
        match mishap {
            Damage::Longer(at, by) => {
                let _ = open(*at).map(|file| file.set_len(file.metadata().unwrap().len() + by));
            }
            Damage::Shorter(at) => {
                let _ = open(*at).map(|file| file.set_len(file.metadata().unwrap().len() / 2));
            }
            Damage::Flipped(at) => {
                if let Some(file) = open(*at) {
                    use std::os::unix::fs::FileExt;
                    let mut byte = [0];
                    if file.read_at(&mut byte, 0).unwrap() == 1 {
                        file.write_at(&[byte[0] ^ 4], 0).unwrap();
                    }
                }
            }
            Damage::Missing(at) => remove(&any(*at)),
            Damage::Replaced(at, thing) => {
                let path = any(*at);
                if path.parent().unwrap().is_dir() && !path.parent().unwrap().is_symlink() {
                    remove(&path);
                    put(*thing, &path);
                }
            }
            Damage::Extra(at, thing) => {
                let above = FOLDERS.get(*at).map_or(data.clone(), |path| data.join(path));
                if above.is_dir() && !above.is_symlink() && !above.join("extra").exists() {
                    put(*thing, &above.join("extra"));
                }
            }
            Damage::Said(saying) => damage_manifest(saying, &folder.join("manifest")),
            Damage::Cut(at) => {
                let path = folder.join("manifest");
                if path.is_file()
                    && let Ok(text) = fs::read(&path)
                {
                    fs::write(&path, &text[..text.len().min(*at)]).unwrap();
                }
            }
        }
    }

    fn damage_manifest(saying: &ManifestDamage, path: &Path) {
        // Opening a pipe would block.
        let text = path.is_file().then(|| fs::read_to_string(path).unwrap());
        let Some(mut manifest) = text.and_then(|text| Manifest::parse(&text)) else { return };
        let file =
            |path: &str, size| File { path: path.to_owned(), size, modified: 0, digest: blake3::hash(b"") };
        match saying {
            ManifestDamage::Path(path) => manifest.files.push(file(path, 0)),
            ManifestDamage::Folder(path) => {
                manifest.directories.push((*path).to_owned());
                manifest.directories.sort();
            }
            ManifestDamage::Twice(at) => manifest.files.push(file(FILES[*at], 0)),
            ManifestDamage::Huge(at, size) => {
                if let Some(file) = manifest.files.iter_mut().find(|file| file.path == FILES[*at]) {
                    file.size = *size;
                }
            }
        }
        fs::write(path, manifest.to_text()).unwrap();
    }

    /// Returns every path below `root`, with the contents of each file.
    fn contents_below(root: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(root).unwrap().flatten() {
            let name = PathBuf::from(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                let below = contents_below(&entry.path()).into_iter();
                found.extend(below.map(|(path, bytes)| (name.join(path), bytes)));
                found.push((name, None));
            } else {
                found.push((name, Some(fs::read(entry.path()).unwrap())));
            }
        }
        found.sort();
        found
    }

    /// Returns the tree of a cached entry, and the directory that the entry was exported to.
    fn exported_fixture(root: &Path) -> (PathBuf, PathBuf) {
        let tree = root.join("tree");
        for folder in FOLDERS {
            fs::create_dir_all(tree.join(folder)).unwrap();
        }
        for (number, file) in FILES.iter().enumerate() {
            let mut bytes = vec![0; 100_000 * (FILES.len() - 1 - number)];
            if let Some(last) = bytes.last_mut() {
                *last = 7;
            }
            fs::write(tree.join(file), bytes).unwrap();
        }
        let here = Cache::locate(Some(&root.join("here"))).unwrap();
        let entry = here.building("abc", || ()).unwrap().publish(&tree, &[], "about").unwrap();
        entry.export(&root.join("carrier"), None, &AtomicBool::new(false)).unwrap();
        (tree, root.join("carrier/abc"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn damaged_import_is_refused_or_exact(mishaps in prop::collection::vec(damages(), 0..3)) {
            let directory = tempfile::tempdir().unwrap();
            let (tree, folder) = exported_fixture(directory.path());
            for mishap in &mishaps {
                apply_damage(mishap, &folder);
            }
            let there = Cache::locate(Some(&directory.path().join("there"))).unwrap();
            match there.import(&folder, &[], &AtomicBool::new(false)) {
                Ok(new) => {
                    prop_assert!(new);
                    let entry = there.look_up("abc").unwrap().unwrap();
                    prop_assert_eq!(contents_below(&entry.data()), contents_below(&tree));
                }
                Err(error) => {
                    prop_assert!(!mishaps.is_empty(), "{}", error);
                    let words = error.to_string();
                    prop_assert!(words.contains("abc") && !words.contains('\n'), "{}", words);
                    let left = fs::read_dir(directory.path().join("there/images")).unwrap().count();
                    prop_assert_eq!(left, 0);
                }
            }
        }
    }

    #[test]
    fn export_removes_dead_staging_and_keeps_active_one() {
        let directory = tempfile::tempdir().unwrap();
        let (_, folder) = exported_fixture(directory.path());
        let carrier = folder.parent().unwrap();
        let (dead, alive) = (carrier.join("abc.staging-1"), carrier.join("abc.staging-2"));
        fs::create_dir(&dead).unwrap();
        fs::create_dir(&alive).unwrap();
        fs::write(dead.join("lock"), "").unwrap();
        let _at_work = sys::Lock::take(&alive.join("lock")).unwrap();
        let here = Cache::locate(Some(&directory.path().join("here"))).unwrap();
        here.look_up("abc").unwrap().unwrap().export(carrier, None, &AtomicBool::new(false)).unwrap();
        assert!(!dead.exists() && alive.exists());
        assert_eq!(contents_below(&folder).iter().filter(|(path, _)| path.ends_with("lock")).count(), 0);
    }

    #[test]
    fn import_accepts_exported_entry_and_rejects_damaged_one() {
        let directory = tempfile::tempdir().unwrap();
        let cache = |name: &str| Cache::locate(Some(&directory.path().join(name))).unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("base/1")).unwrap();
        fs::write(tree.join("base/1/rows"), "some rows").unwrap();
        fs::write(tree.join("top"), "top").unwrap();
        let (here, there) = (cache("here"), cache("there"));
        let entry = here.building("abc", || ()).unwrap().publish(&tree, &[], "about").unwrap();
        let carrier = directory.path().join("a/carrier");
        entry.export(&carrier, None, &AtomicBool::new(false)).unwrap();
        entry.export(&carrier, None, &AtomicBool::new(false)).unwrap();
        let found = exported_entries(&carrier).unwrap();
        assert_eq!(found, [carrier.join("abc")]);
        assert!(there.import(&found[0], &[], &AtomicBool::new(false)).unwrap());
        assert!(!there.import(&found[0], &[], &AtomicBool::new(false)).unwrap());
        let arrived = there.look_up("abc").unwrap().unwrap();
        assert_eq!((arrived.about().as_str(), arrived.bytes()), ("about", 12));

        fs::write(carrier.join("abc/data/top"), "TOP").unwrap();
        assert!(matches!(
            cache("third").import(&found[0], &[], &AtomicBool::new(false)),
            Err(CacheError::Invalid { .. })
        ));
        assert!(cache("third").look_up("abc").unwrap().is_none());
    }

    #[test]
    fn cancelled_export_or_import_leaves_no_files() {
        let directory = tempfile::tempdir().unwrap();
        let (_, folder) = exported_fixture(directory.path());
        let at = |name: &str| directory.path().join(name);
        let there = Cache::locate(Some(&at("there"))).unwrap();
        let cancelled = AtomicBool::new(true);
        assert!(matches!(there.import(&folder, &[], &cancelled), Err(CacheError::File(_))));
        assert_eq!(fs::read_dir(at("there/images")).unwrap().count(), 0);
        let entry = Cache::locate(Some(&at("here"))).unwrap().look_up("abc").unwrap().unwrap();
        assert!(matches!(entry.export(&at("second"), None, &cancelled), Err(CopyError::File(_))));
        assert_eq!(fs::read_dir(at("second")).unwrap().count(), 0);
    }
}
