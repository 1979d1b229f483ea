//! Room for one more session in a server that admits so many: those that only wait for a client give theirs up.

use std::thread;
use std::time::{Duration, Instant};

use crate::databases::{Inner, says};
use crate::{Backend, LeaseError, Kind};

/// How long backends may take to end that were told to, and how often we look.
const LEAVING: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);

/// Whether the server has no room for one more.
fn is_crowded(result: &Result<Backend, LeaseError>) -> bool {
    matches!(result, Err(LeaseError::Refused(words)) if says(words, b"C53300\0"))
}

impl Inner {
    /// Starts a backend. Where the server has no room for one more, those that only wait make room.
    pub(crate) fn start_backend(&self, name: &str, kind: &Kind) -> Result<Backend, LeaseError> {
        let (begun, mut leaving) = (Instant::now(), false);
        let mut forked = self.lock().forked.pop();
        loop {
            let result = match forked.take() {
                None => Backend::connect(&self.origin.directory, kind, name),
                Some(stream) => match Backend::start(stream, kind, name) {
                    // It has waited too long to be asked. Source: `authentication_timeout`.
                    Err(LeaseError::Io { .. }) => continue,
                    result => result,
                },
            };
            if !is_crowded(&result) {
                return result;
            }
            leaving |= self.lock().make_room();
            if !leaving || begun.elapsed() > LEAVING {
                return result;
            }
            // They go within milliseconds; the server tells nobody when.
            thread::sleep(PAUSE);
        }
    }
}
