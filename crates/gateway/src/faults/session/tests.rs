mod model;

use std::fmt;
use std::sync::Arc;

use contract::FaultRequest;
use pgwire::{encode, frames, query};
use proptest::prelude::*;

use self::model::{Conflict, Moment, Server};
use super::*;

/// A client, a session and a server.
struct Scene {
    session: FaultSession,
    server: Server,
    /// Bytes that the client has received.
    received: Vec<u8>,
    interruptions: Vec<Interruption>,
}

impl Scene {
    fn new(faults: &Arc<LeaseFaults>) -> Self {
        let start = SwitchedState { status: b'I', major: 15, process: 1, standard_strings: true };
        let session = FaultSession::new(Arc::clone(faults), start);
        Self { session, server: Server::new(), received: Vec::new(), interruptions: Vec::new() }
    }

    /// Delivers all client messages, one at a time. Stops when the connection ends.
    fn play(mut self, messages: &[u8]) -> Self {
        for frame in frames(messages) {
            assert!(self.session.accepts_client(), "{:?}", self.session);
            self.session.observe_client(&encode(frame.tag, frame.body));
            self.deliver();
            if self.session.has_ended {
                return self;
            }
        }
        self
    }

    fn deliver(&mut self) {
        loop {
            while let Some(interruption) = self.session.interruption() {
                self.interruptions.push(interruption);
            }
            self.received.append(&mut self.session.to_client);
            let bytes = std::mem::take(&mut self.session.to_server);
            if bytes.is_empty() {
                return;
            }
            for frame in frames(&self.server.receive(&bytes)) {
                self.session.observe_server(&encode(frame.tag, frame.body));
            }
        }
    }
}

fn fault(edit: impl FnOnce(&mut FaultRequest)) -> Arc<LeaseFaults> {
    let mut request = FaultRequest::default();
    edit(&mut request);
    let faults = LeaseFaults::default();
    faults.add(request.try_into().unwrap());
    Arc::new(faults)
}

fn execution(sql: &str) -> Vec<u8> {
    [
        encode(b'P', format!("\0{sql}\0\0\0").as_bytes()),
        encode(b'B', b"\0\0\0\0\0\0\0\0"),
        encode(b'D', b"P\0"),
        encode(b'E', b"\0\0\0\0\0"),
    ]
    .concat()
}

fn sync() -> Vec<u8> {
    encode(b'S', b"")
}

fn data() -> Vec<u8> {
    [encode(b'd', b"1\n"), encode(b'd', b"2\n"), encode(b'c', b"")].concat()
}

/// Client statements. The last one is invalid.
const STATEMENTS: [&str; 11] = [
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT s",
    "ROLLBACK TO s",
    "INSERT",
    "INSERT",
    "SELECT 1",
    "COPY t TO STDOUT",
    "UPDATE t",
    "nothing",
];

fn statement() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&STATEMENTS[..])
}

/// Messages of a client that reads all responses before it sends the next unit.
fn unit() -> impl Strategy<Value = Vec<u8>> {
    // In a query string, a fault's error comes before the error of an invalid statement, so use only valid ones.
    let valid = prop::sample::select(&STATEMENTS[..STATEMENTS.len() - 1]);
    let string = prop::collection::vec(valid, 1..4);
    let group = prop::collection::vec((statement(), any::<bool>()), 1..4);
    prop_oneof![
        4 => statement().prop_map(|sql| query(sql.as_bytes())),
        2 => string.prop_map(|all| query(all.join("; ").as_bytes())),
        1 => Just(query(b"")),
        1 => Just(query(b"INSERT; SELECT FROM FROM")),
        4 => group.prop_map(|group| {
            let one = |(sql, flushes): &(&str, bool)| {
                [execution(sql), if *flushes { encode(b'H', b"") } else { Vec::new() }].concat()
            };
            [group.iter().flat_map(one).collect(), sync()].concat()
        }),
        1 => Just([query(b"COPY t FROM STDIN"), data()].concat()),
        1 => Just([execution("COPY t FROM STDIN"), sync(), data(), sync()].concat()),
    ]
}

/// All messages of a client.
struct Script(Vec<u8>);

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(shown(&self.0)).finish()
    }
}

fn script() -> impl Strategy<Value = Script> {
    prop::collection::vec(unit(), 1..8).prop_map(|units| Script(units.concat()))
}

fn conflict() -> impl Strategy<Value = Conflict> {
    let moment = prop::sample::select(&[Moment::Statement, Moment::AfterStatement, Moment::Commit][..]);
    let statement =
        prop::sample::select(&["", "INSERT", "SELECT", "COPY t TO", "COPY t FROM", "COMMIT", "BEGIN"][..]);
    (moment, statement, 0_usize..3).prop_map(|(moment, statement, after)| Conflict {
        moment,
        statement,
        after,
    })
}

fn shown(bytes: &[u8]) -> Vec<String> {
    let show = |frame: pgwire::Frame<'_>| {
        let text = String::from_utf8_lossy(frame.body).replace('\0', "|");
        format!("{} {text}", char::from(frame.tag))
    };
    frames(bytes).map(show).collect()
}

proptest! {
    #[test]
    fn session_without_due_fault_changes_nothing(script in script()) {
        let faults = fault(|fault| {
            (fault.error, fault.statement) = (Some("40001".to_owned()), Some("DELETE".to_owned()));
        });
        let scene = Scene::new(&faults).play(&script.0);
        let mut server = Server::new();
        prop_assert_eq!(shown(&scene.received), shown(&server.receive(&script.0)));
        prop_assert_eq!(scene.server.committed, server.committed);
    }

    #[test]
    fn fault_is_like_error_of_server(script in script(), conflict in conflict()) {
        let faults = fault(|fault| {
            fault.error = Some("40001".to_owned());
            let at = match conflict.moment {
                Moment::Statement => "before statement",
                Moment::AfterStatement => "after statement",
                Moment::Commit => "commit",
            };
            fault.at = Some(at.to_owned());
            fault.statement = Some(conflict.statement.to_owned()).filter(|text| !text.is_empty());
            fault.nth = Some(conflict.after as u64 + 1);
        });
        let scene = Scene::new(&faults).play(&script.0);
        let mut server = Server::new();
        server.conflict = Some(conflict);
        prop_assert_eq!(shown(&scene.received), shown(&server.receive(&script.0)));
        prop_assert_eq!(&scene.server.committed, &server.committed);
        prop_assert_eq!(scene.server.status, server.status);
        let has_fired = server.conflict.is_none();
        prop_assert_eq!(faults.list().faults[0].fired, u64::from(has_fired));
    }
}

/// Returns the received messages, the interruptions, and what the server has committed.
fn outcome(faults: &Arc<LeaseFaults>, messages: &[u8]) -> (Vec<String>, Vec<Interruption>, Vec<String>) {
    let scene = Scene::new(faults).play(messages);
    (shown(&scene.received), scene.interruptions, scene.server.committed)
}

fn queries(all: &[&str]) -> Vec<u8> {
    all.iter().flat_map(|sql| query(sql.as_bytes())).collect()
}

#[test]
fn connection_ends_at_its_moment() {
    let transaction = queries(&["BEGIN", "INSERT", "COMMIT"]);
    let alone = [execution("INSERT"), sync()].concat();
    let pipeline = [execution("BEGIN"), execution("INSERT"), execution("COMMIT"), sync()].concat();
    for (at, statement, messages, answers, commits) in [
        ("before commit", None, &transaction, 4, false),
        ("after commit", None, &transaction, 4, true),
        ("before statement", Some("INSERT"), &transaction, 2, false),
        ("during statement", Some("COMMIT"), &transaction, 4, true),
        ("after statement", Some("INSERT"), &transaction, 2, false),
        // The client's Sync is already on its way, and commits.
        ("during statement", None, &alone, 0, true),
        ("after statement", None, &alone, 0, true),
        ("before statement", None, &alone, 0, false),
        ("after statement", Some("INSERT"), &pipeline, 0, true),
        ("before commit", None, &pipeline, 0, false),
        ("after commit", None, &pipeline, 0, true),
    ] {
        for connection in ["reset", "silent"] {
            let faults = fault(|fault| {
                (fault.connection, fault.at) = (Some(connection.to_owned()), Some(at.to_owned()));
                fault.statement = statement.map(str::to_owned);
            });
            let (received, interruptions, committed) = outcome(&faults, messages);
            let end = if connection == "reset" { Interruption::Reset } else { Interruption::Silence };
            assert_eq!(
                (received.len(), interruptions),
                (answers, vec![end]),
                "{at} {statement:?}: {received:?}"
            );
            assert_eq!(!committed.is_empty(), commits, "{at} {statement:?}");
            assert_eq!(faults.list().faults[0].fired, 1);
        }
    }
}

#[test]
fn fatal_error_comes_in_place_of_statement() {
    let faults = fault(|fault| {
        (fault.error, fault.statement) = (Some("57P01".to_owned()), Some("INSERT".to_owned()));
    });
    let (received, interruptions, committed) = outcome(&faults, &queries(&["BEGIN", "INSERT", "COMMIT"]));
    assert!(received[2].starts_with("E SFATAL|VFATAL|C57P01|Mterminating connection"), "{received:?}");
    assert!(matches!(&interruptions[..], [Interruption::Fatal(_)]) && received.len() == 3);
    assert!(committed.is_empty());
}

#[test]
fn answers_wait_for_flush_or_sync() {
    let faults = fault(|fault| fault.error = Some("57P01".to_owned()));
    let mut scene = Scene::new(&faults).play(&execution("SELECT 1"));
    assert_eq!(shown(&scene.received)[..3], ["1 ", "2 ", "T "]);
    assert!(shown(&scene.received)[3].contains("C57P01"));

    let faults = fault(|fault| (fault.error, fault.nth) = (Some("40001".to_owned()), Some(2)));
    scene = Scene::new(&faults).play(&execution("SELECT 1"));
    assert!(scene.received.is_empty());
    scene = scene.play(&encode(b'H', b""));
    assert_eq!(shown(&scene.received).len(), 5);
    let large = encode(b'D', &vec![0; SERVER_BUFFER]);
    let mut scene = Scene::new(&faults).play(&execution("SELECT 1"));
    scene.session.observe_server(&large);
    assert!(scene.session.to_client.ends_with(&large));
}

#[test]
fn delay_holds_message_or_answer() {
    let delay =
        |at: &str| fault(|fault| (fault.delay, fault.at) = (Some("2s".to_owned()), Some(at.to_owned())));
    let mut scene = Scene::new(&delay("before statement"));
    scene.session.observe_client(&query(b"INSERT"));
    assert!(scene.session.to_server.is_empty() && !scene.session.accepts_client());
    assert_eq!(scene.session.interruption(), Some(Interruption::Delay(Duration::from_secs(2))));
    assert_eq!(scene.session.interruption(), None);
    assert_eq!(scene.session.to_server, query(b"INSERT"));

    let mut closing = Scene::new(&delay("before statement"));
    closing.session.observe_client(&query(b"INSERT"));
    assert!(closing.session.interruption().is_some());
    closing.session.close();
    assert_eq!(closing.session.interruption(), None);
    assert!(closing.session.to_server.is_empty(), "a session that closes runs no delayed statement");

    let mut scene = Scene::new(&delay("after statement"));
    scene.session.observe_client(&query(b"INSERT"));
    for frame in frames(&scene.server.receive(&std::mem::take(&mut scene.session.to_server))) {
        scene.session.observe_server(&encode(frame.tag, frame.body));
    }
    assert!(scene.session.to_client.is_empty());
    assert_eq!(scene.session.interruption(), Some(Interruption::Delay(Duration::from_secs(2))));
    assert_eq!(scene.session.interruption(), None);
    assert_eq!(shown(&scene.session.to_client), ["C DONE|", "Z I"]);
}

#[test]
fn statements_that_nothing_undoes_fail_before() {
    let faults = || {
        fault(|fault| {
            (fault.error, fault.at) = (Some("40001".to_owned()), Some("after statement".to_owned()));
        })
    };
    for sql in ["VACUUM t", "CREATE DATABASE d", "CALL p()", "BEGIN", "CREATE INDEX CONCURRENTLY i ON t (a)"]
    {
        for messages in [query(sql.as_bytes()), [execution(sql), sync()].concat()] {
            let (received, _, committed) = outcome(&faults(), &messages);
            assert!(received.iter().any(|message| message.contains("C40001")), "{sql} {received:?}");
            assert!(committed.is_empty() && received.last().unwrap() == "Z I", "{sql} {received:?}");
        }
    }
}

#[test]
fn failed_transaction_counts_no_error() {
    let faults = fault(|fault| fault.error = Some("40001".to_owned()));
    outcome(&faults, &queries(&["nothing"]));
    let list = faults.list();
    assert_eq!((list.faults[0].fired, list.faults[0].candidates), (0, 0));
    let faults = fault(|fault| (fault.error, fault.nth) = (Some("40001".to_owned()), Some(3)));
    outcome(&faults, &queries(&["BEGIN", "SAVEPOINT x", "nothing", "INSERT", "ROLLBACK TO x", "INSERT"]));
    let list = faults.list();
    assert_eq!((list.faults[0].fired, &list.faults[0].statements[..]), (1, &["INSERT".to_owned()][..]));
}

#[test]
fn further_rows_are_no_other_statement() {
    let fetch = [encode(b'E', b"\0\0\0\0\x01"), encode(b'H', b"")].concat();
    let faults = fault(|fault| {
        (fault.error, fault.statement) = (Some("40001".to_owned()), Some("SELECT".to_owned()));
        fault.nth = Some(2);
    });
    let messages = [execution("SELECT 1"), fetch.clone(), fetch, sync()].concat();
    outcome(&faults, &messages);
    assert_eq!(faults.list().faults[0].candidates, 1);
}

#[test]
fn statement_of_unknown_text_counts() {
    for (statement, candidates) in [(None, 1), (Some("INSERT"), 0)] {
        let faults = fault(|fault| {
            (fault.error, fault.statement) = (Some("40001".to_owned()), statement.map(str::to_owned));
        });
        let mut scene = Scene::new(&faults);
        scene.session.observe_client(&encode(b'B', b"\0known\0\0\0\0\0\0\0"));
        scene.session.unanswered = 0;
        scene.session.observe_client(&encode(b'E', b"\0\0\0\0\0"));
        assert_eq!(faults.list().faults[0].candidates, candidates);
    }
}

#[test]
fn strikes_after_lost_connection_do_not_count() {
    for (at, statement, fired) in [
        ("after statement", "INSERT", [1, 0]),
        ("during statement", "INSERT", [1, 0]),
        ("during statement", "UPDATE t", [1, 0]),
        ("before statement", "UPDATE t", [1, 0]),
        ("after statement", "UPDATE t", [1, 0]),
    ] {
        let faults = LeaseFaults::default();
        let lost = FaultRequest {
            connection: Some("reset".to_owned()),
            at: Some(at.to_owned()),
            statement: Some(statement.to_owned()),
            ..FaultRequest::default()
        };
        faults.add(lost.try_into().unwrap());
        let error = FaultRequest {
            error: Some("40001".to_owned()),
            statement: Some("SELECT".to_owned()),
            ..FaultRequest::default()
        };
        faults.add(error.try_into().unwrap());
        let faults = Arc::new(faults);
        outcome(&faults, &queries(&["INSERT; UPDATE t; SELECT 1"]));
        let listed = faults.list().faults;
        assert_eq!([listed[0].fired, listed[1].fired], fired, "{at} {statement}");
        assert_eq!(listed[1].candidates, 0, "{at} {statement}");
    }
}

#[test]
fn refused_parse_leaves_the_earlier_statement() {
    let parse = |name: &str, sql: &str| encode(b'P', format!("{name}\0{sql}\0\0\0").as_bytes());
    let run = |name: &str| {
        [encode(b'B', format!("\0{name}\0\0\0\0\0\0\0").as_bytes()), encode(b'E', b"\0\0\0\0\0"), sync()]
            .concat()
    };
    let faults = fault(|fault| {
        (fault.error, fault.statement) = (Some("40001".to_owned()), Some("UPDATE".to_owned()));
    });
    let messages = [
        parse("one", "INSERT"),
        sync(),
        // The server skips everything after the invalid statement.
        [parse("bad", "nothing"), parse("one", "UPDATE t"), encode(b'C', b"Sone\0"), sync()].concat(),
        run("one"),
    ]
    .concat();
    let (received, _, committed) = outcome(&faults, &messages);
    assert_eq!(committed, ["INSERT"], "{received:?}");
    assert_eq!(faults.list().faults[0].candidates, 0);
}

#[test]
fn prepared_request_is_made_at_each_execute() {
    let faults = Arc::new(LeaseFaults::default());
    for (sql, is_added) in [(r#"{"error": "40001"}"#, true), (r#"{"error": "1"}"#, false)] {
        let mut scene = Scene::new(&faults);
        let parse = format!("one\0SET pgfresh.fault = '{sql}'\0\0\0");
        scene = scene.play(&[encode(b'P', parse.as_bytes()), sync()].concat());
        assert!(scene.interruptions.is_empty());
        for count in 1..=2 {
            scene = scene.play(&[encode(b'B', b"\0one\0\0\0\0\0\0\0"), encode(b'E', b"\0\0\0\0\0")].concat());
            assert_eq!(scene.interruptions.len(), count);
            assert!(
                matches!(scene.interruptions.last(), Some(Interruption::Request(fault)) if fault.is_ok() == is_added)
            );
            assert!(!scene.session.accepts_client(), "the client waits for the fault");
            scene.session.execute_request(is_added);
            scene.deliver();
            scene = scene.play(&sync());
        }
        let received = shown(&scene.received);
        let refused = received.iter().filter(|message| message.contains("C22023")).count();
        assert_eq!(refused, if is_added { 0 } else { 2 }, "{received:?}");
    }
}

#[test]
fn end_within_string_keeps_its_earlier_commits() {
    for (sql, commits) in [("BEGIN; INSERT; COMMIT; SELECT 1", true), ("INSERT; SELECT 1", false)] {
        for end in [Some("57P01"), None] {
            let faults = fault(|fault| {
                fault.statement = Some("SELECT".to_owned());
                fault.error = end.map(str::to_owned);
                fault.connection = Some("reset".to_owned()).filter(|_| end.is_none());
            });
            let (received, interruptions, committed) = outcome(&faults, &queries(&[sql]));
            assert_eq!((interruptions.len(), !committed.is_empty()), (1, commits), "{sql} {received:?}");
            assert_eq!(received.iter().any(|message| message.contains("C57P01")), end.is_some());
            assert_eq!(faults.list().faults[0].fired, 1);
        }
    }
}

#[test]
fn query_waits_for_answers_before_it() {
    let faults = fault(|fault| {
        (fault.error, fault.statement) = (Some("40001".to_owned()), Some("SELECT 5".to_owned()));
    });
    let before = [encode(b'P', b"\0SELECT 1\0\0\0"), encode(b'B', b"\0\0\0\0\0\0\0\0"), encode(b'D', b"P\0")];
    let (received, ..) = outcome(&faults, &[before.concat(), query(b"SELECT 5")].concat());
    let tags: String = received.iter().map(|message| &message[..1]).collect();
    assert_eq!(tags, "12TEZ", "{received:?}");
    // After an error, the server skips the Query.
    let invalid = encode(b'P', b"\0nothing\0\0\0");
    let (received, ..) = outcome(&faults, &[invalid, query(b"SELECT 5"), sync()].concat());
    let tags: String = received.iter().map(|message| &message[..1]).collect();
    assert_eq!(tags, "EZ", "{received:?}");
}
