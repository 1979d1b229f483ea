//! Posts, renews and reads notices about builds in progress.
//!
//! When a machine starts building a template, it posts a notice in the remote. Other machines that see the notice wait
//! for the template instead of building it a second time.
//!
//! ```text
//! pgfresh building 1
//! fingerprint c50c4d91…
//! builder 8f14e45fceea167a             the builder's random ID
//! beat 7                               incremented every second
//! signed 1700000000                    seconds since 1970
//! untrusted comment: …                 and three more lines, in minisign's format
//! ```
//! Only machines that may push can post notices. Since each notice is signed, no other account can make machines wait.
//!
//! A notice is valid as long as its beat keeps increasing. Each waiting machine measures
//! this with its own clock, so the clocks of the machines can differ by minutes.

use std::pin::pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use storage::{SigningKey, TrustedKey};
use tokio::sync::oneshot;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::address::RemoteAddress;
use crate::error::StoreError;
use crate::store::{TemplateStore, with_store};

/// Interval between beats.
const BEAT: Duration = Duration::from_secs(1);
/// Timeout for writing one beat. It is long because the build and other transfers use the disk and the network at the
/// same time.
const BEAT_BOUND: Duration = Duration::from_secs(5);
/// Maximum time without a new beat before we consider the builder dead.
const SILENCE: Duration = Duration::from_secs(10);
/// Maximum clock difference between two machines.
const SKEW: Duration = Duration::from_mins(5);
/// Timeout at the end of a build. It applies twice: to a beat still being written, and then to the notice's removal.
const FAREWELL: Duration = Duration::from_millis(500);
/// Maximum size of a notice, in bytes.
pub(crate) const LONGEST_NOTICE: u64 = 4 << 10;
/// The first line of a notice.
const HEADER: &str = "pgfresh building 1";

/// The content of a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    fingerprint: String,
    builder: u64,
    beat: u64,
    /// Time of the signature, in seconds since 1970.
    signed: u64,
}

impl Notice {
    fn new(fingerprint: &str, builder: u64, beat: u64) -> Self {
        let signed = seconds_since_1970();
        Self { fingerprint: fingerprint.to_owned(), builder, beat, signed }
    }

    fn text(&self) -> String {
        let Self { fingerprint, builder, beat, signed } = self;
        format!("{HEADER}\nfingerprint {fingerprint}\nbuilder {builder:016x}\nbeat {beat}\nsigned {signed}\n")
    }

    fn to_signed_text(&self, key: &SigningKey) -> String {
        let text = self.text();
        let signature = key.sign(text.as_bytes(), &format!("building {}", self.fingerprint));
        text + &signature
    }

    /// Parses a notice signed by a `trusted` key for the template `fingerprint`. Returns `None` for any other text.
    fn parse(text: &str, fingerprint: &str, trusted: &[TrustedKey]) -> Option<Self> {
        let (said, _) = text.split_once("\nuntrusted comment")?;
        let (said, signature) = text.split_at(said.len() + 1);
        storage::trusted_signer(said.as_bytes(), signature, trusted).ok()?;
        let rest = said.strip_prefix(HEADER)?.strip_prefix("\nfingerprint ")?;
        let (of, rest) = rest.split_once("\nbuilder ")?;
        let (builder, rest) = rest.split_once("\nbeat ")?;
        let (beat, signed) = rest.split_once("\nsigned ")?;
        let notice = Self {
            fingerprint: of.to_owned(),
            builder: u64::from_str_radix(builder, 16).ok()?,
            beat: beat.parse().ok()?,
            signed: signed.trim_end().parse().ok()?,
        };
        (notice.fingerprint == fingerprint && notice.text() == said).then_some(notice)
    }
}

fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Determines whether the builder behind a notice is alive, by comparing the notice's beats over time.
#[derive(Debug, Default)]
pub(crate) struct BeatWatch {
    last: Option<(Notice, Instant)>,
}

impl BeatWatch {
    /// Returns true if the builder that wrote the notice `text` for the template `fingerprint` is still alive. `now` is
    /// when the notice was read.
    pub(crate) fn is_alive(
        &mut self,
        text: &str,
        fingerprint: &str,
        trusted: &[TrustedKey],
        now: Instant,
    ) -> bool {
        let Some(notice) = Notice::parse(text, fingerprint, trusted) else { return false };
        if notice.signed.abs_diff(seconds_since_1970()) > SKEW.as_secs() {
            return false;
        }
        match &self.last {
            // An attacker can restore an older notice, but its beat isn't new, so that doesn't make the builder look
            // alive.
            Some((last, since)) if last.builder == notice.builder && last.beat >= notice.beat => {
                now.duration_since(*since) < SILENCE
            }
            _ => {
                self.last = Some((notice, now));
                true
            }
        }
    }

    /// Returns true if [`Self::is_alive`] saw a new beat within the last [`SILENCE`]. Doesn't access the remote.
    pub(crate) fn was_alive(&self, now: Instant) -> bool {
        self.last.as_ref().is_some_and(|(_, since)| now.duration_since(*since) < SILENCE)
    }
}

/// A notice posted by this machine. A thread renews the notice, and dropping this value removes it.
#[derive(Debug)]
pub(crate) struct PostedNotice {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PostedNotice {
    /// Posts a notice in `store`, whose address is `address`. If `left` is true, first removes the notice left by a
    /// dead builder. Returns `None` if another machine posted its notice first.
    ///
    /// # Errors
    /// Returns an error if the store fails or accepts no notices.
    pub(crate) async fn post(
        store: &TemplateStore,
        address: &RemoteAddress,
        fingerprint: &str,
        key: &Arc<SigningKey>,
        left: bool,
    ) -> Result<Option<Self>, StoreError> {
        let mut builder = [0; 8];
        sys::fill_random(&mut builder).map_err(|error| StoreError::broken(&error))?;
        let builder = u64::from_ne_bytes(builder);
        if left {
            store.remove_notice(fingerprint).await?;
        }
        let text = Notice::new(fingerprint, builder, 0).to_signed_text(key);
        match store.put_notice(fingerprint, &text, true).await {
            Err(StoreError::Exists) => return Ok(None),
            other => other?,
        }
        let (address, fingerprint, key) = (address.clone(), fingerprint.to_owned(), Arc::clone(key));
        let (stop, mut stopped) = oneshot::channel();
        let beat = move || {
            let kept = with_store(&address, |runtime, store| {
                runtime.block_on(async {
                    for beat in 1.. {
                        if timeout(BEAT, &mut stopped).await.is_ok() {
                            break;
                        }
                        let text = Notice::new(&fingerprint, builder, beat).to_signed_text(&key);
                        let mut put = pin!(timeout(BEAT_BOUND, store.put_notice(&fingerprint, &text, false)));
                        tokio::select! {
                            done = &mut put => note("renewed", done),
                            _ = &mut stopped => {
                                // Wait for the beat in progress, because it would recreate the notice if it arrived
                                // after the removal. The timeout is short, since this wait delays the run.
                                note("renewed", timeout(FAREWELL, put).await.flatten());
                                break;
                            }
                        }
                    }
                    note("removed", timeout(FAREWELL, store.remove_notice(&fingerprint)).await);
                });
                Ok(())
            });
            if let Err(error) = kept {
                tracing::debug!(%error, "the notice of a build is not renewed");
            }
        };
        let thread = thread::Builder::new().name("notice".to_owned()).spawn(beat).ok();
        Ok(Some(Self { stop: Some(stop), thread }))
    }
}

/// Logs a failed write. At worst, other machines build the template themselves.
fn note(what: &str, done: Result<Result<(), StoreError>, Elapsed>) {
    match done {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(why = error.why(), "the notice of a build is not {what}"),
        Err(_) => tracing::debug!("the notice of a build is not {what} in time"),
    }
}

impl Drop for PostedNotice {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the notice of a build was not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> (SigningKey, Vec<TrustedKey>) {
        let key = SigningKey::generate().unwrap();
        let trusted = vec![key.public()];
        (key, trusted)
    }

    #[test]
    fn notice_parses_only_its_signed_text() {
        let (key, trusted) = key();
        let notice = Notice::new("abc", 7, 3);
        let text = notice.to_signed_text(&key);
        assert_eq!(Notice::parse(&text, "abc", &trusted), Some(notice));
        assert_eq!(Notice::parse(&text, "abd", &trusted), None);
        assert_eq!(Notice::parse(&text, "abc", &[]), None);
        assert_eq!(Notice::parse(&text, "abc", &self::key().1), None);
        for at in 0..text.len() {
            assert_eq!(Notice::parse(&text[..at], "abc", &trusted), None, "{at}");
        }
        assert_eq!(Notice::parse(&text.replacen("beat 3", "beat 4", 1), "abc", &trusted), None);
    }

    proptest! {
        #[test]
        fn only_a_beating_notice_makes_machines_wait(
            beats in prop::collection::vec((0_u64..3, 0_u64..5, 0_u64..6000, any::<bool>()), 1..30)
        ) {
            let (key, trusted) = key();
            let begun = Instant::now();
            let (mut watch, mut now) = (BeatWatch::default(), begun);
            // Model of what the waiting machine knows: the last builder, its newest beat, and when that beat arrived.
            let mut model: Option<(u64, u64, Instant)> = None;
            for (builder, beat, pause, is_read) in beats {
                now += Duration::from_millis(pause);
                if !is_read {
                    let alive = model.is_some_and(|(_, _, since)| now - since < SILENCE);
                    prop_assert_eq!(watch.was_alive(now), alive);
                    continue;
                }
                let text = Notice::new("abc", builder, beat).to_signed_text(&key);
                let alive = match model {
                    Some((last, newest, since)) if last == builder && newest >= beat => now - since < SILENCE,
                    _ => {
                        model = Some((builder, beat, now));
                        true
                    }
                };
                prop_assert_eq!(watch.is_alive(&text, "abc", &trusted, now), alive);
            }
        }
    }

    #[test]
    fn an_old_notice_is_not_waited_for() {
        let (key, trusted) = key();
        for (ago, alive) in [(0, true), (200, true), (400, false)] {
            let mut notice = Notice::new("abc", 7, 3);
            notice.signed -= ago;
            let text = notice.to_signed_text(&key);
            assert_eq!(BeatWatch::default().is_alive(&text, "abc", &trusted, Instant::now()), alive, "{ago}");
        }
    }
}
