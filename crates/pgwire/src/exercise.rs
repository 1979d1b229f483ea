//! Checks that the parsers' invariants hold for arbitrary bytes from a client or a server. Both the fuzzer
//! and an ordinary test call [`exercise`].

use std::time::Instant;

use crate::{
    Completed, Conversation, RequestOutcome, StartupPacket, StartupParams, StatementEvent, StatementTracker,
    TranscriptBuilder, cancel_key, password,
};

/// The bytes from a client and from a server, and the size of the chunks that they arrive in.
type Chunks<'a> = (&'a [u8], &'a [u8], usize);

/// Runs every parser of this crate on `bytes`, for the fuzzer and for a test of stored inputs.
///
/// # Panics
/// Panics if a parser violates an invariant.
pub fn exercise(bytes: &[u8]) {
    read_packet(bytes);
    let params = StartupParams::read(3 << 16, [b"options\0", bytes, b"\0"].concat());
    let settings = params.settings();
    assert!(settings.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() <= bytes.len());
    assert_eq!(params, params.clone());
    if let Ok(Some((place, length))) = password(bytes) {
        assert!(place.end < length && length <= bytes.len());
        assert!((0..length).all(|cut| matches!(password(&bytes[..cut]), Ok(None))));
    }
    if let Some(place) = cancel_key(bytes) {
        assert!(place.len() > 4 && place.end <= bytes.len());
    }
    let Some((cut, rest)) = bytes.split_first() else { return };
    let (client, server) = rest.split_at(rest.len() * usize::from(*cut) / 256);
    let all = |chunk| {
        let of_chunks = (client, server, chunk);
        (converse(of_chunks), follow(of_chunks), transcribe(of_chunks))
    };
    let whole = all(usize::MAX);
    for chunk in [1, 2, 5, 7] {
        assert_eq!(all(chunk), whole);
    }
}

fn read_packet(bytes: &[u8]) {
    let Ok(Some((read, length))) = StartupPacket::read(bytes) else { return };
    assert!(length <= bytes.len());
    assert!((0..length).all(|cut| matches!(StartupPacket::read(&bytes[..cut]), Ok(None))));
    match read {
        StartupPacket::SslRequest | StartupPacket::GssRequest => assert_eq!(length, 8),
        StartupPacket::Unsupported(_) => {}
        StartupPacket::Cancel(key) => assert_eq!(key.len() + 8, length),
        StartupPacket::Startup(startup) => {
            assert!(startup.params.parameters().len() < length && startup.database.len() < length);
            // A server must understand the forwarded packet just as pgfresh understood the original one. The
            // forwarded packet can be too long if the client omitted the database's name, which pgfresh adds.
            let again = startup.params.startup_message(&startup.database);
            match StartupPacket::read(&again) {
                Ok(Some((StartupPacket::Startup(again), _))) => assert_eq!(again, startup),
                other => assert!(again.len() > 10_000, "{other:?}"),
            }
        }
    }
}

/// Returns all results for a conversation, including the number of the client's bytes to forward.
fn converse((client, server, chunk): Chunks<'_>) -> (usize, bool, bool, bool, bool) {
    let mut talk = Conversation::new(false);
    let passed = client.chunks(chunk).map(|chunk| talk.observe_client(chunk, |_| ())).sum();
    server.chunks(chunk).for_each(|chunk| talk.observe_server(chunk));
    assert!(talk.is_terminated() || passed == client.len());
    (passed, talk.is_terminated(), talk.is_idle(), talk.may_interject(), talk.ends_in_error())
}

/// Returns the completed statements: the text of each, whether it ran, its error, and whether a transaction is open
/// afterwards.
fn follow((client, server, chunk): Chunks<'_>) -> Vec<(String, bool, Option<String>, Option<bool>)> {
    let (mut follow, mut done, now) = (StatementTracker::default(), Vec::new(), Instant::now());
    let mut emit = |event| {
        if let StatementEvent::Completed(Completed { statement, ran, error, rests, .. }) = event {
            done.push((statement.to_string(), ran, error.map(|error| error.sqlstate), rests));
        }
    };
    client.chunks(chunk).for_each(|chunk| follow.observe_client(chunk, now, &mut emit));
    server.chunks(chunk).for_each(|chunk| follow.observe_server(chunk, now, &mut emit));
    done
}

/// Returns the messages of each request, and the command tags of the requests that have an outcome.
fn transcribe((client, server, chunk): Chunks<'_>) -> Vec<(Vec<u8>, Option<Vec<String>>)> {
    let now = Instant::now();
    let mut builder = TranscriptBuilder::new(String::new(), &StartupParams::new([]), now);
    client.chunks(chunk).for_each(|chunk| builder.observe_client(chunk, now));
    server.chunks(chunk).for_each(|chunk| builder.observe_server(chunk, now));
    builder.close(now);
    let requests = builder.finish().requests;
    let all: Vec<u8> = requests.iter().flat_map(|request| request.messages.to_vec()).collect();
    assert!(client.starts_with(&all));
    let tags = |outcome: RequestOutcome| outcome.tags;
    requests.into_iter().map(|request| (request.messages.to_vec(), request.outcome.map(tags))).collect()
}
