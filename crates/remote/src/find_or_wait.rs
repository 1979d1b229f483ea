//! Fetches a template that this machine doesn't have, or waits for a machine that is building it.
//!
//! There are three cases: the remote has the template, another machine is building it, or this machine
//! has to build it. This module determines which case applies, which usually prevents duplicate builds.

use std::thread;
use std::time::{Duration, Instant};

use template::{FetchProgress, FetchResult};
use tokio::time::timeout;

use crate::error::{RemoteError, StoreError};
use crate::notice::{BeatWatch, LONGEST_NOTICE, PostedNotice};
use crate::store::{TemplateStore, with_store};
use crate::{Destination, RemoteCache, Timeouts};

/// Interval between checks for a template being built by another machine.
const POLL: Duration = Duration::from_millis(200);
/// Maximum random delay before a machine takes over from a dead builder.
const HESITATION: Duration = Duration::from_millis(500);
/// Timeouts for reading and writing a notice.
const READ_BOUND: Duration = Duration::from_millis(500);
const WRITE_BOUND: Duration = Duration::from_secs(2);

/// State of the machine building the template, according to its notice.
enum OtherBuilder {
    AtWork,
    /// The builder no longer renews its notice.
    Dead,
    Absent,
    Unknown,
}

/// The result of posting a notice.
enum Posted {
    Notice(PostedNotice),
    /// Another machine posted first.
    TooLate,
    Nothing,
}

impl RemoteCache {
    /// Fetches the template, or waits while another machine builds it. If the template is neither in the remote nor
    /// being built, posts a notice that this machine is building it.
    pub(crate) fn find_or_wait(
        &self,
        fingerprint: &str,
        into: Destination<'_>,
        progress: &dyn Fn(FetchProgress),
    ) -> Result<FetchResult, RemoteError> {
        let bytes = |done, total| progress(FetchProgress::Receiving { done, total });
        with_store(self.address(), |runtime, store| {
            let fetch = || self.fetch_from(runtime, store, fingerprint, into, Timeouts::ON_THE_WAY, &bytes);
            let (mut watch, mut waits, mut hesitates) = (BeatWatch::default(), false, true);
            loop {
                if let Some(entry) = fetch()? {
                    return Ok(FetchResult::Fetched(entry));
                }
                match runtime.block_on(self.look_for_builder(store, fingerprint, &mut watch)) {
                    OtherBuilder::AtWork => {}
                    // Either the template appeared between the two reads, or the build on the other machine failed.
                    // Having waited already, this machine builds without a notice.
                    OtherBuilder::Absent if waits => {
                        return Ok(fetch()?.map_or(FetchResult::Missing(None), FetchResult::Fetched));
                    }
                    // Several machines may notice the dead builder concurrently. Each waits for a random
                    // time, so that one machine posts its notice first and the others see that notice.
                    OtherBuilder::Dead if std::mem::take(&mut hesitates) => {
                        thread::sleep(HESITATION.mul_f64(chance()));
                        continue;
                    }
                    other => match runtime.block_on(self.post_notice(store, fingerprint, &other)) {
                        Posted::Notice(notice) => return Ok(FetchResult::Missing(Some(Box::new(notice)))),
                        Posted::TooLate => {}
                        Posted::Nothing => return Ok(FetchResult::Missing(None)),
                    },
                }
                if !std::mem::replace(&mut waits, true) {
                    progress(FetchProgress::Waiting);
                }
                thread::sleep(POLL);
            }
        })
    }

    /// Looks for a machine that is building the template. If the notice can't be read, the worst outcome is a duplicate
    /// build.
    async fn look_for_builder(
        &self,
        store: &TemplateStore,
        fingerprint: &str,
        watch: &mut BeatWatch,
    ) -> OtherBuilder {
        match timeout(READ_BOUND, store.notice(fingerprint, LONGEST_NOTICE)).await {
            Ok(Ok(text)) => {
                let text = String::from_utf8_lossy(&text);
                let alive = watch.is_alive(&text, fingerprint, &self.trusted, Instant::now());
                if alive { OtherBuilder::AtWork } else { OtherBuilder::Dead }
            }
            Ok(Err(StoreError::Absent)) => OtherBuilder::Absent,
            // If the remote is unreachable, the next fetch reports it.
            Ok(Err(_)) | Err(_) if watch.was_alive(Instant::now()) => OtherBuilder::AtWork,
            Ok(Err(_)) | Err(_) => OtherBuilder::Unknown,
        }
    }

    /// Posts a notice that this machine is building the template. Does nothing if this machine doesn't push.
    async fn post_notice(&self, store: &TemplateStore, fingerprint: &str, other: &OtherBuilder) -> Posted {
        let Some(key) = self.pushes_with.as_ref().filter(|_| !matches!(other, OtherBuilder::Unknown)) else {
            return Posted::Nothing;
        };
        let left = matches!(other, OtherBuilder::Dead);
        let post = PostedNotice::post(store, &self.address, fingerprint, key, left);
        match timeout(WRITE_BOUND, post).await {
            Ok(Ok(Some(notice))) => Posted::Notice(notice),
            Ok(Ok(None)) => Posted::TooLate,
            Ok(Err(_)) | Err(_) => Posted::Nothing,
        }
    }
}

/// Returns a random number from 0 to 1, or 1 if the system provides no random bytes.
fn chance() -> f64 {
    let mut byte = [u8::MAX];
    drop(sys::fill_random(&mut byte));
    f64::from(byte[0]) / f64::from(u8::MAX)
}
