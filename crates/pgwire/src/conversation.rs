//! What is known of a session from the headers of its messages: where one begins, and whether anything is owed.

use crate::frame::{FrameDecoder, FramePrefix};

/// Bytes of a statement that are shown at once, however many pieces it comes in; of a longer one at least as many.
const STATEMENT: usize = 1024;

/// Both directions of a session.
#[derive(Debug)]
pub struct Conversation {
    client: FrameDecoder,
    server: FrameDecoder,
    /// Messages to which the server owes a ReadyForQuery, less those that it has sent. It may never pay some, those it
    /// skips after an error or in a COPY: then the session is not idle in our eyes, which is safe.
    owed: u64,
    /// The client has sent messages of the extended protocol that no Sync has followed yet.
    unsynchronized: bool,
    /// What the last ReadyForQuery said: I, T or E; 0 where it means nothing.
    status: u8,
    /// The tag of the server's last message.
    last: u8,
}

impl Conversation {
    /// The conversation of a session whose greeting has been read. In one of replication, messages mean other things:
    /// it is never idle.
    #[must_use]
    pub fn new(replication: bool) -> Self {
        Self {
            client: FrameDecoder::ending_with(b'X'),
            server: FrameDecoder::default(),
            owed: 0,
            unsynchronized: false,
            status: if replication { 0 } else { b'I' },
            last: 0,
        }
    }

    /// Takes note of what the client says, and shows each frame to `see`: a statement once its first kilobyte is there, of
    /// others as much as is there. Returns how many bytes are to be passed on: all, or those before a Terminate.
    pub fn client_says(&mut self, bytes: &[u8], mut see: impl FnMut(FramePrefix<'_>)) -> usize {
        let Self { client, owed, unsynchronized, .. } = self;
        let wanted = |tag| if matches!(tag, b'Q' | b'P') { STATEMENT } else { 0 };
        client.decode(bytes, wanted, |frame| {
            see(frame);
            match frame.tag {
                b'Q' | b'S' | b'F' => {
                    *owed += 1;
                    *unsynchronized = false;
                }
                // CopyData, CopyDone and CopyFail are part of the statement that asked for them.
                b'd' | b'c' | b'f' => {}
                _ => *unsynchronized = true,
            }
        })
    }

    /// Takes note of what the server says.
    pub fn server_says(&mut self, bytes: &[u8]) {
        let Self { server, owed, status, last, .. } = self;
        let status_of_ready = |tag| usize::from(tag == b'Z');
        server.decode(bytes, status_of_ready, |frame| {
            *last = frame.tag;
            if frame.tag == b'Z' && *status != 0 {
                *owed = owed.saturating_sub(1);
                *status = frame.body.first().copied().unwrap_or_default();
            }
        });
    }

    /// Whether the client has said Terminate.
    #[must_use]
    pub fn is_terminated(&self) -> bool {
        self.client.has_ended()
    }

    /// Whether nothing is owed, in no transaction: another client may go on from here.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let between = self.client.is_between() && self.server.is_between();
        between && self.owed == 0 && !self.unsynchronized && self.status == b'I' && self.last != b'E'
    }

    /// Whether the client's last message is not complete, or never can be: a server that closes the connection then has
    /// refused its length, which it does without a word.
    #[must_use]
    pub fn is_within_message(&self) -> bool {
        !self.client.is_between()
    }

    /// Whether a message of ours may follow what the server has said.
    #[must_use]
    pub fn may_interject(&self) -> bool {
        self.server.is_between()
    }

    /// Whether the server has said an error since it was last ready.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.last == b'E'
    }

    /// Whether the server's last message was an error: if it has gone away since, it has said why.
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
    fn a_session_is_idle_when_every_answer_has_come() {
        let mut talk = Conversation::new(false);
        assert!(talk.is_idle());
        talk.client_says(&encode(b'Q', b"SELECT 1\0"), |_| ());
        assert!(!talk.is_idle());
        talk.server_says(&encode(b'D', b"ZZZZZZ\0\0\0\x05I"));
        assert!(!talk.is_idle());
        talk.server_says(&ready(b'I'));
        assert!(talk.is_idle());
        talk.server_says(&encode(b'A', b"1234news\0\0"));
        assert!(talk.is_idle());
        talk.server_says(&encode(b'E', b"SFATAL\0\0"));
        assert!(!talk.is_idle() && talk.ends_in_error());
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
            talk.client_says(&client, |_| ());
            talk.server_says(&server);
            assert!(!talk.is_idle(), "{client:?} {server:?}");
        }
        assert!(!Conversation::new(true).is_idle());
    }

    #[test]
    fn a_copy_is_part_of_its_statement() {
        let mut talk = Conversation::new(false);
        let copy = [encode(b'Q', b"COPY\0"), encode(b'd', b"X"), encode(b'c', b"")].concat();
        talk.client_says(&copy, |_| ());
        talk.server_says(&[encode(b'G', b"\0\0\0"), encode(b'C', b"COPY 1\0"), ready(b'I')].concat());
        assert!(talk.is_idle());
    }

    #[test]
    fn a_terminate_is_one_only_where_a_message_begins() {
        let query = encode(b'Q', b"X\0\0\0\x04X");
        let mut talk = Conversation::new(false);
        assert_eq!(talk.client_says(&query, |_| ()), query.len());
        assert_eq!(talk.client_says(&[&query[..], b"X\0\0\0\x04XX"].concat(), |_| ()), query.len());
        assert!(talk.is_terminated());
        assert_eq!(talk.client_says(&query, |_| ()), 0);
    }

    fn messages(tags: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
        let body = prop_oneof![prop::collection::vec(any::<u8>(), 0..9), Just(b"X\0\0\0\x04Z".to_vec())];
        let one = (prop::sample::select(tags), body, prop::sample::select(&b"ITE"[..]))
            .prop_map(|(tag, body, status)| if tag == b'Z' { ready(status) } else { encode(tag, &body) });
        prop::collection::vec(one, 0..9).prop_map(|messages| messages.concat())
    }

    /// All that a conversation tells, after the chunks that `ends` cut.
    fn told(client: &[u8], server: &[u8], chunk: usize) -> (usize, bool, bool, bool, bool) {
        let mut talk = Conversation::new(false);
        let passed = client.chunks(chunk).map(|chunk| talk.client_says(chunk, |_| ())).sum();
        server.chunks(chunk).for_each(|chunk| talk.server_says(chunk));
        (passed, talk.is_terminated(), talk.is_idle(), talk.may_interject(), talk.ends_in_error())
    }

    proptest! {
        #[test]
        fn chunks_of_any_size_tell_the_same(
            client in messages(b"QSPBEdcX"), server in messages(b"ZDEAN"), chunk in 1_usize..40
        ) {
            prop_assert_eq!(told(&client, &server, chunk), told(&client, &server, usize::MAX));
        }

        #[test]
        fn arbitrary_bytes_are_passed_on_in_order(
            client in prop::collection::vec(any::<u8>(), 0..200),
            server in prop::collection::vec(any::<u8>(), 0..200),
            chunk in 1_usize..40,
        ) {
            prop_assert_eq!(told(&client, &server, chunk), told(&client, &server, usize::MAX));
            let (passed, terminated, ..) = told(&client, &server, chunk);
            prop_assert!(terminated || passed == client.len());
        }
    }
}
