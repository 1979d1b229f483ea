//! Tests that clients can't notice that pgfresh transcribes their sessions, in both isolation modes, and that
//! transcripts contain what clients sent.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::Value;

use super::plain_answers::{Step, step};
use super::{SCHEMA, Serve, bind, execute, majors, message, parse, query, run, start, sync, tags, words};
use crate::common::client::{Client, Message, failure, packet, startup};
use crate::common::{Scene, User, depth, majors_since, wait_until};

/// Facts about its own session and transaction that a tool can query.
const FACTS: &str = "\
    SELECT locktype, relname, mode, granted FROM pg_locks LEFT JOIN pg_class ON pg_class.oid = relation
        WHERE pid = pg_backend_pid() AND relation >= 16384 AND coalesce(relname NOT LIKE 'pg_toast%', true) ORDER BY 1, 2, 3;
    SELECT state, query, application_name, backend_xid IS NULL FROM pg_stat_activity WHERE pid = pg_backend_pid();
    SELECT name, statement, from_sql FROM pg_prepared_statements ORDER BY 1;
    SELECT name, statement, is_holdable FROM pg_cursors ORDER BY 1;
    SELECT name, setting FROM pg_settings WHERE source = 'session' ORDER BY 1";

/// Server whose sessions are transcribed.
struct Transcribed {
    serve: Serve,
    folder: tempfile::TempDir,
}

/// A client's request, with the command tags, SQLSTATE and status in the response.
type Request = (Vec<u8>, Option<(Vec<String>, Option<String>, String)>);

impl Transcribed {
    fn start(major: u32) -> Self {
        let (scene, folder) = (Scene::new(User::Ourselves), tempfile::tempdir().unwrap());
        scene.write("schema.sql", SCHEMA);
        let serve = Serve::transcribed(scene, words(major), folder.path());
        Self { serve, folder }
    }

    /// Ends the server. Returns the requests in each session in `database`.
    fn requests(&mut self, database: &str) -> Vec<Vec<Request>> {
        let mut sessions = Vec::new();
        for session in self.sessions() {
            if session["database"] == database {
                assert_eq!(session["is_cut"], false, "{session}");
                sessions.push(session["requests"].as_array().unwrap().iter().map(request).collect());
            }
        }
        sessions
    }

    fn sessions(&mut self) -> Vec<Value> {
        assert!(self.serve.end());
        read(self.folder.path())
    }
}

/// Reads the only file in `folder`.
fn read(folder: &Path) -> Vec<Value> {
    let file = fs::read_dir(folder).unwrap().next().expect("transcripts").unwrap();
    serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap()
}

fn request(request: &Value) -> Request {
    let Value::Array(messages) = &request["messages"] else { panic!("{request}") };
    let messages = messages.iter().map(|byte| u8::try_from(byte.as_u64().unwrap()).unwrap()).collect();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let outcome = Some(&request["outcome"]).filter(|outcome| !outcome.is_null()).map(|outcome| {
        let tags = outcome["tags"].as_array().unwrap().iter().filter_map(text).collect();
        (tags, text(&outcome["error"]), text(&outcome["status"]).unwrap())
    });
    (messages, outcome)
}

/// Returns the outcome of a response up to ReadyForQuery.
fn outcome(answer: &[Message]) -> (Vec<String>, Option<String>, String) {
    let text = |body: &[u8]| String::from_utf8_lossy(body).trim_end_matches('\0').to_owned();
    let of = |tag| answer.iter().filter(move |message| message.0 == tag);
    let error = of(b'E').next().map(|error| failure(error).sqlstate);
    (
        of(b'C').map(|message| text(&message.1)).collect(),
        error,
        of(b'Z').map(|message| text(&message.1)).collect(),
    )
}

/// Runs the steps with two clients, whose responses must be the same. Returns what the second client has sent.
fn play(steps: &[Step], [ordinary, transcribed]: [&mut Client; 2]) -> Result<Vec<u8>, TestCaseError> {
    let mut sent = Vec::new();
    let facts = Step::Simple(vec![FACTS.to_owned()]);
    for step in steps.iter().flat_map(|step| [step, &facts]) {
        let (expected, found) = (step.ask(ordinary), step.ask(transcribed));
        prop_assert_eq!(found, expected, "at {:?} of {:#?}", step, steps);
        sent.extend(step.bytes());
    }
    Ok(sent)
}

#[test]
fn transcribed_sessions_get_the_same_answers() {
    for major in majors() {
        let (ordinary, mut transcribed) = (start(major), Transcribed::start(major));
        let sent = RefCell::new(Vec::new());
        let config = ProptestConfig {
            cases: depth::rounds(60),
            max_shrink_iters: 0,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let result = TestRunner::new(config).run(&prop::collection::vec(step(), 1..14), |steps| {
            for isolation in ["clone", "rollback"] {
                let options = format!("-c pgfresh.linger=0 -c pgfresh.isolation={isolation}");
                let name = format!("{isolation}_{}", sent.borrow().len());
                let open = |serve: &Serve| serve.connect(&name, &options).unwrap();
                let (mut one, mut two) = (open(&ordinary), open(&transcribed.serve));
                let bytes = play(&steps, [&mut one, &mut two])?;
                sent.borrow_mut().push((name, bytes));
                [one, two].into_iter().for_each(Client::close);
            }
            Ok(())
        });
        if let Err(error) = result {
            panic!("PostgreSQL {major}: {error}");
        }
        let sessions = transcribed.sessions();
        for (name, bytes) in sent.into_inner() {
            let session = sessions.iter().find(|session| session["database"] == name.as_str()).unwrap();
            let requests: Vec<_> = session["requests"].as_array().unwrap().iter().map(request).collect();
            assert!(requests.iter().all(|request| request.1.is_some()), "{name}");
            assert!(requests.into_iter().flat_map(|request| request.0).eq(bytes), "{name}");
        }
    }
}

/// Sends requests, and returns each with its outcome.
fn ask_all(client: &mut Client, requests: &[Vec<u8>]) -> Vec<Request> {
    let ask = |bytes: &Vec<u8>| {
        client.send(bytes);
        (bytes.clone(), Some(outcome(&client.until_ready())))
    };
    requests.iter().map(ask).collect()
}

/// Returns requests of every kind.
fn all_kinds() -> Vec<Vec<u8>> {
    let data = |row: &[u8]| message(b'd', row);
    let (good, bad, end) = (data(b"7\n"), data(b"bad\n"), message(b'c', b""));
    let flush = message(b'H', b"");
    let some_rows = message(b'E', b"\0\0\0\0\x02");
    let copy = "COPY seed FROM STDIN";
    vec![
        query("SELECT 1; SELECT 2; SELECT 1/0; SELECT 3"),
        query(""),
        [query(copy), good.clone(), end.clone()].concat(),
        [query(copy), bad.clone(), good.clone(), end.clone()].concat(),
        [query(copy), good.clone(), message(b'f', b"no\0")].concat(),
        [query("COPY nothing FROM STDIN"), good.clone(), end.clone()].concat(),
        [run(copy), sync(), good.clone(), flush.clone(), end.clone(), sync()].concat(),
        [run(copy), good.clone(), end.clone(), run("SELECT 1"), sync()].concat(),
        [run(copy), sync(), bad, end.clone(), sync()].concat(),
        [run("SELECT 1/0"), run("SELECT 1"), sync()].concat(),
        [parse("many", "SELECT generate_series(1, 9)"), bind("", "many"), some_rows, sync()].concat(),
        query("CREATE VIEW seen AS SELECT n FROM seed"),
        // The COPY starts, and fails before the server reads data.
        [query("COPY seen FROM STDIN"), good, end].concat(),
        [bind("p", "many"), execute("p"), flush, message(b'C', b"Pp\0"), sync()].concat(),
        message(b'F', b"\0\0\x04\x8f\0\0\0\0\0\0"),
        query("BEGIN"),
        query("COMMIT"),
    ]
}

#[test]
fn requests_are_divided_as_the_server_answers() {
    for major in majors() {
        let mut transcribed = Transcribed::start(major);
        let mut expected = Vec::new();
        let ignored = [run("SELECT 1/0"), query("SELECT 2"), run("SELECT 3"), sync()].concat();
        let unsynchronized = [run("SELECT 1"), query("SELECT 1/0")].concat();
        let only_plain = vec![ignored, unsynchronized, query("SELECT 4")];
        for (isolation, more) in [("clone", only_plain), ("rollback", Vec::new())] {
            let options = format!("-c pgfresh.linger=0 -c pgfresh.isolation={isolation}");
            let mut client = transcribed.serve.connect(isolation, &options).unwrap();
            expected.push((isolation, ask_all(&mut client, &[all_kinds(), more].concat())));
            client.close();
        }
        let sessions = transcribed.sessions();
        for (isolation, expected) in expected {
            let session = sessions.iter().find(|session| session["database"] == isolation).unwrap();
            let found: Vec<_> = session["requests"].as_array().unwrap().iter().map(request).collect();
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found, expected, "{}", String::from_utf8_lossy(&expected.0));
            }
            assert_eq!(found.len(), expected.len());
            assert_eq!(session["parameters"][0], serde_json::json!(["user", "postgres"]));
        }
    }
}

#[test]
fn pipelined_requests_are_distinguished() {
    let mut transcribed = Transcribed::start(15);
    let mut client = transcribed.serve.connect("app", "").unwrap();
    let requests: Vec<_> = (0..2000)
        .map(|n| match n % 3 {
            0 => query(&format!("SELECT {n}")),
            1 => [run("SELECT 1/0"), run("SELECT 1"), sync()].concat(),
            _ => [query("COPY seed FROM STDIN"), message(b'd', b"7\n"), message(b'c', b"")].concat(),
        })
        .collect();
    client.send(&requests.concat());
    let outcomes = requests.iter().map(|_| Some(outcome(&client.until_ready())));
    let expected: Vec<Request> = requests.iter().cloned().zip(outcomes).collect();
    client.close();
    assert!(transcribed.requests("app") == [expected]);
}

#[test]
fn unfinished_statements_keep_their_end() {
    let mut transcribed = Transcribed::start(15);
    let serve = &transcribed.serve;
    let mut watcher = serve.connect("postgres", "").unwrap();
    let mut wait_for = |event: &str| {
        let count = format!("SELECT count(*) FROM pg_stat_activity WHERE wait_event = '{event}'");
        wait_until(event, || watcher.value(&count).unwrap() == "1");
    };
    // A canceled statement has an error.
    let mut cancelled = serve.connect("cancelled", "").unwrap();
    cancelled.send(&query("SELECT pg_sleep(600)"));
    wait_for("PgSleep");
    let mut request = Client::knock(&serve.address());
    request.send(&packet(80_877_102, &cancelled.key));
    request.read();
    assert_eq!(tags(&cancelled.until_ready()), "TEZI");
    // A statement whose session the server ends also has an error.
    let mut ended = serve.connect("ended", "").unwrap();
    let pid = u32::from_be_bytes(*ended.key.first_chunk().unwrap());
    ended.send(&query("BEGIN; SELECT pg_sleep(600)"));
    wait_for("PgSleep");
    cancelled.value(&format!("SELECT pg_terminate_backend({pid})")).unwrap();
    while ended.read().0 != 0 {}
    // A client disconnects while the server is still working.
    let mut left = serve.connect("left", "").unwrap();
    left.value("CREATE TABLE made ()").unwrap();
    left.send(&[query("SELECT pg_sleep(0.2); DROP TABLE made"), message(b'X', b"")].concat());
    drop(left);
    let mut after = serve.connect("left", "").unwrap();
    wait_until("the statement to end", || after.value("SELECT to_regclass('made')").unwrap().is_empty());
    // A session is still open, and its statement waits.
    let mut open = serve.connect("open", "").unwrap();
    open.send(&query("SELECT pg_sleep(600)"));
    wait_for("PgSleep");
    let sessions = transcribed.sessions();
    let last = |database: &str| {
        let session = sessions.iter().find(|session| session["database"] == database).unwrap();
        let requests = session["requests"].as_array().unwrap();
        requests.iter().map(request_outcome).collect::<Vec<_>>()
    };
    assert_eq!(last("cancelled")[0], "57014 I");
    assert_eq!(last("ended"), ["BEGIN 57P01 I"]);
    assert_eq!(last("left"), ["CREATE TABLE I", "SELECT 1 DROP TABLE I"]);
    assert_eq!(last("open").len(), 1);
}

/// Returns a request's tags, SQLSTATE and status in one line, or an empty string if it doesn't have an outcome.
fn request_outcome(transcribed: &Value) -> String {
    let Some((tags, error, status)) = request(transcribed).1 else { return String::new() };
    tags.into_iter().chain(error).chain([status]).collect::<Vec<_>>().join(" ")
}

#[test]
fn replication_sessions_work_without_a_transcript() {
    let mut transcribed = Transcribed::start(15);
    let serve = &transcribed.serve;
    let parameters = startup("app", &[("replication", "database")]);
    let mut client = Client::open(&serve.address(), serve.secret(), &parameters).unwrap();
    assert_eq!(tags(&client.ask("IDENTIFY_SYSTEM")), "TDCZI");
    client.close();
    serve.connect("app", "").unwrap().close();
    let sessions = transcribed.sessions();
    assert_eq!(sessions.len(), 1, "{sessions:?}");
}

#[test]
fn statistics_of_tables_stay_the_same() {
    for major in majors_since(15) {
        let (ordinary, transcribed) = (start(major), Transcribed::start(major));
        let answers = [&ordinary, &transcribed.serve].map(|serve| {
            let mut client = serve.connect("counted", "").unwrap();
            let mut answers = Vec::new();
            for sql in [
                "INSERT INTO item (word) SELECT 'w' FROM generate_series(1, 100)",
                "BEGIN; UPDATE item SET word = 'x' WHERE id < 50; ROLLBACK",
                "ALTER TABLE item ADD COLUMN more int DEFAULT 1",
                "ALTER TABLE item ALTER COLUMN id TYPE bigint",
                "SELECT count(*) FROM item",
                "SELECT pg_stat_force_next_flush()",
                "SELECT relname, seq_scan, seq_tup_read, idx_scan, n_tup_ins, n_tup_upd, n_live_tup
                    FROM pg_stat_user_tables ORDER BY 1",
                "BEGIN; DELETE FROM item WHERE id < 20; SELECT count(*) FROM item",
                "SELECT relname, seq_scan, seq_tup_read, idx_scan, n_tup_ins, n_tup_upd, n_tup_del
                    FROM pg_stat_xact_user_tables ORDER BY 1",
                "ROLLBACK",
            ] {
                answers.push(client.ask(sql));
            }
            client.close();
            answers
        });
        assert_eq!(answers[1], answers[0], "PostgreSQL {major}");
    }
}
