//! What a remote is made of: heads by fingerprint, and blobs by digest. Blobs never change.

use std::ops::Range;

use bytes::Bytes;

use crate::address::{RemoteAddress, StoreKind};
use crate::digest::{Blob, BlobDigest};
use crate::error::StoreError;
use crate::objects::ObjectBucket;
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

    /// The head of the template `fingerprint`, of at most `most` bytes.
    pub(crate) async fn head(&self, fingerprint: &str, most: u64) -> Result<Bytes, StoreError> {
        match self {
            Self::Objects(bucket) => collect(bucket.head(fingerprint).await?, most).await,
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
            Self::Objects(bucket) => bucket.put_head(fingerprint, text, replace).await,
            Self::Registry(registry) => registry.put_head(fingerprint, text, blobs).await,
        }
    }

    /// All heads.
    pub(crate) async fn heads(&self) -> Result<Vec<StoredObject>, StoreError> {
        match self {
            Self::Objects(bucket) => bucket.heads().await,
            Self::Registry(registry) => registry.heads().await,
        }
    }

    /// All blobs, needed or not. A registry tells only of those that are.
    pub(crate) async fn blobs(&self) -> Result<Vec<StoredObject>, StoreError> {
        match self {
            Self::Objects(bucket) => bucket.blobs().await,
            Self::Registry(registry) => registry.blobs().await,
        }
    }

    pub(crate) async fn remove_head(&self, fingerprint: &str) -> Result<(), StoreError> {
        match self {
            Self::Objects(bucket) => bucket.remove_head(fingerprint).await,
            Self::Registry(registry) => registry.remove_head(fingerprint).await,
        }
    }

    /// Removes a blob that no head needs. A registry does that itself.
    pub(crate) async fn remove_blob(&self, name: &str) -> Result<(), StoreError> {
        match self {
            Self::Objects(bucket) => bucket.remove_blob(name).await,
            Self::Registry(_) => Ok(()),
        }
    }

    /// Whether blobs that no head needs are removed by us.
    pub(crate) fn keeps_garbage(&self) -> bool {
        matches!(self, Self::Objects(_))
    }
}
