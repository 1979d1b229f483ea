//! Provides one interface to all kinds of stores.
//!
//! A store finds heads by fingerprint and immutable blobs by digest. The rest of the
//! crate doesn't need to know whether the store is a bucket, a directory or a registry.

use std::ops::Range;

use bytes::Bytes;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::address::{RemoteAddress, StoreKind};
use crate::digest::{Blob, BlobDigest};
use crate::error::{RemoteError, StoreError};
use crate::objects::{BLOBS, HEADS, NOTICES, ObjectBucket};
use crate::registry::OciRegistry;
use crate::stored::{ByteStream, StoredObject, collect};

/// A store of any protocol.
#[derive(Debug)]
pub(crate) enum TemplateStore {
    Objects(ObjectBucket),
    Registry(OciRegistry),
}

impl TemplateStore {
    /// Opens the store at `address` without sending a request.
    ///
    /// # Errors
    /// Returns an error if the environment's settings contradict each other.
    pub(crate) fn open(address: &RemoteAddress) -> Result<Self, StoreError> {
        match address.kind {
            StoreKind::Oci => Ok(Self::Registry(OciRegistry::open(address)?)),
            _ => Ok(Self::Objects(ObjectBucket::open(address)?)),
        }
    }

    /// If the store is a directory, checks that it exists.
    ///
    /// # Errors
    /// Returns an error if the directory is missing. pgfresh doesn't create the directory,
    /// because it may be a network share that isn't mounted at the moment. A new directory
    /// would be on the local disk, where no other machine sees the pushed templates.
    async fn expect_directory(&self) -> Result<(), StoreError> {
        match self {
            Self::Objects(bucket) => bucket.expect_directory().await,
            Self::Registry(_) => Ok(()),
        }
    }

    /// Returns the head of the template `fingerprint`, which can have at most `most` bytes.
    pub(crate) async fn head(&self, fingerprint: &str, most: u64) -> Result<Bytes, StoreError> {
        match self {
            Self::Objects(bucket) => collect(bucket.text(HEADS, fingerprint).await?, most).await,
            Self::Registry(registry) => registry.head(fingerprint, most).await,
        }
    }

    /// Streams a range of a blob. The store can send more or fewer bytes than requested.
    pub(crate) async fn blob(
        &self,
        digest: &BlobDigest,
        range: Range<u64>,
    ) -> Result<ByteStream, StoreError> {
        match self {
            Self::Objects(bucket) => bucket.blob(digest, range).await,
            Self::Registry(registry) => registry.blob(digest, range).await,
        }
    }

    /// Returns a whole blob after verifying its digest.
    pub(crate) async fn whole_blob(&self, blob: &Blob) -> Result<Bytes, StoreError> {
        let bytes = collect(self.blob(&blob.digest, 0..blob.bytes).await?, blob.bytes).await?;
        if BlobDigest::of(&bytes) != blob.digest {
            return Err(StoreError::Broken("its content does not match its digest".to_owned()));
        }
        Ok(bytes)
    }

    pub(crate) async fn has_blob(&self, blob: &Blob) -> Result<bool, StoreError> {
        match self {
            Self::Objects(bucket) => bucket.has_blob(blob).await,
            Self::Registry(registry) => registry.has_blob(blob).await,
        }
    }

    pub(crate) async fn put_blob(&self, digest: &BlobDigest, bytes: Bytes) -> Result<(), StoreError> {
        match self {
            Self::Objects(bucket) => bucket.put_blob(digest, bytes).await,
            Self::Registry(registry) => registry.put_blob(digest, bytes).await,
        }
    }

    /// Writes a template's head. All of the template's `blobs` must already be in the store.
    ///
    /// # Errors
    /// Returns [`StoreError::Exists`] if an object store already has a head for this template and `replace` is false.
    pub(crate) async fn put_head(
        &self,
        fingerprint: &str,
        text: &str,
        blobs: &[Blob],
        replace: bool,
    ) -> Result<(), StoreError> {
        match self {
            Self::Objects(bucket) => bucket.put_text(HEADS, fingerprint, text, replace).await,
            Self::Registry(registry) => registry.put_head(fingerprint, text, blobs).await,
        }
    }

    /// Returns the notice about a template's build.
    ///
    /// Registries don't support notices, because a registry can't tell which of two concurrent writers came first.
    pub(crate) async fn notice(&self, fingerprint: &str, most: u64) -> Result<Bytes, StoreError> {
        match self {
            Self::Objects(bucket) => collect(bucket.text(NOTICES, fingerprint).await?, most).await,
            Self::Registry(_) => Err(StoreError::Absent),
        }
    }

    /// Writes the notice about a template's build.
    ///
    /// # Errors
    /// Returns [`StoreError::Exists`] if `new` is true and the template already has a notice.
    pub(crate) async fn put_notice(
        &self,
        fingerprint: &str,
        text: &str,
        new: bool,
    ) -> Result<(), StoreError> {
        match self {
            Self::Objects(bucket) => bucket.put_text(NOTICES, fingerprint, text, !new).await,
            Self::Registry(_) => Err(StoreError::Refused("a registry takes no notices".to_owned())),
        }
    }

    pub(crate) async fn remove_notice(&self, fingerprint: &str) -> Result<(), StoreError> {
        match self {
            Self::Objects(bucket) => bucket.remove(NOTICES, fingerprint).await,
            Self::Registry(_) => Ok(()),
        }
    }

    /// Lists all notices, including those of dead builders.
    pub(crate) async fn notices(&self) -> Result<Vec<StoredObject>, StoreError> {
        match self {
            Self::Objects(bucket) => bucket.list(NOTICES).await,
            Self::Registry(_) => Ok(Vec::new()),
        }
    }

    /// Lists all heads.
    pub(crate) async fn heads(&self) -> Result<Vec<StoredObject>, StoreError> {
        match self {
            Self::Objects(bucket) => bucket.list(HEADS).await,
            Self::Registry(registry) => registry.heads().await,
        }
    }

    /// Lists all blobs, or for a registry, only those needed by a head.
    pub(crate) async fn blobs(&self) -> Result<Vec<StoredObject>, StoreError> {
        match self {
            Self::Objects(bucket) => bucket.list(BLOBS).await,
            Self::Registry(registry) => registry.blobs().await,
        }
    }

    pub(crate) async fn remove_head(&self, fingerprint: &str) -> Result<(), StoreError> {
        match self {
            Self::Objects(bucket) => bucket.remove(HEADS, fingerprint).await,
            Self::Registry(registry) => registry.remove_head(fingerprint).await,
        }
    }

    /// Removes a blob. Does nothing for a registry, which removes unneeded blobs itself.
    pub(crate) async fn remove_blob(&self, name: &str) -> Result<(), StoreError> {
        match self {
            Self::Objects(bucket) => bucket.remove(BLOBS, name).await,
            Self::Registry(_) => Ok(()),
        }
    }

    /// Returns true if unneeded blobs remain in the store until this crate removes them.
    pub(crate) fn keeps_garbage(&self) -> bool {
        matches!(self, Self::Objects(_))
    }
}

/// Opens the store at `address`, starts a runtime for it, and passes both to `work`. Both are closed before this
/// returns.
pub(crate) fn with_store<T>(
    address: &RemoteAddress,
    work: impl FnOnce(&Handle, &TemplateStore) -> Result<T, RemoteError>,
) -> Result<T, RemoteError> {
    // This fails if another part of the process has already installed a provider, which is fine.
    drop(rustls::crypto::ring::default_provider().install_default());
    // Callers add the address to the message.
    let open = |error: StoreError| error.attempt("open", "the store");
    let io = |error: std::io::Error| open(StoreError::broken(&error));
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(io)?;
    let handle = runtime.handle().clone();
    let _runtime = Ended(Some(runtime));
    let store = {
        let _context = handle.enter();
        TemplateStore::open(address).map_err(open)?
    };
    handle.block_on(store.expect_directory()).map_err(open)?;
    work(&handle, &store)
}

/// Shuts down a runtime without waiting for its tasks, because one of them can be a DNS lookup that blocks for a long
/// time.
struct Ended(Option<Runtime>);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
