//! Where a request waits for its answer.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use pgwire::StartupParams;
use sys::lock;

use crate::LeaseError;
use crate::client::Client;
use crate::table::Answer;

/// Who asks for a session.
#[derive(Debug, Clone)]
pub(crate) struct Newcomer {
    pub(crate) client: Arc<Client>,
    pub(crate) params: StartupParams,
}

/// Where a request waits for its answer.
#[derive(Debug)]
pub(crate) struct Slot {
    newcomer: Option<Newcomer>,
    reply: Mutex<Reply>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Reply {
    answer: Option<Answer>,
    /// Whether a thread sleeps until it is there. Most answers are found by the thread that asks; to wake one would take a system
    /// call all the same.
    is_awaited: bool,
}

impl Slot {
    /// One for a request; a `newcomer` asks for a session.
    pub(crate) fn new(newcomer: Option<Newcomer>) -> Self {
        Self { newcomer, reply: Mutex::default(), answered: Condvar::new() }
    }

    /// Of the session that is asked for.
    pub(crate) fn params(&self) -> Option<&StartupParams> {
        self.newcomer.as_ref().map(|newcomer| &newcomer.params)
    }

    /// Who asks for a session.
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

    /// Waits for the answer; `None` if it does not come within that time.
    pub(crate) fn wait(&self, patience: Duration) -> Option<Result<Answer, LeaseError>> {
        let is_open = |reply: &mut Reply| {
            reply.is_awaited = reply.answer.is_none();
            reply.is_awaited
        };
        let waited = self.answered.wait_timeout_while(lock(&self.reply), patience, is_open);
        match waited.unwrap_or_else(PoisonError::into_inner).0.answer.take()? {
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
    fn an_answer_is_had_once_before_or_after_its_thread_sleeps() {
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
