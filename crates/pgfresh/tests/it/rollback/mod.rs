//! Tests rollback isolation as clients see it: its responses equal a plain server's, and no change stays.

mod hidden_statements;
mod leases;
mod limits;
mod plain_answers;
mod sequences;
mod settings;
#[cfg(debug_assertions)]
mod transcribed;

use std::thread;

use crate::common::client::{Client, Failure, Message, failure, message, packet, query, startup};
use crate::common::serve::Serve;
use crate::common::{Scene, User, majors, postgres, wait_until};
use serde_json::Value;

/// Schema with a table of each relevant kind.
const SCHEMA: &str = include_str!("schema.sql");

fn start(major: u32) -> Serve {
    start_with(major, &[])
}

fn start_with(major: u32, options: &[&str]) -> Serve {
    start_on(major, SCHEMA, options)
}

fn start_on(major: u32, schema: &str, options: &[&str]) -> Serve {
    let scene = Scene::new(User::Ourselves);
    scene.write("schema.sql", schema);
    let words = words(major);
    Serve::at(scene, words.iter().map(String::as_str).chain(options.iter().copied()))
}

/// Returns the options for all servers with PostgreSQL `major`.
fn words(major: u32) -> Vec<String> {
    let words = ["--sql", "schema.sql", "--set", "max_prepared_transactions=4", "--postgres"];
    words.map(str::to_owned).into_iter().chain([postgres(major)]).collect()
}

impl Serve {
    /// Opens a session in rollback isolation. Its lease ends with it.
    fn rollback(&self, database: &str) -> Client {
        self.connect(database, "-c pgfresh.isolation=rollback -c pgfresh.linger=0").unwrap()
    }

    /// Opens a session in rollback isolation. Its lease then waits for another session.
    fn lingering(&self, database: &str) -> Result<Client, Failure> {
        self.connect(database, "-c pgfresh.isolation=rollback -c pgfresh.linger=60s")
    }

    fn connect(&self, database: &str, options: &str) -> Result<Client, Failure> {
        Client::open(&self.address(), self.secret(), &startup(database, &[("options", options)]))
    }

    /// Sends an HTTP request. Returns the status code and the body.
    fn http(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let url = format!("http://{}{path}", self.address());
        let token = format!("Bearer {}", self.secret());
        let request = ureq::http::Request::builder().method(method).uri(url);
        let request = request.header("authorization", token).header("content-type", "application/json");
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let mut response = agent.run(request.body(body.to_owned()).unwrap()).unwrap();
        let text = response.body_mut().read_to_string().unwrap();
        (response.status().as_u16(), serde_json::from_str(&text).unwrap_or_default())
    }
}

fn sqlstate(result: Result<impl Sized, Failure>) -> String {
    result.err().expect("an error").sqlstate
}

/// Returns the tags of all messages, and the status in the last message.
fn tags(messages: &[Message]) -> String {
    let mut tags: String = messages.iter().map(|message| char::from(message.0)).collect();
    tags.extend(messages.last().map(|(_, status)| char::from(status[0])));
    tags
}

fn parse(name: &str, sql: &str) -> Vec<u8> {
    message(b'P', format!("{name}\0{sql}\0\0\0").as_bytes())
}

fn bind(portal: &str, name: &str) -> Vec<u8> {
    message(b'B', format!("{portal}\0{name}\0\0\0\0\0\0\0").as_bytes())
}

fn execute(portal: &str) -> Vec<u8> {
    message(b'E', format!("{portal}\0\0\0\0\0").as_bytes())
}

/// Encodes Parse, Bind, Describe and Execute for an unnamed statement.
fn run(sql: &str) -> Vec<u8> {
    [parse("", sql), bind("", ""), message(b'D', b"P\0"), execute("")].concat()
}

fn sync() -> Vec<u8> {
    message(b'S', b"")
}

#[test]
fn a_lease_leaves_nothing_behind_on_every_major() {
    for major in majors() {
        let serve = start(major);
        for round in 0..5 {
            let mut session = serve.rollback(if round < 3 { "same" } else { "other" });
            let name = session.value("SELECT current_database()").unwrap();
            assert_eq!(name, if round < 3 { "same" } else { "other" }, "PostgreSQL {major}");
            assert_eq!(session.value("SELECT count(*) FROM item").unwrap(), "0");
            // Sequences have the template's values, although other leases have used them.
            assert_eq!(session.value("INSERT INTO item (word) VALUES ('a') RETURNING id").unwrap(), "1");
            assert_eq!(session.value("SELECT nextval('seeded')").unwrap(), "43");
            session.value("SELECT setval('unused', 7, false)").unwrap();
            session
                .value("CREATE TABLE more (); TRUNCATE item RESTART IDENTITY; BEGIN; DROP TABLE seed")
                .unwrap();
            session.value("COMMIT").unwrap();
            session.value("CREATE ROLE visitor").unwrap();
            session.value("SET work_mem = '77kB'; PREPARE p AS SELECT 1; LISTEN news").unwrap();
            session.value("SELECT pg_advisory_lock(7)").unwrap();
            if round == 4 {
                session.value("BEGIN").unwrap();
                assert_eq!(sqlstate(session.value("SELECT 1/0")), "22012");
            }
            session.close();
        }
        let mut session = serve.rollback("last");
        assert_eq!(session.value("SELECT last_value::text || is_called FROM unused").unwrap(), "1false");
        for (sql, clean) in [
            ("SHOW work_mem", "4MB"),
            ("SELECT count(*) FROM pg_prepared_statements WHERE name = 'p'", "0"),
            ("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", "0"),
            ("SELECT count(*) FROM seed", "2"),
            ("SELECT count(*) FROM pg_roles WHERE rolname = 'visitor'", "0"),
            ("SELECT count(*) FROM pg_class WHERE relname = 'more'", "0"),
        ] {
            assert_eq!(session.value(sql).unwrap(), clean, "{sql} on PostgreSQL {major}");
        }
    }
}

#[test]
fn successive_sessions_share_only_data() {
    let serve = start(15);
    let mut one = serve.lingering("shared").unwrap();
    one.value("INSERT INTO item (word) VALUES ('kept')").unwrap();
    one.value("BEGIN; INSERT INTO item (word) VALUES ('open')").unwrap();
    one.value("SET work_mem = '77kB'; CREATE TEMP TABLE mine (); PREPARE p AS SELECT 1").unwrap();
    one.close();
    let mut two = serve.lingering("shared").unwrap();
    assert_eq!(two.value("SELECT string_agg(word, ',') FROM item").unwrap(), "kept");
    assert_eq!(two.value("SHOW work_mem").unwrap(), "4MB");
    assert_eq!(two.value("SELECT to_regclass('mine') IS NULL").unwrap(), "t");
    assert_eq!(sqlstate(two.value("EXECUTE p")), "26000");
    // A second concurrent session gets an error with a hint.
    let refused = serve.lingering("shared").err().unwrap();
    assert_eq!(refused.sqlstate, "55006");
    assert!(refused.message.contains("\"shared\" already has a session"), "{refused:?}");
    two.close();
    // A client that disconnects during a statement, a group, or a COPY leaves the lease to the next client.
    for mess in [
        [query("SELECT pg_sleep(60)"), query("SELECT 1")].concat(),
        [run("INSERT INTO item (word) VALUES ('half')"), message(b'H', b"")].concat(),
        [query("COPY item (word) FROM STDIN"), message(b'd', b"half\n")].concat(),
    ] {
        let mut broken = serve.lingering("shared").unwrap();
        broken.send(&mess);
        thread::sleep(std::time::Duration::from_millis(100));
        drop(broken);
        let mut next = serve.lingering("shared").unwrap();
        assert_eq!(next.value("SELECT string_agg(word, ',') FROM item").unwrap(), "kept");
        next.close();
    }
    // The server finishes the statement of a client that has disconnected.
    let mut gone = serve.lingering("shared").unwrap();
    gone.send(&query("INSERT INTO item (word) VALUES ('late')"));
    drop(gone);
    let mut next = serve.lingering("shared").unwrap();
    assert_eq!(next.value("SELECT string_agg(word, ',') FROM item").unwrap(), "kept,late");
    next.close();
    // A client can request a new database.
    let new = "-c pgfresh.isolation=rollback -c pgfresh.linger=60s -c pgfresh.reset=1";
    assert_eq!(serve.connect("shared", new).unwrap().value("SELECT count(*) FROM item").unwrap(), "0");
}

#[test]
fn deferred_constraints_are_checked_at_the_clients_commit() {
    let serve = start(15);
    let mut session = serve.rollback("deferred");
    let wrong = "INSERT INTO child VALUES (1)";
    assert_eq!(tags(&session.ask(wrong)), "EZI");
    session.value("BEGIN").unwrap();
    assert_eq!(tags(&session.ask(wrong)), "CZT");
    let answer = session.ask("COMMIT");
    assert_eq!((tags(&answer).as_str(), failure(&answer[0]).sqlstate.as_str()), ("EZI", "23503"));
    // In the extended protocol, the error follows the statement's tag and replaces COMMIT's tag.
    session.send(&[run(wrong), sync()].concat());
    assert_eq!(tags(&session.until_ready()), "12nCEZI");
    session.send(&[run("BEGIN"), run(wrong), run("COMMIT"), run("SELECT 1"), sync()].concat());
    assert_eq!(tags(&session.until_ready()), "12nC12nC12nEZI");
    // Afterwards, the constraint is deferred again.
    session.value("BEGIN; INSERT INTO child VALUES (1); INSERT INTO parent VALUES (1); COMMIT").unwrap();
    session.value("BEGIN; SET CONSTRAINTS ALL IMMEDIATE").unwrap();
    assert_eq!(sqlstate(session.value("INSERT INTO child VALUES (2)")), "23503");
    session.value("ROLLBACK").unwrap();
    session.value("BEGIN; INSERT INTO child VALUES (2); INSERT INTO parent VALUES (2); COMMIT").unwrap();
    assert_eq!(session.value("SELECT count(*) FROM child").unwrap(), "2");
}

#[test]
fn cancel_requests_hit_only_client_statements() {
    let serve = start(15);
    let address = format!("127.0.0.1:{}", serve.ready["port"]);
    let mut session = serve.lingering("slow").unwrap();
    session.value("INSERT INTO item (word) VALUES ('before')").unwrap();
    let key = session.key.clone();
    let cancel = || {
        let mut client = Client::knock(&address);
        client.send(&packet(80_877_102, &key));
        assert_eq!(client.read().0, 0);
    };
    session.send(&query("SELECT pg_sleep(60)"));
    let mut watcher = serve.connect("postgres", "").unwrap();
    let running = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    wait_until("the statement to run", || watcher.value(running).unwrap() == "1");
    cancel();
    let answer = session.until_ready();
    let error = answer.iter().find(|message| message.0 == b'E').unwrap();
    assert_eq!(failure(error).sqlstate, "57014");
    // A cancel request to an idle session doesn't have an effect, and many requests don't break
    // the lease's transaction.
    cancel();
    let storm = thread::spawn({
        let (address, key) = (address.clone(), key.clone());
        move || {
            for _ in 0..200 {
                let mut client = Client::knock(&address);
                client.send(&packet(80_877_102, &key));
                client.read();
            }
        }
    });
    let mut kept = 0;
    while !storm.is_finished() {
        match session.value("INSERT INTO item (word) VALUES ('x')") {
            Ok(_) => kept += 1,
            Err(error) => assert_eq!(error.sqlstate, "57014"),
        }
    }
    storm.join().unwrap();
    let count = session.value("SELECT count(*) FROM item WHERE word = 'x'").unwrap();
    assert_eq!(count, kept.to_string());
    assert_eq!(session.value("SELECT count(*) FROM item WHERE word = 'before'").unwrap(), "1");
}

#[test]
fn sessions_use_their_lease_over_http() {
    let serve = start(15);
    let (code, leased) = serve.http("POST", "/v1/databases", r#"{"isolation": "rollback"}"#);
    assert_eq!(code, 201, "{leased}");
    let name = leased["name"].as_str().unwrap();
    let path = format!("/v1/databases/{name}");
    for count in ["1", "2"] {
        let mut session = serve.connect(name, "").unwrap();
        session.value("INSERT INTO item (word) VALUES ('a')").unwrap();
        assert_eq!(session.value("SELECT count(*) FROM item").unwrap(), count);
        assert_eq!(sqlstate(session.value("VACUUM")), "25001");
        session.close();
    }
    let status = serve.http("GET", "/v1/status", "").1;
    let lease = status["leases"].as_array().unwrap().iter().find(|lease| lease["database"] == name).unwrap();
    assert_eq!(lease["sessions"], 0, "{status}");
    assert_eq!(serve.http("POST", &format!("{path}/reset"), "").0, 204);
    assert_eq!(serve.connect(name, "").unwrap().value("SELECT count(*) FROM item").unwrap(), "0");
    let (code, problem) = serve.http("POST", &format!("{path}/snapshot"), r#"{"template": "t"}"#);
    assert_eq!((code, problem["error"]["code"].as_str()), (409, Some("55006")), "{problem}");
    // A lease in use ends with its session.
    let mut session = serve.connect(name, "").unwrap();
    session.value("SELECT 1").unwrap();
    assert_eq!(serve.http("DELETE", &path, "").0, 204);
    assert!(matches!(session.read().0, b'E' | 0));
    assert_eq!(serve.http("DELETE", &path, "").0, 404);
    // The name is free again, for any isolation mode.
    assert_eq!(serve.connect(name, "").unwrap().value("SELECT count(*) FROM item").unwrap(), "0");
    assert_eq!(serve.http("POST", "/v1/databases", r#"{"isolation": "none"}"#).0, 400);
}

#[test]
fn a_server_may_be_all_rollback() {
    let serve = start_with(15, &["--isolation", "rollback", "--linger", "0"]);
    for _ in 0..3 {
        let mut session = serve.connect("app", "").unwrap();
        assert_eq!(session.value("INSERT INTO item (word) VALUES ('a') RETURNING id").unwrap(), "1");
        session.close();
    }
    // A name has only one isolation mode at a time.
    let mut clone = serve.connect("apart", "-c pgfresh.isolation=clone").unwrap();
    clone.value("VACUUM").unwrap();
    assert_eq!(sqlstate(serve.connect("apart", "-c pgfresh.isolation=rollback")), "55006");
    let _open = serve.connect("app", "").unwrap();
    assert_eq!(sqlstate(serve.connect("app", "-c pgfresh.isolation=clone")), "55006");
    // A database created with SQL isn't a lease.
    let mut admin = serve.connect("postgres", "").unwrap();
    admin.value("CREATE DATABASE made").unwrap();
    let mut made = serve.connect("made", "").unwrap();
    made.value("VACUUM").unwrap();
    made.close();
    admin.value("DROP DATABASE made").unwrap();
    // SQL can drop and create a database with an ended lease's name.
    let mut over = serve.connect("over", "").unwrap();
    over.value("SELECT 1").unwrap();
    over.close();
    wait_until("the name to be free", || admin.value("CREATE DATABASE over").is_ok());
    admin.value("DROP DATABASE over").unwrap();
}

#[test]
fn large_values_and_copies_pass_in_little_memory() {
    let serve = start(15);
    let mut session = serve.rollback("large");
    let value = session.ask("SELECT repeat('x', 20 << 20)");
    assert_eq!(value.iter().find(|message| message.0 == b'D').unwrap().1.len(), 6 + (20 << 20));
    session.send(&query("COPY item (word) FROM STDIN"));
    assert_eq!(session.read().0, b'G');
    let row = [vec![b'y'; 1 << 20], b"\n".to_vec()].concat();
    for _ in 0..20 {
        session.send(&message(b'd', &row));
    }
    session.send(&message(b'c', b""));
    assert_eq!(tags(&session.until_ready()), "CZI");
    assert_eq!(session.value("SELECT sum(length(word)) FROM item").unwrap(), (20 << 20).to_string());
    let copied = session.ask("COPY item (word) TO STDOUT");
    assert_eq!(copied.iter().filter(|message| message.0 == b'd').count(), 20);
    // Many statements are in transit concurrently, in both directions.
    let mut bytes = Vec::new();
    for _ in 0..3000 {
        bytes.extend([run("SELECT repeat('z', 500)"), sync()].concat());
    }
    let mut stream = session.stream.try_clone().unwrap();
    let writer = thread::spawn(move || std::io::Write::write_all(&mut stream, &bytes).unwrap());
    for _ in 0..3000 {
        assert_eq!(tags(&session.until_ready()), "12TDCZI");
    }
    writer.join().unwrap();
}
