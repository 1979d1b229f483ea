use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::frame::encode;
use crate::query;

mod generated;

fn builder() -> TranscriptBuilder {
    let params = StartupParams::new([("user", "app"), ("options", "-c lock_timeout=5s")]);
    TranscriptBuilder::new("shop".to_owned(), &params, Instant::now())
}

fn ready(status: u8) -> Vec<u8> {
    encode(b'Z', &[status])
}

fn done(tag: &str) -> Vec<u8> {
    encode(b'C', format!("{tag}\0").as_bytes())
}

fn error() -> Vec<u8> {
    encode(b'E', b"SERROR\0VERROR\0C42P01\0Mno such table\0\0")
}

fn fatal() -> Vec<u8> {
    encode(b'E', b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0")
}

/// Returns Parse, Bind, Describe and Execute messages for an unnamed statement.
fn run(sql: &str) -> Vec<u8> {
    let parse = encode(b'P', format!("\0{sql}\0\0\0").as_bytes());
    [parse, encode(b'B', b"\0\0\0\0\0\0\0\0"), encode(b'D', b"P\0"), encode(b'E', b"\0\0\0\0\0")].concat()
}

/// Returns the responses to [`run`] up to the command tag.
fn begun() -> Vec<u8> {
    [encode(b'1', b""), encode(b'2', b""), encode(b'n', b"")].concat()
}

fn sync() -> Vec<u8> {
    encode(b'S', b"")
}

/// Plays the turns of the client (`true`) and the server.
fn play(turns: &[(bool, Vec<u8>)]) -> TranscriptBuilder {
    let (mut builder, now) = (builder(), Instant::now());
    for (is_client, bytes) in turns {
        if *is_client {
            builder.observe_client(bytes, now);
        } else {
            builder.observe_server(bytes, now);
        }
    }
    builder
}

/// Returns each request's messages, and its outcome in a short notation.
fn requests(transcript: &SessionTranscript) -> Vec<(Vec<u8>, String)> {
    let outcome = |outcome: &RequestOutcome| {
        let error = outcome.error.as_ref().map_or("", |error| &error.sqlstate);
        format!("{}{error}{}", outcome.tags.concat(), char::from(outcome.status))
    };
    let requests = transcript.requests.iter();
    requests
        .map(|request| (request.messages.to_vec(), request.outcome.as_ref().map_or(String::new(), outcome)))
        .collect()
}

/// Returns only the outcomes of all requests, separated by spaces.
fn outcomes(builder: &mut TranscriptBuilder) -> String {
    let outcomes: Vec<_> = requests(&builder.finish()).into_iter().map(|(_, outcome)| outcome).collect();
    outcomes.join(" ")
}

#[test]
fn transcript_begins_with_the_startup_parameters() {
    let transcript = builder().finish();
    assert_eq!(transcript.database, "shop");
    let expected = [("user", "app"), ("options", "-c lock_timeout=5s")];
    assert_eq!(transcript.parameters, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert!(transcript.requests.is_empty() && !transcript.is_cut);
}

#[test]
fn each_request_has_its_times() {
    let (mut builder, began) = (builder(), Instant::now());
    let at = |milliseconds| began + Duration::from_millis(milliseconds);
    let sql = query(b"SELECT 1");
    builder.observe_client(&sql[..1], at(1));
    builder.observe_client(&sql[1..], at(2));
    builder.observe_client(&query(b"SELECT 2"), at(3));
    builder.observe_server(&[done("SELECT 1"), ready(b'I')].concat(), at(4));
    builder.observe_server(&done("SELECT 1"), at(5));
    builder.observe_server(&ready(b'I'), at(6));
    let times: Vec<_> = builder
        .finish()
        .requests
        .into_iter()
        .map(|request| (request.sent, request.outcome.unwrap().answered))
        .collect();
    assert_eq!(times, [(at(1), at(4)), (at(3), at(6))]);
}

#[test]
fn string_of_statements_has_a_tag_for_each() {
    let answer = [done("CREATE TABLE"), encode(b'I', b""), done("INSERT 0 1"), error(), ready(b'E')];
    let mut session = play(&[(true, query(b"several")), (false, answer.concat())]);
    assert_eq!(outcomes(&mut session), "CREATE TABLEINSERT 0 142P01E");
}

#[test]
fn failed_pipeline_lasts_until_its_sync() {
    let group = [run("fail"), run("skipped"), query(b"skipped, too"), run("skipped"), sync()].concat();
    let next = [query(b"next")].concat();
    let answer = [error(), ready(b'I'), done("SELECT 1"), ready(b'I')].concat();
    let mut session = play(&[(true, [&group[..], &next].concat()), (false, answer)]);
    let expected = [(group, "42P01I".to_owned()), (next, "SELECT 1I".to_owned())];
    assert_eq!(requests(&session.finish()), expected);
}

#[test]
fn query_ends_a_group_without_sync() {
    let group = [run("ok"), query(b"fail")].concat();
    let answer = [begun(), done("ok"), error(), ready(b'I')].concat();
    let mut session = play(&[(true, [group, query(b"next")].concat()), (false, answer)]);
    assert_eq!(outcomes(&mut session), "ok42P01I ");
}

#[test]
fn sync_inside_a_copy_ends_no_request() {
    let copy = [run("COPY"), sync(), encode(b'd', b"1\n"), encode(b'c', b""), sync()].concat();
    let good = [begun(), encode(b'G', b"\0\0\0"), done("COPY 1"), ready(b'I')].concat();
    let mut session = play(&[(true, copy.clone()), (false, good)]);
    assert_eq!(requests(&session.finish()), [(copy.clone(), "COPY 1I".to_owned())]);
    // The COPY doesn't start, so the server responds to the first Sync.
    let refused = [begun(), error(), ready(b'I'), ready(b'I')].concat();
    let mut session = play(&[(true, copy.clone()), (false, refused)]);
    let first = copy.len() - sync().len();
    let expected = [(copy[..first].to_vec(), "42P01I".to_owned()), (sync(), "I".to_owned())];
    assert_eq!(requests(&session.finish()), expected);
    // The COPY fails before the server reads data.
    let (begin, rest) = copy.split_at(run("COPY").len() + sync().len());
    let mut session = play(&[
        (true, begin.to_vec()),
        (false, [begun(), encode(b'G', b"\0\0\0"), error(), ready(b'I')].concat()),
        (true, rest.to_vec()),
        (false, ready(b'I')),
    ]);
    assert_eq!(requests(&session.finish()), expected);
}

#[test]
fn data_of_a_failed_copy_belong_to_it() {
    let copy = [query(b"COPY"), encode(b'd', b"bad\n")].concat();
    let rest = [encode(b'd', b"more\n"), encode(b'c', b"")].concat();
    let answer = [encode(b'G', b"\0\0\0"), error(), ready(b'I')].concat();
    let mut session = play(&[
        (true, copy.clone()),
        (false, answer),
        (true, [&rest[..], &query(b"next")].concat()),
        (false, [done("SELECT 1"), ready(b'I')].concat()),
    ]);
    let expected = [([copy, rest].concat(), "42P01I".to_owned()), (query(b"next"), "SELECT 1I".to_owned())];
    assert_eq!(requests(&session.finish()), expected);
}

#[test]
fn unanswered_requests_have_no_outcome() {
    let sent = [query(b"first"), run("second"), sync(), query(b"third"), run("fourth")].concat();
    let answer = [done("SELECT 1"), ready(b'I'), begun()].concat();
    let cut = [&sent[..], &query(b"incomplete")[..9]].concat();
    let mut session = play(&[(true, cut), (false, answer)]);
    let transcript = session.finish();
    assert_eq!(
        transcript.requests.iter().map(|request| request.outcome.is_some()).collect::<Vec<_>>(),
        [true, false, false, false]
    );
    assert_eq!(
        transcript.requests.iter().flat_map(|request| request.messages.to_vec()).collect::<Vec<_>>(),
        sent
    );
    assert_eq!(session.finish().requests, []);
}

#[test]
fn requests_behind_a_failed_group_are_distinguished() {
    let group = [run("fail"), sync()].concat();
    let sent = [&group[..], &query(b"second"), &query(b"third")].concat();
    let mut session = play(&[(true, sent), (false, error())]);
    let expected = [group, query(b"second"), query(b"third")].map(|messages| (messages, String::new()));
    assert_eq!(requests(&session.finish()), expected);
}

#[test]
fn query_may_have_several_copies() {
    let (begin, data) = (encode(b'G', b"\0\0\0"), [encode(b'd', b"1\n"), encode(b'c', b"")].concat());
    let first = [query(b"COPY a; COPY b"), data.clone()].concat();
    let second = [sync(), data].concat();
    let mut session = play(&[
        (true, first.clone()),
        (false, [begin.clone(), done("COPY 1"), begin].concat()),
        (true, second.clone()),
        (false, [done("COPY 1"), ready(b'I')].concat()),
    ]);
    assert_eq!(requests(&session.finish()), [([first, second].concat(), "COPY 1COPY 1I".to_owned())]);
}

#[test]
fn fatal_error_is_the_outcome_of_its_request() {
    for sent in [query(b"slow"), [run("slow"), sync()].concat(), run("slow")] {
        let mut session = play(&[(true, [&sent[..], &query(b"next")].concat()), (false, fatal())]);
        session.close(Instant::now());
        let is_open = sent.ends_with(&run("slow"));
        assert_eq!(outcomes(&mut session), if is_open { "57P01I" } else { "57P01I " }, "{sent:?}");
    }
    // An idle session has no pending request.
    let mut session = play(&[(true, query(b"one")), (false, [ready(b'I'), fatal()].concat())]);
    session.close(Instant::now());
    assert_eq!(outcomes(&mut session), "I");
}

#[test]
fn nothing_counts_after_terminate() {
    let mut session = play(&[(true, [query(b"one"), encode(b'X', b""), query(b"two")].concat())]);
    session.observe_client(&query(b"three"), Instant::now());
    assert_eq!(requests(&session.finish()), [(query(b"one"), String::new())]);
}

#[test]
fn invalid_length_cuts_the_transcript() {
    let mut session = play(&[(true, [&query(b"one")[..], b"Q\0\0\0\x03"].concat()), (false, ready(b'I'))]);
    session.observe_client(&query(b"two"), Instant::now());
    let transcript = session.finish();
    assert!(transcript.is_cut);
    assert_eq!(requests(&transcript), [(query(b"one"), "I".to_owned())]);
}

#[test]
fn cut_transcript_keeps_answered_requests() {
    let mut session = play(&[(true, query(b"one")), (false, ready(b'I')), (true, query(b"two"))]);
    let before = session.size();
    session.cut();
    assert!(session.size() < before && session.running().is_none());
    session.observe_client(&query(b"three"), Instant::now());
    session.observe_server(&[ready(b'I'), ready(b'I')].concat(), Instant::now());
    let transcript = session.finish();
    assert!(transcript.is_cut);
    assert_eq!(requests(&transcript), [(query(b"one"), "I".to_owned())]);
}

#[test]
fn running_statement_is_the_unanswered_one() {
    let named = |name: &str, sql: &str| encode(b'P', format!("{name}\0{sql}\0\0\0").as_bytes());
    let bind = |portal: &str, name: &str| {
        [
            encode(b'B', format!("{portal}\0{name}\0\0\0\0\0\0\0").as_bytes()),
            encode(b'E', format!("{portal}\0\0\0\0\0").as_bytes()),
        ]
        .concat()
    };
    let prepared = [named("one", "SELECT 1"), named("two", "SELECT 2"), sync()].concat();
    let answer = [encode(b'1', b""), encode(b'1', b""), ready(b'I')].concat();
    let mut session = play(&[(true, prepared), (false, answer)]);
    assert_eq!(session.running(), None);
    let begin = Instant::now();
    let later = begin + Duration::from_secs(1);
    session.observe_client(&[bind("p", "one"), bind("q", "two"), sync()].concat(), begin);
    let text =
        |session: &TranscriptBuilder| session.running().map(|running| (running.statement, running.since));
    assert_eq!(text(&session), Some(("SELECT 1".to_owned(), begin)));
    session.observe_server(&[encode(b'2', b""), done("SELECT 1"), encode(b'2', b"")].concat(), later);
    assert_eq!(text(&session), Some(("SELECT 2".to_owned(), later)));
    session.observe_server(&[done("SELECT 1"), ready(b'I')].concat(), later);
    assert!(!session.is_running());
    session.observe_client(&query("é".repeat(1000).as_bytes()), later);
    assert!(session.running().unwrap().statement.starts_with("éé"));
    session.observe_server(&ready(b'I'), later);
    session.observe_client(&[encode(b'F', b"\0\0\0\x05"), encode(b'H', b"")].concat(), later);
    assert_eq!(session.running().unwrap().statement, "(a function is called)");
}
