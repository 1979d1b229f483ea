//! Downloads an entry from an untrusted store. The signed description arrives first, followed by the files in
//! any order. Each file is compared with its digest before the entry is published.

use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::entry::Entry;
use crate::error::CacheError;
use crate::file_error::Attempt;
use crate::head::{self, Head, SignedHead};
use crate::manifest::{self, Manifest};
use crate::publish::{self, Building};
use crate::signing::{Signed, SigningKey, TrustError, TrustedKey};

/// An entry's signed texts, without the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The head, which contains the fingerprint and the digests of the manifest and the description.
    pub head: String,
    /// The signature of the head.
    pub signature: String,
    /// The manifest.
    pub manifest: String,
    /// The builder's description.
    pub about: String,
}

/// One of an entry's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDescription {
    /// Path relative to the data directory.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// BLAKE3 digest of the content.
    pub digest: [u8; 32],
}

impl FileDescription {
    fn of(file: &manifest::File) -> Self {
        Self { path: file.path.clone(), size: file.size, digest: *file.digest.as_bytes() }
    }
}

impl Entry {
    /// Returns the texts of this entry, signed with `key`.
    ///
    /// # Errors
    /// Returns [`CacheError`] if a file of the entry can't be read.
    pub fn describe(&self, key: &SigningKey) -> Result<Description, CacheError> {
        let read = |name: &str| {
            let path = self.directory().join(name);
            fs::read_to_string(&path).attempt("read", &path)
        };
        let (manifest, about) = (read("manifest")?, read("about")?);
        let head = Head::new(&self.fingerprint(), &manifest, &about);
        let text = head.to_text();
        let signature = head.sign(key);
        Ok(Description { head: text, signature, manifest, about })
    }

    /// Returns the files in the order of the manifest.
    #[must_use]
    pub fn contents(&self) -> Vec<FileDescription> {
        self.manifest().files.iter().map(FileDescription::of).collect()
    }
}

/// A head signed with a trusted key.
#[derive(Debug)]
pub struct TrustedHead {
    head: Head,
    signed: Signed,
}

impl TrustedHead {
    /// Checks that a trusted key signed this head for the entry `fingerprint`.
    ///
    /// # Errors
    /// Returns an error if the head can't be trusted.
    pub fn verify(
        fingerprint: &str,
        signed: SignedHead<'_>,
        trusted: &[TrustedKey],
    ) -> Result<Self, TrustError> {
        let (head, signed) = head::verify(fingerprint, signed, trusted)?;
        Ok(Self { head, signed })
    }

    /// Returns the signer of the entry and the time of the signature.
    #[must_use]
    pub fn signed(&self) -> &Signed {
        &self.signed
    }

    /// Returns the entry's signed manifest if the manifest and the description match the digests in the head.
    ///
    /// # Errors
    /// Returns an error if one of the two texts doesn't match its digest, or if the manifest is damaged.
    pub fn into_manifest(self, manifest: &str, about: String) -> Result<SignedManifest, TrustError> {
        if let Some(name) = self.head.changed_text(manifest, &about) {
            return Err(TrustError::OtherPart(name));
        }
        let manifest = Manifest::parse(manifest).ok_or(TrustError::DamagedManifest)?;
        if !manifest.has_consistent_paths() {
            return Err(TrustError::AmbiguousManifest);
        }
        Ok(SignedManifest { manifest, about })
    }
}

/// An entry's signed manifest, whose files have yet to be downloaded.
#[derive(Debug)]
pub struct SignedManifest {
    manifest: Manifest,
    about: String,
}

impl SignedManifest {
    /// Returns the total size of all files in bytes, including holes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.manifest.bytes()
    }

    /// Returns the builder's description.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Returns the files in the order of the manifest.
    #[must_use]
    pub fn files(&self) -> Vec<FileDescription> {
        self.manifest.files.iter().map(FileDescription::of).collect()
    }
}

/// The files of an entry being downloaded.
#[derive(Debug)]
pub struct EntryDownload<'a> {
    announced: &'a SignedManifest,
    data: PathBuf,
    /// For each file, true once the file is complete and matches its digest.
    complete: Vec<AtomicBool>,
}

impl<'a> EntryDownload<'a> {
    /// Creates all files with their final sizes. Initially, each file is one hole.
    fn begin(announced: &'a SignedManifest, staging: &Path) -> Result<Self, CacheError> {
        let data = publish::make_directories(&announced.manifest, staging, staging)?;
        for file in &announced.manifest.files {
            let path = data.join(&file.path);
            let created = fs::File::options().write(true).create_new(true).mode(0o600).open(&path);
            created.attempt("create", &path)?.set_len(file.size).attempt("write", &path)?;
        }
        let complete = announced.manifest.files.iter().map(|_| AtomicBool::new(false)).collect();
        Ok(Self { announced, data, complete })
    }

    /// Writes `bytes` at `offset` in file `number`. Skips zeros, because a new file already reads as zeros.
    ///
    /// # Errors
    /// Returns [`CacheError::Invalid`] if the bytes reach beyond the announced size of the file, and the
    /// error of the file system.
    ///
    /// # Panics
    /// Panics if there is no file `number`.
    pub fn write(&self, number: usize, offset: u64, bytes: &[u8]) -> Result<(), CacheError> {
        let path = self.path(number);
        let unfit = || CacheError::Invalid { path: path.clone(), what: DIFFERENT };
        let end = offset.checked_add(bytes.len() as u64).ok_or_else(unfit)?;
        if end > self.announced.manifest.files[number].size {
            return Err(unfit());
        }
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let file = fs::File::options().write(true).open(&path).attempt("open", &path)?;
        Ok(file.write_all_at(bytes, offset).attempt("write", &path)?)
    }

    /// Compares file `number` with its digest. Call this after the last write to the file.
    ///
    /// # Panics
    /// Panics if there is no file `number`.
    ///
    /// # Errors
    /// Returns [`CacheError::Invalid`] if the file differs from its digest.
    pub fn finish(&self, number: usize) -> Result<(), CacheError> {
        let (path, expected) = (self.path(number), &self.announced.manifest.files[number]);
        let file = fs::File::open(&path).attempt("open", &path)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(&file).attempt("read", &path)?;
        if (hasher.count(), hasher.finalize()) != (expected.size, expected.digest) {
            return Err(CacheError::Invalid { path, what: DIFFERENT });
        }
        self.complete[number].store(true, Ordering::Release);
        Ok(())
    }

    fn path(&self, number: usize) -> PathBuf {
        self.data.join(&self.announced.manifest.files[number].path)
    }

    /// Returns the manifest of the received files, or an error unless [`Self::finish`] succeeded for every
    /// file.
    fn into_manifest(self) -> Result<Manifest, CacheError> {
        let expected = &self.announced.manifest;
        let mut found = Manifest { directories: expected.directories.clone(), files: Vec::new() };
        for (number, file) in expected.files.iter().enumerate() {
            let path = self.path(number);
            if !self.complete[number].load(Ordering::Acquire) {
                return Err(CacheError::Invalid { path, what: "it is incomplete" });
            }
            let modified = manifest::modified(&path.metadata().attempt("examine", &path)?);
            let manifest::File { path, size, digest, .. } = file;
            found.files.push(manifest::File { path: path.clone(), size: *size, modified, digest: *digest });
        }
        Ok(found)
    }
}

/// Error text for a downloaded file that differs from its line in the manifest.
const DIFFERENT: &str = "it differs from its manifest";

impl Building {
    /// Downloads an entry's files by calling `fill`, then publishes the entry. `fill` must call
    /// [`EntryDownload::finish`] for each file. A failure leaves no files behind, so the caller can try
    /// again.
    ///
    /// # Errors
    /// Returns the error of `fill`. Returns [`CacheError::Invalid`] if a file is missing or differs from the
    /// manifest.
    pub fn receive<E: From<CacheError>>(
        &self,
        announced: &SignedManifest,
        fill: impl FnOnce(&EntryDownload<'_>) -> Result<(), E>,
    ) -> Result<Entry, E> {
        self.publish_staged(&announced.about, |staging| {
            let receiving = EntryDownload::begin(announced, staging)?;
            fill(&receiving)?;
            Ok(receiving.into_manifest()?)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Cache;

    /// Returns an entry with `files`, its signed texts, and the public key.
    fn entry(root: &Path, files: &[Vec<u8>]) -> (Entry, Description, TrustedKey) {
        let tree = root.join("tree");
        fs::create_dir_all(tree.join("base")).unwrap();
        for (number, bytes) in files.iter().enumerate() {
            fs::write(tree.join(format!("base/{number}")), bytes).unwrap();
        }
        let cache = Cache::locate(Some(&root.join("here"))).unwrap();
        let entry = cache.building("abc", || ()).unwrap().publish(&tree, &[], "about").unwrap();
        let key = SigningKey::generate().unwrap();
        let description = entry.describe(&key).unwrap();
        (entry, description, key.public())
    }

    fn announced(description: &Description, key: &TrustedKey) -> SignedManifest {
        let Description { head, signature, manifest, about } = description;
        let signed = SignedHead { text: head, signature };
        let head = TrustedHead::verify("abc", signed, std::slice::from_ref(key)).unwrap();
        head.into_manifest(manifest, about.clone()).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn received_pieces_form_whole_entry_or_are_refused(
            files in prop::collection::vec(prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..3000), 1..4),
            cut in 1_usize..1000,
            flipped in prop::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>())),
            left_out in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let (entry, description, key) = entry(directory.path(), &files);
            let announced = announced(&description, &key);
            prop_assert_eq!(entry.contents(), announced.files());
            let mut sent: Vec<Vec<u8>> = announced.files().iter().map(|file| fs::read(entry.data().join(&file.path)).unwrap()).collect();
            let mut whole = left_out.is_none();
            if let Some((file, byte)) = flipped {
                let file = file.index(sent.len());
                if !sent[file].is_empty() {
                    let byte = byte.index(sent[file].len());
                    sent[file][byte] ^= 4;
                    whole = false;
                }
            }
            let there = Cache::locate(Some(&directory.path().join("there"))).unwrap();
            let building = there.building("abc", || ()).unwrap();
            let received = building.receive(&announced, |receiving| {
                for (number, bytes) in sent.iter().enumerate().rev() {
                    for (piece, bytes) in bytes.chunks(cut).enumerate() {
                        receiving.write(number, (piece * cut) as u64, bytes)?;
                    }
                    if left_out.is_none_or(|left_out| left_out.index(sent.len()) != number) {
                        receiving.finish(number)?;
                    }
                }
                Ok::<_, CacheError>(())
            });
            prop_assert_eq!(received.is_ok(), whole);
            drop(received);
            let found = there.look_up("abc").unwrap();
            prop_assert_eq!(found.is_some(), whole);
            if let Some(found) = found {
                prop_assert_eq!(found.about(), "about");
                for file in found.contents() {
                    prop_assert_eq!(fs::read(found.data().join(&file.path)).unwrap(), fs::read(entry.data().join(&file.path)).unwrap());
                }
            }
            drop(building);
            let left = fs::read_dir(directory.path().join("there/images")).unwrap().count();
            prop_assert_eq!(left, usize::from(whole));
        }
    }

    #[test]
    fn write_beyond_signed_end_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (_, description, key) = entry(directory.path(), &[vec![1; 10]]);
        let announced = announced(&description, &key);
        let there = Cache::locate(Some(&directory.path().join("there"))).unwrap();
        let building = there.building("abc", || ()).unwrap();
        for (offset, length) in [(0, 11), (10, 1), (u64::MAX, 1)] {
            let received =
                building.receive(&announced, |receiving| receiving.write(0, offset, &vec![1; length]));
            assert!(matches!(received, Err(CacheError::Invalid { .. })), "{offset} {length}");
        }
    }

    #[test]
    fn trusted_head_accepts_only_its_entry_and_texts() {
        let directory = tempfile::tempdir().unwrap();
        let (_, description, key) = entry(directory.path(), &[]);
        let Description { head, signature, manifest, about } = &description;
        let signed = SignedHead { text: head, signature };
        let verify = |fingerprint, keys: &[TrustedKey]| TrustedHead::verify(fingerprint, signed, keys);
        let other = SigningKey::generate().unwrap().public();
        assert!(verify("abc", &[]).is_err() && verify("abc", &[other]).is_err());
        assert!(verify("abd", std::slice::from_ref(&key)).is_err());
        let head = || verify("abc", std::slice::from_ref(&key)).unwrap();
        assert!(head().into_manifest(manifest, about.clone()).is_ok());
        let other = head().into_manifest(manifest, "other".to_owned()).unwrap_err();
        assert_eq!(other, TrustError::OtherPart("about"));
        assert!(head().into_manifest(&manifest.replace("base", "bass"), about.clone()).is_err());
    }
}
