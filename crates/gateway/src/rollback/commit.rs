//! Commits the client's transactions: checks deferred constraints, closes cursors and restores settings.
//!
//! The gateway must do this itself, because the server sees the client's transaction only as a savepoint.

use lease::{Constraints, Savepoint};

use super::message::{RELEASE, SYNTAX_SAVEPOINT, SYNTAX_UNDO, UNBOUNDED, literal};
use super::session::RollbackSession;
use super::setting_changes::SettingChanges;
use super::settings::{Restored, TRANSACTION_TIMEOUT};
use super::task::{InjectedStatement, Row, Task};

/// SQL for the number of catalog rows changed by this transaction. Reading this number is cheap, because the backend
/// has it in memory.
macro_rules! changed_rows {
    ($($catalog:literal)*) => {
        concat!("0" $(,
            " + pg_catalog.pg_stat_get_xact_tuples_inserted(", $catalog, ")",
            " + pg_catalog.pg_stat_get_xact_tuples_updated(", $catalog, ")",
            " + pg_catalog.pg_stat_get_xact_tuples_deleted(", $catalog, ")"
        )*)
    };
}

/// Query that each COMMIT runs first. It returns one row for each open cursor.
///
/// The first column is the number of changed rows in `pg_constraint`, `pg_proc`, `pg_rewrite`, `pg_attrdef` and
/// `pg_policy`. The other columns are the cursor's name, whether the cursor outlives the transaction, and the
/// transaction timeout (since version 17). There is always at least one row, because the query itself runs in a portal.
/// The query avoids aggregates and the `pg_cursors` view, because they would take longer than the rest of the COMMIT.
const COMMIT_STATE_QUERY: &str = concat!(
    "SELECT ",
    changed_rows!(2606 1255 2618 2604 3256),
    ", pg_catalog.quote_ident(name), is_holdable, pg_catalog.current_setting('transaction_timeout', true) \
    FROM pg_catalog.pg_cursor()"
);
/// Number of columns in [`COMMIT_STATE_QUERY`].
const COMMIT_STATE_COLUMNS: usize = 4;
/// Portals in the result of [`COMMIT_STATE_QUERY`] that aren't cursors: the portal of injected statements and the
/// protocol's unnamed portal.
const INTERNAL_PORTALS: [&str; 2] = ["_pgfresh", "\"\""];

/// Query for two lists of names: all deferrable constraints, and the initially deferred ones. The second list omits
/// names shared with non-deferrable constraints.
const CONSTRAINTS_QUERY: &str = "SELECT pg_catalog.string_agg(name, ', '), pg_catalog.string_agg(name, ', ') FILTER (WHERE deferred) FROM \
    (SELECT pg_catalog.quote_ident(nspname) || '.' || pg_catalog.quote_ident(conname) AS name, \
     pg_catalog.bool_or(condeferred) AND pg_catalog.bool_and(condeferrable) AS deferred \
     FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_namespace n ON n.oid = c.connamespace \
     GROUP BY nspname, conname HAVING pg_catalog.bool_or(condeferrable)) d";

/// Query for the texts of functions and other objects that might change settings (2078 is the OID of `set_config`). The
/// second column is the function's name, or empty for other objects. Functions in languages other than SQL and PL/pgSQL
/// are assumed to change any setting.
const SOURCES_QUERY: &str = "SELECT CASE WHEN lanname IN ('sql', 'plpgsql') THEN prosrc ELSE 'set_config(unknown)' END, proname \
      FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = prolang \
      WHERE p.oid >= 16384 AND lanname NOT IN ('internal', 'c') AND prosrc <> '' \
      AND (lanname NOT IN ('sql', 'plpgsql') OR prosrc ~* E'set_config|\\\\mset\\\\M|\\\\mreset\\\\M|\\\\mexecute\\\\M') \
    UNION ALL SELECT pg_catalog.pg_get_functiondef(oid), proname FROM pg_catalog.pg_proc \
      WHERE oid >= 16384 AND prosrc = '' AND prokind IN ('f', 'p') \
    UNION ALL SELECT pg_catalog.pg_get_function_arguments(oid), proname FROM pg_catalog.pg_proc \
      WHERE oid >= 16384 AND proargdefaults::text ~ ':funcid 2078 ' \
    UNION ALL SELECT pg_catalog.pg_get_ruledef(oid), '' FROM pg_catalog.pg_rewrite \
      WHERE oid >= 16384 AND pg_catalog.concat(ev_action, ev_qual) ~ ':funcid 2078 ' \
    UNION ALL SELECT pg_catalog.pg_get_expr(adbin, adrelid), '' FROM pg_catalog.pg_attrdef WHERE adbin::text ~ ':funcid 2078 ' \
    UNION ALL SELECT typdefault, '' FROM pg_catalog.pg_type WHERE typdefaultbin::text ~ ':funcid 2078 ' \
    UNION ALL SELECT pg_catalog.pg_get_constraintdef(oid), '' FROM pg_catalog.pg_constraint WHERE conbin::text ~ ':funcid 2078 ' \
    UNION ALL SELECT pg_catalog.concat(pg_catalog.pg_get_expr(polqual, polrelid), ' ', pg_catalog.pg_get_expr(polwithcheck, polrelid)), '' \
      FROM pg_catalog.pg_policy WHERE pg_catalog.concat(polqual, polwithcheck) ~ ':funcid 2078 ' \
    UNION ALL SELECT pg_catalog.pg_get_triggerdef(oid), '' FROM pg_catalog.pg_trigger WHERE tgqual::text ~ ':funcid 2078 '";

/// Closes all large objects. SQL can't tell which descriptors are open, so this stops after 64 in a row that aren't. The
/// server always opens the lowest one that is free. The savepoint allows this to fail, because the database may lack
/// PL/pgSQL.
pub(super) const CLOSE_LARGE_OBJECTS: [&str; 3] = [
    SYNTAX_SAVEPOINT,
    "DO $$DECLARE at int := 0; misses int := 0; BEGIN WHILE misses < 64 LOOP BEGIN \
        PERFORM pg_catalog.lo_close(at); misses := 0; EXCEPTION WHEN OTHERS THEN misses := misses + 1; END; \
        at := at + 1; END LOOP; END$$ LANGUAGE plpgsql",
    SYNTAX_UNDO[1],
];

impl RollbackSession {
    /// Starts committing the client's work since [`super::message::BEGIN_SAVEPOINT`].
    pub(super) fn start_commit(&mut self) {
        if !self.has_savepoint() {
            return;
        }
        let is_unread = self.transaction.constraints.seen.is_none();
        let reads = self.settings.must_read_at_end(is_unread);
        // Deferred triggers can still change settings, so `release` reads them after these triggers.
        let is_early = self.opens_large_objects
            || self.settings.has_hidden_changes() && !self.transaction.constraints.deferrable.is_empty();
        let settings = (reads && !is_early).then(|| self.settings.select());
        let statements = [Some(COMMIT_STATE_QUERY.to_owned()), settings].into_iter().flatten();
        self.inject(statements, InjectedStatement::CommitState);
    }

    /// Processes the rows of [`COMMIT_STATE_QUERY`] and continues the COMMIT.
    pub(super) fn commit_state_read(&mut self, rows: impl Iterator<Item = Row>) {
        let (mut changes, mut cursors) = (None, Vec::new());
        let (looked, settings): (Vec<_>, Vec<_>) = rows.partition(|row| row.len() == COMMIT_STATE_COLUMNS);
        self.settings_at_end = settings;
        self.has_held_cursor = false;
        for row in looked {
            let [count, Some(name), outlives, timeout] = row.as_slice() else { continue };
            changes.clone_from(count);
            timeout.as_deref().unwrap_or("0").clone_into(&mut self.timeout);
            if INTERNAL_PORTALS.contains(&name.as_str()) {
                continue;
            }
            if outlives.as_deref() == Some("t") {
                self.has_held_cursor = true;
            } else {
                cursors.push(name.clone());
            }
        }
        cursors.sort_unstable();
        let known = changes.is_some() && changes == self.transaction.constraints.seen;
        if !known {
            self.transaction.constraints.seen = changes;
            let sql = vec![CONSTRAINTS_QUERY.to_owned(), SOURCES_QUERY.to_owned()];
            self.prepend_tasks([
                Task::Inject(sql, InjectedStatement::Constraints),
                Task::Release { cursors, checked: false },
            ]);
            return;
        }
        self.release(cursors, false);
    }

    /// Processes the row of [`CONSTRAINTS_QUERY`] and the rows of [`SOURCES_QUERY`].
    pub(super) fn constraints_read(&mut self, row: Row, sources: impl Iterator<Item = Row>) {
        let mut row = row.into_iter();
        self.transaction.constraints.deferrable = row.next().flatten().unwrap_or_default();
        self.transaction.constraints.deferred = row.next().flatten().unwrap_or_default();
        if self.sources_read(sources) {
            self.prepend_tasks([Task::Inject(
                vec![self.settings.select()],
                InjectedStatement::SettingsAtEnd,
            )]);
        }
    }

    /// Processes the rows of [`SOURCES_QUERY`]. Returns true if these texts mention settings that the gateway hasn't
    /// read yet.
    pub(super) fn sources_read(&mut self, rows: impl Iterator<Item = Row>) -> bool {
        let texts = rows.filter_map(|mut row| Some((row.pop()??, row.pop()??)));
        let sources: Vec<_> =
            texts.filter(|(_, text)| !SettingChanges::of_text(text.as_bytes(), true).is_empty()).collect();
        let is_news = self.settings.add_object_texts(&sources);
        self.transaction.constraints.sources = sources;
        is_news
    }

    /// Reads the database objects that may change settings, unless the session already knows them.
    pub(super) fn ensure_sources(&mut self) {
        if self.transaction.constraints.seen.is_none() {
            self.prepend_tasks([Task::Inject(vec![SOURCES_QUERY.to_owned()], InjectedStatement::Sources)]);
        }
    }

    /// Returns the statements that check deferred constraints. There are none without deferrable constraints.
    fn constraint_checks(&self) -> Vec<String> {
        let constraints = &self.transaction.constraints;
        let mut statements = Vec::new();
        if !constraints.deferrable.is_empty() {
            let all = if constraints.set_by_client { "ALL" } else { &constraints.deferrable };
            statements.push(format!("SET CONSTRAINTS {all} IMMEDIATE"));
            if !constraints.deferred.is_empty() {
                statements.push(format!("SET CONSTRAINTS {} DEFERRED", constraints.deferred));
            }
        }
        statements
    }

    /// Checks deferred constraints unless they are `checked`, restores settings, and closes large objects and `cursors`.
    /// Cursor names must be quoted for SQL.
    pub(super) fn release(&mut self, cursors: Vec<String>, checked: bool) {
        let mut statements = if checked { Vec::new() } else { self.constraint_checks() };
        let must_read = if self.settings_at_end.is_empty() {
            self.settings.must_read_at_end(false)
        } else {
            !statements.is_empty() && self.settings.has_hidden_changes()
        };
        if must_read || self.opens_large_objects && !checked {
            statements.push(self.settings.select());
            self.prepend_tasks([Task::Release { cursors, checked: true }]);
            if self.opens_large_objects {
                let close = CLOSE_LARGE_OBJECTS.map(str::to_owned).to_vec();
                self.prepend_tasks([Task::Inject(close, InjectedStatement::LargeObjects)]);
            }
            return self.inject(statements, InjectedStatement::SettingsAtEnd);
        }
        if !self.settings_at_end.is_empty() {
            self.settings.read(std::mem::take(&mut self.settings_at_end).into_iter());
            self.restored = self.settings.restore();
        }
        // If the client changed the timeout for this transaction only, restore the previous timeout now. (It is
        // disabled further below.)
        match self.restored.iter_mut().find(|(name, _)| name == TRANSACTION_TIMEOUT) {
            Some((_, before)) => {
                *before = Some(self.transaction.timeout.clone()).filter(|before| !before.is_empty());
            }
            None if self.timeout == "0" => self.transaction.timeout.clear(),
            None => self.transaction.timeout.clone_from(&self.timeout),
        }
        if !self.restored.is_empty() {
            statements.push(restore(&self.restored));
        }
        // The timeout remains disabled until the client's next transaction begins: see `ensure_savepoint`.
        if self.timeout_statement().is_some() {
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

    /// Returns the statement that makes the server enforce the client's transaction timeout. Returns `None` without a
    /// timeout.
    pub(super) fn timeout_statement(&self) -> Option<String> {
        let timeout = &self.transaction.timeout;
        (!timeout.is_empty()).then(|| format!("SET LOCAL {TRANSACTION_TIMEOUT} = {}", literal(timeout)))
    }

    pub(super) fn released(&mut self) {
        self.transaction.savepoint = Savepoint::Gone;
    }

    /// Reports the error of a failed COMMIT, and rolls back all of the transaction's work.
    pub(super) fn commit_failed(&mut self, error: &[u8]) {
        self.delayed_completion.clear();
        self.settings_at_end.clear();
        self.to_client.extend_from_slice(error);
        // The rollback might undo catalog changes, so discard the session's stored constraints.
        self.transaction.constraints = Constraints {
            set_by_client: self.transaction.constraints.set_by_client,
            ..Constraints::default()
        };
        self.in_transaction = false;
        self.fail();
    }
}

/// Returns the statement that restores settings in the given order. A setting without a value gets its value from the
/// start of the session, as with RESET.
fn restore(settings: &[Restored]) -> String {
    let mut sql = String::from("SELECT ");
    for (at, (name, value)) in settings.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let value = value.as_deref().map_or("NULL".to_owned(), literal);
        sql.push_str(&format!("{comma}pg_catalog.set_config({}, {value}, false)", literal(name)));
    }
    sql
}
