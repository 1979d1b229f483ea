//! The order in which the laboratory repeats sessions and requests.

use std::time::Instant;

use pgwire::SessionTranscript;

/// A step of the repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A session begins.
    Open {
        /// Number of the session.
        session: usize,
    },
    /// The server answered a request.
    Answered {
        /// Number of the session.
        session: usize,
        /// Number of the request in its session.
        request: usize,
    },
    /// The server has answered the session's last request.
    Close {
        /// Number of the session.
        session: usize,
    },
    /// A request has no answer.
    Unfinished {
        /// Number of the session.
        session: usize,
        /// Number of the request in its session.
        request: usize,
    },
}

/// Returns all steps. Requests come in the order of their answers: a request that was answered earlier cannot have waited
/// for one that was answered later. Requests without an answer come last.
pub(super) fn events(transcripts: &[SessionTranscript]) -> Vec<Event> {
    let mut events: Vec<(Instant, Event)> = Vec::new();
    let mut unfinished: Vec<(Instant, Event)> = Vec::new();
    for (session, transcript) in transcripts.iter().enumerate() {
        if transcript.requests.is_empty() {
            continue;
        }
        events.push((transcript.began, Event::Open { session }));
        let mut last = transcript.began;
        let mut is_closed = true;
        for (number, request) in transcript.requests.iter().enumerate() {
            if let Some(outcome) = &request.outcome {
                last = last.max(outcome.answered);
                events.push((last, Event::Answered { session, request: number }));
            } else {
                // The server never came to the requests after the first one without an answer.
                unfinished.push((request.sent, Event::Unfinished { session, request: number }));
                is_closed = false;
                break;
            }
        }
        if is_closed {
            events.push((last, Event::Close { session }));
        }
    }
    events.sort_by_key(|(at, _)| *at);
    unfinished.sort_by_key(|(at, _)| *at);
    events.into_iter().chain(unfinished).map(|(_, event)| event).collect()
}
