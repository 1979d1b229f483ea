//! Tests errors with a hint, for statements that can't run in a single transaction.

use super::{failure, message, parse, run, start, start_with, sync, tags};
use crate::common::client::Message;
use crate::common::wait_until;

/// Returns the hint in the only error in `answer`.
fn hint(answer: &[Message]) -> String {
    let (_, error) = answer.iter().find(|message| message.0 == b'E').expect("an error");
    let mut fields = error.split(|byte| *byte == 0);
    let found = fields.find(|field| field.first() == Some(&b'H')).unwrap_or_default();
    String::from_utf8_lossy(found).into_owned()
}

#[test]
fn statements_outside_transactions_get_a_hint() {
    for major in super::majors() {
        let serve = start(major);
        let mut session = serve.rollback("limits");
        for (sql, sqlstate) in [
            ("VACUUM", "25001"),
            ("CREATE DATABASE another", "25001"),
            ("CREATE INDEX CONCURRENTLY ON item (word)", "25001"),
            ("ALTER SYSTEM SET work_mem = '1MB'", "25001"),
            ("CALL commits()", "2D000"),
            ("BEGIN; PREPARE TRANSACTION 'p'", "0A000"),
        ] {
            let answer = session.ask(sql);
            let error = answer.iter().find(|message| message.0 == b'E').expect(sql);
            assert_eq!(failure(error).sqlstate, sqlstate, "{sql} on PostgreSQL {major}");
            assert!(hint(&answer).contains("isolation \"clone\""), "{sql}: {}", hint(&answer));
            assert_eq!(tags(&answer).chars().last(), Some('I'), "{sql} on PostgreSQL {major}");
        }
        session.send(&[run("VACUUM"), sync()].concat());
        assert!(hint(&session.until_ready()).contains("isolation \"clone\""));
        // A plain server also rejects this statement, so isolation "clone" wouldn't help.
        session.ask("BEGIN");
        assert_eq!(hint(&session.ask("VACUUM")), "");
        session.ask("ROLLBACK");
        // PostgreSQL 12 and later can't use a new enum label in the transaction that has added it.
        session.ask("ALTER TYPE mood ADD VALUE 'bad'");
        assert!(hint(&session.ask("SELECT 'bad'::mood")).contains("isolation \"clone\""));
    }
}

#[test]
fn held_cursors_keep_their_table_in_use() {
    for major in super::majors() {
        let serve = start(major);
        let mut session = serve.rollback("held");
        let declare = "DECLARE held CURSOR WITH HOLD FOR SELECT n FROM seed ORDER BY n";
        session.ask("BEGIN");
        session.ask(declare);
        // A plain server also rejects this.
        assert_eq!(hint(&session.ask("TRUNCATE seed")), "");
        session.ask("ROLLBACK");
        session.ask("BEGIN");
        session.ask(declare);
        session.ask("COMMIT");
        for sql in [
            "TRUNCATE seed",
            "DROP TABLE seed",
            "ALTER TABLE seed ADD COLUMN extra int",
            "CREATE INDEX ON seed (n)",
        ] {
            let answer = session.ask(sql);
            let error = answer.iter().find(|message| message.0 == b'E').expect(sql);
            assert_eq!(failure(error).sqlstate, "55006", "{sql} on PostgreSQL {major}");
            assert!(hint(&answer).contains("isolation \"clone\""), "{sql}: {}", hint(&answer));
        }
        assert_eq!(session.value("FETCH held").unwrap(), "1");
        session.value("CLOSE held").unwrap();
        session.value("TRUNCATE seed").unwrap();
    }
}

#[test]
fn an_isolation_level_is_ignored_with_a_warning() {
    let serve = start(15);
    let mut session = serve.rollback("level");
    for sql in
        ["BEGIN ISOLATION LEVEL SERIALIZABLE", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"]
    {
        let answer = session.ask(sql);
        assert_eq!(tags(&answer), "NCZT", "{sql}");
    }
    assert_eq!(super::sqlstate(session.value("INSERT INTO seed VALUES (3)")), "25006");
    session.ask("ROLLBACK");
    session.value("INSERT INTO seed VALUES (3)").unwrap();
}

#[test]
fn idle_leases_have_no_timeout() {
    let serve = start_with(15, &["--set", "idle_in_transaction_session_timeout=200ms"]);
    let mut session = serve.lingering("patient").unwrap();
    session.value("INSERT INTO seed VALUES (3)").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(400));
    assert_eq!(session.value("SELECT count(*) FROM seed").unwrap(), "3");
    session.close();
    std::thread::sleep(std::time::Duration::from_millis(400));
    assert_eq!(serve.lingering("patient").unwrap().value("SELECT count(*) FROM seed").unwrap(), "3");
}

/// The timeout applies in the client's own transactions, as on a plain server, and `SHOW` returns the client's value.
#[test]
fn idle_timeouts_count_in_client_transactions() {
    const NAME: &str = "idle_in_transaction_session_timeout";
    let pause = || std::thread::sleep(std::time::Duration::from_millis(500));
    for major in super::majors() {
        let serve = start(major);
        for set in [
            format!("SET {NAME} = '200ms'"),
            format!("SELECT set_config('{NAME}', '200ms', false)"),
            "DO $$ BEGIN PERFORM set_config('idle_in' || '_transaction_session_timeout', '200ms', false); END $$"
                .to_owned(),
        ] {
            let mut session = serve.lingering("timed").unwrap();
            session.value(&set).unwrap();
            pause();
            let shown = session.value(&format!("SHOW {NAME}"));
            assert_eq!(shown.unwrap_or_else(|error| error.message), "200ms", "{set} on PostgreSQL {major}");
            for ended in ["BEGIN; INSERT INTO seed VALUES (3); COMMIT", "BEGIN; ROLLBACK", "SELECT 1/0"] {
                session.ask(ended);
                pause();
                let answer = session.value("SELECT 2");
                assert_eq!(answer.unwrap_or_else(|error| error.message), "2", "{ended} after {set}");
            }
            session.send(&[run("SELECT 3"), sync()].concat());
            assert_eq!(tags(&session.until_ready()).chars().last(), Some('I'));
            pause();
            assert_eq!(session.value("SELECT 2").unwrap(), "2", "{set}, extended");
            session.close();
            pause();
            // Between two clients, the timeout doesn't apply, and the next client has the default.
            let mut session = serve.lingering("timed").unwrap();
            assert_eq!(session.value(&format!("SHOW {NAME}")).unwrap(), "0", "{set} on PostgreSQL {major}");
            session.value(&set).unwrap();
            session.ask("BEGIN");
            assert_eq!(failure(&session.read()).sqlstate, "25P03", "{set} on PostgreSQL {major}");
            drop(session);
            wait_until("the end of a lease", || serve.lingering("timed").is_ok());
            serve.http("DELETE", "/v1/databases/timed", "");
        }
    }
}

/// `transaction_timeout`, which exists from version 17 on, only applies in the client's own transactions.
#[test]
fn transaction_timeouts_count_in_client_transactions() {
    const SHOW: &str = "SHOW transaction_timeout";
    let pause = |millis| std::thread::sleep(std::time::Duration::from_millis(millis));
    let serve = start(18);
    let lingering = "-c pgfresh.isolation=rollback -c pgfresh.linger=60s";
    for (options, set) in [
        ("", "SET transaction_timeout = '1s'"),
        ("", "SELECT set_config('transaction_timeout', '1s', false)"),
        (" -c transaction_timeout=1s", "SELECT 1"),
    ] {
        let mut session = serve.connect("bounded", &format!("{lingering}{options}")).unwrap();
        session.value(set).unwrap();
        pause(1200);
        assert_eq!(session.value(SHOW).unwrap(), "1s", "{set}");
        session.ask("BEGIN; SET LOCAL transaction_timeout = '1min'; COMMIT");
        assert_eq!(session.value(SHOW).unwrap(), "1s", "{set}");
        for ended in ["ROLLBACK", "COMMIT", "SELECT 1/0; ROLLBACK"] {
            // The timeout starts again in each transaction.
            for _ in 0..2 {
                session.ask("BEGIN");
                pause(600);
                assert_eq!(session.value("SELECT 2").unwrap(), "2", "{ended} after {set}");
                session.ask(ended);
                session.ask("ROLLBACK");
            }
        }
        session.ask("SELECT 1/0");
        session.close();
        let mut session = serve.connect("bounded", &format!("{lingering}{options}")).unwrap();
        assert_eq!(session.value(SHOW).unwrap(), if options.is_empty() { "0" } else { "1s" });
        session.value("SET transaction_timeout = 0").unwrap();
        session.ask("BEGIN");
        pause(1200);
        assert_eq!(session.value("SELECT 2").unwrap(), "2");
        session.ask("COMMIT");
        session.value("SET transaction_timeout = '300ms'").unwrap();
        session.ask("BEGIN");
        assert_eq!(failure(&session.read()).sqlstate, "25P04", "{set}");
        drop(session);
        serve.http("DELETE", "/v1/databases/bounded", "");
    }
}

/// The server or a role has a timeout for idle transactions, which applies to all sessions.
#[test]
fn configured_idle_timeouts_are_shown() {
    let serve = start_with(15, &["--set", "idle_in_transaction_session_timeout=200ms"]);
    let mut session = serve.rollback("configured");
    let shown = session.value("SHOW idle_in_transaction_session_timeout").unwrap();
    assert_eq!(shown, "200ms");
    session.ask("BEGIN");
    assert_eq!(failure(&session.read()).sqlstate, "25P03");
}

#[test]
fn extended_protocol_copies_swallow_a_sync() {
    let serve = start(15);
    let mut session = serve.rollback("copy");
    // libpq sends the Sync before the server has requested data.
    session.send(&[run("COPY seed FROM STDIN"), sync()].concat());
    let mut begun = String::new();
    while !begun.ends_with('G') {
        begun.push(char::from(session.read().0));
    }
    assert_eq!(begun, "12nG");
    session.send(&[message(b'd', b"7\n"), message(b'c', b""), sync()].concat());
    assert_eq!(tags(&session.until_ready()), "CZI");
    session.send(&[run("COPY seed FROM STDIN"), message(b'H', b"")].concat());
    session.send(&[message(b'd', b"x\n"), message(b'c', b""), sync()].concat());
    assert_eq!(tags(&session.until_ready()), "12nGEZI");
    assert_eq!(session.value("SELECT count(*) FROM seed").unwrap(), "3");
    // If parsing fails, an older statement with the same name stays.
    session.send(&[parse("named", "BEGIN"), parse("named", "SELECT 1"), sync()].concat());
    assert_eq!(tags(&session.until_ready()), "1EZI");
    session.send(&[super::bind("", "named"), super::execute(""), sync()].concat());
    assert_eq!(tags(&session.until_ready()), "2CZT");
}

#[test]
fn parameters_are_the_same_in_any_spelling() {
    for major in super::majors() {
        let serve = start(major);
        let wanted = "-c pgfresh.isolation=rollback -c pgfresh.linger=60s -c datestyle=ISO,\\ MDY";
        let mut first = serve.connect("spelled", wanted).unwrap();
        first.value("INSERT INTO seed VALUES (3)").unwrap();
        first.close();
        for options in [
            "--pgfresh.isolation=rollback --pgfresh.linger=60s --datestyle=ISO,\\ MDY",
            "-cpgfresh.isolation=rollback -cpgfresh.linger=60s -cDateStyle=ISO,\\ MDY",
            "-c PGFRESH.ISOLATION=rollback  --Pgfresh.Linger=60s -c\tdatestyle=I\\SO,\\ MDY ",
        ] {
            let mut session = serve
                .connect("spelled", options)
                .unwrap_or_else(|error| panic!("{options} on PostgreSQL {major}: {error:?}"));
            assert_eq!(session.value("SELECT count(*) FROM seed").unwrap(), "3", "{options}");
            assert_eq!(session.value("SHOW pgfresh.linger").unwrap(), "60s");
            session.close();
        }
        let others = ["-c pgfresh.linger=60s -c datestyle=ISO,\\ DMY", &wanted.replace("MDY", "DMY"), ""];
        for options in others {
            let error = serve.connect("spelled", options).err().expect(options);
            assert_eq!(error.message, "database \"spelled\" has a session with different startup parameters");
        }
    }
}
