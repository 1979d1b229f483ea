//! Implements remotes in OCI registries.
//!
//! Many teams already have a registry but no object store. Each template becomes a manifest tagged with its
//! fingerprint. The head is an annotation of that manifest, and the blobs are its layers, so the registry retains the
//! blobs that templates need and removes all others.
//!
//! Source: github.com/opencontainers/distribution-spec, spec.md.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use reqwest::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, LINK, LOCATION, RANGE};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde_json::{Value, json};

use crate::address::RemoteAddress;
use crate::digest::{Blob, BlobDigest};
use crate::error::StoreError;
use crate::login::Login;
use crate::objects::CONNECT_TIMEOUT;
use crate::stored::{ByteStream, StoredObject, body, collect, skip};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const BLOB: &str = "application/vnd.pgfresh.blob.v1";
const ARTIFACT: &str = "application/vnd.pgfresh.template.v1";
const EMPTY: &str = "application/vnd.oci.empty.v1+json";
/// The annotation for the head.
const HEAD: &str = "pgfresh.head";
/// The annotation for the time of the push, in seconds since 1970.
const WRITTEN: &str = "pgfresh.written";
/// Maximum size of a manifest, in bytes. Registries reject larger ones.
const LONGEST_MANIFEST: u64 = 4 << 20;
/// The number of tags per page of a listing.
const PAGE: usize = 500;
/// Maximum number of manifests to read in parallel.
const READERS: usize = 8;

/// A repository in an OCI registry.
#[derive(Debug)]
pub(crate) struct OciRegistry {
    client: Client,
    /// `https://HOST/v2/REPOSITORY/`
    base: Url,
    login: Login,
}

impl OciRegistry {
    pub(crate) fn open(address: &RemoteAddress) -> Result<Self, StoreError> {
        let client = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .map_err(|error| StoreError::broken(&error))?;
        let (host, repository) = (address.authority(), address.path());
        let scheme = if address.is_loopback() { "http" } else { "https" };
        let base = Url::parse(&format!("{scheme}://{host}/v2/{repository}/"))
            .map_err(|error| StoreError::broken(&error))?;
        let login = Login::new(client.clone(), &host, repository);
        Ok(Self { client, base, login })
    }

    fn url(&self, path: &str) -> Result<Url, StoreError> {
        self.base.join(path).map_err(|error| StoreError::broken(&error))
    }

    /// Returns true if `url` points to the registry itself. A registry can redirect uploads to another server, which
    /// must not receive the credentials.
    fn may_see_login(&self, url: &Url) -> bool {
        url.origin() == self.base.origin()
    }

    /// Sends a request. If the registry demands a login, logs in and retries.
    ///
    /// # Errors
    /// Returns an error unless the response has a success status.
    async fn send(
        &self,
        method: Method,
        url: &Url,
        body: Option<(&'static str, Bytes)>,
        range: Option<&Range<u64>>,
    ) -> Result<Response, StoreError> {
        let mut challenge = None;
        for _ in 0..2 {
            let mut request = self.client.request(method.clone(), url.clone()).header(ACCEPT, MANIFEST);
            if self.may_see_login(url)
                && let Some(value) = self.login.authorization(challenge.as_deref()).await?
            {
                request = request.header("authorization", value);
            }
            if let Some(range) = range {
                request =
                    request.header(RANGE, format!("bytes={}-{}", range.start, range.end.saturating_sub(1)));
            }
            if let Some((kind, bytes)) = &body {
                request = request
                    .header(CONTENT_TYPE, *kind)
                    .header(CONTENT_LENGTH, bytes.len())
                    .body(bytes.clone());
            }
            let answer = request.send().await.map_err(|error| StoreError::broken(&error))?;
            if answer.status() == StatusCode::UNAUTHORIZED && challenge.is_none() {
                let asked = answer.headers().get("www-authenticate").and_then(|value| value.to_str().ok());
                challenge = Some(asked.unwrap_or_default().to_owned());
                continue;
            }
            return expect_success(answer);
        }
        Err(StoreError::Refused("the credentials were rejected".to_owned()))
    }

    async fn manifest(&self, tag: &str) -> Result<(Value, BlobDigest), StoreError> {
        let answer = self.send(Method::GET, &self.url(&format!("manifests/{tag}"))?, None, None).await?;
        let bytes = collect(body(answer), LONGEST_MANIFEST).await?;
        let manifest = serde_json::from_slice(&bytes).map_err(|error| StoreError::broken(&error))?;
        Ok((manifest, BlobDigest::of(&bytes)))
    }

    pub(crate) async fn head(&self, fingerprint: &str, most: u64) -> Result<Bytes, StoreError> {
        let (manifest, _) = self.manifest(fingerprint).await?;
        let text = manifest["annotations"][HEAD].as_str().unwrap_or_default();
        if text.len() as u64 > most {
            return Err(StoreError::Refused("it is too long".to_owned()));
        }
        Ok(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn blob_url(&self, digest: &BlobDigest) -> Result<Url, StoreError> {
        // Without `./`, the URL parser would treat "sha256:" as a scheme.
        self.url(&format!("./blobs/sha256:{digest}"))
    }

    pub(crate) async fn blob(
        &self,
        digest: &BlobDigest,
        range: Range<u64>,
    ) -> Result<ByteStream, StoreError> {
        let answer = self.send(Method::GET, &self.blob_url(digest)?, None, Some(&range)).await?;
        if answer.status() == StatusCode::PARTIAL_CONTENT {
            return Ok(body(answer));
        }
        Ok(skip(body(answer), range.start))
    }

    pub(crate) async fn has_blob(&self, blob: &Blob) -> Result<bool, StoreError> {
        match self.send(Method::HEAD, &self.blob_url(&blob.digest)?, None, None).await {
            Ok(_) => Ok(true),
            Err(StoreError::Absent) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn put_blob(&self, digest: &BlobDigest, bytes: Bytes) -> Result<(), StoreError> {
        let nothing = Some(("application/octet-stream", Bytes::new()));
        let begin = self.url("blobs/uploads/")?;
        let answer = self.send(Method::POST, &begin, nothing, None).await?;
        let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let location = location.and_then(|location| begin.join(location).ok());
        let mut location =
            location.ok_or_else(|| StoreError::Refused("the registry returned no upload URL".to_owned()))?;
        location.query_pairs_mut().append_pair("digest", &format!("sha256:{digest}"));
        self.send(Method::PUT, &location, Some(("application/octet-stream", bytes)), None).await?;
        Ok(())
    }

    pub(crate) async fn put_head(
        &self,
        fingerprint: &str,
        text: &str,
        blobs: &[Blob],
    ) -> Result<(), StoreError> {
        let empty = Bytes::from_static(b"{}");
        let config = Blob { digest: BlobDigest::of(&empty), bytes: empty.len() as u64 };
        if !self.has_blob(&config).await? {
            self.put_blob(&config.digest, empty).await?;
        }
        let descriptor = |kind: &str, blob: &Blob| json!({"mediaType": kind, "digest": format!("sha256:{}", blob.digest), "size": blob.bytes});
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": ARTIFACT,
            "config": descriptor(EMPTY, &config),
            "layers": blobs.iter().map(|blob| descriptor(BLOB, blob)).collect::<Value>(),
            "annotations": {HEAD: text, WRITTEN: now.to_string()},
        });
        let manifest = Bytes::from(manifest.to_string());
        self.send(
            Method::PUT,
            &self.url(&format!("manifests/{fingerprint}"))?,
            Some((MANIFEST, manifest)),
            None,
        )
        .await?;
        Ok(())
    }

    /// Returns our templates' tags and manifests, skipping tags that aren't fingerprints and manifests without a head.
    async fn manifests(&self) -> Result<Vec<(String, Value)>, StoreError> {
        let mut tags = Vec::new();
        let mut next = Some(self.url(&format!("tags/list?n={PAGE}"))?);
        while let Some(url) = next.take() {
            let answer = match self.send(Method::GET, &url, None, None).await {
                Err(StoreError::Absent) => break,
                answer => answer?,
            };
            let link = answer.headers().get(LINK).and_then(|link| link.to_str().ok()).map(str::to_owned);
            let page = collect(body(answer), LONGEST_MANIFEST).await?;
            let page: Value = serde_json::from_slice(&page).map_err(|error| StoreError::broken(&error))?;
            let names = page["tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let before = tags.len();
            tags.extend(
                names.filter(|tag| tag.bytes().all(|byte| byte.is_ascii_hexdigit())).map(str::to_owned),
            );
            let link = link.as_deref().and_then(|link| link.strip_prefix('<')?.split_once('>'));
            // Stop after a page without any of our tags. Otherwise, a server could keep us busy with empty pages
            // forever.
            next = link.filter(|_| tags.len() > before).and_then(|(path, _)| url.join(path).ok());
        }
        let read = tags.into_iter().map(|tag| async move {
            match self.manifest(&tag).await {
                Ok((manifest, _)) => Ok(Some((tag, manifest))),
                Err(StoreError::Absent) => Ok(None),
                Err(error) => Err(error),
            }
        });
        let all: Vec<_> = futures_util::stream::iter(read).buffer_unordered(READERS).try_collect().await?;
        Ok(all
            .into_iter()
            .flatten()
            .filter(|(_, manifest)| manifest["annotations"][HEAD].is_string())
            .collect())
    }

    pub(crate) async fn heads(&self) -> Result<Vec<StoredObject>, StoreError> {
        let heads = self.manifests().await?.into_iter().map(|(name, manifest)| {
            let written = manifest["annotations"][WRITTEN]
                .as_str()
                .and_then(|text| text.parse().ok())
                .unwrap_or_default();
            StoredObject {
                name,
                bytes: manifest.to_string().len() as u64,
                time: UNIX_EPOCH + Duration::from_secs(written),
            }
        });
        Ok(heads.collect())
    }

    pub(crate) async fn blobs(&self) -> Result<Vec<StoredObject>, StoreError> {
        let manifests = self.manifests().await?;
        let layers =
            manifests.iter().flat_map(|(_, manifest)| manifest["layers"].as_array().into_iter().flatten());
        let mut all: Vec<_> = layers
            .filter_map(|layer| {
                let name = layer["digest"].as_str()?.strip_prefix("sha256:")?.to_owned();
                Some(StoredObject { name, bytes: layer["size"].as_u64()?, time: SystemTime::now() })
            })
            .collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all.dedup_by(|one, other| one.name == other.name);
        Ok(all)
    }

    pub(crate) async fn remove_head(&self, fingerprint: &str) -> Result<(), StoreError> {
        let (_, digest) = match self.manifest(fingerprint).await {
            Err(StoreError::Absent) => return Ok(()),
            found => found?,
        };
        let url = self.url(&format!("manifests/sha256:{digest}"))?;
        match self.send(Method::DELETE, &url, None, None).await {
            Ok(_) | Err(StoreError::Absent) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn expect_success(answer: Response) -> Result<Response, StoreError> {
    let status = answer.status();
    match status {
        _ if status.is_success() => Ok(answer),
        StatusCode::NOT_FOUND => Err(StoreError::Absent),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err(StoreError::Refused(format!("permission denied: http status {}", status.as_u16())))
        }
        _ if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            Err(StoreError::Broken(format!("http status {}", status.to_string().to_lowercase())))
        }
        _ => Err(StoreError::Refused(format!("http status {}", status.to_string().to_lowercase()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_is_sent_only_to_registry_over_https() {
        drop(rustls::crypto::ring::default_provider().install_default());
        let registry = OciRegistry::open(&"oci://registry.example/team/templates".parse().unwrap()).unwrap();
        for (location, may) in [
            ("/v2/team/templates/blobs/uploads/1", true),
            ("https://registry.example/x", true),
            ("https://registry.example:443/x", true),
            ("http://registry.example/x", false),
            ("https://registry.example:5000/x", false),
            ("https://uploads.example/x", false),
        ] {
            let url = registry.base.join(location).unwrap();
            assert_eq!(registry.may_see_login(&url), may, "{location}");
        }
    }
}
