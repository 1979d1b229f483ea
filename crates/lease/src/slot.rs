//! Slots, in which requests wait for their answers.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pgwire::StartupParams;
use sys::{lock, sound};

use crate::LeaseError;
use crate::client::Client;
use crate::table::Answer;

/// The client of a request for a session, and its startup parameters.
#[derive(Debug, Clone)]
pub(crate) struct Newcomer {
    pub(crate) client: Arc<Client>,
    pub(crate) params: StartupParams,
}

/// A slot in which a request waits for its answer. Only a request for a session has a newcomer.
#[derive(Debug)]
pub(crate) struct Slot {
    newcomer: Option<Newcomer>,
    reply: Mutex<Reply>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Reply {
    answer: Option<Answer>,
    /// Whether a thread sleeps until the answer comes. Usually the requesting thread finds the answer itself, and a wake-up would
    /// cost a system call even if no thread sleeps.
    is_awaited: bool,
}

impl Slot {
    /// Returns a slot for a request. A request for a session has a `newcomer`.
    pub(crate) fn new(newcomer: Option<Newcomer>) -> Self {
        Self { newcomer, reply: Mutex::default(), answered: Condvar::new() }
    }

    /// Returns the startup parameters of the session, if the request is for one.
    pub(crate) fn params(&self) -> Option<&StartupParams> {
        self.newcomer.as_ref().map(|newcomer| &newcomer.params)
    }

    /// Returns the client of a request for a session. Returns `None` for other requests.
    pub(crate) fn client(&self) -> Option<&Arc<Client>> {
        self.newcomer.as_ref().map(|newcomer| &newcomer.client)
    }

    pub(crate) fn answer(&self, answer: Answer) {
        let mut reply = lock(&self.reply);
        reply.answer = Some(answer);
        if reply.is_awaited {
            self.answered.notify_all();
        }
    }

    /// Waits for the answer. Returns `None` if it doesn't come within `patience`.
    pub(crate) fn wait(&self, patience: Duration) -> Option<Result<Answer, LeaseError>> {
        let is_open = |reply: &mut Reply| {
            reply.is_awaited = reply.answer.is_none();
            reply.is_awaited
        };
        let waited = self.answered.wait_timeout_while(lock(&self.reply), patience, is_open);
        match sound(waited).0.answer.take()? {
            Answer::Refused(error) => Some(Err(error)),
            answer => Some(Ok(answer)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn slot_delivers_answer_before_or_after_thread_waits() {
        let slot = Slot::new(None);
        assert!(slot.wait(Duration::ZERO).is_none());
        slot.answer(Answer::Elsewhere);
        assert!(matches!(slot.wait(Duration::ZERO), Some(Ok(Answer::Elsewhere))));
        thread::scope(|scope| {
            let waits = scope.spawn(|| slot.wait(Duration::from_mins(1)).is_some());
            slot.answer(Answer::Elsewhere);
            assert!(waits.join().unwrap());
        });
    }
}
