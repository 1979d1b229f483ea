//! Copies one directory of an entry into a running server's data directory, under a new
//! name. Since each database has its own directory, this adds a database to the server.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use sys::Directory;

use crate::Account;
use crate::copy_file::{FileCopier, Location};
use crate::entry::Entry;
use crate::error::CopyError;
use crate::file_error::Attempt;
use crate::tree;

/// Copies a single directory of an entry into a data directory that was itself copied from this entry.
#[derive(Debug)]
pub struct DirectoryCopier<'a> {
    /// The entry that contains the source directory.
    pub entry: &'a Entry,
    /// Parent directory of both the source and the copy, relative to both data directories.
    pub parent: &'a str,
    /// The server's data directory.
    pub data: &'a Path,
    /// Owner of the new files.
    pub account: &'a Account,
}

impl DirectoryCopier<'_> {
    /// Copies the files in the directory `from`, but not its subdirectories, to the new directory `to`.
    /// Returns false if `go_on` stopped the copy.
    ///
    /// Calls `go_on` before each file and after each chunk of a long file. The callback can block to pause
    /// the copy or return false to stop it. If the copy doesn't complete, the files copied so far are
    /// removed.
    ///
    /// # Errors
    /// Returns an error if the entry is damaged, if `to` already exists, or if a file operation fails.
    pub fn copy(&self, from: &str, to: &str, go_on: &dyn Fn() -> bool) -> Result<bool, CopyError> {
        let (source, source_path) = descend(&self.entry.data(), &[self.parent, from])?;
        let (parent, path) = descend(self.data, &[self.parent])?;
        let path = path.join(to);
        let target = parent.create_directory(to).attempt("create", &path)?;
        let copied = self.copy_files(from, (&source, source_path), (&target, path), go_on);
        if !matches!(copied, Ok(true))
            && let Err(error) = self.remove(to)
        {
            tracing::warn!(%error, "could not remove half a copy");
        }
        copied
    }

    fn copy_files(
        &self,
        from: &str,
        (source, source_path): Location<'_>,
        (target, path): Location<'_>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<bool, CopyError> {
        self.account.change_owner(target).attempt("change the owner of", &path)?;
        let mut copier = FileCopier::new(self.entry, self.account);
        for (file, name) in self.entry.files_in(&format!("{}/{from}", self.parent)) {
            let beat = || copier.stop.store(!go_on(), Ordering::Relaxed);
            beat();
            if copier.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let (from, to) = ((source, source_path.join(name)), (target, path.join(name)));
            let method = copier.copy(file, name, from, to, &beat)?;
            // After the first failed clone, copy the remaining files without trying again.
            if file.size > 0 {
                copier.method = method;
            }
        }
        Ok(!copier.stop.load(Ordering::Relaxed))
    }

    /// Removes the copy `to` if it exists.
    ///
    /// # Errors
    /// Returns an error if a file operation fails.
    pub fn remove(&self, to: &str) -> Result<(), CopyError> {
        let (parent, path) = descend(self.data, &[self.parent])?;
        Ok(parent.remove_tree(to).attempt("remove", &path.join(to))?)
    }
}

/// Opens a directory below `root` without following links.
fn descend(root: &Path, names: &[&str]) -> Result<(Directory, PathBuf), CopyError> {
    let mut path = root.to_owned();
    let mut directory = tree::with_path(Directory::open(root), root)?;
    for name in names {
        path.push(name);
        directory = tree::with_path(directory.directory(name), &path)?;
    }
    Ok((directory, path))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::{BackgroundCopy, Cache, Deferred};

    struct Fixture {
        _directory: tempfile::TempDir,
        entry: Entry,
        data: PathBuf,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let cache = Cache::locate(Some(&directory.path().join("cache"))).unwrap();
            let tree = directory.path().join("tree");
            fs::create_dir_all(tree.join("base/16384/deeper")).unwrap();
            fs::create_dir(tree.join("base/1")).unwrap();
            for (name, bytes) in [
                ("1/other", "other"),
                ("16384/empty", ""),
                ("16384/rows", "some rows"),
                ("16384/deeper/x", "x"),
            ] {
                fs::write(tree.join("base").join(name), bytes).unwrap();
            }
            fs::write(tree.join("base/16384/long"), vec![7; 3 << 20]).unwrap();
            let building = cache.building("abc", || panic!("no process builds it")).unwrap();
            let entry = building.publish(&tree, &[], "").unwrap();
            let data = directory.path().join("data");
            let all = Deferred { below: "", last: None };
            BackgroundCopy::begin(&entry, &data, &Account::ours(), all).unwrap().finish(&|_, _| ()).unwrap();
            Self { _directory: directory, entry, data }
        }

        fn copy(&self, to: &str, go_on: &dyn Fn() -> bool) -> Result<bool, CopyError> {
            let account = &Account::ours();
            DirectoryCopier { entry: &self.entry, parent: "base", data: &self.data, account }
                .copy("16384", to, go_on)
        }

        fn names(&self, directory: &str) -> Vec<String> {
            let entries = fs::read_dir(self.data.join(directory)).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    #[test]
    fn copy_has_entry_files_despite_changed_first_copy() {
        let fixture = Fixture::new();
        fs::write(fixture.data.join("base/16384/rows"), "others").unwrap();
        assert!(fixture.copy("2", &|| true).unwrap());
        assert_eq!(fixture.names("base/2"), ["empty", "long", "rows"]);
        let copy = fixture.data.join("base/2");
        assert_eq!(fs::read(copy.join("rows")).unwrap(), b"some rows");
        assert_eq!(fs::read(copy.join("long")).unwrap(), vec![7; 3 << 20]);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&copy), mode(&copy.join("rows"))), (0o700, 0o600));
        fs::write(copy.join("rows"), "changed").unwrap();
        assert_eq!(fs::read(fixture.entry.data().join("base/16384/rows")).unwrap(), b"some rows");
    }

    #[test]
    fn cancelled_copy_leaves_nothing() {
        let fixture = Fixture::new();
        let asked = Cell::new(0_usize);
        let count = || {
            asked.set(asked.get() + 1);
            true
        };
        assert!(fixture.copy("all", &count).unwrap());
        for most in 0..asked.get() {
            let left = Cell::new(most);
            let go_on = || left.replace(left.get().saturating_sub(1)) > 0;
            assert!(
                !fixture.copy("2", &go_on).unwrap(),
                "copied, although it had to stop after {most} checks"
            );
            assert_eq!(fixture.names("base"), ["1", "16384", "all"]);
        }
    }

    #[test]
    fn copy_fails_cleanly_on_damage_or_occupied_target() {
        let fixture = Fixture::new();
        let taken = fixture.copy("1", &|| true).unwrap_err();
        assert!(!taken.is_damage(), "{taken}");
        assert_eq!(fixture.names("base/1"), ["other"]);

        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), fixture.data.join("base/link")).unwrap();
        fixture.copy("link", &|| true).unwrap_err();
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "a link is not followed");

        let rows = fixture.entry.data().join("base/16384/rows");
        fs::set_permissions(&rows, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&rows, "same bytes").unwrap();
        let damaged = fixture.copy("2", &|| true).unwrap_err();
        assert!(damaged.is_damage(), "{damaged}");
        assert_eq!(fixture.names("base"), ["1", "16384", "link"]);
    }
}
