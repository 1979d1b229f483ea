//! Carrying entries from one cache to another, through a directory that anything may have transported.
//!
//! What comes in is read whole and compared with its manifest before it becomes an entry.

use std::fs;
use std::path::Path;

use crate::attempt::{Attempt, FileError};
use crate::cache::{Cache, CacheError, Entry, remove_tree};
use crate::copy::{CopyError, Copying};
use crate::manifest::{File, Manifest};
use crate::{Account, private};

impl Entry {
    /// Puts a copy of this entry into `folder`, which is made if need be, under its fingerprint.
    pub fn export(&self, folder: &Path) -> Result<(), CopyError> {
        fs::create_dir_all(folder).attempt("create", folder)?;
        let target = folder.join(self.fingerprint());
        let staging = target.with_added_extension(format!("staging-{}", std::process::id()));
        let result = self.export_to(&staging).and_then(|()| {
            remove_tree(&target)?;
            Ok(fs::rename(&staging, &target).attempt("rename", &staging)?)
        });
        if result.is_err() {
            let _ = remove_tree(&staging);
        }
        result
    }

    fn export_to(&self, staging: &Path) -> Result<(), CopyError> {
        private::ensure(staging, 0o700)?;
        Copying::begin(self, &staging.join("data"), &Account::ours(), "base/")?.finish(&|_, _| ())?;
        for name in ["about", "manifest"] {
            let (from, to) = (self.directory().join(name), staging.join(name));
            fs::copy(&from, &to).attempt("write", &to)?;
        }
        Ok(())
    }
}

impl Cache {
    /// Takes the entry at `folder` over, whose name is its fingerprint; false if it is here already.
    ///
    /// # Errors
    /// It is not what its manifest says: [`CacheError::Unfit`].
    pub fn import(&self, folder: &Path) -> Result<bool, CacheError> {
        let unfit = |what| CacheError::Unfit { path: folder.to_owned(), what };
        let fingerprint = folder.file_name().and_then(|name| name.to_str());
        let fingerprint = fingerprint.filter(|name| is_fingerprint(name));
        let fingerprint = fingerprint.ok_or_else(|| unfit("its name is no fingerprint"))?;
        let path = folder.join("manifest");
        let text = fs::read_to_string(&path).attempt("read", &path)?;
        let said = Manifest::parse(&text).ok_or_else(|| unfit("its manifest is damaged"))?;
        let building = self.building(fingerprint, || ())?;
        if self.examine(fingerprint)?.is_some() {
            return Ok(false);
        }
        let about = fs::read_to_string(folder.join("about")).unwrap_or_default();
        building.publish_if(&folder.join("data"), &[], &about, |found| {
            if same(&said, found) { Ok(()) } else { Err(unfit("its files are not those of its manifest")) }
        })?;
        Ok(true)
    }
}

/// Whether `name` can be that of an entry: hex digits only.
pub(crate) fn is_fingerprint(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The same files with the same bytes; their times do not count.
fn same(one: &Manifest, other: &Manifest) -> bool {
    let sorted = |manifest: &Manifest| {
        let mut files: Vec<_> = manifest
            .files
            .iter()
            .map(|File { path, size, digest, .. }| (path.clone(), *size, *digest.as_bytes()))
            .collect();
        files.sort();
        files
    };
    one.directories == other.directories && sorted(one) == sorted(other)
}

/// The entries that lie in `folder`, as [`Entry::export`] put them there.
pub fn carried(folder: &Path) -> Result<Vec<std::path::PathBuf>, FileError> {
    let found = fs::read_dir(folder).attempt("read", folder)?.flatten();
    let mut found: Vec<_> = found.map(|entry| entry.path()).collect();
    found.retain(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(is_fingerprint)
            && path.join("manifest").is_file()
    });
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_travels_and_a_damaged_one_is_turned_away() {
        let directory = tempfile::tempdir().unwrap();
        let cache = |name: &str| Cache::locate(Some(&directory.path().join(name))).unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("base/1")).unwrap();
        fs::write(tree.join("base/1/rows"), "some rows").unwrap();
        fs::write(tree.join("top"), "top").unwrap();
        let (here, there) = (cache("here"), cache("there"));
        let entry = here.building("abc", || ()).unwrap().publish(&tree, &[], "about").unwrap();
        let carrier = directory.path().join("a/carrier");
        entry.export(&carrier).unwrap();
        entry.export(&carrier).unwrap();
        let found = carried(&carrier).unwrap();
        assert_eq!(found, [carrier.join("abc")]);
        assert!(there.import(&found[0]).unwrap());
        assert!(!there.import(&found[0]).unwrap());
        let arrived = there.look_up("abc").unwrap().unwrap();
        assert_eq!((arrived.about().as_str(), arrived.bytes()), ("about", 12));

        fs::write(carrier.join("abc/data/top"), "TOP").unwrap();
        assert!(matches!(cache("third").import(&found[0]), Err(CacheError::Unfit { .. })));
        assert!(cache("third").look_up("abc").unwrap().is_none());
    }
}
