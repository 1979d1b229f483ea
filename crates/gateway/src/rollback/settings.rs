//! Tracks which settings the client's transaction has changed, and which of them its COMMIT must restore.
//!
//! The server sees the client's transaction only as a savepoint. If a change should end with the transaction (SET
//! LOCAL), the server therefore retains the new value until the lease ends. The gateway must restore the old value
//! itself, so each COMMIT compares the current settings with those before the transaction.
//!
//! The server doesn't report how long a change lasts, but the statement's text usually shows it ([`SettingChanges`]).
//! If no text mentions a changed setting, COMMIT retains the new value.
//!
//! Reading the settings takes time, so the gateway does it only if a statement might have changed a setting for its
//! transaction only. A plain SET costs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pgwire::SqlLexer;

use super::message::{literal, mentions};
use super::setting_changes::SettingChanges;
use super::task::Row;

/// The setting that limits a transaction's duration. The gateway itself changes it between the client's transactions.
pub(super) const TRANSACTION_TIMEOUT: &str = "transaction_timeout";
/// Settings that `pg_show_all_settings` doesn't list.
const UNLISTED_SETTINGS: [&str; 2] = ["role", "session_authorization"];

/// The values of all settings changed in the session, by name.
type Values = Arc<BTreeMap<String, String>>;

/// A setting's name and the value restored by COMMIT. `None` stands for the value at the start of the session.
pub(super) type Restored = (String, Option<String>);

/// The gateway's view of the settings at one point in a transaction.
#[derive(Debug, Clone, Default)]
struct SettingsState {
    /// The values in effect after a COMMIT. `None` if they are unknown, so that the gateway must read them.
    kept: Option<Values>,
    /// The values most recently read. `None` if COMMIT retains all of them.
    seen: Option<Values>,
    /// Changes that statements may have made since the gateway last read the values.
    since: SettingChanges,
}

/// Tracks the settings of one session.
#[derive(Debug, Default)]
pub(super) struct SettingsTracker {
    now: SettingsState,
    /// The state before the client's transaction. `savepoints` contains the name and the state of each savepoint in the
    /// transaction.
    before: SettingsState,
    savepoints: Vec<(String, SettingsState)>,
    /// Changes that functions and other database objects can make, which any statement may trigger.
    hidden: SettingChanges,
    /// The part of `hidden` that functions can make, by the function's name.
    functions: BTreeMap<String, SettingChanges>,
    /// Whether the gateway has read these objects.
    has_objects: bool,
    /// Changes that earlier statements can still make: prepared statements when executed, cursors when read.
    dormant: SettingChanges,
    /// Texts with a dot that may be setting names.
    names: BTreeSet<String>,
}

impl SettingsTracker {
    /// Creates the tracker for a session of `user` that hasn't changed any setting yet.
    pub(super) fn new(user: &[u8]) -> Self {
        let user = String::from_utf8_lossy(user).into_owned();
        let kept = Some(Arc::new(BTreeMap::from([(UNLISTED_SETTINGS[1].to_owned(), user)])));
        Self { now: SettingsState { kept, ..SettingsState::default() }, ..Self::default() }
    }

    /// Records the texts of database objects that may change settings. Each follows a function's name or an empty name.
    /// Returns true if the texts mention settings that the gateway hasn't read yet.
    pub(super) fn add_object_texts(&mut self, texts: &[(String, String)]) -> bool {
        (self.hidden, self.functions, self.has_objects) = (SettingChanges::default(), BTreeMap::new(), true);
        for (name, text) in texts {
            let changes = SettingChanges::of_text(text.as_bytes(), true);
            self.hidden.extend(&changes);
            self.functions.entry(name.clone()).or_default().extend(&changes);
        }
        let known = self.names.len();
        self.names.extend(self.hidden.names.iter().cloned());
        self.names.len() > known
    }

    /// Records the changes in a PREPARE or DECLARE, whose statement may run later (through EXECUTE or FETCH).
    pub(super) fn add_prepared_text(&mut self, sql: &[u8], plain: bool) {
        let first = SqlLexer::new(sql, plain).token();
        let is_either = first.is_some_and(|word| word.is_word(b"prepare") || word.is_word(b"declare"));
        let mentions_either = || mentions(sql, b"prepare") || mentions(sql, b"declare");
        if is_either || mentions(sql, b"set_config") && mentions_either() {
            self.dormant.extend(&SettingChanges::of_text(sql, plain));
        }
    }

    /// Records the beginning of the client's transaction.
    pub(super) fn begin(&mut self) {
        self.before.clone_from(&self.now);
        self.savepoints.clear();
    }

    /// Restores the state before the client's transaction, after a rollback.
    pub(super) fn undo(&mut self) {
        self.now = std::mem::take(&mut self.before);
        self.savepoints.clear();
    }

    pub(super) fn save(&mut self, name: &str) {
        self.savepoints.push((name.to_owned(), self.now.clone()));
    }

    pub(super) fn release(&mut self, name: &str) {
        if let Some(at) = self.find(name) {
            self.savepoints.truncate(at);
        }
    }

    pub(super) fn roll_back_to(&mut self, name: &str) {
        if let Some(at) = self.find(name) {
            self.savepoints.truncate(at + 1);
            self.now.clone_from(&self.savepoints[at].1);
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.savepoints.iter().rposition(|(known, _)| known == name)
    }

    /// Returns true if the gateway must read the settings before running a statement with these changes.
    pub(super) fn must_read_before(&self, changes: &SettingChanges) -> bool {
        let changes = changes.with_earlier(&self.dormant);
        let changes = changes.with_functions(&self.functions);
        let since = self.now.since.with_functions(&self.functions);
        !changes.are_of_session() && self.now.kept.is_none()
            || since.contradict(&changes)
            || !self.has_objects && since.calls_functions() && changes.calls_functions()
    }

    /// Returns true if database objects may change settings.
    pub(super) fn has_hidden_changes(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Records that a statement is about to run and may make these changes.
    pub(super) fn run(&mut self, changes: &SettingChanges) {
        let changes = changes.with_earlier(&self.dormant);
        self.names.extend(changes.names.iter().cloned());
        self.now.since.extend(&changes);
        self.run_without_change();
    }

    /// Records that a statement without changes in its own text is about to run. It may still trigger the changes
    /// hidden in database objects.
    pub(super) fn run_without_change(&mut self) {
        self.now.since.hidden |= !self.hidden.is_empty();
    }

    /// Returns true if the gateway must read the settings at the end of the client's transaction. If the transaction
    /// contained only plain SETs, discards the old values instead. `unread` means that the gateway doesn't know yet
    /// which database objects might change settings.
    pub(super) fn must_read_at_end(&mut self, unread: bool) -> bool {
        let SettingsState { kept, seen, since } = &mut self.now;
        let may_be_local = unread || seen.is_some() || !since.are_of_session();
        if !since.is_empty() && !may_be_local && self.hidden.is_empty() {
            (*kept, *since) = (None, SettingChanges::default());
        }
        may_be_local || !since.is_empty()
    }

    /// Returns the query that reads the settings. Each row consists of a name and a value.
    pub(super) fn select(&self) -> String {
        let names = self.names.iter().map(String::as_str).chain(UNLISTED_SETTINGS);
        let names: Vec<_> = names.map(literal).collect();
        format!(
            "SELECT name, setting FROM pg_catalog.pg_show_all_settings() \
             WHERE source OPERATOR(pg_catalog.=) 'session' AND context OPERATOR(pg_catalog.<>) 'internal' \
             AND name OPERATOR(pg_catalog.<>) ALL ('{{transaction_isolation,transaction_read_only,transaction_deferrable}}') \
             UNION ALL SELECT name, pg_catalog.current_setting(name, true) \
             FROM pg_catalog.unnest(ARRAY[{}]::pg_catalog.text[]) AS custom(name)",
            names.join(", ")
        )
    }

    /// Processes the rows of [`Self::select`].
    pub(super) fn read(&mut self, rows: impl Iterator<Item = Row>) {
        let mut values = BTreeMap::new();
        for row in rows {
            let [Some(name), Some(value)] = row.as_slice() else { continue };
            let name = name.to_lowercase();
            // Skip settings without a value. After a reset, the server still lists custom settings, but with empty
            // values.
            if !(value.is_empty() && name.contains('.') || name == "role" && value == "none") {
                values.insert(name, value.clone());
            }
        }
        let values = Arc::new(values);
        let SettingsState { kept, seen, since } = &mut self.now;
        let mut since = std::mem::take(since);
        // The gateway may have read the database objects only after the statements.
        since.hidden |= !self.hidden.is_empty();
        let since = since.with_functions(&self.functions);
        let Some(known) = kept else {
            *kept = Some(values);
            return;
        };
        let last = seen.take().unwrap_or_else(|| Arc::clone(known));
        // The server doesn't list settings with default values. A setting reset for the session might therefore be
        // missing from both `last` and `values`, but it is still in `known`.
        let names =
            names_in(&last, &values).into_iter().chain(known.keys().cloned()).collect::<BTreeSet<_>>();
        for name in names {
            let is_local = since.is_local(&name).or_else(|| self.hidden.is_local(&name));
            // A change for the session counts even if the value remains unchanged. Otherwise, COMMIT would undo an
            // earlier change to this value made for the transaction only.
            let is_unchanged = last.get(&name) == values.get(&name) && !since.names_for_session(&name);
            if is_unchanged || is_local == Some(true) {
                continue;
            }
            let known = Arc::make_mut(known);
            match values.get(&name) {
                Some(value) => known.insert(name, value.clone()),
                None => known.remove(&name),
            };
        }
        *seen = (known != &values).then_some(values);
    }

    /// Returns the settings that COMMIT must restore. Roles come first, because the role decides which other settings
    /// the session can change.
    pub(super) fn restore(&mut self) -> Vec<Restored> {
        let (Some(kept), Some(seen)) = (&self.now.kept, self.now.seen.take()) else { return Vec::new() };
        let changed = names_in(kept, &seen).into_iter().filter(|name| kept.get(name) != seen.get(name));
        let mut restored: Vec<_> = changed.map(|name| (name.clone(), kept.get(&name).cloned())).collect();
        restored.sort_by_key(|(name, _)| match name.as_str() {
            "session_authorization" => 0,
            "role" => 1,
            _ => 2,
        });
        restored
    }
}

fn names_in(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> BTreeSet<String> {
    one.keys().chain(other.keys()).cloned().collect()
}
