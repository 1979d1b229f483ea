//! Taking in what was carried here: nothing is believed, no link followed, and no more read than was announced.
//!
//! Everything is opened relative to the directory above it, so that what is examined is what is read, whatever another process
//! puts there meanwhile.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use sys::{Directory, FileKind};

use crate::attempt::Attempt;
use crate::cancel::{Cancellable, go_on};
use crate::error::{CacheError, CopyError};
use crate::manifest::Manifest;
use crate::publish;
use crate::tree::{self, Tree};

/// The longest manifest or description that is read, in bytes: that of some 300 000 files.
const LONGEST_TEXT: u64 = 64 << 20;

/// A carried entry that has not been looked at yet.
pub(crate) struct Arrival<'a> {
    folder: &'a Path,
    root: Directory,
}

fn unfit(path: &Path, what: &'static str) -> CacheError {
    CacheError::Unfit { path: path.to_owned(), what }
}

/// What is missing or of another kind makes it unfit; it was not built here.
fn refused(error: CopyError) -> CacheError {
    match error {
        CopyError::File(error) => error.into(),
        CopyError::Damaged { path, .. } => unfit(&path, "it is not as its manifest says"),
    }
}

impl<'a> Arrival<'a> {
    pub(crate) fn open(folder: &'a Path) -> Result<Self, CacheError> {
        let root = tree::reach(Directory::open(folder), folder).map_err(refused)?;
        Ok(Self { folder, root })
    }

    /// What its manifest says, which is nothing but a promise.
    pub(crate) fn manifest(&self) -> Result<Manifest, CacheError> {
        let path = self.folder.join("manifest");
        let said = Manifest::parse(&self.text("manifest")?).ok_or_else(|| unfit(&path, "it is damaged"))?;
        if said.names_each_path_once() { Ok(said) } else { Err(unfit(&path, "it contradicts itself")) }
    }

    /// The text of one of its own files.
    pub(crate) fn text(&self, name: &str) -> Result<String, CacheError> {
        let path = self.folder.join(name);
        let mut text = String::new();
        let file = open_file(&self.root, name, &path)?;
        let read = file.take(LONGEST_TEXT + 1).read_to_string(&mut text);
        if read.attempt("read", &path)? as u64 > LONGEST_TEXT {
            return Err(unfit(&path, "it is too long"));
        }
        Ok(text)
    }

    /// Copies its files to `staging`, each of which must be as `said`, and none else may be there. Once `cancelled` is set, it
    /// fails instead.
    pub(crate) fn stage(
        &self,
        said: &Manifest,
        staging: &Path,
        cancelled: &AtomicBool,
    ) -> Result<Manifest, CacheError> {
        let (from, to) = (self.folder.join("data"), staging.join("data"));
        let make = |path: &Path| {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(path).attempt("create", path)
        };
        make(&to)?;
        let free = sys::Filesystem::of(staging).attempt("examine", staging)?.free;
        if said.bytes() > free {
            return Err(unfit(self.folder, "it is larger than what the cache's file system has left"));
        }
        let top = tree::reach(self.root.directory("data"), &from).map_err(refused)?;
        let tree = Tree::open(&from, top, said).map_err(refused)?;
        expect_no_other(said, &tree)?;
        for path in &said.directories {
            make(&to.join(path))?;
        }
        let mut found = Manifest { directories: said.directories.clone(), files: Vec::new() };
        for file in &said.files {
            let path = from.join(&file.path);
            let (folder, name) =
                said.folder_of(&file.path).ok_or_else(|| unfit(&path, "it is in no folder"))?;
            let source = open_file(&tree.directories[folder], name, &path)?;
            let mut source = Cancellable { source: source.take(file.size.saturating_add(1)), cancelled };
            let copied = publish::take_in(&mut source, &path, file.path.clone(), &to)?;
            if (copied.size, copied.digest) != (file.size, file.digest) {
                return Err(unfit(&path, "it is not as its manifest says"));
            }
            found.files.push(copied);
        }
        go_on(cancelled).attempt("read", self.folder)?;
        Ok(found)
    }
}

/// Opens a regular file, and nothing else: not even to look at it, where that would wait (a pipe) or do something (a
/// device).
fn open_file(folder: &Directory, name: &str, path: &Path) -> Result<fs::File, CacheError> {
    if folder.kind(name).attempt("open", path)? != FileKind::File {
        return Err(unfit(path, "it is no regular file"));
    }
    // Another process may have put another thing there since.
    tree::reach(folder.file(name), path).map_err(refused)
}

/// Makes sure that nothing is in `tree` but what the manifest names.
fn expect_no_other(said: &Manifest, tree: &Tree) -> Result<(), CacheError> {
    let paths = said.directories.iter().chain(said.files.iter().map(|file| &file.path));
    let known: HashSet<_> = paths.filter_map(|path| said.folder_of(path)).collect();
    for (number, folder) in tree.directories.iter().enumerate() {
        let path = said.directories.get(number).map_or(tree.root.clone(), |path| tree.root.join(path));
        for (name, _) in folder.entries().attempt("read", &path)? {
            if name.to_str().is_none_or(|name| !known.contains(&(number, name))) {
                return Err(unfit(&path.join(&name), "it is not in the manifest"));
            }
        }
    }
    Ok(())
}
