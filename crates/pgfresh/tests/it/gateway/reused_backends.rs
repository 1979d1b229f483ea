//! Tests that a backend serves another client only if that client can't distinguish it from a new backend.

use super::start;
use crate::common::client::Client;
use crate::common::{majors, wait_until};

/// Returns the process ID of the session's backend.
fn backend(session: &mut Client) -> String {
    session.value("SELECT pg_backend_pid()").unwrap()
}

#[test]
fn backends_with_leftover_state_are_not_reused() {
    for major in majors() {
        let serve = start(major);
        let mut watcher = serve.session("traces");
        for sql in [
            "SELECT setseed(0.5)",
            "SELECT (0.5::float8).setseed",
            "UPDATE pg_settings SET setting = 'x' WHERE name = 'app.user'",
            "SET app.user = 'x'",
            "DO $$ BEGIN END $$",
            "SELECT to_tsvector('english', 'cats')",
        ] {
            let mut session = serve.session("traces");
            let process = backend(&mut session);
            session.ask(sql);
            session.close();
            let left = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {process}");
            wait_until(sql, || watcher.value(&left).unwrap() == "0");
        }
        // Other settings leave the backend usable.
        let mut first = serve.session("traces");
        let process = backend(&mut first);
        first.value("BEGIN; SELECT count(*) FROM pg_class; SET LOCAL work_mem = '77kB'; COMMIT").unwrap();
        first.close();
        wait_until("the backend to be given to the next", || {
            let mut session = serve.session("traces");
            let same = backend(&mut session) == process;
            session.close();
            same
        });
    }
}
