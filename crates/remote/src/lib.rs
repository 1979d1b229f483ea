//! Templates that machines share: an object store or a registry, of which nothing is believed but what is signed.
//!
//! A [`Remote`] is at a [`RemoteAddress`]. What is fetched from it becomes an entry of the cache only if a trusted key has signed
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
mod store;
mod tree;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use storage::{Building, Cache, Entry, SigningKey, TrustedKey};
use template::{About, SeekStep, Sought, TemplateSource};
use tokio::runtime::Handle;
use tokio::time::timeout;

pub use address::RemoteAddress;
pub use error::RemoteError;
pub use garbage::{Collected, Usage};
pub use patience::Patience;
pub use push::Pushed;

use crate::error::StoreError;
use crate::fetch::FoundTemplate;
use crate::notice::{BeatWatch, LONGEST_NOTICE, PostedNotice};
use crate::push::PushBounds;
use crate::store::{TemplateStore, with_store};

/// How often a template is looked for that another machine builds.
const POLL: Duration = Duration::from_millis(200);
/// How long a machine waits at most before it takes the place of a builder that is gone.
const HESITATION: Duration = Duration::from_millis(500);
/// How long reading a notice may take, and writing one.
const NOTICE_BOUND: Duration = Duration::from_millis(500);
/// How long a remote that has failed is left alone: longer than a run takes to come to its server.
const TROUBLE: Duration = Duration::from_mins(1);

/// A place where templates are shared.
pub struct Remote {
    address: RemoteAddress,
    cache: Cache,
    trusted: Vec<TrustedKey>,
    /// What is built here is pushed if there is one.
    pushes_with: Option<Arc<SigningKey>>,
    /// When it failed last.
    failed: Mutex<Option<Instant>>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.address)
    }
}

impl Remote {
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
        self.work(|runtime, store| {
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

    /// Fetches the template, and waits for it while another machine builds it. If it is not there, says that we build it.
    fn seek(
        &self,
        fingerprint: &str,
        into: (&Building, u64),
        progress: &dyn Fn(SeekStep),
    ) -> Result<Sought, RemoteError> {
        let bytes = |done, total| progress(SeekStep::Receiving { done, total });
        self.work(|runtime, store| {
            let fetch = || {
                let from = (runtime, store);
                self.fetch_from(from, fingerprint, into, Patience::ON_THE_WAY, &bytes)
            };
            let (mut watch, mut waits, mut hesitates) = (BeatWatch::default(), false, true);
            loop {
                if let Some(entry) = fetch()? {
                    return Ok(Sought::Fetched(entry));
                }
                match runtime.block_on(self.look_for_builder(store, fingerprint, &mut watch)) {
                    OtherBuilder::AtWork => {}
                    // It came between two looks, or the build failed there, and is no one's to wait for.
                    OtherBuilder::Absent if waits => {
                        return Ok(fetch()?.map_or(Sought::Missing(None), Sought::Fetched));
                    }
                    // Others see it at the same moment: the first one builds, and the rest see that.
                    OtherBuilder::Dead if std::mem::take(&mut hesitates) => {
                        thread::sleep(HESITATION.mul_f64(chance()));
                        continue;
                    }
                    other => match runtime.block_on(self.post_notice(store, fingerprint, &other)) {
                        Posted::Notice(notice) => return Ok(Sought::Missing(Some(Box::new(notice)))),
                        Posted::TooLate => {}
                        Posted::Nothing => return Ok(Sought::Missing(None)),
                    },
                }
                if !std::mem::replace(&mut waits, true) {
                    progress(SeekStep::Waiting);
                }
                thread::sleep(POLL);
            }
        })
    }

    /// Whether another machine builds the template. A notice that cannot be read costs a build, and no more.
    async fn look_for_builder(
        &self,
        store: &TemplateStore,
        fingerprint: &str,
        watch: &mut BeatWatch,
    ) -> OtherBuilder {
        match timeout(NOTICE_BOUND, store.notice(fingerprint, LONGEST_NOTICE)).await {
            Ok(Ok(text)) => {
                let text = String::from_utf8_lossy(&text);
                match watch.is_alive(&text, (fingerprint, &self.trusted), Instant::now()) {
                    true => OtherBuilder::AtWork,
                    false => OtherBuilder::Dead,
                }
            }
            Ok(Err(StoreError::Absent)) => OtherBuilder::Absent,
            Ok(Err(_)) | Err(_) => OtherBuilder::Unknown,
        }
    }

    /// Says that we build the template, if others can have it from us.
    async fn post_notice(&self, store: &TemplateStore, fingerprint: &str, other: &OtherBuilder) -> Posted {
        let Some(key) = self.pushes_with.as_ref().filter(|_| !matches!(other, OtherBuilder::Unknown)) else {
            return Posted::Nothing;
        };
        let left = matches!(other, OtherBuilder::Dead);
        let post = PostedNotice::post(store, &self.address, fingerprint, key, left);
        match timeout(NOTICE_BOUND, post).await {
            Ok(Ok(Some(notice))) => Posted::Notice(notice),
            Ok(Ok(None)) => Posted::TooLate,
            Ok(Err(_)) | Err(_) => Posted::Nothing,
        }
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
        self.work(|runtime, store| {
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
            loop {
                let (tree, mut pushed) =
                    push::send_packs(runtime, store, (entry, &related), bounds, progress)?;
                let (shares, checked) = (pushed.shared > 0, tree.clone());
                let document = (tree, entry.describe(key)?);
                pushed.bytes +=
                    runtime.block_on(push::publish(store, &fingerprint, document, replace, bounds))?;
                // What is shared may have been removed as garbage meanwhile.
                if !shares || runtime.block_on(push::is_complete(store, &checked, patience))? {
                    return Ok(pushed);
                }
                let object = format!("the head of template {fingerprint}");
                runtime
                    .block_on(store.remove_head(&fingerprint))
                    .map_err(|error| error.attempt("remove", object))?;
                related.clear();
            }
        })
    }

    /// What the remote holds; it may take so long to find out.
    pub fn usage(&self, within: Duration) -> Result<Usage, RemoteError> {
        self.work(|runtime, store| runtime.block_on(garbage::usage(store, within)))
    }

    /// Removes the templates that were pushed longer than `age` ago, and what no other template needs, unless it is younger
    /// than a day.
    ///
    /// # Errors
    /// The remote failed. What is needed is still there.
    pub fn collect(&self, age: Duration) -> Result<Collected, RemoteError> {
        let before = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        self.work(|runtime, store| runtime.block_on(garbage::collect(store, before)))
    }

    fn work<T>(
        &self,
        work: impl FnOnce(&Handle, &TemplateStore) -> Result<T, RemoteError>,
    ) -> Result<T, RemoteError> {
        with_store(&self.address, work)
    }

    fn has_failed(&self) -> bool {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.is_some_and(|when| when.elapsed() < TROUBLE)
    }

    /// The reason as one line; a remote that fails is left alone for a while.
    fn explain(&self, error: &RemoteError) -> String {
        if !matches!(error, RemoteError::Untrusted { .. } | RemoteError::TooLarge { .. }) {
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        format!("{}: {error}", self.address)
    }
}

/// What is known of another machine that builds a template.
enum OtherBuilder {
    AtWork,
    /// It began, and did not come to an end.
    Dead,
    Absent,
    Unknown,
}

/// What became of our notice.
enum Posted {
    Notice(PostedNotice),
    /// Another machine was quicker.
    TooLate,
    Nothing,
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
    match fetch::find(store, fingerprint, trusted, patience).await {
        Ok(None) => Ok(Presence::Absent),
        Ok(Some(found)) if push::is_complete(store, &found.tree, patience).await? => Ok(Presence::Complete),
        Ok(Some(_)) | Err(RemoteError::Untrusted { .. } | RemoteError::Damaged { .. }) => {
            Ok(Presence::Useless)
        }
        Err(error) => Err(error),
    }
}

/// A number from 0 to 1; without randomness, 1.
fn chance() -> f64 {
    let mut byte = [u8::MAX];
    drop(sys::fill_random(&mut byte));
    f64::from(byte[0]) / f64::from(u8::MAX)
}

/// How long a template took to build that was described so.
fn build_time(about: &str) -> Duration {
    let took = About::parse(about).map_or(0.0, |about| about.took);
    Duration::try_from_secs_f64(took).unwrap_or_default()
}

impl TemplateSource for Remote {
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
            self.push(entry, key, Patience::ON_THE_WAY, progress).map_err(|error| self.explain(&error))?;
        Ok(Some(pushed.bytes))
    }
}
