//! Tracks the session settings that affect query plans and the meaning of names, such as `search_path`.
//!
//! The tracker recognizes only plain forms: startup parameters, SET, RESET, DISCARD ALL, and a SELECT that only calls
//! `set_config`. It doesn't notice changes inside functions.

use std::collections::BTreeMap;
use std::mem;

use pgwire::{
    BoundValue, SavepointStatement, SetStatement, SetTarget, SqlLexer, StartupParams, Token, TokenKind,
};
use server::SUPERUSER;

/// Settings without a common prefix that affect query plans or the meaning of a statement's text.
const NAMES: &[&str] = &[
    "constraint_exclusion",
    "cpu_index_tuple_cost",
    "cpu_operator_cost",
    "cpu_tuple_cost",
    "cursor_tuple_fraction",
    "datestyle",
    "effective_cache_size",
    "from_collapse_limit",
    "hash_mem_multiplier",
    "intervalstyle",
    "join_collapse_limit",
    "max_parallel_workers_per_gather",
    "min_parallel_index_scan_size",
    "min_parallel_table_scan_size",
    "parallel_setup_cost",
    "parallel_tuple_cost",
    "plan_cache_mode",
    "random_page_cost",
    "recursive_worktable_factor",
    "role",
    "row_security",
    "search_path",
    "seq_page_cost",
    "session_authorization",
    "timezone",
    "work_mem",
];

/// Number of tokens to consider at the start of a statement. The longest relevant statements set a `search_path`.
const MOST_TOKENS: usize = 64;

/// Values by setting name, in lower case.
type Settings = BTreeMap<String, String>;

/// The settings of one session.
#[derive(Debug, Default)]
pub(crate) struct PlannerSettings {
    startup: Settings,
    /// The settings after a rollback, after a commit, and now. They differ only in a transaction that has changed a
    /// setting.
    committed: Settings,
    session: Settings,
    current: Settings,
    /// The transaction's savepoints, oldest first.
    savepoints: Vec<Savepoint>,
    in_changed_transaction: bool,
    has_failed: bool,
}

/// The settings at a savepoint.
#[derive(Debug)]
struct Savepoint {
    name: String,
    session: Settings,
    current: Settings,
}

/// A change to one setting or to all settings. Without a value, the setting returns to its value at session start.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    /// `None` means all settings.
    name: Option<String>,
    value: Option<String>,
    is_local: bool,
}

impl PlannerSettings {
    /// Returns the settings of a new session.
    pub(crate) fn at_startup(params: &StartupParams) -> Self {
        let mut startup = Settings::new();
        for (name, value) in params.settings() {
            let name = String::from_utf8_lossy(name).into_owned();
            if is_followed(&name) {
                startup.insert(name, String::from_utf8_lossy(value).into_owned());
            }
        }
        let user = params.user().map(String::from_utf8_lossy);
        if let Some(user) = user.filter(|user| user != SUPERUSER) {
            startup.insert("session_authorization".to_owned(), user.into_owned());
        }
        let (committed, session, current) = (startup.clone(), startup.clone(), startup.clone());
        Self { startup, committed, session, current, ..Self::default() }
    }

    /// Returns the current settings, sorted by name.
    pub(crate) fn current(&self) -> Vec<(String, String)> {
        self.current.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Returns true if a statement has one of the forms that change settings.
    pub(crate) fn is_change(statement: &str) -> bool {
        let any = BoundValue { type_oid: 0, format: 0, value: Some(Vec::new()) };
        Change::read(&tokens_of(statement), &[any.clone(), any.clone(), any]).is_some()
    }

    /// Applies a successful statement. Returns true if it has one of the forms that change settings, or returns to a
    /// savepoint.
    pub(crate) fn apply(&mut self, statement: &str, values: &[BoundValue]) -> bool {
        let tokens = tokens_of(statement);
        if let Some(statement) = SavepointStatement::read(&tokens) {
            return self.apply_savepoint(statement);
        }
        let Some(change) = Change::read(&tokens, values) else { return false };
        let Change { name, value, is_local } = change;
        let Some(name) = name else {
            (self.session, self.current) = (self.startup.clone(), self.startup.clone());
            self.in_changed_transaction = true;
            return true;
        };
        if is_followed(&name) {
            self.in_changed_transaction = true;
            let value = value.or_else(|| self.startup.get(&name).cloned());
            set(&mut self.current, &name, value.as_ref());
            if !is_local {
                set(&mut self.session, &name, value.as_ref());
            }
        }
        true
    }

    fn apply_savepoint(&mut self, statement: SavepointStatement) -> bool {
        let place = |name: &String| self.savepoints.iter().rposition(|known| known.name == *name);
        match statement {
            SavepointStatement::Define(name) => {
                let (session, current) = (self.session.clone(), self.current.clone());
                self.savepoints.push(Savepoint { name, session, current });
                false
            }
            SavepointStatement::Release(name) => {
                if let Some(place) = place(&name) {
                    self.savepoints.truncate(place);
                }
                false
            }
            SavepointStatement::RollBackTo(name) => {
                let Some(place) = place(&name) else { return false };
                let savepoint = &self.savepoints[place];
                self.session.clone_from(&savepoint.session);
                self.current.clone_from(&savepoint.current);
                self.savepoints.truncate(place + 1);
                // The transaction goes on, so its COMMIT works again.
                self.has_failed = false;
                true
            }
        }
    }

    /// Records that a statement has failed, so that the next COMMIT of an open transaction rolls back.
    pub(crate) fn failed(&mut self) {
        self.has_failed = true;
    }

    /// Ends the transaction. Returns true if the settings might have changed.
    pub(crate) fn end_transaction(&mut self, commits: bool) -> bool {
        let has_failed = mem::take(&mut self.has_failed);
        self.savepoints.clear();
        if !mem::take(&mut self.in_changed_transaction) {
            return false;
        }
        if commits && !has_failed {
            self.committed.clone_from(&self.session);
        } else {
            self.session.clone_from(&self.committed);
        }
        self.current.clone_from(&self.session);
        true
    }
}

fn set(settings: &mut Settings, name: &str, value: Option<&String>) {
    match value {
        Some(value) => settings.insert(name.to_owned(), value.clone()),
        None => settings.remove(name),
    };
}

/// Returns the statement's first tokens. Those of a longer one don't matter.
fn tokens_of(statement: &str) -> Vec<Token<'_>> {
    let mut lexer = SqlLexer::new(statement.as_bytes(), true);
    std::iter::from_fn(|| lexer.token()).take(MOST_TOKENS).collect()
}

fn is_followed(name: &str) -> bool {
    NAMES.binary_search(&name).is_ok() || name.starts_with("enable_") || name.starts_with("geqo")
}

impl Change {
    fn read(tokens: &[Token<'_>], values: &[BoundValue]) -> Option<Self> {
        match tokens {
            [discard, all, ..] if discard.is_word(b"discard") && all.is_word(b"all") => {
                Some(Self::reset_all())
            }
            [select, rest @ ..] if select.is_word(b"select") => Self::set_config(rest, values),
            tokens => Self::of_set(&SetStatement::read(tokens)?),
        }
    }

    fn of_set(set: &SetStatement<'_, '_>) -> Option<Self> {
        let name = match &set.target {
            SetTarget::Named(name) => name,
            SetTarget::All => return Some(Self::reset_all()),
            SetTarget::Unnamed => return None,
        };
        let value = set.value.and_then(|value| value_of(value, name == "search_path"));
        Some(Self { is_local: set.is_local, ..Self::of(name, value) })
    }

    fn reset_all() -> Self {
        Self { name: None, value: None, is_local: false }
    }

    fn of(name: &str, value: Option<String>) -> Self {
        Self { name: Some(name.to_lowercase()), value, is_local: false }
    }

    /// Parses the tokens after SELECT if they are a single call of `set_config`.
    fn set_config(tokens: &[Token<'_>], values: &[BoundValue]) -> Option<Self> {
        let call = match tokens {
            [schema, point, call @ ..] if schema.is_word(b"pg_catalog") && point.is_sign(b'.') => call,
            call => call,
        };
        let [function, open, name, _, value, _, local, close] = call else { return None };
        if !(function.is_word(b"set_config") && open.is_sign(b'(') && close.is_sign(b')')) {
            return None;
        }
        let argument = |token: &Token<'_>| match token.kind {
            TokenKind::Parameter => {
                let number = std::str::from_utf8(&token.text[1..]).ok()?.parse::<usize>().ok()?;
                let BoundValue { value, .. } = values.get(number.checked_sub(1)?)?;
                Some(String::from_utf8_lossy(value.as_deref()?).into_owned())
            }
            _ => text_of(token),
        };
        let is_local = ["true", "t", "on", "1", "\u{1}"].contains(&&*argument(local)?);
        Some(Self { is_local, ..Self::of(&argument(name)?, Some(argument(value)?)) })
    }
}

/// Returns a setting's value in the form for `set_config`, or `None` for DEFAULT. `is_path` means that the value is a
/// list of names.
fn value_of(tokens: &[Token<'_>], is_path: bool) -> Option<String> {
    if let [only] = tokens
        && only.is_word(b"default")
    {
        return None;
    }
    let mut items = Vec::new();
    for item in tokens.split(|token| token.is_sign(b',')) {
        let words: Vec<_> = item.iter().map(text_of).collect::<Option<_>>()?;
        let item = words.concat();
        items.push(if is_path { format!("\"{}\"", item.replace('"', "\"\"")) } else { item });
    }
    Some(items.join(", "))
}

/// Returns a token's text: folded for a name, unquoted for a plain literal, unchanged for any other token. Returns
/// `None` for a literal with escapes.
fn text_of(token: &Token<'_>) -> Option<String> {
    if token.is_name() {
        return token.name();
    }
    let text = String::from_utf8_lossy(token.text);
    Some(match token.kind {
        TokenKind::Text => text.strip_prefix('\'')?.strip_suffix('\'')?.replace("''", "'"),
        _ => text.into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(parameters: &[(&'static str, &'static str)]) -> PlannerSettings {
        PlannerSettings::at_startup(&StartupParams::new(parameters.iter().copied()))
    }

    /// Returns the value of the setting `name` after `statement`.
    fn value(statement: &str, name: &str) -> Option<String> {
        let mut settings = settings(&[("user", "postgres")]);
        assert!(settings.apply(statement, &[]), "{statement}");
        settings.current.get(name).cloned()
    }

    #[test]
    fn names_are_sorted() {
        assert!(NAMES.is_sorted());
    }

    #[test]
    fn every_form_of_a_change_is_read() {
        for (statement, name, expected) in [
            ("SET search_path TO shop, \"My\"\"s\", public", "search_path", r#""shop", "My""s", "public""#),
            ("set session search_path = 'a, b'", "search_path", r#""a, b""#),
            ("SET SCHEMA 'tenant'", "search_path", r#""tenant""#),
            ("SET LOCAL work_mem = '64MB'", "work_mem", "64MB"),
            ("SET random_page_cost = 1.1", "random_page_cost", "1.1"),
            ("SET Enable_SeqScan TO off", "enable_seqscan", "off"),
            ("SET TIME ZONE -7", "timezone", "-7"),
            ("SET ROLE app", "role", "app"),
            ("SET SESSION AUTHORIZATION \"App\"", "session_authorization", "App"),
            ("SELECT pg_catalog.set_config('search_path', '', false)", "search_path", ""),
        ] {
            assert_eq!(value(statement, name).as_deref(), Some(expected), "{statement}");
        }
        for statement in
            ["RESET ALL", "DISCARD ALL", "RESET role", "SET statement_timeout = 5", "SET NAMES = 'x'"]
        {
            assert_eq!(value(statement, "statement_timeout"), None);
        }
        for other in ["SELECT 1", "SET TRANSACTION READ ONLY", "SELECT set_config('a')", "DISCARD TEMP", ""] {
            assert!(!settings(&[]).apply(other, &[]), "{other}");
        }
    }

    #[test]
    fn values_of_parameters_are_used() {
        let value = |text: &str| BoundValue { type_oid: 25, format: 0, value: Some(text.into()) };
        let mut settings = settings(&[]);
        let values = [value("search_path"), value("a, b"), value("f")];
        let statement = "SELECT set_config($1, $2, $3)";
        assert!(PlannerSettings::is_change(statement) && settings.apply(statement, &values));
        assert_eq!(settings.current(), [("search_path".to_owned(), "a, b".to_owned())]);
    }

    #[test]
    fn reset_returns_to_the_session_start() {
        let mut settings = settings(&[("user", "app"), ("options", "-c search_path=shop -c lock_timeout=5")]);
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let startup = [of("search_path", "shop"), of("session_authorization", "app")];
        assert_eq!(settings.current(), startup);
        settings.apply("SET search_path TO other", &[]);
        settings.apply("RESET search_path", &[]);
        assert_eq!(settings.current(), startup);
        settings.apply("SET search_path TO other", &[]);
        settings.apply("SET search_path TO DEFAULT", &[]);
        assert_eq!(settings.current(), startup);
    }

    #[test]
    fn transactions_undo_changes() {
        let mut settings = settings(&[]);
        let path = |settings: &PlannerSettings| settings.current.get("search_path").cloned();
        settings.apply("SET search_path TO a", &[]);
        assert!(settings.end_transaction(true));
        settings.apply("SET LOCAL search_path TO b", &[]);
        assert_eq!(path(&settings).as_deref(), Some("\"b\""));
        settings.end_transaction(true);
        assert_eq!(path(&settings).as_deref(), Some("\"a\""));
        settings.apply("SET search_path TO c", &[]);
        settings.failed();
        settings.end_transaction(true);
        assert_eq!(path(&settings).as_deref(), Some("\"a\""));
        assert!(!settings.end_transaction(false));
    }
    #[test]
    fn rollback_to_savepoint_restores_its_settings() {
        let mut settings = settings(&[]);
        let path = |settings: &PlannerSettings| settings.current.get("search_path").cloned();
        settings.apply("SET search_path TO a", &[]);
        settings.end_transaction(true);
        for (statement, expected) in [
            ("SAVEPOINT \"One\"", "a"),
            ("SET LOCAL search_path TO b", "b"),
            ("savepoint two", "b"),
            ("SET search_path TO c", "c"),
            ("ROLLBACK WORK TO SAVEPOINT TWO", "b"),
            ("SET search_path TO d", "d"),
            ("rollback to nothing", "d"),
            ("ROLLBACK TO two", "b"),
            ("RELEASE SAVEPOINT two", "b"),
            ("ROLLBACK TRANSACTION TO two", "b"),
            ("ROLLBACK TO \"One\"", "a"),
        ] {
            settings.apply(statement, &[]);
            assert_eq!(path(&settings), Some(format!("\"{expected}\"")), "{statement}");
        }
        settings.failed();
        settings.apply("ROLLBACK TO \"One\"", &[]);
        settings.apply("SET search_path TO e", &[]);
        settings.end_transaction(true);
        assert_eq!(path(&settings).as_deref(), Some("\"e\""));
        settings.apply("ROLLBACK TO \"One\"", &[]);
        assert_eq!(path(&settings).as_deref(), Some("\"e\""));
    }
}
