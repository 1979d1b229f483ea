//! Runs a case: opens its sessions through the gateway, runs their statements, and ends them.

use super::generate::{Case, End, SessionPlan, queries};
use super::parameters::Parameter;
use crate::common::connection::{Connection, SqlError};
use crate::common::gateway::Gateway;

/// Limits how long a session waits for another session's lock.
const BOUNDED: &str = "SET lock_timeout = '200ms'";

/// Runs `case` in the database `name`. `options` contain the duration of its lease. Returns the sessions that stay
/// open. Statements can fail, but connections must not.
pub(crate) fn play(
    gateway: &Gateway,
    case: &Case,
    name: &str,
    options: &str,
) -> Result<Vec<Connection>, SqlError> {
    let mut left = Vec::new();
    let open = |plan: &SessionPlan| open(gateway, plan, name, options);
    if case.at_once {
        let mut sessions = case.sessions.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let longest = case.sessions.iter().map(|plan| plan.statements.len()).max().unwrap_or(0);
        for at in 0..longest {
            for (plan, session) in case.sessions.iter().zip(&mut sessions) {
                if let Some(statement) = plan.statements.get(at) {
                    queries(statement).for_each(|query| drop(session.rows(query)));
                }
            }
        }
        for (plan, session) in case.sessions.iter().zip(sessions) {
            left.extend(end(gateway, session, plan.end));
        }
    } else {
        for plan in &case.sessions {
            let mut session = open(plan)?;
            for statement in &plan.statements {
                queries(statement).for_each(|query| drop(session.rows(query)));
            }
            left.extend(end(gateway, session, plan.end));
            if plan.end == End::Killed {
                gateway.wait_for_server();
            }
        }
    }
    if case.crashes() {
        gateway.wait_for_server();
    }
    Ok(left)
}

fn open(gateway: &Gateway, plan: &SessionPlan, name: &str, options: &str) -> Result<Connection, SqlError> {
    let words: Vec<String> = plan.parameters.iter().map(Parameter::option).collect();
    let options = format!("{options} {}", words.join(" "));
    let mut parameters = vec![("options", options.trim())];
    if plan.guest {
        parameters.push(("user", "guest"));
    }
    let mut session = Connection::open(&gateway.address(), name, &parameters)?;
    let _ = session.rows(BOUNDED);
    Ok(session)
}

/// Ends a session, or returns it if it stays open. Most ends break the connection.
fn end(gateway: &Gateway, mut session: Connection, end: End) -> Option<Connection> {
    match end {
        End::Terminate => session.close(),
        End::Close => drop(session),
        End::InTransaction => {
            let _ =
                session.rows("ROLLBACK; BEGIN; INSERT INTO note VALUES (1, 'unfinished'); DELETE FROM city");
        }
        End::InCopy => {
            let _ = session.rows("ROLLBACK");
            let _ = session.send(b'Q', b"COPY public.note FROM STDIN\0");
            let _ = session.send(b'd', b"1\thalf\n2\t");
            let _ = session.read();
        }
        End::InResult => {
            let _ = session.rows("ROLLBACK");
            let _ = session.send(b'Q', b"SELECT repeat('x', 1000) FROM generate_series(1, 100000)\0");
            let _ = session.read();
        }
        End::Terminated => {
            let _ = session.rows("ROLLBACK");
            // The session might be read-only, so ask before the INSERT can fail.
            let pid = session.value("SELECT pg_backend_pid()");
            let _ = session.rows("BEGIN; INSERT INTO note VALUES (1, 'terminated')");
            let terminated = pid
                .and_then(|pid| gateway.direct("postgres", &format!("SELECT pg_terminate_backend({pid})")));
            if terminated.is_ok() {
                session.wait_for_end();
            }
        }
        End::Cancelled => {
            let _ = session.rows("ROLLBACK; SET statement_timeout = '20ms'");
            let _ = session.rows("INSERT INTO note VALUES (1, 'late'); SELECT pg_sleep(1)");
            let _ = session.rows("SET statement_timeout = '1s'");
            let _ =
                session.send(b'Q', b"BEGIN; INSERT INTO note VALUES (2, 'cancelled'); SELECT pg_sleep(1)\0");
            let _ = session.cancel();
        }
        End::IdleTimeout => {
            let _ = session.rows("ROLLBACK; SET idle_in_transaction_session_timeout = '20ms'");
            let _ = session.rows("BEGIN; INSERT INTO note VALUES (1, 'idle')");
            session.wait_for_end();
        }
        End::Killed => {
            let _ = session.rows("ROLLBACK; RESET ROLE; SET SESSION AUTHORIZATION DEFAULT");
            let _ = session.rows("SET default_transaction_read_only = off; SET statement_timeout = 0");
            let _ =
                session.rows("SET synchronous_commit = on; INSERT INTO note VALUES (1, 'before the crash')");
            let _ = session.rows("COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'");
        }
        End::LeftOpen => return Some(session),
    }
    None
}
