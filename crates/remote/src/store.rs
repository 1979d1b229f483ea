//! What a remote is made of: heads by fingerprint, and blobs by digest. Blobs never change.

use std::ops::Range;

use bytes::Bytes;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::address::{RemoteAddress, StoreKind};
use crate::digest::{Blob, BlobDigest};
use crate::error::{RemoteError, StoreError};
use crate::objects::{BLOBS, HEADS, NOTICES, ObjectBucket};
use crate::registry::OciRegistry;
use crate::stored::{ByteStream, StoredObject, collect};

/// A remote of any kind.
#[derive(Debug)]
pub(crate) enum TemplateStore {
    Objects(ObjectBucket),
    Registry(OciRegistry),
}

impl TemplateStore {
    /// The one at that address. Nothing is sent yet.
    ///
    /// # Errors
    /// Its settings in the environment contradict each other.
    pub(crate) fn open(address: &RemoteAddress) -> Result<Self, StoreError> {
        match address.kind {
            StoreKind::Oci => Ok(Self::Registry(OciRegistry::open(address)?)),
            _ => Ok(Self::Objects(ObjectBucket::open(address)?)),
        }
    }

    /// Makes sure that the directory is there, if it is one.
    ///
    /// # Errors
    /// It is missing. It is not created: on a machine without the mount, templates would be pushed to where no other one sees them.
    async fn expect_directory(&self) -> Result<(), StoreError> {
        match self {
            Self::Objects(bucket) => bucket.expect_directory().await,
            Self::Registry(_) => Ok(()),
        }
    }

    /// The head of the template `fingerprint`, of at most `most` bytes.
    pub(crate) async fn head(&self, fingerprint: &str, most: u64) -> Result<Bytes, StoreError> {
        match self {
            Self::Objects(bucket) => collect(bucket.text(HEADS, fingerprint).await?, most).await,
            Self::Registry(registry) => registry.head(fingerprint, most).await,
        }
    }

    /// A part of a blob, as it comes in; it may be longer or shorter than was asked for.
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

    /// A whole blob: its bytes are those of its digest.
    pub(crate) async fn whole_blob(&self, blob: &Blob) -> Result<Bytes, StoreError> {
        let bytes = collect(self.blob(&blob.digest, 0..blob.bytes).await?, blob.bytes).await?;
        if BlobDigest::of(&bytes) != blob.digest {
            return Err(StoreError::Broken("its bytes are not those of its digest".to_owned()));
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

    /// Writes the head of a template that needs these blobs, all of which are there.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if there is one, unless it is to be replaced.
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

    /// The notice that a template is being built. A registry has none: of two that write one, it cannot be told which was quicker.
    pub(crate) async fn notice(&self, fingerprint: &str, most: u64) -> Result<Bytes, StoreError> {
        match self {
            Self::Objects(bucket) => collect(bucket.text(NOTICES, fingerprint).await?, most).await,
            Self::Registry(_) => Err(StoreError::Absent),
        }
    }

    /// Writes such a notice.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if there is one and a new one was asked for.
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

    /// All notices, also those that were left behind.
    pub(crate) async fn notices(&self) -> Result<Vec<StoredObject>, StoreError> {
        match self {
            Self::Objects(bucket) => bucket.list(NOTICES).await,
            Self::Registry(_) => Ok(Vec::new()),
        }
    }

    /// All heads.
    pub(crate) async fn heads(&self) -> Result<Vec<StoredObject>, StoreError> {
        match self {
            Self::Objects(bucket) => bucket.list(HEADS).await,
            Self::Registry(registry) => registry.heads().await,
        }
    }

    /// All blobs, needed or not. A registry tells only of those that are.
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

    /// Removes a blob that no head needs. A registry does that itself.
    pub(crate) async fn remove_blob(&self, name: &str) -> Result<(), StoreError> {
        match self {
            Self::Objects(bucket) => bucket.remove(BLOBS, name).await,
            Self::Registry(_) => Ok(()),
        }
    }

    /// Whether blobs that no head needs are removed by us.
    pub(crate) fn keeps_garbage(&self) -> bool {
        matches!(self, Self::Objects(_))
    }
}

/// Does `work` with the store at that address and what runs its input and output, which last no longer.
pub(crate) fn with_store<T>(
    address: &RemoteAddress,
    work: impl FnOnce(&Handle, &TemplateStore) -> Result<T, RemoteError>,
) -> Result<T, RemoteError> {
    // There is one already if another part of the process was quicker.
    drop(rustls::crypto::ring::default_provider().install_default());
    // Those who show it name the address.
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

/// A runtime that is not waited for: a name that is being looked up may take long.
struct Ended(Option<Runtime>);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
