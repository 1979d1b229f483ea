//! Compares the messages exchanged with the server, statement by statement, for each row of the state table.
//!
//! The server is a stub, so a failing test shows exactly how the exchange has changed.

use super::session::RollbackSession;
use super::stub::StubServer;
use super::task::Disposition;
use pgwire::{frames, split_zero};

use lease::LeaseTransaction;

/// Startup response with only the parameters that the session reads.
const STARTUP_RESPONSE: &[u8] = b"server_version\x0015.4\0standard_conforming_strings\0on\0";

/// A client, a session, and a stub server.
struct Conversation {
    session: RollbackSession,
    server: StubServer,
    trace: Vec<String>,
}

impl Conversation {
    fn new() -> Self {
        let session = RollbackSession::new(LeaseTransaction::default(), STARTUP_RESPONSE);
        Self { session, server: StubServer::new(), trace: Vec::new() }
    }

    /// Sends a Query and runs until the server is ready for more. Returns the messages exchanged.
    fn query(&mut self, sql: &str) -> Vec<String> {
        assert_eq!(self.session.client_head(b'Q'), Disposition::Whole, "{sql}");
        self.session.client_message(b'Q', &[sql.as_bytes(), b"\0"].concat());
        self.deliver_all();
        std::mem::take(&mut self.trace)
    }

    /// Delivers messages to the client and the server until none are left.
    fn deliver_all(&mut self) {
        loop {
            for (tag, body) in messages(&std::mem::take(&mut self.session.to_client)) {
                self.trace.push(match tag {
                    b'Z' => format!("ready {}", char::from(body[0])),
                    b'C' => format!("done {}", String::from_utf8_lossy(split_zero(&body).0)),
                    _ => format!("{} {}", char::from(tag), field(&body)),
                });
            }
            let received = messages(&std::mem::take(&mut self.session.to_server));
            if received.is_empty() {
                return;
            }
            for (tag, body) in received {
                let answers = self.server.receive(tag, &body);
                self.trace.append(&mut self.server.ran);
                for answer in answers {
                    self.session.server_head(answer[0]);
                    self.session.server_message(&answer);
                }
            }
        }
    }
}

fn messages(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    frames(bytes).map(|frame| (frame.tag, frame.body.to_vec())).collect()
}

/// Returns the SQLSTATE of an error or a warning.
fn field(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&b'C'));
    String::from_utf8_lossy(&fields.unwrap_or_default()[1..]).into_owned()
}

const BEGIN: [&str; 2] = ["[BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE]", "[SAVEPOINT pgfresh_lease]"];
const SAVE: &str = "[SAVEPOINT pgfresh_t]";
const RELEASE: &str = "[RELEASE SAVEPOINT pgfresh_t]";
const UNDO: &str = "[ROLLBACK TO SAVEPOINT pgfresh_t]";

/// Returns a conversation after the lease's first statement, whose savepoint hasn't been released yet.
fn begun() -> Conversation {
    let mut play = Conversation::new();
    let first = play.query("SELECT");
    let looks = ["SELECT", "[look]", "[settings]", "[constraints]", "[sources]"];
    let end = ["done SELECT", "ready I"];
    assert_eq!(first, [&BEGIN[..], &[SAVE], &looks, &end].concat());
    play
}

#[test]
fn single_statement_is_released_together_with_next() {
    let mut play = begun();
    for _ in 0..2 {
        assert_eq!(play.query("INSERT"), [RELEASE, SAVE, "INSERT", "[look]", "done INSERT", "ready I"]);
    }
}

#[test]
fn failed_single_statement_is_undone_before_ready() {
    assert_eq!(begun().query("fail"), [RELEASE, SAVE, "fail", "E 23503", UNDO, RELEASE, "ready I"]);
}

#[test]
fn client_transaction_is_a_savepoint() {
    let mut play = begun();
    assert_eq!(play.query("BEGIN"), ["done BEGIN", "ready T", RELEASE, SAVE]);
    assert_eq!(play.query("INSERT"), ["INSERT", "done INSERT", "ready T"]);
    // The server itself sends the warning.
    assert_eq!(play.query("BEGIN"), ["BEGIN", "done BEGIN", "ready T"]);
    assert_eq!(play.query("SAVEPOINT a"), ["SAVEPOINT a", "done SAVEPOINT", "ready T"]);
    assert_eq!(play.query("COMMIT"), ["[look]", "done COMMIT", "ready I"]);
    assert_eq!(play.query("COMMIT"), ["N 25P01", "done COMMIT", "ready I"]);
}

#[test]
fn rollback_finishes_before_client_is_notified() {
    let mut play = begun();
    play.query("BEGIN");
    assert_eq!(play.query("ROLLBACK"), [UNDO, RELEASE, "done ROLLBACK", "ready I"]);
    assert_eq!(play.query("ROLLBACK"), ["N 25P01", "done ROLLBACK", "ready I"]);
}

#[test]
fn failed_transaction_ends_in_rollback_even_on_commit() {
    let mut play = begun();
    play.query("BEGIN");
    assert_eq!(play.query("fail"), ["fail", "E 23503", "ready E"]);
    assert_eq!(play.query("COMMIT"), [UNDO, RELEASE, "done ROLLBACK", "ready I"]);
}

#[test]
fn statements_needing_a_transaction_are_refused_outside_one() {
    let mut play = begun();
    for sql in ["SAVEPOINT a", "LOCK TABLE t", "DECLARE c CURSOR FOR SELECT 1"] {
        assert_eq!(play.query(sql), ["E 25P01", "ready I"], "{sql}");
    }
}

#[test]
fn deferred_constraints_are_checked_before_commit_is_answered() {
    let mut play = Conversation::new();
    play.server.deferrable = Some("public.fk");
    play.query("BEGIN");
    let check = "[SET CONSTRAINTS public.fk IMMEDIATE]";
    let looks = ["[look]", "[settings]", "[constraints]", "[sources]"];
    let end = [check, RELEASE, "done COMMIT", "ready I"];
    assert_eq!(play.query("COMMIT"), [&looks[..], &end].concat());
    let mut play = Conversation::new();
    play.server.deferrable = Some("public.fails");
    play.query("BEGIN");
    let end = ["[SET CONSTRAINTS public.fails IMMEDIATE]", "E 23503", UNDO, RELEASE, "ready I"];
    assert_eq!(play.query("COMMIT"), [&looks[..], &end].concat());
}

#[test]
fn settings_are_read_after_deferred_triggers() {
    let mut play = Conversation::new();
    (play.server.deferrable, play.server.source) = (Some("public.fk"), Some("BEGIN SET LOCAL a.b = 1; END"));
    let check = "[SET CONSTRAINTS public.fk IMMEDIATE]";
    let [look, read, done, ready] = ["[look]", "[settings]", "done INSERT", "ready I"];
    let first = play.query("INSERT");
    assert_eq!(first[first.len() - 5..], ["[settings]", check, read, done, ready]);
    // In place of the release, the check now takes the second round trip.
    assert_eq!(play.query("INSERT"), [RELEASE, SAVE, "INSERT", look, check, read, done, ready]);
}

#[test]
fn settings_are_read_only_for_statements_changing_them() {
    let mut play = begun();
    let [look, read] = ["[look]", "[settings]"];
    let alone = |sql| [RELEASE, SAVE, sql, look, "done SET", "ready I"];
    assert_eq!(play.query("SET work_mem = 1"), alone("SET work_mem = 1"));
    assert_eq!(play.query("BEGIN"), ["done BEGIN", "ready T", RELEASE, SAVE]);
    // The tracker has lost its stored settings, so the session must read them again.
    assert_eq!(play.query("SET LOCAL a.b = 1"), [read, "SET LOCAL a.b = 1", "done SET", "ready T"]);
    assert_eq!(play.query("SET LOCAL c.d = 1"), ["SET LOCAL c.d = 1", "done SET", "ready T"]);
    assert_eq!(play.query("RESET ALL"), [read, "RESET ALL", "done RESET", "ready T"]);
    assert_eq!(play.query("COMMIT"), [look, "done COMMIT", "ready I"]);
    let call = "SELECT set_config('a.b', '1', true)";
    assert_eq!(play.query(call), [RELEASE, SAVE, read, call, look, read, "done SELECT", "ready I"]);
    assert_eq!(play.query(call), [RELEASE, SAVE, call, look, read, "done SELECT", "ready I"]);
}

#[test]
fn mentioned_statistics_and_large_objects_end_with_transaction() {
    let mut play = begun();
    let stat = "SELECT pg_stat_activity";
    let clear = "[SELECT pg_catalog.pg_stat_clear_snapshot()]";
    let end = ["[look]", "done SELECT", "ready I"];
    assert_eq!(play.query(stat), [&[RELEASE, clear, SAVE, stat][..], &end].concat());
    assert_eq!(play.query("BEGIN"), ["done BEGIN", "ready T", RELEASE, clear, SAVE]);
    assert_eq!(play.query("ROLLBACK"), [UNDO, RELEASE, "done ROLLBACK", "ready I"]);
    let mut play = begun();
    let open = "SELECT LO_OPEN(1, 2)";
    let close = super::commit::CLOSE_LARGE_OBJECTS.map(|sql| format!("[{sql}]"));
    let [save, close, release] = close.each_ref().map(String::as_str);
    let said = [RELEASE, SAVE, open, "[look]", "[settings]", save, close, release, "done SELECT", "ready I"];
    assert_eq!(play.query(open), said);
}

#[test]
fn cursors_close_with_their_transaction() {
    let mut play = begun();
    play.query("BEGIN");
    play.server.cursors = &["c", "\"d e\""];
    let closes = ["[CLOSE \"d e\"]", "[CLOSE c]"];
    assert_eq!(
        play.query("COMMIT"),
        [&["[look]"][..], &closes, &[RELEASE, "done COMMIT", "ready I"]].concat()
    );
}

#[test]
fn statement_string_runs_in_parts() {
    let syntax = [
        "[SAVEPOINT pgfresh_s]",
        "[INSERT; COMMIT; DELETE]",
        "[ROLLBACK TO SAVEPOINT pgfresh_s]",
        "[RELEASE SAVEPOINT pgfresh_s]",
    ];
    let insert = ["INSERT", "done INSERT", "N 25P01", "[look]", "done COMMIT"];
    let delete = [RELEASE, SAVE, " DELETE", "[look]", "done DELETE", "ready I"];
    let played = begun().query("INSERT; COMMIT; DELETE");
    assert_eq!(played, [&[RELEASE, SAVE][..], &syntax, &insert, &delete].concat());
}
