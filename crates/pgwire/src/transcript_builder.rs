//! Builds a session's transcript from the bytes in both directions.
//!
//! The builder copies the client's bytes as they arrive. It divides them into requests when the server responds,
//! because only the responses show which messages the server ignored.

use std::time::Instant;

use crate::frame::{Frame, FrameDecoder, FramePrefix, HEADER, frames, split_zero};
use crate::statement_lookup::statement_of_last;
use crate::transcript::{RequestOutcome, RunningStatement, SessionTranscript, TranscribedRequest};
use crate::unanswered::{SentMessage, UnansweredMessages};
use crate::{ErrorResponse, StartupParams, StatementError};

/// Maximum number of bytes that the builder reads of an error.
const ERROR: usize = 4096;
/// Maximum number of bytes that the builder reads of a command tag.
const TAG: usize = 64;
/// Maximum number of bytes that the builder returns of a running statement's text.
const TEXT: usize = 1023;

/// Builds one session's transcript. The bytes from both sides can arrive in chunks of any size.
#[derive(Debug)]
pub struct TranscriptBuilder {
    database: String,
    parameters: Vec<(String, String)>,
    began: Instant,
    answered: Vec<AnsweredRequest>,
    /// The client's bytes that don't belong to a completed request.
    pending: Vec<u8>,
    /// Number of the client's bytes before `pending`.
    pending_start: u64,
    /// Length of the complete messages in `pending`.
    complete: usize,
    /// When the first byte of the incomplete message arrived.
    message_sent: Instant,
    /// When the first byte of the first pending request arrived. `None` if no request is pending.
    request_sent: Option<Instant>,
    unanswered: UnansweredMessages,
    server: FrameDecoder,
    /// Command tags since the last ReadyForQuery.
    tags: Vec<String>,
    /// The first error since the last ReadyForQuery.
    error: Option<StatementError>,
    /// When the server started its current work. Meaningless while the server is idle.
    running_since: Instant,
    /// Size of the completed requests and of all tags, in bytes.
    kept: usize,
    /// Whether the builder ignores further bytes from the client.
    has_client_ended: bool,
    is_cut: bool,
    is_finished: bool,
}

#[derive(Debug)]
struct AnsweredRequest {
    messages: Vec<u8>,
    sent: Instant,
    outcome: RequestOutcome,
}

impl TranscriptBuilder {
    /// Creates a builder for a session whose server is ready for the first request.
    #[must_use]
    pub fn new(database: String, params: &StartupParams, now: Instant) -> Self {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let parameters: Vec<_> = params
            .iter()
            .filter(|(name, _)| !name.is_empty())
            .map(|(name, value)| (text(name), text(value)))
            .collect();
        let kept = size_of::<Self>() + params.parameters().len();
        Self {
            database,
            parameters,
            began: now,
            answered: Vec::new(),
            pending: Vec::new(),
            pending_start: 0,
            complete: 0,
            message_sent: now,
            request_sent: None,
            unanswered: UnansweredMessages::default(),
            server: FrameDecoder::default(),
            tags: Vec::new(),
            error: None,
            running_since: now,
            kept,
            has_client_ended: false,
            is_cut: false,
            is_finished: false,
        }
    }

    /// Returns the approximate size in memory, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.kept + self.pending.len() + self.unanswered.len() * size_of::<SentMessage>()
    }

    /// Processes bytes that the client sent at `now`. Ignores everything after a Terminate.
    pub fn observe_client(&mut self, bytes: &[u8], now: Instant) {
        let mut rest = bytes;
        while let [first, ..] = rest
            && !self.has_client_ended
        {
            if self.pending.len() == self.complete {
                if *first == b'X' {
                    self.has_client_ended = true;
                    return;
                }
                self.message_sent = now;
            }
            let Some(wanted) = self.missing() else { return };
            let (part, after) = rest.split_at(wanted.min(rest.len()));
            self.pending.extend_from_slice(part);
            rest = after;
            if let Ok(Some((Frame { tag, .. }, _))) = Frame::first(&self.pending[self.complete..]) {
                self.sends(tag);
            }
        }
    }

    /// Returns the number of bytes that are missing from the current message, or from its header. Returns `None` if the
    /// length is invalid.
    fn missing(&mut self) -> Option<usize> {
        let message = &self.pending[self.complete..];
        if let Ok(header) = Frame::header(message) {
            return Some(header.map_or(HEADER, |(_, length)| length) - message.len());
        }
        // The server closes the connection after an invalid length.
        (self.has_client_ended, self.is_cut) = (true, true);
        None
    }

    /// Processes a complete client message.
    fn sends(&mut self, tag: u8) {
        let start = self.pending_start + self.complete as u64;
        self.complete = self.pending.len();
        let is_copy_data = matches!(tag, b'd' | b'c' | b'f');
        if is_copy_data && self.request_sent.is_none() {
            // This data is left over from a failed COPY, so it belongs to the last completed request.
            if let Some(last) = self.answered.last_mut() {
                self.kept += self.pending.len();
                self.pending_start += self.pending.len() as u64;
                last.messages.append(&mut self.pending);
                self.complete = 0;
            }
            return;
        }
        if self.unanswered.current().is_none() {
            self.running_since = self.message_sent;
        }
        self.request_sent.get_or_insert(self.message_sent);
        self.unanswered.push(tag, start, self.message_sent);
    }

    /// Processes bytes that the server sent at `now`.
    pub fn observe_server(&mut self, bytes: &[u8], now: Instant) {
        if self.is_finished {
            return;
        }
        let mut server = std::mem::take(&mut self.server);
        let wanted = |tag| match tag {
            b'Z' => 1,
            b'E' => ERROR,
            b'C' => TAG,
            _ => 0,
        };
        server.decode(bytes, wanted, |FramePrefix { tag, body, .. }| {
            self.answers(tag, &body[..body.len().min(wanted(tag))], now);
        });
        if server.is_malformed() {
            self.cut();
        }
        self.server = server;
    }

    fn answers(&mut self, tag: u8, body: &[u8], now: Instant) {
        match tag {
            b'Z' => return self.is_ready(body.first().copied().unwrap_or(b'I'), now),
            b'C' => {
                let tag = String::from_utf8_lossy(split_zero(body).0).into_owned();
                self.kept += size_of_tag(&tag);
                self.tags.push(tag);
            }
            b'E' => {
                let ErrorResponse { sqlstate, message, .. } = ErrorResponse::read(body);
                self.error.get_or_insert_with(|| StatementError {
                    sqlstate: sqlstate.into_owned(),
                    message: message.into_owned(),
                });
            }
            b'I' | b's' => {}
            _ => return self.unanswered.answer(tag),
        }
        self.running_since = now;
        self.unanswered.answer(tag);
    }

    fn is_ready(&mut self, status: u8, now: Instant) {
        self.running_since = now;
        let (tags, error) = (std::mem::take(&mut self.tags), self.error.take());
        if self.unanswered.ready() {
            self.add_answered(RequestOutcome { answered: now, tags, error, status });
        }
    }

    /// Completes the first pending request.
    fn add_answered(&mut self, outcome: RequestOutcome) {
        let next = self.unanswered.first();
        let end = next.map_or(self.complete, |message| self.place(message.start));
        let sent = self.request_sent.unwrap_or(self.message_sent);
        self.request_sent = next.map(|message| message.sent);
        let rest = self.pending.split_off(end);
        let mut messages = std::mem::replace(&mut self.pending, rest);
        messages.shrink_to_fit();
        self.complete -= end;
        self.pending_start += end as u64;
        self.kept += end + size_of::<AnsweredRequest>();
        self.answered.push(AnsweredRequest { messages, sent, outcome });
    }

    /// Converts a position in the client's bytes to an index in `pending`.
    fn place(&self, position: u64) -> usize {
        usize::try_from(position - self.pending_start).unwrap_or(usize::MAX).min(self.complete)
    }

    /// Returns the statement that the server is working on, or `None` while it is idle.
    #[must_use]
    pub fn running(&self) -> Option<RunningStatement> {
        let current = self.unanswered.current()?;
        let at = self.place(current.start);
        let (_, length) = Frame::header(&self.pending[at..]).ok()??;
        let before = self.answered.iter().flat_map(|request| frames(&request.messages));
        let text = statement_of_last(before.chain(frames(&self.pending[..at + length])));
        let end = text.len().min(TEXT);
        let statement = String::from_utf8_lossy(&text[..end]).into_owned();
        Some(RunningStatement { statement, since: self.running_since })
    }

    /// Returns true if the server still has to respond to a message.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.unanswered.current().is_some()
    }

    /// Drops the pending requests, and ignores all further bytes.
    pub fn cut(&mut self) {
        self.is_cut |= !self.is_finished;
        self.clear();
    }

    fn clear(&mut self) {
        (self.has_client_ended, self.is_finished) = (true, true);
        self.kept -= self.tags.iter().map(|tag| size_of_tag(tag)).sum::<usize>();
        (self.pending, self.complete, self.tags, self.error) = (Vec::new(), 0, Vec::new(), None);
        (self.unanswered, self.request_sent) = (UnansweredMessages::default(), None);
    }

    /// Records that the connection closed at `now`. An error without ReadyForQuery becomes the outcome of the first
    /// pending request.
    pub fn close(&mut self, now: Instant) {
        self.has_client_ended = true;
        let Some(error) = self.error.take() else { return };
        if self.is_finished || self.request_sent.is_none() {
            return;
        }
        if !self.unanswered.ready() {
            self.unanswered = UnansweredMessages::default();
        }
        let tags = std::mem::take(&mut self.tags);
        self.add_answered(RequestOutcome { answered: now, tags, error: Some(error), status: b'I' });
    }

    /// Returns the transcript, which ends with all requests that have no response. Afterwards, the builder ignores all
    /// bytes.
    #[must_use]
    pub fn finish(&mut self) -> SessionTranscript {
        let answered = std::mem::take(&mut self.answered).into_iter();
        let mut requests: Vec<_> = answered
            .map(|AnsweredRequest { messages, sent, outcome }| TranscribedRequest {
                messages: messages.into(),
                sent,
                outcome: Some(outcome),
            })
            .collect();
        let (mut start, mut sent) = (0, self.request_sent);
        let later = self.unanswered.later_requests();
        let starts = later.iter().map(|message| (self.place(message.start), Some(message.sent)));
        for (end, next_sent) in starts.chain([(self.complete, None)]) {
            let unanswered =
                |sent| TranscribedRequest { messages: self.pending[start..end].into(), sent, outcome: None };
            requests.extend(sent.map(unanswered));
            (start, sent) = (end, next_sent);
        }
        self.clear();
        SessionTranscript {
            database: std::mem::take(&mut self.database),
            parameters: std::mem::take(&mut self.parameters),
            began: self.began,
            requests,
            is_cut: self.is_cut,
        }
    }
}

fn size_of_tag(tag: &str) -> usize {
    size_of::<String>() + tag.len()
}

#[cfg(test)]
mod tests;
