//! Tracks which client messages the server hasn't responded to.
//!
//! The server responds to each extended-protocol message, and sends ReadyForQuery after a Query, a function call or a
//! Sync. After an error in the extended protocol, it ignores all messages until the next Sync. During a COPY, it
//! ignores Flush and Sync. Only the server's responses show whether a COPY has started, so the model then determines
//! which earlier messages the COPY affects. Source: the manual's "Message Flow", 13 to 18; `SocketBackend` and
//! `CopyGetData`.

use std::collections::VecDeque;
use std::time::Instant;

/// A complete client message, without its content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentMessage {
    pub(crate) tag: u8,
    /// Position in the client's bytes.
    pub(crate) start: u64,
    /// When the first byte arrived.
    pub(crate) sent: Instant,
    /// Whether the server reads this Flush or Sync during a COPY, and therefore ignores it.
    is_in_copy: bool,
}

impl SentMessage {
    /// Returns true if the server doesn't respond to the message itself.
    fn is_silent(&self) -> bool {
        self.is_in_copy || matches!(self.tag, b'H' | b'c' | b'f')
    }

    /// Returns true if the message belongs to the COPY of an earlier request.
    fn is_rest_of_copy(&self) -> bool {
        self.is_in_copy || matches!(self.tag, b'c' | b'f')
    }

    /// Returns true if the server sends ReadyForQuery after the message. `is_skipping` means that an earlier
    /// extended-protocol message failed.
    fn ends_request(&self, is_skipping: bool) -> bool {
        !self.is_in_copy && (self.tag == b'S' || (!is_skipping && matches!(self.tag, b'Q' | b'F')))
    }
}

/// Client messages that the server hasn't responded to yet, in the order that they were sent.
#[derive(Debug, Default)]
pub(crate) struct UnansweredMessages {
    messages: VecDeque<SentMessage>,
    /// Whether the server is reading COPY data.
    is_copying: bool,
    /// Whether the server ignores all messages until a Sync.
    is_skipping: bool,
}

impl UnansweredMessages {
    /// Adds a client message. COPY data doesn't need an entry.
    pub(crate) fn push(&mut self, tag: u8, start: u64, sent: Instant) {
        let is_in_copy = self.is_copying && matches!(tag, b'H' | b'S');
        match tag {
            b'd' => return,
            b'c' | b'f' if self.is_copying => {
                self.is_copying = false;
                return;
            }
            b'H' | b'S' => {}
            // Any other message makes the server end the COPY with an error.
            _ => self.is_copying = false,
        }
        self.messages.push_back(SentMessage { tag, start, sent, is_in_copy });
    }

    /// Returns the first message of the next request.
    pub(crate) fn first(&self) -> Option<&SentMessage> {
        self.messages.front()
    }

    /// Returns the message that the server is working on, or `None` while it is idle.
    pub(crate) fn current(&self) -> Option<&SentMessage> {
        self.messages.iter().find(|message| !message.is_silent())
    }

    /// Returns the number of messages without a response.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Processes a server message other than ReadyForQuery, given its tag.
    pub(crate) fn answer(&mut self, tag: u8) {
        match tag {
            b'1' => self.pop(b'P'),
            b'2' => self.pop(b'B'),
            b'3' => self.pop(b'C'),
            b'n' | b'T' => self.pop(b'D'),
            b'C' | b'I' | b's' => self.pop(b'E'),
            b'G' => self.begin_copy(),
            b'E' => {
                self.is_copying = false;
                self.is_skipping |=
                    self.current().is_some_and(|message| !matches!(message.tag, b'Q' | b'F' | b'S'));
            }
            _ => {}
        }
    }

    /// Removes the current message if it has the tag `tag`.
    fn pop(&mut self, tag: u8) {
        let silent = self.messages.iter().take_while(|message| message.is_silent()).count();
        self.messages.drain(..silent);
        if self.messages.front().is_some_and(|message| message.tag == tag) {
            self.messages.pop_front();
        }
    }

    /// Starts a COPY, and finds the messages that the client has already sent for it.
    fn begin_copy(&mut self) {
        self.is_copying = true;
        let begun = self.messages.iter().position(|message| !message.is_silent()).map_or(0, |at| at + 1);
        for at in begun..self.messages.len() {
            match self.messages[at].tag {
                b'H' | b'S' => self.messages[at].is_in_copy = true,
                tag => {
                    self.is_copying = false;
                    if matches!(tag, b'c' | b'f') {
                        self.messages.remove(at);
                    }
                    return;
                }
            }
        }
    }

    /// Removes the request that a ReadyForQuery completes, and the rest of a finished COPY. Returns false if there is
    /// no matching request.
    pub(crate) fn ready(&mut self) -> bool {
        let is_skipping = std::mem::take(&mut self.is_skipping);
        self.is_copying = false;
        let mut messages = self.messages.iter();
        let end = messages.position(|message| message.ends_request(is_skipping));
        // A COPY can fail before the server reads the Sync after it. The server then responds to this Sync as usual.
        let end = end.or_else(|| self.messages.iter().position(|message| message.tag == b'S'));
        let Some(end) = end else { return false };
        let rest = self.messages.iter().skip(end + 1).take_while(|message| message.is_rest_of_copy()).count();
        self.messages.drain(..=end + rest);
        true
    }

    /// Returns the first message of each request after the first one.
    pub(crate) fn later_requests(&self) -> Vec<SentMessage> {
        let (mut is_skipping, mut has_ended, mut found) = (self.is_skipping, false, Vec::new());
        for message in &self.messages {
            if has_ended && !message.is_rest_of_copy() {
                found.push(*message);
                has_ended = false;
            }
            if message.ends_request(is_skipping) {
                (has_ended, is_skipping) = (true, false);
            }
        }
        found
    }
}
