//! Getting a template that is missing here: from the remote, from the machine that builds it right now, or by a build of our own
//! that others can wait for.

use std::thread;
use std::time::{Duration, Instant};

use storage::Building;
use template::{SeekStep, Sought};
use tokio::time::timeout;

use crate::error::{RemoteError, StoreError};
use crate::notice::{BeatWatch, LONGEST_NOTICE, PostedNotice};
use crate::store::{TemplateStore, with_store};
use crate::{Patience, RemoteCache};

/// How often a template is looked for that another machine builds.
const POLL: Duration = Duration::from_millis(200);
/// How long a machine waits at most before it takes the place of a builder that is gone.
const HESITATION: Duration = Duration::from_millis(500);
/// How long reading a notice may take, and writing one.
const READ_BOUND: Duration = Duration::from_millis(500);
const WRITE_BOUND: Duration = Duration::from_secs(2);

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

impl RemoteCache {
    /// Fetches the template, and waits for it while another machine builds it. If it is not there, says that we build it.
    pub(crate) fn seek(
        &self,
        fingerprint: &str,
        into: (&Building, u64),
        progress: &dyn Fn(SeekStep),
    ) -> Result<Sought, RemoteError> {
        let bytes = |done, total| progress(SeekStep::Receiving { done, total });
        with_store(self.address(), |runtime, store| {
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

    /// Whether another machine builds the template. A notice that can never be read costs a build, and no more.
    async fn look_for_builder(
        &self,
        store: &TemplateStore,
        fingerprint: &str,
        watch: &mut BeatWatch,
    ) -> OtherBuilder {
        match timeout(READ_BOUND, store.notice(fingerprint, LONGEST_NOTICE)).await {
            Ok(Ok(text)) => {
                let text = String::from_utf8_lossy(&text);
                let alive = watch.is_alive(&text, (fingerprint, &self.trusted), Instant::now());
                if alive { OtherBuilder::AtWork } else { OtherBuilder::Dead }
            }
            Ok(Err(StoreError::Absent)) => OtherBuilder::Absent,
            // A remote that is gone is told by the look for the template itself.
            Ok(Err(_)) | Err(_) if watch.was_alive(Instant::now()) => OtherBuilder::AtWork,
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
        match timeout(WRITE_BOUND, post).await {
            Ok(Ok(Some(notice))) => Posted::Notice(notice),
            Ok(Ok(None)) => Posted::TooLate,
            Ok(Err(_)) | Err(_) => Posted::Nothing,
        }
    }
}

/// A number from 0 to 1; without randomness, 1.
fn chance() -> f64 {
    let mut byte = [u8::MAX];
    drop(sys::fill_random(&mut byte));
    f64::from(byte[0]) / f64::from(u8::MAX)
}
