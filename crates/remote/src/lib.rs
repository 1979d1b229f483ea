//! Shares templates between machines.
//!
//! Building a template can take minutes. With a remote, e.g., an S3 bucket or a registry,
//! one machine builds and pushes the template, and the others fetch it. If several machines
//! need the same missing template concurrently, one of them builds it while the others wait.
//!
//! A [`RemoteCache`] uses the store at a [`RemoteAddress`]. The store itself isn't trusted. A fetched template only
//! enters the local cache if a trusted key has signed its head and every file matches the signed manifest (see
//! `storage`).
//!
//! The crate uses these words:
//!
//! - A *head* is the signed text about a template, stored under the template's fingerprint.
//! - A *blob* is an immutable file, stored under its digest. A blob is either a tree or a pack.
//! - A *frame* is a compressed piece of a file. A *pack* contains many frames.
//! - A *tree* lists each file's frames and where they are in the packs.
//! - A *notice* tells other machines that this one is building a template.
//!
//! Before the first fetch or push, the crate opens no sockets, starts no threads and doesn't set up TLS.

mod address;
mod digest;
mod document;
mod error;
mod fetch;
mod find_or_wait;
mod garbage;
mod http_client;
mod login;
mod notice;
mod objects;
mod push;
mod registry;
mod store;
mod stored;
mod timeouts;
mod tree;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use storage::{Building, Cache, Entry, SigningKey, TrustedKey};
use sys::lock;
use template::{EntryDescription, FetchProgress, FetchResult, SourceError, TemplateSource};
use tokio::runtime::Handle;

pub use address::{ParseAddressError, RemoteAddress};
pub use error::RemoteError;
pub use garbage::{Collected, Usage};
pub use push::Pushed;
pub use timeouts::Timeouts;

use crate::error::StoreError;
use crate::fetch::FoundTemplate;
use crate::store::{TemplateStore, with_store};
use crate::timeouts::TransferBounds;

/// How long pgfresh doesn't use the remote after a failure. A run starts
/// its server in less time, so a broken remote delays the run only once.
const TROUBLE: Duration = Duration::from_mins(1);

/// A client for a store of shared templates.
pub struct RemoteCache {
    address: RemoteAddress,
    cache: Cache,
    trusted: Vec<TrustedKey>,
    /// The key that signs templates built here. If `None`, this machine doesn't push.
    pushes_with: Option<Arc<SigningKey>>,
    /// When the remote last failed. `None` if it never did.
    failed: Mutex<Option<Instant>>,
}

impl fmt::Debug for RemoteCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteCache({})", self.address)
    }
}

/// The cache entry that receives a fetched template, and the limit on the template's size.
#[derive(Debug, Clone, Copy)]
pub struct Destination<'a> {
    /// The right to create the template's cache entry.
    pub building: &'a Building,
    /// Maximum size of the template, in bytes.
    pub limit: u64,
}

impl RemoteCache {
    /// Creates a client for the store at `address` that fetches into `cache`. The client only accepts templates signed
    /// by one of the `trusted` keys.
    #[must_use]
    pub fn new(address: RemoteAddress, cache: Cache, trusted: Vec<TrustedKey>) -> Self {
        Self { address, cache, trusted, pushes_with: None, failed: Mutex::new(None) }
    }

    /// Enables pushes: templates built on this machine are signed with `key` and pushed.
    #[must_use]
    pub fn pushing(self, key: Arc<SigningKey>) -> Self {
        Self { pushes_with: Some(key), ..self }
    }

    /// Returns the remote's address, whose display form hides credentials.
    #[must_use]
    pub fn address(&self) -> &RemoteAddress {
        &self.address
    }

    /// Fetches the template `fingerprint` into the cache, unless it is larger than the destination's limit.
    ///
    /// Returns `None` if the remote lacks the template. `progress` receives the number of bytes received so far and the
    /// total.
    ///
    /// # Errors
    /// Returns an error if the remote fails, or if its template is too large or untrusted. The cache is then unchanged.
    pub fn fetch(
        &self,
        fingerprint: &str,
        destination: Destination<'_>,
        timeouts: Timeouts,
        progress: &dyn Fn(u64, u64),
    ) -> Result<Option<Entry>, RemoteError> {
        with_store(&self.address, |runtime, store| {
            self.fetch_from(runtime, store, fingerprint, destination, timeouts, progress)
        })
    }

    fn fetch_from(
        &self,
        runtime: &Handle,
        store: &TemplateStore,
        fingerprint: &str,
        Destination { building, limit }: Destination<'_>,
        timeouts: Timeouts,
        progress: &dyn Fn(u64, u64),
    ) -> Result<Option<Entry>, RemoteError> {
        let found = runtime.block_on(fetch::find(store, fingerprint, &self.trusted, timeouts))?;
        let Some(FoundTemplate { announced, tree, signed }) = found else { return Ok(None) };
        self.expect_newest(fingerprint, signed)?;
        let bytes = announced.bytes();
        if bytes > limit {
            return Err(RemoteError::TooLarge { bytes, limit });
        }
        let bounds = TransferBounds { timeouts, took: build_time(announced.about()) };
        building
            .receive(&announced, |receiving| {
                fetch::download(runtime, store, &tree, receiving, bounds, progress)
            })
            .map(Some)
    }

    /// Returns an error if this machine has already seen a later signature for this template. Otherwise, an attacker
    /// who controls the store could roll the template back to an older build.
    fn expect_newest(&self, fingerprint: &str, signed: u64) -> Result<(), RemoteError> {
        let note = format!("signed-{fingerprint}");
        let seen =
            self.cache.recall(&note).and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or_default();
        if signed < seen {
            let why = "its signature is older than one that was seen before".to_owned();
            return Err(RemoteError::Untrusted { fingerprint: fingerprint.to_owned(), why });
        }
        if signed > seen {
            self.cache.remember(&note, &signed.to_string()).map_err(storage::CacheError::from)?;
        }
        Ok(())
    }

    /// Checks the settings without sending a request, including whether a `file` remote's directory exists.
    ///
    /// # Errors
    /// Returns an error if a push can't succeed.
    pub fn expect_usable(&self) -> Result<(), RemoteError> {
        with_store(&self.address, |_, _| Ok(()))
    }

    /// Pushes an entry of the cache, signed with `key`, unless the remote already has it. Calls `progress` with the
    /// number of the entry's bytes that were read so far, and the entry's size.
    ///
    /// # Errors
    /// Returns an error if the remote failed. In this case the remote doesn't offer the template.
    pub fn push(
        &self,
        entry: &Entry,
        key: &SigningKey,
        timeouts: Timeouts,
        progress: &dyn Fn(u64, u64),
    ) -> Result<Pushed, RemoteError> {
        let (fingerprint, about) = (entry.fingerprint(), entry.about());
        let bounds = TransferBounds { timeouts, took: build_time(&about) };
        let mut trusted = self.trusted.clone();
        trusted.push(key.public());
        with_store(&self.address, |runtime, store| {
            let replace = match runtime.block_on(self::is_there(store, &fingerprint, &trusted, timeouts))? {
                Presence::Complete => return Ok(Pushed { bytes: 0, shared: 0 }),
                Presence::Absent => false,
                Presence::Useless => true,
            };
            let mut related = Vec::new();
            for other in EntryDescription::parse(&about).iter().flat_map(EntryDescription::ancestors) {
                let found = runtime.block_on(fetch::find(store, &other, &trusted, timeouts));
                related.extend(found.ok().flatten().map(|found| found.tree));
            }
            for _ in 0..2 {
                let (tree, mut pushed) = push::send_packs(runtime, store, entry, &related, bounds, progress)?;
                let description = entry.describe(key)?;
                let published = runtime.block_on(push::publish(
                    store,
                    &fingerprint,
                    tree,
                    description,
                    replace,
                    bounds,
                ))?;
                let sent = pushed.bytes + published.tree;
                pushed.bytes = sent + published.head;
                // A concurrent collection can remove blobs that this push found in the store and therefore didn't send.
                let all = published.blobs.iter().map(|blob| blob.bytes).sum::<u64>();
                if sent == all || runtime.block_on(push::is_complete(store, &published.blobs, timeouts))? {
                    return Ok(pushed);
                }
                let object = format!("the head of template {fingerprint}");
                runtime
                    .block_on(store.remove_head(&fingerprint))
                    .map_err(|error| error.attempt("remove", object))?;
                related.clear();
            }
            Err(StoreError::Absent.attempt("find", format!("what was pushed of template {fingerprint}")))
        })
    }

    /// Counts the templates and bytes in the remote. `within` is the timeout.
    ///
    /// # Errors
    /// Returns an error if the remote refuses to list its objects, or doesn't respond within `within`.
    pub fn usage(&self, within: Duration) -> Result<Usage, RemoteError> {
        with_store(&self.address, |runtime, store| runtime.block_on(garbage::usage(store, within)))
    }

    /// Removes the templates pushed more than `age` ago, as well as blobs older than a day that no other template
    /// needs.
    ///
    /// # Errors
    /// Returns an error if the remote fails. Even then, no needed blobs are removed.
    pub fn collect(&self, age: Duration) -> Result<Collected, RemoteError> {
        let before = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        with_store(&self.address, |runtime, store| runtime.block_on(garbage::collect(store, before)))
    }

    fn has_failed(&self) -> bool {
        let failed = lock(&self.failed);
        failed.is_some_and(|when| when.elapsed() < TROUBLE)
    }

    /// Converts an error for the caller of this source. If the remote itself failed, records the time, so that the
    /// remote isn't used for a while.
    fn source_error(&self, error: RemoteError) -> SourceError {
        use RemoteError::{Missing, TooLarge, Untrusted};
        // A missing object during a read only affects this template, so the remote remains usable. During a write, it
        // does count as a failure of the remote.
        if !matches!(error, Untrusted { .. } | TooLarge { .. } | Missing { verb: "read", .. }) {
            *lock(&self.failed) = Some(Instant::now());
        }
        SourceError { source_name: self.address.to_string(), reason: error.into() }
    }
}

/// The state of a template in the remote.
enum Presence {
    Complete,
    Absent,
    /// The remote has a head, but the head isn't trusted or one of its blobs is missing.
    Useless,
}

async fn is_there(
    store: &TemplateStore,
    fingerprint: &str,
    trusted: &[TrustedKey],
    timeouts: Timeouts,
) -> Result<Presence, RemoteError> {
    use RemoteError::{Damaged, Missing, Untrusted};
    match fetch::find(store, fingerprint, trusted, timeouts).await {
        Ok(None) => Ok(Presence::Absent),
        Ok(Some(found)) if push::is_complete(store, &found.tree.packs, timeouts).await? => {
            Ok(Presence::Complete)
        }
        Ok(Some(_)) | Err(Untrusted { .. } | Damaged { .. } | Missing { .. }) => Ok(Presence::Useless),
        Err(error) => Err(error),
    }
}

/// Returns the build time from the template's description `about`.
fn build_time(about: &str) -> Duration {
    let took = EntryDescription::parse(about).map_or(0.0, |about| about.took);
    Duration::try_from_secs_f64(took).unwrap_or_default()
}

impl TemplateSource for RemoteCache {
    fn fetch(
        &self,
        fingerprint: &str,
        building: &Building,
        limit: u64,
        progress: &dyn Fn(FetchProgress),
    ) -> Result<FetchResult, SourceError> {
        if self.has_failed() || self.trusted.is_empty() {
            return Ok(FetchResult::Missing(None));
        }
        self.find_or_wait(fingerprint, Destination { building, limit }, progress)
            .map_err(|error| self.source_error(error))
    }

    fn offer(&self, entry: &Entry, progress: &dyn Fn(u64, u64)) -> Result<Option<u64>, SourceError> {
        let Some(key) = self.pushes_with.as_ref().filter(|_| !self.has_failed()) else { return Ok(None) };
        let pushed = self
            .push(entry, key, Timeouts::AFTER_A_BUILD, progress)
            .map_err(|error| self.source_error(error))?;
        Ok(Some(pushed.bytes))
    }
}
