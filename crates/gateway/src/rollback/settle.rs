//! The end of a transaction of the client's: what COMMIT checks, closes and sets back.

use lease::{Constraints, Savepoint};

use super::message::{RELEASE, UNBOUNDED, literal};
use super::session::RollbackSession;
use super::task::{InjectedStatement, Row, Task};

/// For each open cursor: rows of `pg_constraint` (2606) that this transaction has changed, its name, whether it outlives
/// the transaction, and, from 17 on, after how long the server would end that. There is always one, the portal of this statement. Counters of the own transaction are in the backend's
/// own memory. Aggregates and the view `pg_cursors` would take the server longer than all the rest of a COMMIT.
const LOOK: &str = "SELECT pg_catalog.pg_stat_get_xact_tuples_inserted(2606) \
    + pg_catalog.pg_stat_get_xact_tuples_updated(2606) + pg_catalog.pg_stat_get_xact_tuples_deleted(2606), \
    pg_catalog.quote_ident(name), is_holdable, pg_catalog.current_setting('transaction_timeout', true) \
    FROM pg_catalog.pg_cursor()";
/// The setting that ends a transaction.
const TIMEOUT: &str = "transaction_timeout";
/// Portals of ours and of the protocol, as [`LOOK`] names them.
const NO_CURSORS: [&str; 2] = ["_pgfresh", "\"\""];

/// The names of all constraints that are deferrable, and of those that are deferred unless told otherwise. A name that
/// also stands for one that cannot be deferred stands for none of the latter.
const CONSTRAINTS: &str = "SELECT pg_catalog.string_agg(name, ', '), pg_catalog.string_agg(name, ', ') FILTER (WHERE deferred) FROM \
    (SELECT pg_catalog.quote_ident(nspname) || '.' || pg_catalog.quote_ident(conname) AS name, \
     pg_catalog.bool_or(condeferred) AND pg_catalog.bool_and(condeferrable) AS deferred \
     FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_namespace n ON n.oid = c.connamespace \
     GROUP BY nspname, conname HAVING pg_catalog.bool_or(condeferrable)) d";

impl RollbackSession {
    /// Ends what the client has done since [`super::message::SAVE`] well, or fails as its COMMIT would.
    pub(super) fn settle(&mut self) {
        if self.is_saved() {
            self.inject([LOOK], InjectedStatement::Look);
        }
    }

    /// Knows what there is to do.
    pub(super) fn looked(&mut self, rows: impl Iterator<Item = Row>) {
        let (mut changes, mut cursors) = (None, Vec::new());
        self.holds = false;
        for row in rows {
            let [count, Some(name), outlives, timeout] = row.as_slice() else { continue };
            changes.clone_from(count);
            timeout.as_deref().unwrap_or("0").clone_into(&mut self.transaction.timeout);
            if NO_CURSORS.contains(&name.as_str()) {
                continue;
            }
            if outlives.as_deref() == Some("t") {
                self.holds = true;
            } else {
                cursors.push(name.clone());
            }
        }
        // One that was for this transaction alone is set back before it is switched off.
        if let Some((_, before)) = self.locals.iter().find(|(name, _)| name == TIMEOUT) {
            self.transaction.timeout.clone_from(before);
        }
        if self.transaction.timeout == "0" {
            self.transaction.timeout.clear();
        }
        cursors.sort_unstable();
        let known = changes.is_some() && changes == self.transaction.constraints.seen;
        if !known {
            self.transaction.constraints.seen = changes;
            let sql = vec![CONSTRAINTS.to_owned()];
            self.first([Task::Inject(sql, InjectedStatement::Constraints), Task::Release(cursors)]);
            return;
        }
        self.release(&cursors);
    }

    pub(super) fn know_constraints(&mut self, row: Row) {
        let mut row = row.into_iter();
        self.transaction.constraints.deferrable = row.next().flatten().unwrap_or_default();
        self.transaction.constraints.deferred = row.next().flatten().unwrap_or_default();
    }

    /// Checks what was deferred, sets back what was for this transaction alone, closes its cursors. `cursors`: their
    /// names as SQL wants them.
    pub(super) fn release(&mut self, cursors: &[String]) {
        let mut statements = Vec::new();
        let constraints = &self.transaction.constraints;
        if !constraints.deferrable.is_empty() {
            let all = if constraints.told { "ALL" } else { &constraints.deferrable };
            statements.push(format!("SET CONSTRAINTS {all} IMMEDIATE"));
            if !constraints.deferred.is_empty() {
                statements.push(format!("SET CONSTRAINTS {} DEFERRED", constraints.deferred));
            }
        }
        if !self.locals.is_empty() {
            statements.push(restore(&self.locals));
        }
        // Until the client's next transaction begins: see `ensure`.
        if self.bound().is_some() {
            statements.push(UNBOUNDED.to_owned());
        }
        statements.extend(cursors.iter().map(|name| format!("CLOSE {name}")));
        let portal = self.names.end_unnamed_portal();
        if statements.is_empty() {
            (self.transaction.savepoint, self.ended_portal) = (Savepoint::Done, portal);
            return;
        }
        self.to_server.extend(portal);
        statements.push(RELEASE.to_owned());
        self.inject(statements, InjectedStatement::Release);
    }

    /// Has the server end the client's transaction in time, if the client wants that.
    pub(super) fn bound(&self) -> Option<String> {
        let timeout = &self.transaction.timeout;
        (!timeout.is_empty()).then(|| format!("SET LOCAL {TIMEOUT} = {}", literal(timeout)))
    }

    pub(super) fn released(&mut self) {
        self.transaction.savepoint = Savepoint::Gone;
        self.locals.clear();
    }

    /// What the client has done cannot stay: its error, and all of it undone.
    pub(super) fn commit_failed(&mut self, error: &[u8]) {
        self.held.clear();
        self.to_client.extend_from_slice(error);
        // What was read may be undone with the rest.
        self.transaction.constraints =
            Constraints { told: self.transaction.constraints.told, ..Constraints::default() };
        self.tx = false;
        self.fail();
    }
}

/// Puts settings back, roles first: they decide who may set the others.
fn restore(locals: &[(String, String)]) -> String {
    let mut locals: Vec<_> = locals.iter().collect();
    locals.sort_by_key(|(name, _)| match name.as_str() {
        "session_authorization" => 0,
        "role" => 1,
        _ => 2,
    });
    let mut sql = String::from("SELECT ");
    for (at, (name, value)) in locals.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        sql.push_str(&format!("{comma}pg_catalog.set_config({}, {}, false)", literal(name), literal(value)));
    }
    sql
}
