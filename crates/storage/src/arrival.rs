//! Taking in what was carried here: nothing is believed, no link followed, and no more read than was announced.
//!
//! Everything is opened relative to the directory above it, so that what is examined is what is read, whatever another process
//! puts there meanwhile.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Take};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use sys::{Directory, FileKind};

use crate::attempt::Attempt;
use crate::cancel::{Cancellable, go_on};
use crate::error::{CacheError, CopyError};
use crate::head::{self, Head};
use crate::manifest::{self, Manifest};
use crate::publish;
use crate::signing::{Signed, TrustedKey};
use crate::tree::{self, Tree};

/// The longest manifest or description that is read, in bytes: that of some 300 000 files.
const LONGEST_TEXT: u64 = 64 << 20;
/// The longest head or signature that is read, in bytes.
const LONGEST_HEAD: u64 = 4 << 10;
/// The files of a signed entry: what is signed, and the signature.
pub(crate) const HEAD: &str = "head";
pub(crate) const SIGNATURE: &str = "head.minisig";
/// The bits that the mode of a data file may have. Transports may change who can read and write; imported files get a mode of
/// their own.
const MODES: u32 = 0o666;

/// A carried entry that has not been looked at yet.
pub(crate) struct Arrival<'a> {
    folder: &'a Path,
    root: Directory,
    fingerprint: &'a str,
}

/// What an entry says of itself.
pub(crate) struct Statement {
    /// A promise, until each file has been compared with it.
    pub(crate) said: Manifest,
    pub(crate) about: String,
    /// Who has signed it and when, where keys are trusted.
    pub(crate) signed: Option<Signed>,
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

fn untrusted(path: &Path, what: impl Into<String>) -> CacheError {
    CacheError::Untrusted { path: path.to_owned(), what: what.into() }
}

impl<'a> Arrival<'a> {
    /// The one at `folder`, which is called by its fingerprint.
    pub(crate) fn open(folder: &'a Path) -> Result<Self, CacheError> {
        let fingerprint =
            folder.file_name().and_then(|name| name.to_str()).filter(|name| is_fingerprint(name));
        let fingerprint = fingerprint.ok_or_else(|| unfit(folder, "its name is no fingerprint"))?;
        let root = tree::reach(Directory::open(folder), folder).map_err(refused)?;
        Ok(Self { folder, root, fingerprint })
    }

    pub(crate) fn fingerprint(&self) -> &'a str {
        self.fingerprint
    }

    /// What it says of itself; if keys are `trusted`, one of them must have signed that.
    pub(crate) fn statement(&self, trusted: &[TrustedKey]) -> Result<Statement, CacheError> {
        // Nothing else is read before a key has vouched for it.
        let head = if trusted.is_empty() { None } else { Some(self.head(trusted)?) };
        let path = self.folder.join("manifest");
        let manifest = self.text("manifest", LONGEST_TEXT)?;
        let about = self.text("about", LONGEST_TEXT)?;
        if let Some(name) = head.as_ref().and_then(|(head, _)| head.differs(&manifest, &about)) {
            return Err(untrusted(&self.folder.join(name), "it is not the one that was signed"));
        }
        let said = Manifest::parse(&manifest).ok_or_else(|| unfit(&path, "it is damaged"))?;
        if !said.names_each_path_once() {
            return Err(unfit(&path, "it contradicts itself"));
        }
        Ok(Statement { said, about, signed: head.map(|(_, signed)| signed) })
    }

    /// What a trusted key has signed of this entry.
    fn head(&self, trusted: &[TrustedKey]) -> Result<(Head, Signed), CacheError> {
        for name in [HEAD, SIGNATURE] {
            match self.root.kind(name) {
                Err(error) if sys::is_absent(&error) => {
                    return Err(untrusted(self.folder, "it is not signed"));
                }
                other => other.attempt("examine", &self.folder.join(name))?,
            };
        }
        let (text, signature) = (self.text(HEAD, LONGEST_HEAD)?, self.text(SIGNATURE, LONGEST_HEAD)?);
        head::verify(self.fingerprint, (&text, &signature), trusted)
            .map_err(|why| untrusted(self.folder, why))
    }

    /// What is to be signed of it, once each file has been compared with its manifest.
    pub(crate) fn new_head(&self, cancelled: &AtomicBool) -> Result<Head, CacheError> {
        let Statement { said, about, .. } = self.statement(&[])?;
        self.check(&said, cancelled)?;
        Ok(Head::new(self.fingerprint, &said.to_text(), &about))
    }

    /// The text of one of its own files, of `most` bytes.
    fn text(&self, name: &str, most: u64) -> Result<String, CacheError> {
        let path = self.folder.join(name);
        let mut text = String::new();
        let file = open_file(&self.root, name, &path)?;
        let read = file.take(most + 1).read_to_string(&mut text);
        if read.attempt("read", &path)? as u64 > most {
            return Err(unfit(&path, "it is too long"));
        }
        Ok(text)
    }

    /// Its tree, in which nothing is but what is `said`.
    fn tree(&self, said: &Manifest) -> Result<Tree, CacheError> {
        let from = self.folder.join("data");
        let top = tree::reach(self.root.directory("data"), &from).map_err(refused)?;
        let tree = Tree::open(&from, top, said).map_err(refused)?;
        expect_no_other(said, &tree)?;
        Ok(tree)
    }

    /// Compares each of its files with what is `said`. Once `cancelled` is set, it fails instead.
    pub(crate) fn check(&self, said: &Manifest, cancelled: &AtomicBool) -> Result<(), CacheError> {
        let tree = self.tree(said)?;
        for file in &said.files {
            let (mut source, path) = open_source(&tree, said, file, cancelled)?;
            expect_plain(&source.source, &path)?;
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(&mut source).attempt("read", &path)?;
            if (hasher.count(), hasher.finalize()) != (file.size, file.digest) {
                return Err(unfit(&path, DIFFERENT));
            }
        }
        Ok(go_on(cancelled).attempt("read", self.folder)?)
    }

    /// Copies its files to `staging`, each of which must be as the statement says, and none else may be there. Once `cancelled`
    /// is set, it fails instead.
    pub(crate) fn stage(
        &self,
        statement: &Statement,
        staging: &Path,
        cancelled: &AtomicBool,
    ) -> Result<Manifest, CacheError> {
        let said = &statement.said;
        let to = publish::make_directories(said, staging, self.folder)?;
        let tree = self.tree(said)?;
        let mut found = Manifest { directories: said.directories.clone(), files: Vec::new() };
        for file in &said.files {
            let (mut source, path) = open_source(&tree, said, file, cancelled)?;
            if statement.signed.is_some() {
                expect_plain(&source.source, &path)?;
            }
            let copied = publish::take_in(&mut source, &path, file.path.clone(), &to)?;
            if (copied.size, copied.digest) != (file.size, file.digest) {
                return Err(unfit(&path, DIFFERENT));
            }
            found.files.push(copied);
        }
        go_on(cancelled).attempt("read", self.folder)?;
        Ok(found)
    }
}

/// What is wrong with a file whose bytes are not those that were announced.
const DIFFERENT: &str = "it is not as its manifest says";

/// Opens a file of the tree, of which no more is read than one byte beyond what is said.
fn open_source<'a>(
    tree: &Tree,
    said: &Manifest,
    file: &manifest::File,
    cancelled: &'a AtomicBool,
) -> Result<(Cancellable<'a, Take<fs::File>>, PathBuf), CacheError> {
    let path = tree.root.join(&file.path);
    let (folder, name) = said.folder_of(&file.path).ok_or_else(|| unfit(&path, "it is in no folder"))?;
    let source = open_file(&tree.directories[folder], name, &path)?;
    Ok((Cancellable { source: source.take(file.size.saturating_add(1)), cancelled }, path))
}

/// Makes sure that no signed file has been made one that can be executed, or that takes its owner's rights.
fn expect_plain(source: &Take<fs::File>, path: &Path) -> Result<(), CacheError> {
    let mode = source.get_ref().metadata().attempt("examine", path)?.mode() & 0o7777;
    if mode & !MODES == 0 { Ok(()) } else { Err(unfit(path, "its mode is not that of a data file")) }
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

/// Whether `name` can be that of an entry: hex digits only.
pub(crate) fn is_fingerprint(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit())
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
