//! Tests pushes to a directory and fetches from it.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use remote::{Destination, RemoteCache, Timeouts};
use storage::{Building, Cache, Entry, SigningKey};
use tempfile::TempDir;
use template::TemplateSource;

/// Template on one machine, its signing key, and a store.
struct Ground {
    directory: TempDir,
    entry: Entry,
    key: Arc<SigningKey>,
}

impl Ground {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let files = directory.path().join("files");
        fs::create_dir_all(&files).unwrap();
        fs::create_dir(directory.path().join("store")).unwrap();
        // Each frame is different.
        let bytes: Vec<u8> = (0..400_000_u32)
            .flat_map(|number| blake3::hash(&number.to_ne_bytes()).as_bytes()[..4].to_vec())
            .collect();
        fs::write(files.join("1"), bytes).unwrap();
        let cache = Cache::locate(Some(&directory.path().join("here"))).unwrap();
        let entry = cache.building("abc", || ()).unwrap().publish(&files, &[], "about").unwrap();
        Self { directory, entry, key: Arc::new(SigningKey::generate().unwrap()) }
    }

    fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    /// Returns a client for the store, and the cache of `machine`.
    fn remote(&self, machine: &str) -> (RemoteCache, Cache) {
        let cache = Cache::locate(Some(&self.directory.path().join(machine))).unwrap();
        let address = format!("file://{}", self.store().display()).parse().unwrap();
        (
            RemoteCache::new(address, cache.clone(), vec![self.key.public()]).pushing(Arc::clone(&self.key)),
            cache,
        )
    }

    /// Pushes the template. Returns the number of bytes sent.
    fn push(&self, progress: &dyn Fn(u64, u64)) -> u64 {
        let (remote, _) = self.remote("here");
        remote.push(&self.entry, &self.key, Timeouts::ASKED_FOR, progress).unwrap().bytes
    }

    /// Returns whether `machine`, whose cache is empty, gets the whole template.
    fn is_fetched(&self, machine: &str) -> bool {
        let (remote, cache) = self.remote(machine);
        let building = cache.building("abc", || ()).unwrap();
        let fetched = remote.fetch("abc", into(&building), Timeouts::ASKED_FOR, &|_, _| ());
        matches!(fetched, Ok(Some(_)))
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect()
}

/// Returns a destination for templates of any size.
fn into(building: &Building) -> Destination<'_> {
    Destination { building, limit: u64::MAX }
}

#[test]
fn push_restores_template_with_missing_blob() {
    let ground = Ground::new();
    let whole = ground.push(&|_, _| ());
    assert!(whole > 0 && ground.is_fetched("first"));
    assert_eq!(ground.push(&|_, _| ()), 0);
    for blob in files(&ground.store().join("blobs")) {
        fs::remove_file(blob).unwrap();
        let (remote, cache) = ground.remote("second");
        let building = cache.building("abc", || ()).unwrap();
        let sought = TemplateSource::fetch(&remote, "abc", &building, u64::MAX, &|_| ());
        let why = sought.map(drop).unwrap_err().to_string();
        assert!(why.contains(": could not read ") && why.ends_with(": it is missing"), "{why}");
        let offered = remote.offer(&ground.entry, &|_, _| ()).unwrap();
        assert!(offered.is_some_and(|bytes| bytes > 0), "{offered:?}");
        assert!(ground.is_fetched("third"));
    }
}

#[test]
fn push_resends_pack_removed_during_lookup() {
    let ground = Ground::new();
    ground.push(&|_, _| ());
    fs::remove_file(ground.store().join("heads/abc")).unwrap();
    let removed = Cell::new(false);
    let sent = ground.push(&|done, total| {
        if done == total && !removed.replace(true) {
            // By now, the push has found the packs in the store.
            std::thread::sleep(Duration::from_millis(300));
            for blob in files(&ground.store().join("blobs")) {
                fs::remove_file(blob).unwrap();
            }
        }
    });
    assert!(removed.get() && sent > 0);
    assert!(ground.is_fetched("first"));
}

#[test]
fn a_directory_that_is_missing_is_not_created() {
    let ground = Ground::new();
    let (remote, cache) = ground.remote("here");
    let building = cache.building("other", || ()).unwrap();
    for (is_file, said) in [(false, "the directory does not exist"), (true, "it is not a directory")] {
        fs::remove_dir(ground.store()).unwrap();
        if is_file {
            fs::write(ground.store(), "").unwrap();
        }
        let pushed = remote.push(&ground.entry, &ground.key, Timeouts::ASKED_FOR, &|_, _| ()).map(drop);
        let fetched = remote.fetch("other", into(&building), Timeouts::ASKED_FOR, &|_, _| ()).map(drop);
        let (listed, removed) =
            (remote.usage(Duration::MAX).map(drop), remote.collect(Duration::ZERO).map(drop));
        for done in [pushed, fetched, listed, removed, remote.expect_usable()] {
            assert_eq!(
                done.unwrap_err().to_string(),
                format!("could not open the store: {said}: mount or create it")
            );
        }
        assert_eq!(ground.store().exists(), is_file);
        drop(fs::remove_file(ground.store()));
        fs::create_dir(ground.store()).unwrap();
    }
}
