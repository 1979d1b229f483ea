//! Imports an entry from an untrusted source, such as a directory restored by a CI cache. The import checks
//! every file, follows no links, and never reads beyond the size that the manifest announces.
//!
//! Each file is opened relative to its parent directory, which stays open. Therefore
//! another process can't redirect us to a different file between the check and the read.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Take};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use sys::{Directory, FileKind};

use crate::cancel::{Cancellable, check_cancelled};
use crate::error::{CacheError, CopyError};
use crate::file_error::Attempt;
use crate::head::{self, Head, SignedHead};
use crate::manifest::{self, Manifest};
use crate::publish;
use crate::signing::{Signed, TrustedKey};
use crate::tree::{self, Tree};

/// Maximum size of a manifest or a description, in bytes. A manifest of this size lists about 300,000 files.
const MAX_TEXT_SIZE: u64 = 64 << 20;
/// Maximum size of a head or a signature, in bytes.
const MAX_HEAD_SIZE: u64 = 4 << 10;
/// File names of the signed head and its signature.
pub(crate) const HEAD: &str = "head";
pub(crate) const SIGNATURE: &str = "head.minisig";
/// Permission bits that a signed data file may have. Since a transport tool can change who can read or write
/// a file, the import accepts any of these bits and then sets its own modes.
const ALLOWED_MODES: u32 = 0o666;

/// An entry from an untrusted source, before any of its files are checked.
pub(crate) struct UncheckedEntry<'a> {
    folder: &'a Path,
    root: Directory,
    fingerprint: &'a str,
}

/// The manifest and the description that come with an unchecked entry.
pub(crate) struct EntryClaims {
    /// The files that the entry claims to contain. Don't trust this list until every file has been compared
    /// with its digest.
    pub(crate) manifest: Manifest,
    pub(crate) about: String,
    /// The signer of the entry and the time of the signature. `None` if the caller trusts no keys, in which case no
    /// signature is checked.
    pub(crate) signed: Option<Signed>,
}

fn invalid_entry(path: &Path, what: &'static str) -> CacheError {
    CacheError::Invalid { path: path.to_owned(), what }
}

/// Turns an error about damage into [`CacheError::Invalid`].
/// Rebuilding wouldn't help, because the entry wasn't built here.
fn damage_to_invalid(error: CopyError) -> CacheError {
    match error {
        CopyError::File(error) => error.into(),
        CopyError::Damaged { path, .. } => invalid_entry(&path, "it differs from its manifest"),
    }
}

fn untrusted_entry(path: &Path, what: impl Into<String>) -> CacheError {
    CacheError::Untrusted { path: path.to_owned(), what: what.into() }
}

impl<'a> UncheckedEntry<'a> {
    /// Opens the entry at `folder`, whose name is the entry's fingerprint.
    pub(crate) fn open(folder: &'a Path) -> Result<Self, CacheError> {
        let fingerprint =
            folder.file_name().and_then(|name| name.to_str()).filter(|name| is_fingerprint(name));
        let fingerprint =
            fingerprint.ok_or_else(|| invalid_entry(folder, "its name is not a fingerprint"))?;
        let root = tree::with_path(Directory::open(folder), folder).map_err(damage_to_invalid)?;
        Ok(Self { folder, root, fingerprint })
    }

    pub(crate) fn fingerprint(&self) -> &'a str {
        self.fingerprint
    }

    /// Reads the manifest and the description. If `trusted` contains keys, one of them must have signed both
    /// texts.
    pub(crate) fn read_claims(&self, trusted: &[TrustedKey]) -> Result<EntryClaims, CacheError> {
        // Check the signature first, so that the parsers below only see signed text.
        let head = if trusted.is_empty() { None } else { Some(self.head(trusted)?) };
        let path = self.folder.join("manifest");
        let manifest = self.text("manifest", MAX_TEXT_SIZE)?;
        let about = self.text("about", MAX_TEXT_SIZE)?;
        if let Some(name) = head.as_ref().and_then(|(head, _)| head.changed_text(&manifest, &about)) {
            return Err(untrusted_entry(&self.folder.join(name), "it is not the one that was signed"));
        }
        let claimed = Manifest::parse(&manifest).ok_or_else(|| invalid_entry(&path, "it is damaged"))?;
        if !claimed.has_consistent_paths() {
            return Err(invalid_entry(&path, "it contradicts itself"));
        }
        Ok(EntryClaims { manifest: claimed, about, signed: head.map(|(_, signed)| signed) })
    }

    /// Reads the head and checks that a trusted key signed it.
    fn head(&self, trusted: &[TrustedKey]) -> Result<(Head, Signed), CacheError> {
        for name in [HEAD, SIGNATURE] {
            match self.root.kind(name) {
                Err(error) if sys::is_absent(&error) => {
                    return Err(untrusted_entry(self.folder, "it is not signed"));
                }
                other => other.attempt("examine", &self.folder.join(name))?,
            };
        }
        let (text, signature) = (self.text(HEAD, MAX_HEAD_SIZE)?, self.text(SIGNATURE, MAX_HEAD_SIZE)?);
        let signed = SignedHead { text: &text, signature: &signature };
        head::verify(self.fingerprint, signed, trusted)
            .map_err(|error| untrusted_entry(self.folder, error.to_string()))
    }

    /// Compares every file with the manifest and returns a head for the caller to sign.
    pub(crate) fn new_head(&self, cancelled: &AtomicBool) -> Result<Head, CacheError> {
        let EntryClaims { manifest: claimed, about, .. } = self.read_claims(&[])?;
        self.check(&claimed, cancelled)?;
        Ok(Head::new(self.fingerprint, &claimed.to_text(), &about))
    }

    /// Reads one of the entry's text files. Returns an error if the file is longer than `most` bytes.
    fn text(&self, name: &str, most: u64) -> Result<String, CacheError> {
        let path = self.folder.join(name);
        let mut text = String::new();
        let file = open_file(&self.root, name, &path)?;
        let read = file.take(most + 1).read_to_string(&mut text);
        if read.attempt("read", &path)? as u64 > most {
            return Err(invalid_entry(&path, "it is too long"));
        }
        Ok(text)
    }

    /// Opens the directory tree. Returns an error if the tree contains a file or directory that the manifest
    /// doesn't list.
    fn tree(&self, claimed: &Manifest) -> Result<Tree, CacheError> {
        let from = self.folder.join("data");
        let top = tree::with_path(self.root.directory("data"), &from).map_err(damage_to_invalid)?;
        let tree = Tree::open(&from, top, claimed).map_err(damage_to_invalid)?;
        expect_no_unlisted_file(claimed, &tree)?;
        Ok(tree)
    }

    /// Compares every file with the manifest `claimed`. Returns an error soon after `cancelled` is set.
    pub(crate) fn check(&self, claimed: &Manifest, cancelled: &AtomicBool) -> Result<(), CacheError> {
        let tree = self.tree(claimed)?;
        for file in &claimed.files {
            let (mut source, path) = open_source(&tree, claimed, file, cancelled)?;
            expect_data_mode(&source.source, &path)?;
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(&mut source).attempt("read", &path)?;
            if (hasher.count(), hasher.finalize()) != (file.size, file.digest) {
                return Err(invalid_entry(&path, DIFFERS_FROM_MANIFEST));
            }
        }
        Ok(check_cancelled(cancelled).attempt("read", self.folder)?)
    }

    /// Copies all files to `staging`, comparing each with the manifest. Returns an error if there is a file
    /// that the manifest doesn't list, or soon after `cancelled` is set.
    pub(crate) fn stage(
        &self,
        statement: &EntryClaims,
        staging: &Path,
        cancelled: &AtomicBool,
    ) -> Result<Manifest, CacheError> {
        let claimed = &statement.manifest;
        let to = publish::make_directories(claimed, staging, self.folder)?;
        let tree = self.tree(claimed)?;
        let mut found = Manifest { directories: claimed.directories.clone(), files: Vec::new() };
        for file in &claimed.files {
            let (mut source, path) = open_source(&tree, claimed, file, cancelled)?;
            if statement.signed.is_some() {
                expect_data_mode(&source.source, &path)?;
            }
            let copied = publish::copy_and_digest(&mut source, &path, file.path.clone(), &to)?;
            if (copied.size, copied.digest) != (file.size, file.digest) {
                return Err(invalid_entry(&path, DIFFERS_FROM_MANIFEST));
            }
            found.files.push(copied);
        }
        check_cancelled(cancelled).attempt("read", self.folder)?;
        Ok(found)
    }
}

/// Error text for an imported file that differs from its line in the manifest.
const DIFFERS_FROM_MANIFEST: &str = "it differs from its manifest";

/// Opens a file of the tree for reading. The reader stops one byte after the announced size, which is enough
/// to detect a file that is too long.
fn open_source<'a>(
    tree: &Tree,
    claimed: &Manifest,
    file: &manifest::File,
    cancelled: &'a AtomicBool,
) -> Result<(Cancellable<'a, Take<fs::File>>, PathBuf), CacheError> {
    let path = tree.root.join(&file.path);
    let (folder, name) =
        claimed.parent_of(&file.path).ok_or_else(|| invalid_entry(&path, "it is in no folder"))?;
    let source = open_file(&tree.directories[folder], name, &path)?;
    Ok((Cancellable { source: source.take(file.size.saturating_add(1)), cancelled }, path))
}

/// Returns an error if a file of a signed entry is executable or has a setuid, setgid or sticky bit.
fn expect_data_mode(source: &Take<fs::File>, path: &Path) -> Result<(), CacheError> {
    let mode = source.get_ref().metadata().attempt("examine", path)?.mode() & 0o7777;
    if mode & !ALLOWED_MODES == 0 {
        Ok(())
    } else {
        Err(invalid_entry(path, "its mode is not that of a data file"))
    }
}

/// Opens a regular file. The kind is checked before opening, because opening a pipe would block and opening a
/// device can have side effects.
fn open_file(folder: &Directory, name: &str, path: &Path) -> Result<fs::File, CacheError> {
    if folder.kind(name).attempt("open", path)? != FileKind::File {
        return Err(invalid_entry(path, "it is not a regular file"));
    }
    // Another process could have replaced the file after this check, so check the opened file as well.
    tree::with_path(folder.file(name), path).map_err(damage_to_invalid)
}

/// Returns true if `name` is a valid entry name: one or more hex digits.
pub(crate) fn is_fingerprint(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns an error if `tree` contains a name that the manifest doesn't list.
fn expect_no_unlisted_file(claimed: &Manifest, tree: &Tree) -> Result<(), CacheError> {
    let paths = claimed.directories.iter().chain(claimed.files.iter().map(|file| &file.path));
    let known: HashSet<_> = paths.filter_map(|path| claimed.parent_of(path)).collect();
    for (number, folder) in tree.directories.iter().enumerate() {
        let path = claimed.directories.get(number).map_or(tree.root.clone(), |path| tree.root.join(path));
        for (name, _) in folder.entries().attempt("read", &path)? {
            if name.to_str().is_none_or(|name| !known.contains(&(number, name))) {
                return Err(invalid_entry(&path.join(&name), "it is not in the manifest"));
            }
        }
    }
    Ok(())
}
