//! Tracks a session's state by reading the headers of its messages. The headers show where each message starts and
//! whether the server still has to respond, so pgfresh knows when it can reuse a backend.

use crate::frame::{FrameDecoder, FramePrefix};

/// Number of bytes at the start of a statement that the caller receives in one piece, even if the statement
/// arrives in many chunks.
const STATEMENT: usize = 1024;

/// The state of both directions of a session.
#[derive(Debug)]
pub struct Conversation {
    client: FrameDecoder,
    server: FrameDecoder,
    /// Number of ReadyForQuery messages that the server still has to send. After an error or during a COPY, the server
    /// might skip some of them. The session then never counts as idle again, which is safe.
    owed: u64,
    /// Whether the client has sent extended protocol messages without a Sync so far.
    unsynchronized: bool,
    /// Transaction status in the last ReadyForQuery: I, T or E. It is 0 for a replication session.
    status: u8,
    /// Transaction status in the ReadyForQuery before that.
    previous_status: u8,
    /// Tag of the last message from the server.
    last: u8,
}

/// Snapshot of the client's side of a session. [`Conversation::forget_since`] restores it.
#[derive(Debug, Clone, Copy)]
pub struct ClientSide {
    owed: u64,
    unsynchronized: bool,
    is_between: bool,
}

impl Conversation {
    /// Returns a session's state after its startup response. A replication session never counts as idle,
    /// because its messages have different meanings.
    #[must_use]
    pub fn new(replication: bool) -> Self {
        Self {
            client: FrameDecoder::ending_with(b'X'),
            server: FrameDecoder::default(),
            owed: 0,
            unsynchronized: false,
            status: if replication { 0 } else { b'I' },
            previous_status: b'I',
            last: 0,
        }
    }

    /// Reads bytes from the client and calls `see` for each frame: immediately, or if the frame contains a
    /// statement, after the statement's first kilobyte. Returns the number of bytes that the caller must
    /// forward. These are all bytes, or the bytes before a Terminate.
    pub fn observe_client(&mut self, bytes: &[u8], mut see: impl FnMut(FramePrefix<'_>)) -> usize {
        let Self { client, owed, unsynchronized, .. } = self;
        let wanted = |tag| if matches!(tag, b'Q' | b'P') { STATEMENT } else { 0 };
        client.decode(bytes, wanted, |frame| {
            see(frame);
            match frame.tag {
                b'Q' | b'S' | b'F' => {
                    *owed += 1;
                    *unsynchronized = false;
                }
                // CopyData, CopyDone and CopyFail belong to the statement that started the COPY.
                b'd' | b'c' | b'f' => {}
                _ => *unsynchronized = true,
            }
        })
    }

    /// Reads bytes from the server.
    pub fn observe_server(&mut self, bytes: &[u8]) {
        let Self { server, owed, status, previous_status, last, .. } = self;
        let status_of_ready = |tag| usize::from(tag == b'Z');
        server.decode(bytes, status_of_ready, |frame| {
            *last = frame.tag;
            if frame.tag == b'Z' && *status != 0 {
                *owed = owed.saturating_sub(1);
                *previous_status = std::mem::replace(status, frame.body.first().copied().unwrap_or_default());
            }
        });
    }

    /// Returns true if the client has sent Terminate.
    #[must_use]
    pub fn is_terminated(&self) -> bool {
        self.client.has_ended()
    }

    /// Returns true if the session is idle, so that another client can use it: the server has responded to everything,
    /// and no transaction is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let between = self.client.is_between() && self.server.is_between();
        between && self.owed == 0 && !self.unsynchronized && self.status == b'I' && self.last != b'E'
    }

    /// Returns true if the server has responded to all client messages, whatever the state of the client's transaction.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.may_be_at_rest() && self.owed == 0
    }

    /// Returns true if the server's last message completed a response, and the client hasn't sent an incomplete
    /// request. The server might still owe responses to later requests. After a COPY or an error, [`Self::owed`] is
    /// only an upper bound, so a definite result isn't possible.
    #[must_use]
    pub fn may_be_at_rest(&self) -> bool {
        let between = self.client.is_between() && self.server.is_between();
        between && !self.unsynchronized && self.status != 0 && (self.owed == 0 || self.last == b'Z')
    }

    /// Returns the maximum number of responses that the server still owes.
    #[must_use]
    pub fn owed(&self) -> u64 {
        self.owed
    }

    /// Returns the transaction status in the last ReadyForQuery: I, T or E. It is 0 for a replication session.
    #[must_use]
    pub fn status(&self) -> u8 {
        self.status
    }

    /// Returns true if a transaction block is open and the server has responded to a request in it.
    #[must_use]
    pub fn has_run_in_block(&self) -> bool {
        self.status == b'T' && self.previous_status == b'T'
    }

    /// Returns a snapshot of the client's side.
    #[must_use]
    pub fn client_side(&self) -> ClientSide {
        let Self { owed, unsynchronized, .. } = *self;
        ClientSide { owed, unsynchronized, is_between: self.client.is_between() }
    }

    /// Reverts the state to `before`, because the caller hasn't forwarded the client's later messages. Returns false
    /// and changes nothing if `before` is in the middle of a request, or in a replication session.
    pub fn forget_since(&mut self, before: ClientSide) -> bool {
        if before.unsynchronized || !before.is_between || self.status == 0 {
            return false;
        }
        self.client = FrameDecoder::ending_with(b'X');
        (self.owed, self.unsynchronized) = (before.owed, false);
        true
    }

    /// Returns true if the client's last message is incomplete or has an invalid length. If the server closes the
    /// connection in this state, the reason is the invalid length, because the server doesn't send an error message for
    /// it.
    #[must_use]
    pub fn is_within_message(&self) -> bool {
        !self.client.is_between()
    }

    /// Returns true if the server's last frame is complete. If it isn't, pgfresh can't send its own message
    /// to the client yet.
    #[must_use]
    pub fn may_interject(&self) -> bool {
        self.server.is_between()
    }

    /// Returns true if the server has sent an error since the last ReadyForQuery.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.last == b'E'
    }

    /// Returns true if the server's last message is an error. If the server then closed the connection, this
    /// error is the reason.
    #[must_use]
    pub fn ends_in_error(&self) -> bool {
        self.server.is_between() && self.last == b'E'
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::encode;

    fn ready(status: u8) -> Vec<u8> {
        encode(b'Z', &[status])
    }

    #[test]
    fn a_fully_answered_session_is_idle() {
        let mut talk = Conversation::new(false);
        assert!(talk.is_idle());
        talk.observe_client(&encode(b'Q', b"SELECT 1\0"), |_| ());
        assert!(!talk.is_idle());
        talk.observe_server(&encode(b'D', b"ZZZZZZ\0\0\0\x05I"));
        assert!(!talk.is_idle());
        talk.observe_server(&ready(b'I'));
        assert!(talk.is_idle());
        talk.observe_server(&encode(b'A', b"1234news\0\0"));
        assert!(talk.is_idle());
        talk.observe_server(&encode(b'E', b"SFATAL\0\0"));
        assert!(!talk.is_idle() && talk.ends_in_error());
    }

    #[test]
    fn a_block_has_run_after_its_second_answer() {
        let mut talk = Conversation::new(false);
        for (status, expected) in [
            (b'I', false),
            (b'T', false),
            (b'T', true),
            (b'E', false),
            (b'T', false),
            (b'T', true),
            (b'I', false),
        ] {
            talk.observe_server(&ready(status));
            assert_eq!(talk.has_run_in_block(), expected, "{}", char::from(status));
        }
    }

    #[test]
    fn a_session_that_owes_is_not_idle() {
        let unsynchronized = [encode(b'P', b"\0\0\0\0")].concat();
        let pipelined = [encode(b'Q', b"\0"), encode(b'Q', b"\0")].concat();
        for (client, server) in [
            (unsynchronized, Vec::new()),
            (pipelined, ready(b'I')),
            (encode(b'Q', b"BEGIN\0"), ready(b'T')),
            (encode(b'Q', b"x\0"), ready(b'E')),
            (encode(b'Q', b"x\0"), [ready(b'I'), vec![b'A']].concat()),
            (b"Q\0\0\0\x03".to_vec(), ready(b'I')),
            ([encode(b'Q', b"x\0"), vec![b'Q']].concat(), ready(b'I')),
        ] {
            let mut talk = Conversation::new(false);
            talk.observe_client(&client, |_| ());
            talk.observe_server(&server);
            assert!(!talk.is_idle(), "{client:?} {server:?}");
        }
        assert!(!Conversation::new(true).is_idle());
    }

    #[test]
    fn a_copy_is_part_of_its_statement() {
        let mut talk = Conversation::new(false);
        let copy = [encode(b'Q', b"COPY\0"), encode(b'd', b"X"), encode(b'c', b"")].concat();
        talk.observe_client(&copy, |_| ());
        talk.observe_server(&[encode(b'G', b"\0\0\0"), encode(b'C', b"COPY 1\0"), ready(b'I')].concat());
        assert!(talk.is_idle());
    }

    #[test]
    fn terminate_counts_only_at_message_boundaries() {
        let query = encode(b'Q', b"X\0\0\0\x04X");
        let mut talk = Conversation::new(false);
        assert_eq!(talk.observe_client(&query, |_| ()), query.len());
        assert_eq!(talk.observe_client(&[&query[..], b"X\0\0\0\x04XX"].concat(), |_| ()), query.len());
        assert!(talk.is_terminated());
        assert_eq!(talk.observe_client(&query, |_| ()), 0);
    }

    fn messages(tags: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
        let body = prop_oneof![prop::collection::vec(any::<u8>(), 0..9), Just(b"X\0\0\0\x04Z".to_vec())];
        let one = (prop::sample::select(tags), body, prop::sample::select(&b"ITE"[..]))
            .prop_map(|(tag, body, status)| if tag == b'Z' { ready(status) } else { encode(tag, &body) });
        prop::collection::vec(one, 0..9).prop_map(|messages| messages.concat())
    }

    /// Returns all results for a conversation that arrives in chunks of `chunk` bytes.
    fn observed(client: &[u8], server: &[u8], chunk: usize) -> (usize, bool, bool, bool, bool) {
        let mut talk = Conversation::new(false);
        let passed = client.chunks(chunk).map(|chunk| talk.observe_client(chunk, |_| ())).sum();
        server.chunks(chunk).for_each(|chunk| talk.observe_server(chunk));
        (passed, talk.is_terminated(), talk.is_idle(), talk.may_interject(), talk.ends_in_error())
    }

    proptest! {
        #[test]
        fn chunk_sizes_do_not_matter(
            client in messages(b"QSPBEdcX"), server in messages(b"ZDEAN"), chunk in 1_usize..40
        ) {
            prop_assert_eq!(observed(&client, &server, chunk), observed(&client, &server, usize::MAX));
        }

        #[test]
        fn arbitrary_bytes_are_passed_on_in_order(
            client in prop::collection::vec(any::<u8>(), 0..200),
            server in prop::collection::vec(any::<u8>(), 0..200),
            chunk in 1_usize..40,
        ) {
            prop_assert_eq!(observed(&client, &server, chunk), observed(&client, &server, usize::MAX));
            let (passed, terminated, ..) = observed(&client, &server, chunk);
            prop_assert!(terminated || passed == client.len());
        }
    }
}
