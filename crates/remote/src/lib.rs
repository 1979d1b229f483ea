//! Templates that machines share: an object store or a registry, of which nothing is believed but what is signed.
//!
//! A [`RemoteCache`] is at a [`RemoteAddress`]. What is fetched from it becomes an entry of the cache only if a trusted key has signed
//! its head, and every file is the one that was signed; see `storage`. What makes it up in the remote is never trusted, only
//! tried: heads by fingerprint, and blobs by digest (trees, and packs of compressed frames). No socket is opened, no thread
//! started and nothing of TLS set up before something is to be fetched or pushed. Of machines that lack the same template, one
//! builds it, and the others wait for that.

mod address;
mod digest;
mod document;
mod error;
mod fetch;
mod garbage;
mod login;
mod notice;
mod objects;
mod patience;
mod push;
mod registry;
mod seek;
mod store;
mod stored;
mod tree;
mod wary;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use storage::{Building, Cache, Entry, SigningKey, TrustedKey};
use sys::lock;
use template::{About, SeekStep, Sought, TemplateSource};
use tokio::runtime::Handle;

pub use address::RemoteAddress;
pub use error::RemoteError;
pub use garbage::{Collected, Usage};
pub use patience::Patience;
pub use push::Pushed;

use crate::error::StoreError;
use crate::fetch::FoundTemplate;
use crate::push::PushBounds;
use crate::store::{TemplateStore, with_store};

/// How long a remote that has failed is left alone: longer than a run takes to come to its server.
const TROUBLE: Duration = Duration::from_mins(1);

/// A place where templates are shared.
pub struct RemoteCache {
    address: RemoteAddress,
    cache: Cache,
    trusted: Vec<TrustedKey>,
    /// What is built here is pushed if there is one.
    pushes_with: Option<Arc<SigningKey>>,
    /// When it failed last.
    failed: Mutex<Option<Instant>>,
}

impl fmt::Debug for RemoteCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteCache({})", self.address)
    }
}

impl RemoteCache {
    /// The one at that address, for `cache`. Only what one of the `trusted` keys has signed is taken.
    #[must_use]
    pub fn new(address: RemoteAddress, cache: Cache, trusted: Vec<TrustedKey>) -> Self {
        Self { address, cache, trusted, pushes_with: None, failed: Mutex::new(None) }
    }

    /// The same, to which whatever is built here is pushed, signed with `key`.
    #[must_use]
    pub fn pushing(self, key: Arc<SigningKey>) -> Self {
        Self { pushes_with: Some(key), ..self }
    }

    /// Where it is, to be shown.
    #[must_use]
    pub fn address(&self) -> &RemoteAddress {
        &self.address
    }

    /// Brings the template `fingerprint` into the cache, which may have at most `limit` bytes; none if it is not there.
    /// `progress` is told of bytes that have come and of their sum.
    ///
    /// # Errors
    /// The remote failed, or what it has is not to be trusted. Nothing of it is left in the cache then.
    pub fn fetch(
        &self,
        fingerprint: &str,
        (building, limit): (&Building, u64),
        patience: Patience,
        progress: &dyn Fn(u64, u64),
    ) -> Result<Option<Entry>, RemoteError> {
        with_store(&self.address, |runtime, store| {
            self.fetch_from((runtime, store), fingerprint, (building, limit), patience, progress)
        })
    }

    fn fetch_from(
        &self,
        (runtime, store): (&Handle, &TemplateStore),
        fingerprint: &str,
        (building, limit): (&Building, u64),
        patience: Patience,
        progress: &dyn Fn(u64, u64),
    ) -> Result<Option<Entry>, RemoteError> {
        let found = runtime.block_on(fetch::find(store, fingerprint, &self.trusted, patience))?;
        let Some(FoundTemplate { announced, tree, signed }) = found else { return Ok(None) };
        self.expect_newest(fingerprint, signed)?;
        let bytes = announced.bytes();
        if bytes > limit {
            return Err(RemoteError::TooLarge { bytes, limit });
        }
        let took = build_time(announced.about());
        building
            .receive(&announced, |receiving| {
                fetch::download(runtime, store, (&tree, receiving), (patience, took), progress)
            })
            .map(Some)
    }

    /// An error if a later signature of the same template was seen here: the remote was set back.
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

    /// Makes sure of what can be told before anything is sent: that the settings fit, and that a directory is there.
    ///
    /// # Errors
    /// Nothing can be pushed there.
    pub fn expect_usable(&self) -> Result<(), RemoteError> {
        with_store(&self.address, |_, _| Ok(()))
    }

    /// Pushes an entry of the cache, signed with `key`, unless the remote has it.
    ///
    /// # Errors
    /// The remote failed: nothing of it can be found there then.
    pub fn push(
        &self,
        entry: &Entry,
        key: &SigningKey,
        patience: Patience,
        progress: &dyn Fn(u64, u64),
    ) -> Result<Pushed, RemoteError> {
        let (fingerprint, about) = (entry.fingerprint(), entry.about());
        let bounds = PushBounds { patience, took: build_time(&about) };
        let mut trusted = self.trusted.clone();
        trusted.push(key.public());
        with_store(&self.address, |runtime, store| {
            let replace = match runtime.block_on(self::is_there(store, &fingerprint, &trusted, patience))? {
                Presence::Complete => return Ok(Pushed { bytes: 0, shared: 0 }),
                Presence::Absent => false,
                Presence::Useless => true,
            };
            let mut related = Vec::new();
            for other in About::parse(&about).iter().flat_map(About::built_on) {
                let found = runtime.block_on(fetch::find(store, &other, &trusted, patience));
                related.extend(found.ok().flatten().map(|found| found.tree));
            }
            for _ in 0..2 {
                let (tree, mut pushed) =
                    push::send_packs(runtime, store, (entry, &related), bounds, progress)?;
                let document = (tree, entry.describe(key)?);
                let published =
                    runtime.block_on(push::publish(store, &fingerprint, document, replace, bounds))?;
                let sent = pushed.bytes + published.tree;
                pushed.bytes = sent + published.head;
                // What was there already may have been removed as garbage meanwhile.
                let all = published.blobs.iter().map(|blob| blob.bytes).sum::<u64>();
                if sent == all || runtime.block_on(push::is_complete(store, &published.blobs, patience))? {
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

    /// What the remote holds; it may take so long to find out.
    pub fn usage(&self, within: Duration) -> Result<Usage, RemoteError> {
        with_store(&self.address, |runtime, store| runtime.block_on(garbage::usage(store, within)))
    }

    /// Removes the templates that were pushed longer than `age` ago, and what no other template needs, unless it is younger
    /// than a day.
    ///
    /// # Errors
    /// The remote failed. What is needed is still there.
    pub fn collect(&self, age: Duration) -> Result<Collected, RemoteError> {
        let before = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        with_store(&self.address, |runtime, store| runtime.block_on(garbage::collect(store, before)))
    }

    fn has_failed(&self) -> bool {
        let failed = lock(&self.failed);
        failed.is_some_and(|when| when.elapsed() < TROUBLE)
    }

    /// The reason as one line; a remote that fails is left alone for a while.
    fn explain(&self, error: &RemoteError) -> String {
        use RemoteError::{Missing, TooLarge, Untrusted};
        // A part that is missing is one template's, unless nothing can be written either.
        if !matches!(error, Untrusted { .. } | TooLarge { .. } | Missing { verb: "read", .. }) {
            *lock(&self.failed) = Some(Instant::now());
        }
        format!("{}: {error}", self.address)
    }
}

/// Whether a remote has a template.
enum Presence {
    Complete,
    Absent,
    /// Its head is not to be trusted, or something of it is missing.
    Useless,
}

async fn is_there(
    store: &TemplateStore,
    fingerprint: &str,
    trusted: &[TrustedKey],
    patience: Patience,
) -> Result<Presence, RemoteError> {
    use RemoteError::{Damaged, Missing, Untrusted};
    match fetch::find(store, fingerprint, trusted, patience).await {
        Ok(None) => Ok(Presence::Absent),
        Ok(Some(found)) if push::is_complete(store, &found.tree.packs, patience).await? => {
            Ok(Presence::Complete)
        }
        Ok(Some(_)) | Err(Untrusted { .. } | Damaged { .. } | Missing { .. }) => Ok(Presence::Useless),
        Err(error) => Err(error),
    }
}

/// How long a template took to build that was described so.
fn build_time(about: &str) -> Duration {
    let took = About::parse(about).map_or(0.0, |about| about.took);
    Duration::try_from_secs_f64(took).unwrap_or_default()
}

impl TemplateSource for RemoteCache {
    fn fetch(
        &self,
        fingerprint: &str,
        building: &Building,
        limit: u64,
        progress: &dyn Fn(SeekStep),
    ) -> Result<Sought, String> {
        if self.has_failed() || self.trusted.is_empty() {
            return Ok(Sought::Missing(None));
        }
        self.seek(fingerprint, (building, limit), progress).map_err(|error| self.explain(&error))
    }

    fn offer(&self, entry: &Entry, progress: &dyn Fn(u64, u64)) -> Result<Option<u64>, String> {
        let Some(key) = self.pushes_with.as_ref().filter(|_| !self.has_failed()) else { return Ok(None) };
        let pushed =
            self.push(entry, key, Patience::AFTER_A_BUILD, progress).map_err(|error| self.explain(&error))?;
        Ok(Some(pushed.bytes))
    }
}
