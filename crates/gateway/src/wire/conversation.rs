//! What is known of a session from the headers of its messages: where one begins, and whether anything is owed.

use super::traces::SessionTraces;

/// The longest header that is looked at: tag, length, and the one byte of a ReadyForQuery.
const HEADER: usize = 6;

/// Hops from header to header in one direction.
#[derive(Debug, Default)]
struct Hop {
    header: [u8; HEADER],
    /// How much of the header has been seen.
    seen: u8,
    /// Bytes until the next header begins.
    left: u32,
    /// A length was impossible: nothing is known of where messages begin any more.
    lost: bool,
    /// A Terminate has been seen, which is the end.
    ended: bool,
}

impl Hop {
    /// Tells `see` of each header that completes in `bytes`: its tag, its status if it is a ReadyForQuery, how many bytes
    /// are left of its message, and what follows it. Returns how many bytes come before a Terminate: all, if there is none.
    fn over(&mut self, bytes: &[u8], mut see: impl FnMut(u8, u8, usize, &[u8])) -> usize {
        let mut at = 0;
        while !self.lost && !self.ended {
            let skipped = (self.left as usize).min(bytes.len() - at);
            at += skipped;
            self.left -= u32::try_from(skipped).unwrap_or(self.left);
            let Some(first) = bytes.get(at) else { return at };
            if self.seen == 0 {
                // Known by its first byte, so that nothing of it has been passed on.
                self.ended = *first == b'X';
                if self.ended {
                    return at;
                }
                self.header[0] = *first;
            }
            let of_body = u32::from(self.header[0] == b'Z');
            let (seen, wanted) = (usize::from(self.seen), 5 + usize::from(self.header[0] == b'Z'));
            let count = (wanted - seen).min(bytes.len() - at);
            self.header[seen..seen + count].copy_from_slice(&bytes[at..at + count]);
            at += count;
            if seen + count < wanted {
                self.seen += u8::try_from(count).unwrap_or_default();
                return at;
            }
            let [tag, length @ .., status] = self.header;
            let rest = u32::from_be_bytes(length).checked_sub(4 + of_body);
            (self.seen, self.left, self.lost) = (0, rest.unwrap_or_default(), rest.is_none());
            see(tag, status, self.left as usize, &bytes[at..]);
        }
        if self.ended { 0 } else { bytes.len() }
    }

    /// Whether a message ends here.
    fn is_between(&self) -> bool {
        !self.lost && self.left == 0 && self.seen == 0
    }
}

/// Both directions of a session.
#[derive(Debug)]
pub(crate) struct Conversation {
    client: Hop,
    server: Hop,
    /// Messages to which the server owes a ReadyForQuery, less those that it has sent. It may never pay some, those it
    /// skips after an error or in a COPY: then the session is not idle in our eyes, which is safe.
    owed: u64,
    /// The client has sent messages of the extended protocol that no Sync has followed yet.
    unsynchronized: bool,
    /// What the last ReadyForQuery said: I, T or E; 0 where it means nothing.
    status: u8,
    /// The tag of the server's last message.
    last: u8,
    /// The client has sent a statement about a whole database.
    clears: bool,
    traces: SessionTraces,
}

impl Conversation {
    /// The conversation of a session whose greeting has been read. In one of replication, messages mean other things:
    /// it is never idle.
    pub(crate) fn new(replication: bool) -> Self {
        Self {
            client: Hop::default(),
            server: Hop::default(),
            owed: 0,
            unsynchronized: false,
            status: if replication { 0 } else { b'I' },
            last: 0,
            clears: false,
            traces: SessionTraces::default(),
        }
    }

    /// The conversation of a session of a client's, whose server has said `greeting`.
    pub(crate) fn of_session(replication: bool, greeting: &[u8]) -> Self {
        Self { traces: SessionTraces::of_session(greeting), ..Self::new(replication) }
    }

    /// Takes note of what the client says. Returns how many bytes are to be passed on: all, or those before a Terminate.
    pub(crate) fn client_says(&mut self, bytes: &[u8]) -> usize {
        let Self { client, owed, unsynchronized, clears, traces, .. } = self;
        client.over(bytes, |tag, _, length, body| {
            traces.client_says(tag, body, length);
            *clears |= statement(tag, body).is_some_and(is_about_a_database);
            match tag {
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
    pub(crate) fn server_says(&mut self, bytes: &[u8]) {
        let Self { server, owed, status, last, .. } = self;
        server.over(bytes, |tag, said, _, _| {
            *last = tag;
            if tag == b'Z' && *status != 0 {
                *owed = owed.saturating_sub(1);
                *status = said;
            }
        });
    }

    /// Whether the client has sent a statement since the last time that the server may refuse because of other sessions.
    /// One that came in pieces is not known as such.
    pub(crate) fn clears_the_way(&mut self) -> bool {
        std::mem::take(&mut self.clears)
    }

    /// Whether the client has said Terminate.
    pub(crate) fn is_terminated(&self) -> bool {
        self.client.ended
    }

    /// Whether nothing is owed, in no transaction: another client may go on from here.
    pub(crate) fn is_idle(&self) -> bool {
        let between = self.client.is_between() && self.server.is_between();
        between && self.owed == 0 && !self.unsynchronized && self.status == b'I' && self.last != b'E'
    }

    /// Whether the backend cannot be told from a new one after DISCARD ALL. See [`SessionTraces`].
    pub(crate) fn leaves_nothing(&self) -> bool {
        self.traces.leaves_nothing()
    }

    /// Whether a message of ours may follow what the server has said.
    pub(crate) fn may_interject(&self) -> bool {
        self.server.is_between()
    }

    /// Whether the server has said an error since it was last ready.
    pub(crate) fn has_failed(&self) -> bool {
        self.last == b'E'
    }

    /// Whether the server's last message was an error: if it has gone away since, it has said why.
    pub(crate) fn ends_in_error(&self) -> bool {
        self.server.is_between() && self.last == b'E'
    }
}

/// The statement in what follows the header of a message of the client's.
fn statement(tag: u8, body: &[u8]) -> Option<&[u8]> {
    match tag {
        b'Q' => Some(body),
        b'P' => body.iter().position(|byte| *byte == 0).map(|name| &body[name + 1..]),
        _ => None,
    }
}

/// Whether it is CREATE, ALTER or DROP DATABASE. The server takes these only as a statement by itself, so that they come
/// first, but for white space and comments.
fn is_about_a_database(mut sql: &[u8]) -> bool {
    loop {
        sql = sql.trim_ascii_start();
        let end = match sql {
            [b'-', b'-', ..] => sql.iter().position(|byte| *byte == b'\n'),
            [b'/', b'*', ..] => sql.windows(2).position(|two| two == b"*/").map(|at| at + 2),
            _ => break,
        };
        let Some(end) = end else { return false };
        sql = &sql[end..];
    }
    let mut words = sql.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let verb = words.next().unwrap_or_default();
    [&b"DROP"[..], b"CREATE", b"ALTER"].iter().any(|known| verb.eq_ignore_ascii_case(known))
        && words.next().is_some_and(|object| object.eq_ignore_ascii_case(b"DATABASE"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[tag], &length.to_be_bytes()[..], body].concat()
    }

    fn ready(status: u8) -> Vec<u8> {
        message(b'Z', &[status])
    }

    #[test]
    fn a_session_is_idle_when_every_answer_has_come() {
        let mut talk = Conversation::new(false);
        assert!(talk.is_idle());
        talk.client_says(&message(b'Q', b"SELECT 1\0"));
        assert!(!talk.is_idle());
        talk.server_says(&message(b'D', b"ZZZZZZ\0\0\0\x05I"));
        assert!(!talk.is_idle());
        talk.server_says(&ready(b'I'));
        assert!(talk.is_idle());
        talk.server_says(&message(b'A', b"1234news\0\0"));
        assert!(talk.is_idle());
        talk.server_says(&message(b'E', b"SFATAL\0\0"));
        assert!(!talk.is_idle() && talk.ends_in_error());
    }

    #[test]
    fn a_session_that_owes_is_not_idle() {
        let unsynchronized = [message(b'P', b"\0\0\0\0")].concat();
        let pipelined = [message(b'Q', b"\0"), message(b'Q', b"\0")].concat();
        for (client, server) in [
            (unsynchronized, Vec::new()),
            (pipelined, ready(b'I')),
            (message(b'Q', b"BEGIN\0"), ready(b'T')),
            (message(b'Q', b"x\0"), ready(b'E')),
            (message(b'Q', b"x\0"), [ready(b'I'), vec![b'A']].concat()),
            (b"Q\0\0\0\x03".to_vec(), ready(b'I')),
            ([message(b'Q', b"x\0"), vec![b'Q']].concat(), ready(b'I')),
        ] {
            let mut talk = Conversation::new(false);
            talk.client_says(&client);
            talk.server_says(&server);
            assert!(!talk.is_idle(), "{client:?} {server:?}");
        }
        assert!(!Conversation::new(true).is_idle());
    }

    #[test]
    fn a_copy_is_part_of_its_statement() {
        let mut talk = Conversation::new(false);
        let copy = [message(b'Q', b"COPY\0"), message(b'd', b"X"), message(b'c', b"")].concat();
        talk.client_says(&copy);
        talk.server_says(&[message(b'G', b"\0\0\0"), message(b'C', b"COPY 1\0"), ready(b'I')].concat());
        assert!(talk.is_idle());
    }

    #[test]
    fn a_terminate_is_one_only_where_a_message_begins() {
        let query = message(b'Q', b"X\0\0\0\x04X");
        let mut talk = Conversation::new(false);
        assert_eq!(talk.client_says(&query), query.len());
        assert_eq!(talk.client_says(&[&query[..], b"X\0\0\0\x04XX"].concat()), query.len());
        assert!(talk.is_terminated());
        assert_eq!(talk.client_says(&query), 0);
    }

    #[test]
    fn statements_about_databases_are_known() {
        for (message, clears) in [
            (message(b'Q', b"DROP DATABASE x\0"), true),
            (message(b'Q', b" /* app */-- x\n\tdrop\n database if exists x\0"), true),
            (message(b'P', b"name\0CREATE DATABASE x TEMPLATE y\0\0\0"), true),
            (message(b'P', b"\0alter database x rename to y\0\0\0"), true),
            (message(b'Q', b"DROP TABLE database\0"), false),
            (message(b'Q', b"SELECT 'DROP DATABASE x'\0"), false),
            (message(b'Q', b"-- DROP DATABASE x\0"), false),
            (message(b'Q', b"/* DROP DATABASE x\0"), false),
            (message(b'd', b"DROP DATABASE x\0"), false),
            (message(b'Q', b""), false),
            (message(b'P', b"DROP DATABASE x"), false),
        ] {
            let mut talk = Conversation::new(false);
            talk.client_says(&message);
            assert_eq!(talk.clears_the_way(), clears, "{message:?}");
            assert!(!talk.clears_the_way());
        }
    }

    fn messages(tags: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
        let body = prop_oneof![prop::collection::vec(any::<u8>(), 0..9), Just(b"X\0\0\0\x04Z".to_vec())];
        let one = (prop::sample::select(tags), body, prop::sample::select(&b"ITE"[..]))
            .prop_map(|(tag, body, status)| if tag == b'Z' { ready(status) } else { message(tag, &body) });
        prop::collection::vec(one, 0..9).prop_map(|messages| messages.concat())
    }

    /// All that a conversation tells, after the chunks that `ends` cut.
    fn told(client: &[u8], server: &[u8], chunk: usize) -> (usize, bool, bool, bool, bool) {
        let mut talk = Conversation::new(false);
        let passed = client.chunks(chunk).map(|chunk| talk.client_says(chunk)).sum();
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
