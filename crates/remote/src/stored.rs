//! Defines types for the bytes that a store sends and the objects that it lists.

use std::time::SystemTime;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};

use crate::error::StoreError;

/// A stream of received bytes.
pub(crate) type ByteStream = BoxStream<'static, Result<Bytes, StoreError>>;

/// An object in a store's listing.
#[derive(Debug, Clone)]
pub(crate) struct StoredObject {
    /// The fingerprint of a template, or the digest of a blob.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// When the object was last written.
    pub(crate) time: SystemTime,
}

/// Returns a response body as a stream.
pub(crate) fn body(answer: reqwest::Response) -> ByteStream {
    answer.bytes_stream().map_err(|error| StoreError::broken(&error)).boxed()
}

/// Collects a stream into memory. Returns an error if it has more than `most` bytes.
pub(crate) async fn collect(stream: ByteStream, most: u64) -> Result<Bytes, StoreError> {
    let too_long = || StoreError::Refused("it is too long".to_owned());
    let add = |mut all: Vec<u8>, more: Bytes| async move {
        if all.len() as u64 + more.len() as u64 > most {
            return Err(too_long());
        }
        all.extend_from_slice(&more);
        Ok(all)
    };
    stream.try_fold(Vec::new(), add).await.map(Bytes::from)
}

/// Skips the first `start` bytes of a stream.
pub(crate) fn skip(stream: ByteStream, start: u64) -> ByteStream {
    stream
        .scan(start, |left, piece| {
            let piece = piece.map(|bytes| {
                let gone = (*left).min(bytes.len() as u64);
                *left -= gone;
                bytes.slice(usize::try_from(gone).unwrap_or_default()..)
            });
            std::future::ready(Some(piece))
        })
        .boxed()
}
