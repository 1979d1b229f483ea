use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use pgwire::{StartupParams, encode, query};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};

use super::*;
use crate::events::SessionEventKind;
use crate::history::StatementHistory;
use crate::statement_tap::{SessionListeners, Taps};
use crate::testing::{pair, run};

const STARTUP_RESPONSE: &[u8] =
    b"S\0\0\0\x19client_encoding\0UTF8\0S\0\0\0\x23standard_conforming_strings\0on\0";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}
use Side::{Client, Server};

/// Bytes with the side that sent them.
type SentBytes = (Side, Vec<u8>);

/// A forwarded session whose client and server ends are controlled by the test.
struct Fixture {
    forward: Forward,
    client: Stream,
    server: Stream,
    taps: Taps,
    begun: Instant,
    vacated: Arc<AtomicUsize>,
}

impl Fixture {
    fn new(room: Option<usize>) -> Self {
        let taps = Taps { history: Some(Arc::new(StatementHistory::default())), ..Taps::default() };
        let _wanted = taps.events.follow();
        let ((client, near), (far, server)) = (pair(room), pair(room));
        let vacated = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&vacated);
        let vacate = Box::new(move || count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
        let observed = Observed::new(false, STARTUP_RESPONSE);
        let begun = Instant::now();
        let transcription = Some((taps.transcribe(), StartupParams::new([])));
        let listeners = SessionListeners { transcription, ..SessionListeners::default() };
        let tap = taps.tap("d", None, begun, listeners);
        let forward = Forward::new(near, far, observed, vacate, tap, Vec::new());
        Self { forward, client, server, taps, begun, vacated }
    }

    /// Sends the pieces in turn, waiting until each one has arrived, so that the gateway reads them one by one. Returns
    /// the bytes that arrived at the server and at the client.
    async fn play<'a>(&mut self, pieces: impl IntoIterator<Item = (Side, &'a [u8])>) -> (Vec<u8>, Vec<u8>) {
        let Self { forward, client, server, .. } = self;
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let script = async {
            for (side, piece) in pieces {
                let (from, to, arrived) = match side {
                    Client => (&mut *client, &mut *server, &mut up),
                    Server => (&mut *server, &mut *client, &mut down),
                };
                from.write_all(piece).await.unwrap();
                let start = arrived.len();
                arrived.resize(start + piece.len(), 0);
                to.read_exact(&mut arrived[start..]).await.unwrap();
            }
        };
        tokio::select! {
            biased;
            end = forward.run() => panic!("ended: {end:?}"),
            () = script => {}
        }
        (up, down)
    }

    /// Returns the events, statements and requests that the listeners received.
    fn observed(&self) -> Vec<String> {
        let (events, lost) = self.taps.events.log().unwrap().take();
        assert_eq!(lost, 0);
        let in_words = |kind| match kind {
            SessionEventKind::Began { .. } => "began".to_owned(),
            SessionEventKind::Requested => "requested".to_owned(),
            SessionEventKind::Completed { statement, runs, idle_in_transaction: rests, .. } => {
                format!("{runs} {statement} {rests:?}")
            }
            SessionEventKind::Ended | SessionEventKind::TestEnded { .. } => "ended".to_owned(),
        };
        let ran = self.taps.history.as_ref().unwrap().of("d", self.begun);
        let ran = ran.into_iter().map(|ran| format!("{} {:?}", ran.statement, ran.error));
        let requests = self.taps.transcribe().finish().into_iter().flat_map(|transcript| transcript.requests);
        let requests = requests.map(|request| {
            let outcome = request.outcome.map(|outcome| (outcome.tags, outcome.error, outcome.status));
            format!("{} {outcome:?}", request.messages.escape_ascii())
        });
        events.into_iter().map(|event| in_words(event.kind)).chain(ran).chain(requests).collect()
    }

    /// Returns the gateway's final view of the session.
    fn session_state(&self) -> (Vec<String>, usize, bool, bool) {
        let Forward { conversation, traces, .. } = &self.forward;
        let vacated = self.vacated.load(Ordering::Relaxed);
        (self.observed(), vacated, conversation.is_idle(), traces.leaves_nothing())
    }
}

fn whole(conversation: &[SentBytes]) -> impl Iterator<Item = (Side, &[u8])> {
    conversation.iter().map(|(side, bytes)| (*side, &bytes[..]))
}

/// Cuts the bytes of one side of a conversation at these positions.
fn cut<'a>(conversation: &'a [SentBytes], side: Side, cuts: &[usize]) -> Vec<(Side, &'a [u8])> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    for (from, bytes) in whole(conversation) {
        if from != side {
            pieces.push((from, bytes));
            continue;
        }
        let mut start = 0;
        for cut in
            cuts.iter().filter_map(|cut| cut.checked_sub(at)).filter(|cut| (1..bytes.len()).contains(cut))
        {
            pieces.push((from, &bytes[start..cut]));
            start = cut;
        }
        pieces.push((from, &bytes[start..]));
        at += bytes.len();
    }
    pieces
}

/// Returns all bytes that one side sends.
fn bytes_from(conversation: &[SentBytes], side: Side) -> Vec<u8> {
    whole(conversation).filter(|(from, _)| *from == side).flat_map(|(_, bytes)| bytes.to_vec()).collect()
}

fn ready(status: u8) -> Vec<u8> {
    encode(b'Z', &[status])
}

/// Returns a conversation with every kind of message that the listeners distinguish.
fn conversation() -> Vec<SentBytes> {
    let error = encode(b'E', b"SERROR\0VERROR\0C23505\0Mduplicate key\0\0");
    let row = encode(b'D', b"\0\x01\0\0\0\x0bZ\0\0\0\x05IE\0\0\0\x04");
    let extended = [
        encode(b'P', b"s\0SELECT $1\0\0\0"),
        encode(b'B', b"\0s\0\0\0\0\x01\0\0\0\x05X\0\0\0\x04\0\0"),
        encode(b'D', b"P\0"),
        encode(b'E', b"\0\0\0\0\0"),
        encode(b'S', b""),
    ];
    let answer = [
        encode(b'1', b""),
        encode(b'2', b""),
        encode(b'n', b""),
        row,
        encode(b'C', b"SELECT 1\0"),
        ready(b'I'),
    ];
    let copy = [encode(b'd', b"1\tQ\0\0\0\x08X\0\0\0\x04\n"), encode(b'c', b"")];
    vec![
        (Client, query(b"BEGIN")),
        (Server, [encode(b'C', b"BEGIN\0"), ready(b'T')].concat()),
        (Client, query(b"INSERT INTO t VALUES ('Z')")),
        (Server, [error, ready(b'E')].concat()),
        (Client, query(b"ROLLBACK")),
        (Server, [encode(b'N', b"SWARNING\0\0"), encode(b'C', b"ROLLBACK\0"), ready(b'I')].concat()),
        (Client, extended.concat()),
        (Server, answer.concat()),
        (Client, query(b"COPY t FROM STDIN")),
        (Server, encode(b'G', b"\0\0\x01\0\0")),
        (Client, copy.concat()),
        (Server, [encode(b'C', b"COPY 1\0"), ready(b'I')].concat()),
        (Server, encode(b'A', b"\0\0\0\x07news\0\0")),
        (Client, query(b" /* app */ drop\ndatabase x")),
        (Server, [encode(b'C', b"DROP DATABASE\0"), ready(b'I')].concat()),
        (Client, encode(b'P', b"\0CREATE DATABASE y\0\0\0")),
        (Client, encode(b'S', b"")),
        (Server, [encode(b'1', b""), ready(b'I')].concat()),
    ]
}

#[test]
fn forwarding_and_tracing_do_not_depend_on_chunks() {
    let conversation = conversation();
    let sent = (bytes_from(&conversation, Client), bytes_from(&conversation, Server));
    run(async {
        let mut fixture = Fixture::new(None);
        assert_eq!(fixture.play(whole(&conversation)).await, sent);
        let known = fixture.session_state();
        assert_eq!((known.1, known.2, known.3), (2, true, false));
        for seen in ["1 SELECT $1 Some(false)", r#"Q\x00\x00\x00\nBEGIN\x00 Some((["BEGIN"], None, 84))"#] {
            assert!(known.0.contains(&seen.to_owned()), "{:?}", known.0);
        }
        for (side, length) in [(Client, sent.0.len()), (Server, sent.1.len())] {
            for at in 1..length {
                let mut fixture = Fixture::new(None);
                assert_eq!(fixture.play(cut(&conversation, side, &[at])).await, sent);
                assert_eq!(fixture.session_state(), known, "{side:?} cut at byte {at}");
            }
        }
    });
}

#[test]
fn session_without_traces_is_recognized_at_any_split() {
    let conversation: Vec<SentBytes> = conversation().into_iter().take(8).collect();
    let length = bytes_from(&conversation, Client).len();
    run(async {
        for at in 1..length {
            let mut fixture = Fixture::new(None);
            fixture.play(cut(&conversation, Client, &[at])).await;
            assert!(fixture.forward.traces.leaves_nothing(), "cut at byte {at}");
            // The gateway must not forward a Terminate to a server that can serve other clients.
            fixture.client.write_all(TERMINATE).await.unwrap();
            assert_eq!(fixture.forward.run().await, End::Idle);
            drop(fixture.forward);
            assert_eq!(fixture.server.read(&mut [0]).await.unwrap(), 0);
        }
    });
}

fn frames_of(tags: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        Just(b"SELECT 1\0".to_vec()),
        Just(b"DROP DATABASE x\0".to_vec()),
        Just(b"name\0SELECT 2\0\0\0".to_vec()),
        Just(b"X\0\0\0\x04Z\0\0\0\x05I".to_vec()),
    ];
    let frame = (prop::sample::select(tags), body, prop::sample::select(&b"ITE"[..]))
        .prop_map(|(tag, body, status)| if tag == b'Z' { ready(status) } else { encode(tag, &body) });
    prop::collection::vec(frame, 1..5).prop_map(|frames| frames.concat())
}

fn any_conversation() -> impl Strategy<Value = Vec<SentBytes>> {
    let turn = (frames_of(b"QQPBEDSdcfFH"), frames_of(b"ZZCEDTANG12"))
        .prop_map(|(client, server)| [(Client, client), (Server, server)]);
    prop::collection::vec(turn, 1..8).prop_map(|turns| turns.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_conversation_arrives_at_any_split(
        conversation in any_conversation(),
        mut cuts in prop::collection::vec(1_usize..400, 0..12),
        side in prop::sample::select(&[Client, Server][..]),
        unsent in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        cuts.sort_unstable();
        cuts.dedup();
        let sent = (bytes_from(&conversation, Client), bytes_from(&conversation, Server));
        run(async {
            let mut fixture = Fixture::new(None);
            assert_eq!(fixture.play(whole(&conversation)).await, sent);
            let mut other = Fixture::new(None);
            // The client must receive the rest of the startup response first.
            other.forward.down.bytes.clone_from(&unsent);
            let reads = async { let mut first = vec![0; unsent.len()]; other.client.read_exact(&mut first).await.unwrap(); first };
            let first = tokio::select! { biased; end = other.forward.run() => panic!("{end:?}"), first = reads => first };
            assert_eq!(first, unsent);
            assert_eq!(other.play(cut(&conversation, side, &cuts)).await, sent);
            // If several statements about databases arrive together, the gateway terminates the waiting backends only
            // once.
            let known = |fixture: &Fixture| {
                let (heard, vacated, idle, clean) = fixture.session_state();
                (heard, vacated > 0, idle, clean)
            };
            assert_eq!(known(&other), known(&fixture));
        });
    }
}

/// Returns frames of many different sizes, with a total size of about `length` bytes.
fn flood(tag: u8, length: usize, seed: u64) -> Vec<u8> {
    let (mut bytes, mut state) = (Vec::new(), seed);
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let size = [0, 7, 300, 4096, 70_000, 200_000][(state >> 33) as usize % 6];
        let body: Vec<u8> = state.to_be_bytes().into_iter().chain(0..=255).cycle().take(size).collect();
        bytes.extend(encode(tag, &body));
    }
    bytes
}

async fn read_all(mut from: impl tokio::io::AsyncRead + Unpin, length: usize, chunk: usize) -> Vec<u8> {
    let (mut read, mut buffer) = (Vec::new(), vec![0; chunk]);
    while read.len() < length {
        match from.read(&mut buffer).await.unwrap() {
            0 => break,
            count => read.extend_from_slice(&buffer[..count]),
        }
    }
    read
}

#[test]
fn floods_in_both_directions_pass_through_small_buffers() {
    for (room, chunk) in [(Some(1), 5000), (None, 777), (Some(20_000), 100_000)] {
        let (up, down) = (flood(b'd', 1 << 19, 7), flood(b'D', 1 << 19, 11));
        run(async {
            let Fixture { mut forward, client, server, .. } = Fixture::new(room);
            let ((from_client, mut to_client), (from_server, mut to_server)) = (split(client), split(server));
            let work = async {
                tokio::join!(
                    async { to_client.write_all(&up).await.unwrap() },
                    async { to_server.write_all(&down).await.unwrap() },
                    read_all(from_client, down.len(), chunk),
                    read_all(from_server, up.len(), chunk),
                )
            };
            let ((), (), at_client, at_server) = tokio::select! {
                end = forward.run() => panic!("ended: {end:?}"),
                done = work => done,
            };
            assert!(at_client == down && at_server == up, "{room:?} {chunk}");
            assert!(
                forward.up.bytes.is_empty() && forward.down.bytes.is_empty(),
                "nothing is kept of an idle session"
            );
        });
    }
}

#[test]
fn stuck_direction_does_not_block_the_other() {
    let flood = flood(b'D', 1 << 20, 3);
    run(async {
        for stuck in [Client, Server] {
            let Fixture { mut forward, client, server, .. } = Fixture::new(Some(1));
            let (deaf, mut other) = if stuck == Client { (client, server) } else { (server, client) };
            let (mut deaf_in, mut deaf_out) = split(deaf);
            let work = async {
                let (mut other_in, mut other_out) = split(&mut other);
                let writes = other_out.write_all(&flood);
                let talks = async {
                    // The gateway must forward a side's bytes even if that side reads nothing.
                    for number in 0..50_u8 {
                        let message = encode(b'd', &[number; 9]);
                        deaf_out.write_all(&message).await.unwrap();
                        let mut heard = vec![0; message.len()];
                        other_in.read_exact(&mut heard).await.unwrap();
                        assert_eq!(heard, message);
                    }
                    read_all(&mut deaf_in, flood.len(), 50_000).await
                };
                let (written, read) = tokio::join!(writes, talks);
                written.unwrap();
                assert!(read == flood);
            };
            tokio::select! {
                end = forward.run() => panic!("ended: {end:?}"),
                () = work => {}
            }
        }
    });
}

/// Simulates a client that sends `up` and disconnects, and a server that then responds with `down`.
async fn end_of_client(up: &[u8], down: &[u8], farewell: &[u8]) -> End {
    let Fixture { mut forward, mut client, mut server, .. } = Fixture::new(None);
    let work = async {
        client.write_all(up).await.unwrap();
        if farewell.is_empty() {
            client.socket().finish().unwrap();
        }
        let mut heard = Vec::new();
        server.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, [up.strip_suffix(farewell).unwrap(), farewell].concat());
        server.write_all(down).await.unwrap();
        drop(server);
        let mut answer = vec![0; down.len()];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, down);
        client
    };
    let forwarded = async {
        let end = forward.run().await;
        if end == End::Client {
            forward.drain().await;
        }
        drop(forward);
        end
    };
    let (end, mut client) = tokio::join!(forwarded, work);
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    end
}

#[test]
fn client_ending_at_any_byte_gets_remaining_answers() {
    let conversation = conversation();
    let (up, down) = (bytes_from(&conversation, Client), bytes_from(&conversation, Server));
    run(async {
        for at in (1..up.len()).step_by(3).chain([1, 2, 3, 4, 5]) {
            assert_eq!(end_of_client(&up[..at], &down[..at.min(down.len())], b"").await, End::Client, "{at}");
        }
        // The server isn't idle when the client sends Terminate.
        for up in [query(b"SELECT 1"), query(b"CREATE EXTENSION x"), encode(b'P', b"\0BEGIN\0\0\0")] {
            assert_eq!(end_of_client(&[&up[..], TERMINATE].concat(), &down, TERMINATE).await, End::Client);
        }
    });
}

#[test]
fn disconnected_client_does_not_interrupt_server_output() {
    run(async {
        let Fixture { mut forward, mut client, mut server, .. } = Fixture::new(Some(1));
        client.write_all(&query(b"SELECT 1")).await.unwrap();
        drop(client);
        assert_eq!(forward.run().await, End::Client);
        let flood = flood(b'D', 1 << 20, 5);
        let writes = async {
            let mut heard = Vec::new();
            server.read_to_end(&mut heard).await.unwrap();
            assert_eq!(heard, query(b"SELECT 1"));
            // The server doesn't know that the client has disconnected, so the gateway must not cut off the response.
            server.write_all(&flood).await.unwrap();
            drop(server);
        };
        tokio::join!(forward.drain(), writes);
    });
}

#[test]
fn server_ending_at_any_byte_loses_no_output() {
    let down = bytes_from(&conversation(), Server);
    run(async {
        for at in 0..down.len() {
            let Fixture { mut forward, mut client, mut server, .. } = Fixture::new(None);
            server.write_all(&down[..at]).await.unwrap();
            drop(server);
            assert_eq!(forward.run().await, End::Server);
            let is_between = forward.conversation.may_interject();
            drop(forward);
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).await.unwrap();
            assert_eq!(heard, down[..at]);
            assert_eq!(is_between, ends_with_a_frame(&heard), "{at}");
        }
    });
}

#[test]
fn closing_session_forwards_only_while_client_reads() {
    run(async {
        let Fixture { mut forward, mut client, mut server, .. } = Fixture::new(Some(4096));
        let words = flood(b'D', 1 << 16, 1);
        let (read, unread) = words.split_at(1024);
        tokio::select! {
            end = forward.run_while_client_reads() => panic!("ended: {end:?}"),
            heard = async {
                server.write_all(read).await.unwrap();
                read_all(&mut client, read.len(), 512).await
            } => assert_eq!(heard, read),
        }
        tokio::select! {
            end = forward.run_while_client_reads() => assert_eq!(end, End::Closed),
            Err(error) = server.write_all(unread) => panic!("{error}"),
        }
    });
}

fn ends_with_a_frame(bytes: &[u8]) -> bool {
    pgwire::frames(bytes).map(|frame| frame.body.len() + 5).sum::<usize>() == bytes.len()
}

#[test]
fn statements_about_databases_are_known() {
    for (message, clears) in [
        (encode(b'Q', b"DROP DATABASE x\0"), true),
        (encode(b'Q', b" /* app */-- x\n\tdrop\n database if exists x\0"), true),
        (encode(b'P', b"name\0CREATE DATABASE x TEMPLATE y\0\0\0"), true),
        (encode(b'P', b"\0alter database x rename to y\0\0\0"), true),
        (encode(b'Q', b"DROP TABLE database\0"), false),
        (encode(b'Q', b"SELECT 'DROP DATABASE x'\0"), false),
        (encode(b'Q', b"-- DROP DATABASE x\0"), false),
        (encode(b'Q', b"/* DROP DATABASE x\0"), false),
        (encode(b'd', b"DROP DATABASE x\0"), false),
        (encode(b'Q', b""), false),
        (encode(b'P', b"DROP DATABASE x"), false),
    ] {
        let mut found = false;
        Conversation::new(false).observe_client(&message, |frame| {
            let statement = statement(frame).and_then(gateway_statement);
            found |= matches!(statement, Some(GatewayStatement::ChangesDatabase));
        });
        assert_eq!(found, clears, "{message:?}");
    }
}

#[test]
fn requests_for_faults_are_recognized_anywhere() {
    let request = "SET pgfresh.fault = '{\"error\": \"40001\"}'";
    for (sql, expected) in [
        (request.to_owned(), true),
        (format!("/* x */ {};", request.to_lowercase()), true),
        (format!(";{request}"), true),
        (format!("SELECT 1; {request}"), true),
        ("SET \"pgfresh\".\"fault\" = '{}'".to_owned(), true),
        ("SELECT pg_catalog.set_config('pgfresh.fault', '{}', true)".to_owned(), true),
        ("SELECT \"set_config\"('pgfresh.fault', '{}', true)".to_owned(), true),
        ("SET work_mem = '1MB'".to_owned(), false),
        ("SELECT 'pgfresh.fault'".to_owned(), false),
        ("SELECT 1; SELECT 'pgfresh.fault'".to_owned(), false),
    ] {
        let found = matches!(gateway_statement(sql.as_bytes()), Some(GatewayStatement::RequestsFault));
        assert_eq!(found, expected, "{sql}");
        assert_eq!(found, has_request(sql.as_bytes()), "{sql}");
    }
}
