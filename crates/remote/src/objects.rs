//! Implements remotes in object stores: S3, Google Cloud Storage, Azure, an HTTP server, or a directory.
//!
//! The objects have these paths:
//!
//! ```text
//! PREFIX/heads/FINGERPRINT
//! PREFIX/blobs/SHA256          a tree or a pack
//! PREFIX/notices/FINGERPRINT   a machine is building this template
//! ```

use std::env;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use http::header::{AUTHORIZATION, HeaderValue};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{ClientOptions, HttpError};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig,
};

use percent_encoding::percent_decode_str;

use crate::address::{RemoteAddress, StoreKind, is_loopback};
use crate::digest::{Blob, BlobDigest};
use crate::error::{StoreError, innermost};
use crate::http_client::BoundedConnector;
use crate::stored::{ByteStream, StoredObject, skip};

/// Timeout for opening a connection. Callers bound all other waits.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for checking that the directory exists. If the file system hangs, the first read reports this.
const LOOK_BOUND: Duration = Duration::from_secs(1);
pub(crate) const HEADS: &str = "heads";
pub(crate) const BLOBS: &str = "blobs";
pub(crate) const NOTICES: &str = "notices";

/// The part of an object store that belongs to one remote. All its objects share a name prefix.
#[derive(Debug)]
pub(crate) struct ObjectBucket {
    store: Arc<dyn ObjectStore>,
    /// The store for notices. For a `file` remote, it doesn't flush writes to disk, because notices only exist for
    /// seconds.
    notices: Arc<dyn ObjectStore>,
    prefix: Path,
    /// A `file` remote's directory. `None` for other kinds.
    folder: Option<std::path::PathBuf>,
}

impl From<object_store::Error> for StoreError {
    fn from(error: object_store::Error) -> Self {
        use object_store::Error as Cause;
        match &error {
            Cause::NotFound { .. } => Self::Absent,
            Cause::AlreadyExists { .. } | Cause::Precondition { .. } => Self::Exists,
            Cause::PermissionDenied { .. } => {
                Self::Refused(format!("permission denied: {}", brief_message(&error)))
            }
            Cause::Unauthenticated { .. } => {
                Self::Refused(format!("the credentials were rejected: {}", brief_message(&error)))
            }
            Cause::Generic { .. } | Cause::JoinError { .. } => Self::Broken(brief_message(&error)),
            _ => Self::Refused(innermost(&error)),
        }
    }
}

/// Formats an error for a message. If the server responded, only the HTTP status is included.
fn brief_message(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return innermost(error);
        }
        cause = error.source();
    }
    let said = error.to_string();
    // The text looks like "Server returned non-2xx status code: 503 Service Unavailable: BODY". Cut off the body,
    // because it can contain anything.
    match said.split_once("status code: ") {
        Some((_, status)) => {
            let status: Vec<_> = status.split(':').next().unwrap_or_default().split_whitespace().collect();
            format!("http status {}", status.join(" ").to_lowercase())
        }
        None => innermost(error),
    }
}

impl ObjectBucket {
    pub(crate) fn open(address: &RemoteAddress) -> Result<Self, StoreError> {
        let bucket = address.url.host_str().unwrap_or_default();
        let client = client_options(address.kind);
        macro_rules! built {
            ($builder:expr, $client:expr) => {
                Arc::new(
                    $builder
                        .with_client_options($client)
                        .with_http_connector(BoundedConnector)
                        .with_retry(no_retry())
                        .build()?,
                )
            };
        }
        let store: Arc<dyn ObjectStore> = match address.kind {
            StoreKind::S3 => built!(AmazonS3Builder::from_env().with_bucket_name(bucket), client),
            StoreKind::Gcs => built!(GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket), client),
            StoreKind::Azure => built!(MicrosoftAzureBuilder::from_env().with_container_name(bucket), client),
            StoreKind::Http => {
                let (url, client) = without_password(address, client)?;
                built!(HttpBuilder::new().with_url(url), client)
            }
            StoreKind::File | StoreKind::Oci => {
                Arc::new(LocalFileSystem::new().with_fsync(true).with_automatic_cleanup(false))
            }
        };
        let folder = (address.kind == StoreKind::File).then(|| address.folder()).flatten();
        let prefix = match &folder {
            Some(folder) => Path::from_absolute_path(folder).map_err(|error| StoreError::broken(&error))?,
            // An HTTP server's URL already contains the path.
            None if address.kind == StoreKind::Http => Path::default(),
            None => Path::from_url_path(address.path()).map_err(|error| StoreError::broken(&error))?,
        };
        let notices: Arc<dyn ObjectStore> = match address.kind {
            StoreKind::File => Arc::new(LocalFileSystem::new().with_automatic_cleanup(false)),
            _ => Arc::clone(&store),
        };
        Ok(Self { store, notices, prefix, folder })
    }

    /// Returns an error if the remote is a directory that doesn't exist.
    pub(crate) async fn expect_directory(&self) -> Result<(), StoreError> {
        let Some(folder) = self.folder.clone() else { return Ok(()) };
        let look = tokio::task::spawn_blocking(move || std::fs::metadata(folder));
        let why = match tokio::time::timeout(LOOK_BOUND, look).await {
            Ok(Ok(Err(error))) if error.kind() == ErrorKind::NotFound => "the directory does not exist",
            Ok(Ok(Err(error))) if error.kind() == ErrorKind::NotADirectory => "it is not a directory",
            Ok(Ok(Ok(found))) if !found.is_dir() => "it is not a directory",
            _ => return Ok(()),
        };
        Err(StoreError::Refused(format!("{why}: mount or create it")))
    }

    fn at(&self, kind: &'static str, name: &str) -> Path {
        self.prefix.clone().join(kind).join(name)
    }

    fn store(&self, kind: &'static str) -> &dyn ObjectStore {
        if kind == NOTICES { &*self.notices } else { &*self.store }
    }

    /// Reads a head or a notice.
    pub(crate) async fn text(&self, kind: &'static str, name: &str) -> Result<ByteStream, StoreError> {
        let found = self.store(kind).get(&self.at(kind, name)).await?;
        Ok(found.into_stream().map_err(StoreError::from).boxed())
    }

    pub(crate) async fn blob(
        &self,
        digest: &BlobDigest,
        range: Range<u64>,
    ) -> Result<ByteStream, StoreError> {
        let path = self.at(BLOBS, &digest.to_string());
        let options = GetOptions::new().with_range(Some(range.clone()));
        match self.store.get_opts(&path, options).await {
            Ok(found) => Ok(found.into_stream().map_err(StoreError::from).boxed()),
            // A server without range support sends the whole blob.
            Err(object_store::Error::NotSupported { .. }) => {
                let found = self.store.get(&path).await?;
                Ok(skip(found.into_stream().map_err(StoreError::from).boxed(), range.start))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn has_blob(&self, blob: &Blob) -> Result<bool, StoreError> {
        match self.store.head(&self.at(BLOBS, &blob.digest.to_string())).await {
            Ok(found) => Ok(found.size == blob.bytes),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn put_blob(&self, digest: &BlobDigest, bytes: Bytes) -> Result<(), StoreError> {
        self.store.put(&self.at(BLOBS, &digest.to_string()), PutPayload::from_bytes(bytes)).await?;
        Ok(())
    }

    /// Writes a head or a notice. If the object already exists and `replace` is false, returns [`StoreError::Exists`].
    pub(crate) async fn put_text(
        &self,
        kind: &'static str,
        name: &str,
        text: &str,
        replace: bool,
    ) -> Result<(), StoreError> {
        let (store, path) = (self.store(kind), self.at(kind, name));
        let payload = || PutPayload::from_bytes(Bytes::copy_from_slice(text.as_bytes()));
        if !replace {
            let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match store.put_opts(&path, payload(), create).await {
                // Without conditional writes, two concurrent writers can both succeed. This is fine, because both texts
                // are valid.
                Err(
                    object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. },
                ) => {}
                other => return other.map(drop).map_err(StoreError::from),
            }
        }
        store.put(&path, payload()).await?;
        Ok(())
    }

    pub(crate) async fn list(&self, kind: &'static str) -> Result<Vec<StoredObject>, StoreError> {
        let folder = self.prefix.clone().join(kind);
        let stored = |meta: ObjectMeta| StoredObject {
            name: meta.location.filename().unwrap_or_default().to_owned(),
            bytes: meta.size,
            time: SystemTime::from(meta.last_modified),
        };
        let mut all: Vec<_> = match self.store.list(Some(&folder)).map_ok(stored).try_collect().await {
            Err(object_store::Error::NotFound { .. }) => Vec::new(),
            other => other?,
        };
        if let Some(folder) = self.folder.as_ref().filter(|_| kind == BLOBS) {
            all.extend(unfinished(&folder.join(kind)));
        }
        Ok(all)
    }

    pub(crate) async fn remove(&self, kind: &'static str, name: &str) -> Result<(), StoreError> {
        if name.contains(UNFINISHED)
            && let Some(folder) = self.folder.as_ref().filter(|_| kind == BLOBS)
        {
            return match std::fs::remove_file(folder.join(kind).join(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(StoreError::broken(&error)),
                _ => Ok(()),
            };
        }
        match self.store.delete(&self.at(kind, name)).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            other => Ok(other?),
        }
    }
}

/// Character in the names of files that `object_store` hasn't finished writing. It doesn't list these files, so those
/// of a killed writer would remain forever.
const UNFINISHED: char = '#';

/// Returns the unfinished files left in `folder` by killed writers.
fn unfinished(folder: &std::path::Path) -> Vec<StoredObject> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let left = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok().filter(|name| name.contains(UNFINISHED))?;
        let meta = entry.metadata().ok()?;
        Some(StoredObject { name, bytes: meta.len(), time: meta.modified().ok()? })
    });
    left.collect()
}

/// Moves the credentials from an HTTP server's URL into a header and returns the URL without them.
fn without_password(
    address: &RemoteAddress,
    client: ClientOptions,
) -> Result<(String, ClientOptions), StoreError> {
    let mut url = address.url.clone();
    let trimmed = |url: url::Url| url.as_str().trim_end_matches('/').to_owned();
    if !address.has_secret() {
        return Ok((trimmed(url), client));
    }
    let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let pair = format!("{}:{}", plain(url.username()), plain(url.password().unwrap_or_default()));
    let unfit = || StoreError::Refused("the URL has a password that cannot be sent".to_owned());
    let value = format!("Basic {}", BASE64_STANDARD.encode(pair));
    let mut value = HeaderValue::from_str(&value).map_err(|_| unfit())?;
    value.set_sensitive(true);
    url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| unfit())?;
    let headers = [(AUTHORIZATION, value)].into_iter().collect();
    Ok((trimmed(url), client.with_default_headers(headers)))
}

/// Disables `object_store`'s retries, because this crate retries within its own timeouts.
fn no_retry() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn client_options(kind: StoreKind) -> ClientOptions {
    // Callers bound every wait, so the client doesn't need a request timeout.
    let options = ClientOptions::new().with_timeout_disabled().with_connect_timeout(CONNECT_TIMEOUT);
    options.with_allow_http(kind == StoreKind::Http || emulated(kind))
}

/// Returns true if the environment sets an endpoint on this machine or allows one without TLS.
fn emulated(kind: StoreKind) -> bool {
    let (endpoints, allow): (&[&str], _) = match kind {
        StoreKind::S3 => (&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"], "AWS_ALLOW_HTTP"),
        StoreKind::Azure => (&["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"], "AZURE_ALLOW_HTTP"),
        StoreKind::Gcs => (&["GOOGLE_BASE_URL"], "GOOGLE_ALLOW_HTTP"),
        StoreKind::Http | StoreKind::File | StoreKind::Oci => return false,
    };
    let endpoint = endpoints.iter().find_map(|name| env::var(name).ok()).and_then(|text| text.parse().ok());
    is_true(allow)
        || endpoint.is_some_and(|url| is_loopback(&url))
        || kind == StoreKind::Azure && is_true("AZURE_STORAGE_USE_EMULATOR")
}

fn is_true(name: &str) -> bool {
    env::var(name)
        .is_ok_and(|value| matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_of_missing_object_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("file://{}", folder.path().display()).parse().unwrap();
        let bucket = ObjectBucket::open(&address).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for name in ["abc", "abc#1"] {
            runtime.block_on(bucket.remove(BLOBS, name)).unwrap();
        }
    }
}
