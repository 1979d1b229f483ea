//! Compares transcripts with those of a model server that knows which messages it responds to. The bytes arrive in
//! arbitrary chunks.

use super::*;

/// State of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Normal,
    /// Ignoring all messages until a Sync.
    Skipping,
    /// Reading COPY data. The flags show whether the COPY fails at the next data, and whether a Query started it.
    Copying {
        fails: bool,
        is_query: bool,
    },
}

/// A server that executes one message at a time, and the requests that the transcript should contain.
struct Server {
    state: State,
    /// Text of the portal's statement.
    portal: Vec<u8>,
    requests: Vec<(Vec<u8>, String)>,
    request: Vec<u8>,
    outcome: String,
}

impl Server {
    fn new() -> Self {
        Self {
            state: State::Normal,
            portal: Vec::new(),
            requests: Vec::new(),
            request: Vec::new(),
            outcome: String::new(),
        }
    }

    /// Executes a complete message. Returns the response.
    fn execute(&mut self, message: &[u8]) -> Vec<u8> {
        let Some((Frame { tag, body }, _)) = Frame::first(message).unwrap() else { panic!("incomplete") };
        let is_data = matches!(tag, b'd' | b'c' | b'f');
        match self.requests.last_mut() {
            Some((last, _)) if is_data && self.request.is_empty() => last.extend(message),
            _ => self.request.extend(message),
        }
        match self.state {
            State::Skipping if tag == b'S' => self.ready(),
            State::Skipping => Vec::new(),
            State::Copying { fails, is_query } => match tag {
                b'd' if fails => self.fail(is_query),
                b'f' => self.fail(is_query),
                b'c' => {
                    self.state = State::Normal;
                    self.finish_query(done("COPY 1"), is_query)
                }
                _ => Vec::new(),
            },
            State::Normal => self.execute_normally(tag, body),
        }
    }

    fn execute_normally(&mut self, tag: u8, body: &[u8]) -> Vec<u8> {
        match tag {
            b'S' => self.ready(),
            b'F' => self.finish_query(encode(b'V', b"\0\0\0\0"), true),
            b'Q' => self.run(split_zero(body).0, true),
            b'P' => {
                self.portal = split_zero(split_zero(body).1).0.to_vec();
                if self.portal == b"bad" { self.fail(false) } else { encode(b'1', b"") }
            }
            b'B' => encode(b'2', b""),
            b'D' if self.portal == b"rows" => encode(b'T', b"\0\0"),
            b'D' => encode(b'n', b""),
            b'C' => encode(b'3', b""),
            b'E' => self.run(&self.portal.clone(), false),
            _ => Vec::new(),
        }
    }

    fn run(&mut self, sql: &[u8], is_query: bool) -> Vec<u8> {
        let row = encode(b'D', b"ZE");
        let answer = match sql {
            b"fail" | b"bad" => return self.fail(is_query),
            b"copy" | b"copy bad" => {
                self.state = State::Copying { fails: sql == b"copy bad", is_query };
                return encode(b'G', b"\0\0\0");
            }
            b"empty" => encode(b'I', b""),
            b"part" if !is_query => [row, encode(b's', b"")].concat(),
            b"two" if is_query => [done("ONE"), done("TWO")].concat(),
            b"rows" if is_query => [encode(b'T', b"\0\0"), row, done("SELECT 1")].concat(),
            b"rows" => [row, done("SELECT 1")].concat(),
            _ => done("OK"),
        };
        self.finish_query(answer, is_query)
    }

    fn finish_query(&mut self, answer: Vec<u8>, is_query: bool) -> Vec<u8> {
        for frame in frames(&answer).filter(|frame| frame.tag == b'C') {
            self.outcome += std::str::from_utf8(split_zero(frame.body).0).unwrap();
        }
        if is_query { [answer, self.ready()].concat() } else { answer }
    }

    fn fail(&mut self, is_query: bool) -> Vec<u8> {
        self.outcome += "42P01";
        self.state = State::Skipping;
        if is_query { [error(), self.ready()].concat() } else { error() }
    }

    fn ready(&mut self) -> Vec<u8> {
        self.state = State::Normal;
        let outcome = std::mem::take(&mut self.outcome) + "I";
        self.requests.push((std::mem::take(&mut self.request), outcome));
        ready(b'I')
    }
}

const TEXTS: [&str; 9] = ["ok", "fail", "bad", "copy", "copy bad", "two", "rows", "part", "empty"];

/// COPY data and its end.
fn copy_data() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let row = prop::collection::vec(any::<u8>(), 0..9);
    (prop::collection::vec(row, 0..3), any::<bool>()).prop_map(|(rows, ends)| {
        let end = if ends { encode(b'c', b"") } else { encode(b'f', b"no\0") };
        rows.iter().map(|row| encode(b'd', row)).chain([end]).collect()
    })
}

/// A statement in the extended protocol. A COPY can have a Sync before its data.
fn extended() -> impl Strategy<Value = Vec<Vec<u8>>> {
    (prop::sample::select(&TEXTS[..]), copy_data(), any::<bool>(), any::<bool>()).prop_map(
        |(sql, data, syncs, flushes)| {
            let mut messages: Vec<_> = frames(&run(sql)).map(|frame| encode(frame.tag, frame.body)).collect();
            if flushes {
                messages.insert(2, encode(b'H', b""));
            }
            if sql.starts_with("copy") {
                messages.extend(syncs.then(sync));
                messages.extend(data);
            }
            messages
        },
    )
}

/// A client's messages.
fn messages() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let simple = (prop::sample::select(&TEXTS[..]), copy_data()).prop_map(|(sql, data)| {
        let data = if sql.starts_with("copy") { data } else { Vec::new() };
        [vec![query(sql.as_bytes())], data].concat()
    });
    let group = (prop::collection::vec(extended(), 1..4), prop::bool::weighted(0.8)).prop_map(
        |(statements, syncs)| [statements.concat(), syncs.then(sync).into_iter().collect()].concat(),
    );
    let others: [(u8, &[u8]); 5] =
        [(b'F', b"\0"), (b'C', b"S\0"), (b'd', b"stray"), (b'c', b""), (b'H', b"")];
    let other = prop::sample::select(others.to_vec()).prop_map(|(tag, body)| vec![encode(tag, body)]);
    prop::collection::vec(prop_oneof![4 => simple, 4 => group, 1 => other], 1..8)
        .prop_map(|steps| steps.concat())
}

/// Passes the bytes to a builder in chunks. The client is ahead of the server by a number of messages.
fn transcribe(
    messages: &[Vec<u8>],
    answers: &[Vec<u8>],
    ahead: &[usize],
    chunks: &[usize],
) -> SessionTranscript {
    let (mut builder, now) = (builder(), Instant::now());
    let (mut chunk, mut ahead, mut sent) = (chunks.iter().cycle(), ahead.iter().cycle(), 0);
    for (at, mut answer) in answers.iter().map(Vec::as_slice).enumerate() {
        let until = (at + 1 + ahead.next().unwrap()).min(messages.len()).max(sent);
        let client = messages[sent..until].concat();
        let mut rest = client.as_slice();
        while !rest.is_empty() {
            let part = rest.split_off(..rest.len().min(*chunk.next().unwrap())).unwrap();
            builder.observe_client(part, now);
        }
        while !answer.is_empty() {
            let part = answer.split_off(..answer.len().min(*chunk.next().unwrap())).unwrap();
            builder.observe_server(part, now);
        }
        sent = until;
    }
    builder.finish()
}

fn without_times(transcript: &SessionTranscript) -> (Vec<(Vec<u8>, String)>, bool) {
    (requests(transcript), transcript.is_cut)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn requests_are_those_that_the_server_answers(
        messages in messages(),
        ahead in prop::collection::vec(0_usize..20, 1..5),
        chunks in prop::collection::vec(1_usize..40, 1..5),
    ) {
        let mut server = Server::new();
        let answers: Vec<_> = messages.iter().map(|message| server.execute(message)).collect();
        let transcript = transcribe(&messages, &answers, &ahead, &chunks);
        let found = requests(&transcript);
        let all: Vec<u8> = found.iter().flat_map(|(messages, _)| messages.clone()).collect();
        prop_assert!(messages.concat().starts_with(&all));
        let answered: Vec<_> = found.into_iter().filter(|(_, outcome)| !outcome.is_empty()).collect();
        prop_assert_eq!(&answered, &server.requests);
        let whole = transcribe(&messages, &answers, &ahead, &[usize::MAX]);
        prop_assert_eq!(without_times(&whole), without_times(&transcript));
    }

    #[test]
    fn arbitrary_bytes_are_copied_in_order(
        client in prop::collection::vec(any::<u8>(), 0..200),
        server in prop::collection::vec(any::<u8>(), 0..200),
        chunk in 1_usize..40,
    ) {
        let transcribed = |chunk| {
            let (mut builder, now) = (builder(), Instant::now());
            client.chunks(chunk).for_each(|part| builder.observe_client(part, now));
            server.chunks(chunk).for_each(|part| builder.observe_server(part, now));
            builder.close(now);
            without_times(&builder.finish())
        };
        let found = transcribed(chunk);
        prop_assert_eq!(&transcribed(usize::MAX), &found);
        let all: Vec<u8> = found.0.into_iter().flat_map(|(messages, _)| messages).collect();
        prop_assert!(client.starts_with(&all));
    }
}
