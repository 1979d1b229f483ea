//! Determines the order in which the laboratory repeats sessions and requests.

use std::time::Instant;

use pgwire::SessionTranscript;

/// A step in the repetition of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A session starts.
    Open {
        /// Index of the session in the transcripts.
        session: usize,
    },
    /// The server responded to a request.
    Answered {
        /// Index of the session in the transcripts.
        session: usize,
        /// Index of the request in its session.
        request: usize,
    },
    /// The server has responded to the session's last request, so the session can close.
    Close {
        /// Index of the session in the transcripts.
        session: usize,
    },
    /// The server didn't respond to a request, because the transcript ended first.
    Unfinished {
        /// Index of the session in the transcripts.
        session: usize,
        /// Index of the request in its session.
        request: usize,
    },
}

/// Returns all steps. Requests are in the order of their responses: a request with an earlier response can't have
/// waited for a request with a later one. Requests without a response come last.
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
                // The server never started the requests that follow the first one without a response.
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
