//! Limits the bandwidth of one direction of a connection.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Number of times per second that a limited direction moves bytes.
const SLICES: u64 = 50;

/// Rate limit for one direction. The default is no limit.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Bytes per second.
    rate: Option<u64>,
    /// When the next byte can move. `None` means immediately.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    /// Sets the rate limit in bytes per second. `None` removes it.
    pub(super) fn limit(&mut self, rate: Option<u64>) {
        *self = Self { rate, pause: None };
    }

    /// Waits until bytes can move, and returns the maximum number of bytes.
    pub(super) fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        let of_rate = |rate: u64| usize::try_from(rate.div_ceil(SLICES)).ok();
        Poll::Ready(self.rate.and_then(of_rate).unwrap_or(usize::MAX))
    }

    /// Records that `count` bytes have moved, and schedules the pause after them.
    pub(super) fn moved(&mut self, count: usize) {
        if let Some(rate) = self.rate {
            let micros = (count as u64).saturating_mul(1_000_000) / rate;
            let time = Duration::from_micros(micros);
            self.pause = Some(Box::pin(sleep_until(Instant::now() + time)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::testing::run;

    #[test]
    fn limited_direction_pauses_after_each_slice() {
        run(async {
            let mut pace = Pace::default();
            assert_eq!(poll_fn(|context| pace.poll_room(context)).await, usize::MAX);
            pace.limit(Some(1000));
            let begun = Instant::now();
            for _ in 0..3 {
                let room = poll_fn(|context| pace.poll_room(context)).await;
                assert_eq!(room, 20);
                pace.moved(room);
            }
            assert!(begun.elapsed() >= Duration::from_millis(40));
            pace.limit(Some(1));
            assert_eq!(poll_fn(|context| pace.poll_room(context)).await, 1);
        });
    }
}
