use pgwire::{encode, query};

use super::*;

fn transcription(max_bytes: usize) -> Arc<Transcription> {
    Arc::new(Transcription::with_limit(max_bytes))
}

fn session(transcription: &Arc<Transcription>, database: &str, backend: i32) -> SessionTranscriber {
    transcription.session(database, &StartupParams::new([("user", "app")]), backend).unwrap()
}

/// Lets the client run a statement of `length` bytes, with a short response.
fn run(session: &SessionTranscriber, length: usize) {
    session.observe_client(&query(&vec![b' '; length]), Instant::now());
    session.observe_server(&[encode(b'C', b"OK\0"), encode(b'Z', b"I")].concat(), Instant::now());
}

#[test]
fn open_and_closed_sessions_come_in_order() {
    let transcription = transcription(MAX_BYTES);
    let (first, second) = (session(&transcription, "one", 1), session(&transcription, "two", 2));
    let third = session(&transcription, "three", 3);
    for session in [&third, &first] {
        session.observe_client(&query(b"LOCK TABLE t"), Instant::now());
    }
    run(&second, 5);
    drop(third);
    let waiting = transcription.waiting();
    let [WaitingSession { database, backend: 1, running }] = &waiting[..] else { panic!("{waiting:?}") };
    assert_eq!((database.as_str(), running.statement.as_str()), ("one", "LOCK TABLE t"));
    let transcripts = transcription.finish();
    let found: Vec<_> = transcripts
        .iter()
        .map(|transcript| (transcript.database.as_str(), transcript.requests[0].outcome.is_some()))
        .collect();
    assert_eq!(found, [("one", false), ("two", true), ("three", false)]);
    run(&second, 5);
    assert!(transcription.finish().is_empty() && transcription.waiting().is_empty());
    assert!(transcription.session("late", &StartupParams::new([]), 4).is_none());
}

#[test]
fn limit_holds_for_all_sessions_together() {
    let transcription = transcription(100_000);
    let (one, two) = (session(&transcription, "one", 1), session(&transcription, "two", 2));
    run(&one, 60_000);
    two.observe_client(&query(b"ALTER TABLE"), Instant::now());
    // The first session exceeds the limit, so this request and all later ones are missing.
    one.observe_client(&query(&vec![b' '; 50_000]), Instant::now());
    assert!(transcription.bytes.load(Ordering::Relaxed) < 70_000);
    run(&one, 5);
    // The other session is cut only when it exceeds the limit, too.
    two.observe_server(&[encode(b'C', b"OK\0"), encode(b'Z', b"I")].concat(), Instant::now());
    run(&two, 5);
    run(&two, 50_000);
    let found: Vec<_> = transcription
        .finish()
        .into_iter()
        .map(|transcript| (transcript.requests.len(), transcript.is_cut))
        .collect();
    assert_eq!(found, [(1, true), (2, true)]);
}

#[test]
fn tags_of_one_request_count_for_the_limit() {
    let transcription = transcription(100_000);
    let session = session(&transcription, "one", 1);
    run(&session, 5);
    session.observe_client(&query(b"SELECT;SELECT"), Instant::now());
    let tags = encode(b'C', b"SELECT 0\0").repeat(10_000);
    session.observe_server(&tags, Instant::now());
    assert!(transcription.bytes.load(Ordering::Relaxed) < 10_000);
    let transcripts = transcription.finish();
    assert_eq!((transcripts[0].requests.len(), transcripts[0].is_cut), (1, true));
}
