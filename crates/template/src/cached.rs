//! Lists and selects cache entries, and evicts the least recently used entries when the cache is too large.

use std::path::Path;
use std::time::SystemTime;

use storage::{Cache, FileError};

use crate::description::EntryDescription;

/// Default size limit of the cache, in bytes.
const DEFAULT_MAX_SIZE: u64 = 10_000_000_000;

/// An entry of the cache.
#[derive(Debug, Clone)]
pub struct CachedTemplate {
    /// The full fingerprint.
    pub fingerprint: String,
    /// Description of the entry, or `None` if it is missing or unreadable.
    pub about: Option<EntryDescription>,
    /// Size on disk, in bytes. A block shared by several entries counts for each of them.
    pub occupied: u64,
    /// When a server last started from this entry.
    pub last_use: SystemTime,
}

impl CachedTemplate {
    /// Returns the template's name, or `None` for a base image.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.about.as_ref()?.name.as_deref()
    }
}

/// Lists all complete entries, most recently used first.
///
/// # Errors
/// Returns an error if a directory of the cache can't be read.
pub fn list(cache: &Cache) -> Result<Vec<CachedTemplate>, FileError> {
    let mut all = Vec::new();
    for fingerprint in cache.fingerprints()? {
        // Another process may have removed this entry after the call above listed it.
        if let Some(entry) = cache.examine(&fingerprint)? {
            let (occupied, last_use) = (entry.occupied()?, entry.last_use()?);
            all.push(CachedTemplate {
                fingerprint,
                about: EntryDescription::parse(&entry.about()),
                occupied,
                last_use,
            });
        }
    }
    all.sort_by_key(|shelved| std::cmp::Reverse(shelved.last_use));
    Ok(all)
}

/// Returns the default size limit: 10 GB, or a fifth of the file system's free space if that is less.
pub(crate) fn default_size(cache: &Cache) -> u64 {
    let free = sys::Filesystem::of(cache.root()).map_or(u64::MAX, |filesystem| filesystem.free);
    DEFAULT_MAX_SIZE.min(free / 5)
}

/// Removes entries until the rest occupies at most `bound` bytes, and returns the removed entries. The least recently
/// used entries go first, and base images last. An entry that is in use is never removed.
pub(crate) fn evict(cache: &Cache, bound: u64) -> Result<Vec<CachedTemplate>, FileError> {
    cache.tidy()?;
    let mut all = list(cache)?;
    let mut occupied: u64 = all.iter().map(|shelved| shelved.occupied).sum();
    let mut evicted = Vec::new();
    all.sort_by_key(|shelved| (shelved.name().is_none(), shelved.last_use));
    for shelved in all {
        if occupied <= bound {
            break;
        }
        if cache.remove(&shelved.fingerprint)? {
            occupied = occupied.saturating_sub(shelved.occupied);
            evicted.push(shelved);
        }
    }
    Ok(evicted)
}

/// Selects the templates with the name `word` whose specification is in `folder`, or if there are none, the templates
/// whose fingerprint begins with `word`.
#[must_use]
pub fn select<'a>(all: &'a [CachedTemplate], word: &str, folder: &Path) -> Vec<&'a CachedTemplate> {
    let named = |shelved: &&CachedTemplate| {
        shelved
            .about
            .as_ref()
            .is_some_and(|about| about.name.as_deref() == Some(word) && about.folder == folder)
    };
    let named: Vec<_> = all.iter().filter(named).collect();
    if named.is_empty() && word.len() >= 4 {
        return all.iter().filter(|shelved| shelved.fingerprint.starts_with(word)).collect();
    }
    named
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::{FingerprintInputs, TemplateSpec};

    #[test]
    fn eviction_removes_least_recently_used_before_base_images() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::locate(Some(&directory.path().join("cache"))).unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("rows"), vec![1; 100_000]).unwrap();
        let spec = TemplateSpec { name: "app".into(), folder: "/shop".into(), ..TemplateSpec::default() };
        for (fingerprint, spec) in
            [("b0", None), ("a1", Some(&spec)), ("a2", Some(&spec)), ("a3", Some(&spec))]
        {
            let about =
                EntryDescription::new(spec, "17.5".into(), Duration::ZERO, FingerprintInputs::default());
            cache.building(fingerprint, || ()).unwrap().publish(&tree, &[], &about.to_text()).unwrap();
        }
        // File system clocks are coarse, so all entries may have the same time.
        let manifest = directory.path().join("cache/images/a3/manifest");
        fs::File::open(manifest).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        let in_use = cache.examine("a2").unwrap();
        let names = |shelved: Vec<CachedTemplate>| {
            shelved.into_iter().map(|shelved| shelved.fingerprint).collect::<Vec<_>>()
        };
        let all = list(&cache).unwrap();
        let one = all[0].occupied;
        assert_eq!(select(&all, "app", Path::new("/shop")).len(), 3);
        assert!(select(&all, "app", Path::new("/other")).is_empty());
        assert!(evict(&cache, 4 * one).unwrap().is_empty());
        assert_eq!(names(evict(&cache, 3 * one).unwrap()), ["a3"]);
        assert_eq!(names(evict(&cache, 0).unwrap()), ["a1", "b0"], "the one in use stays");
        drop(in_use);
        assert_eq!(names(evict(&cache, 0).unwrap()), ["a2"]);
    }
}
