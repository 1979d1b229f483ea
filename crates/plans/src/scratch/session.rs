//! Manages the session that explains statements: its settings, a transaction for each statement, and a new connection
//! after a failure.

use std::io;
use std::time::Duration;

use pgwire::{SqlLexer, encode};
use server::{AdminConnection, Major, Server, SessionError, Setting, literal};

use super::applied::{Applied, Reason};
use super::error::{During, ScratchError};
use super::script::count_parameters;
use crate::bound_query::{parse_message, run_bound};
use crate::settings::{is_planner_setting, is_plausible_value};
use crate::{BoundStatement, ExplainError, PlanMode};

/// Maximum planning time of a statement.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// Name of the statement that is prepared to get its generic plan.
const PREPARED: &str = "pgfresh_generic";
/// Session settings that don't affect plans. They override settings of the template's database that could make EXPLAIN
/// fail.
const OVERRIDES: [Setting; 6] = [
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("default_transaction_read_only", "off"),
    ("client_encoding", "UTF8"),
    ("quote_all_identifiers", "off"),
];
/// Maximum number of statements whose planning exceeds [`LIMIT`]. After that, the session doesn't explain any more.
const MOST_SLOW: u32 = 10;
/// Keywords of the statements that EXPLAIN accepts. Parentheses may precede the keyword.
const EXPLAINABLE: [&[u8]; 12] = [
    b"select", b"insert", b"update", b"delete", b"merge", b"values", b"with", b"table", b"execute",
    b"declare", b"create", b"refresh",
];
/// Reason why PostgreSQL doesn't explain a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Short form of the reason.
    pub error: ExplainError,
    /// The DETAIL field of PostgreSQL's error.
    pub detail: Option<String>,
    /// The HINT field of PostgreSQL's error.
    pub hint: Option<String>,
    /// Position of the error in the statement's text, in characters from 1.
    pub position: Option<usize>,
}

impl From<ExplainError> for Refusal {
    fn from(error: ExplainError) -> Self {
        Self { error, detail: None, hint: None, position: None }
    }
}

/// A session in the scratch copy.
#[derive(Debug)]
pub(super) struct Session {
    database: String,
    major: u32,
    /// Settings from production that the server has accepted.
    settings: Vec<(String, String)>,
    /// The connection. `None` after a failure, until the next statement reconnects.
    connection: Option<AdminConnection>,
    /// Number of statements whose planning exceeded [`LIMIT`].
    slow: u32,
}

/// Opens a session as the superuser. Other settings are the same as in a client's session.
fn open(server: &Server, database: &str, major: u32) -> Result<AdminConnection, ScratchError> {
    let mut overrides = OVERRIDES.to_vec();
    if Major(major).has_transaction_timeout() {
        overrides.push(("transaction_timeout", "0"));
    }
    let mut connection = server.session_with(database, &overrides)?;
    // The database can have a default role for its sessions. Statements are explained with this role, but it can't
    // change catalogs.
    connection.query("SET role = none").during("connect")?;
    Ok(connection)
}

impl Session {
    /// Opens a session in `database`, and applies production's planner settings.
    pub(super) fn open<'a>(
        server: &Server,
        database: &str,
        major: u32,
        settings: impl IntoIterator<Item = (&'a String, &'a String)>,
        applied: &mut Applied,
    ) -> Result<Self, ScratchError> {
        let mut connection = open(server, database, major)?;
        let mut accepted = Vec::new();
        for (name, value) in settings {
            if !is_planner_setting(name) || !is_plausible_value(value) {
                applied.leave_out(name, Reason::Setting);
                continue;
            }
            match connection.query(&set(name, value, false)) {
                Ok(_) => accepted.push((name.clone(), value.clone())),
                Err(SessionError::Server { message, severity, .. }) if severity == "ERROR" => {
                    applied.leave_out(name, Reason::Refused(message));
                }
                Err(error) => return Err(error).during("set production's settings"),
            }
        }
        let (database, connection) = (database.to_owned(), Some(connection));
        Ok(Self { database, major, settings: accepted, connection, slow: 0 })
    }

    /// Returns the connection. Reconnects if the last connection failed.
    pub(super) fn connection(&mut self, server: &Server) -> Result<&mut AdminConnection, ExplainError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.reopen(server)?,
        };
        Ok(self.connection.insert(connection))
    }

    fn reopen(&self, server: &Server) -> Result<AdminConnection, ExplainError> {
        let gone = |error: &dyn std::fmt::Display| ExplainError::Gone(error.to_string());
        let mut connection = open(server, &self.database, self.major).map_err(|error| gone(&error))?;
        for (name, value) in &self.settings {
            connection.query(&set(name, value, false)).map_err(|error| gone(&error))?;
        }
        Ok(connection)
    }

    /// Closes the connection. The next statement opens a new one, which sees changed files.
    pub(super) fn close(&mut self) {
        self.connection = None;
    }

    /// Runs SQL outside of a statement's transaction.
    pub(super) fn query(&mut self, server: &Server, sql: &str) -> Result<server::Rows, ExplainError> {
        let result = self.connection(server)?.query(sql);
        result.map_err(|error| {
            if error.is_fatal() {
                self.close();
            }
            to_refusal(&error, None).error
        })
    }

    /// Explains a statement and returns the rows of the response. `options` are options for EXPLAIN, and `indexes` is
    /// SQL that changes the visibility of indexes.
    ///
    /// The transaction is read-only and always rolled back. EXPLAIN doesn't execute the statement, but it may call
    /// immutable and stable functions of the template. They run with the role of the client's session, and must finish
    /// within [`LIMIT`].
    pub(super) fn explain(
        &mut self,
        server: &Server,
        statement: &BoundStatement,
        mode: PlanMode,
        options: &[&str],
        indexes: &str,
    ) -> Result<Vec<String>, Refusal> {
        if !is_explainable(&statement.text) {
            // Parsing doesn't execute anything, and reports where a misspelled statement is wrong.
            let parsed = parse(self.connection(server)?, &statement.text);
            return Err(
                parsed.map_or_else(|error| to_refusal(&error, Some(0)), |()| ExplainError::Utility.into())
            );
        }
        if self.slow >= MOST_SLOW {
            return Err(ExplainError::Exhausted { slow: MOST_SLOW, limit: LIMIT }.into());
        }
        let (major, limit) = (self.major, LIMIT.as_millis());
        let mut begin = format!("BEGIN; {indexes} SET LOCAL role TO DEFAULT;");
        for (name, value) in &statement.settings {
            begin += &set(name, value, true);
        }
        // Set the limit last, so that the client's settings can't change it.
        begin += &format!("SET LOCAL statement_timeout = {limit}; SET TRANSACTION READ ONLY");
        let connection = self.connection(server)?;
        let is_generic = mode == PlanMode::Generic && count_parameters(&statement.text) > 0;
        let explained = connection.query(&begin).map_err(|error| (error, None)).and_then(|_| {
            if is_generic {
                generic(connection, major, statement, options)
            } else {
                custom(connection, statement, options)
            }
        });
        let fatal = match &explained {
            Err((error, _)) if error.is_fatal() => true,
            _ => {
                let sql = if is_generic { "ROLLBACK; DEALLOCATE ALL" } else { "ROLLBACK" };
                connection.query(sql).is_err()
            }
        };
        if fatal {
            self.close();
        }
        // EXPLAIN takes CREATE TABLE AS but reports a syntax error for CREATE TABLE, which is none by itself.
        if explained.as_ref().is_err_and(|(error, _)| is_syntax_error(error))
            && parse(self.connection(server)?, &statement.text).is_ok()
        {
            return Err(ExplainError::Utility.into());
        }
        explained.map_err(|(error, prefix)| {
            let refusal = to_refusal(&error, prefix);
            self.slow += u32::from(matches!(refusal.error, ExplainError::TooSlow { .. }));
            refusal
        })
    }
}

/// An error, and the length in characters of the text that precedes the statement. `None` if positions in the error
/// don't refer to the statement's text.
type Positioned = (SessionError, Option<usize>);

fn set(name: &str, value: &str, local: bool) -> String {
    format!("SELECT pg_catalog.set_config({}, {}, {local});", literal(name), literal(value))
}

/// Returns EXPLAIN with its options and a trailing space.
fn explain_prefix(options: &[&str]) -> String {
    if options.is_empty() { "EXPLAIN ".to_owned() } else { format!("EXPLAIN ({}) ", options.join(", ")) }
}

fn custom(
    connection: &mut AdminConnection,
    statement: &BoundStatement,
    options: &[&str],
) -> Result<Vec<String>, Positioned> {
    let words = explain_prefix(options);
    let sql = format!("{words}{}", statement.text);
    run_bound(connection, &sql, &statement.parameters).map_err(|error| (error, Some(words.chars().count())))
}

/// Requests the generic plan of a prepared statement. Since version 16, the option `GENERIC_PLAN` makes the plan
/// contain all partitions. In older versions, it may lack the partitions that the values exclude, as in production.
fn generic(
    connection: &mut AdminConnection,
    major: u32,
    statement: &BoundStatement,
    options: &[&str],
) -> Result<Vec<String>, Positioned> {
    let types = declared_types(connection, statement).map_err(|error| (error, None))?;
    let types: Vec<&str> = types.iter().map(|name| name.as_deref().unwrap_or("unknown")).collect();
    let types = if types.is_empty() { String::new() } else { format!(" ({})", types.join(", ")) };
    let words = format!("PREPARE {PREPARED}{types} AS ");
    run_bound(connection, &format!("{words}{}", statement.text), &[])
        .map_err(|error| (error, Some(words.chars().count())))?;
    let value = |number: usize| match statement.parameters.get(number) {
        Some(parameter) if parameter.format == 0 => match parameter.value.as_deref().map(std::str::from_utf8)
        {
            Some(Ok(text)) => literal(text),
            _ => "NULL".to_owned(),
        },
        _ => "NULL".to_owned(),
    };
    let values: Vec<String> = (0..count_parameters(&statement.text)).map(value).collect();
    let more: &[&str] = if Major(major).has_explain_generic_plan() { &["GENERIC_PLAN"] } else { &[] };
    let options = [options, more].concat();
    let execute = format!("{}EXECUTE {PREPARED} ({})", explain_prefix(&options), values.join(", "));
    let force = "SET LOCAL plan_cache_mode = force_generic_plan";
    connection.query(force).and_then(|_| run_bound(connection, &execute, &[])).map_err(|error| (error, None))
}

/// Returns the names of the parameter types that the client declared. `None` for types that the client left to the
/// server.
fn declared_types(
    connection: &mut AdminConnection,
    statement: &BoundStatement,
) -> Result<Vec<Option<String>>, SessionError> {
    if statement.parameters.iter().all(|parameter| parameter.type_oid == 0) {
        return Ok(vec![None; statement.parameters.len()]);
    }
    let oids: Vec<String> =
        statement.parameters.iter().map(|parameter| parameter.type_oid.to_string()).collect();
    let sql = format!(
        "SELECT CASE WHEN oid > 0 THEN pg_catalog.format_type(oid, NULL) END \
         FROM pg_catalog.unnest('{{{}}}'::pg_catalog.oid[]) WITH ORDINALITY AS o(oid, position) ORDER BY position",
        oids.join(",")
    );
    Ok(connection.query(&sql)?.into_iter().map(|row| row.into_iter().next().flatten()).collect())
}

/// Returns true if EXPLAIN might accept the statement.
fn is_explainable(text: &str) -> bool {
    let mut lexer = SqlLexer::new(text.as_bytes(), true);
    let first = std::iter::from_fn(|| lexer.token()).find(|token| !token.is_sign(b'('));
    // If the text doesn't begin with a keyword, let EXPLAIN try, because PostgreSQL's own error is more helpful.
    first.is_none_or(|first| !first.is_name() || EXPLAINABLE.iter().any(|word| first.is_word(word)))
}

/// Requests that the server parse a statement without executing it.
fn parse(connection: &mut AdminConnection, sql: &str) -> Result<(), SessionError> {
    let messages = [parse_message(sql, &[]), encode(b'S', b"")].concat();
    connection.exchange(&messages, &mut |_| ())
}

fn is_syntax_error(error: &SessionError) -> bool {
    matches!(error, SessionError::Server { sqlstate, .. } if sqlstate == "42601")
}

fn to_refusal(error: &SessionError, prefix: Option<usize>) -> Refusal {
    match error {
        SessionError::Io { source, .. } if source.kind() == io::ErrorKind::TimedOut => {
            ExplainError::TooSlow { limit: LIMIT }.into()
        }
        SessionError::Server { sqlstate, .. } if sqlstate == "57014" => {
            ExplainError::TooSlow { limit: LIMIT }.into()
        }
        SessionError::Server { sqlstate, message, notes, .. } if !error.is_fatal() => Refusal {
            error: ExplainError::Refused { code: sqlstate.clone(), message: message.clone() },
            detail: notes.detail.clone(),
            hint: notes.hint.clone(),
            position: prefix.and_then(|prefix| usize::try_from(notes.position?).ok()?.checked_sub(prefix)),
        },
        other => ExplainError::Gone(other.detail().unwrap_or_else(|| other.to_string())).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utility_statements_are_not_explained() {
        for sql in [
            "SELECT 1",
            "  ( ( select 1))",
            "/* a */ WITH x AS (SELECT 1) TABLE x",
            "",
            "create table a as select 1",
        ] {
            assert!(is_explainable(sql), "{sql}");
        }
        for sql in ["VACUUM", "BEGIN", "COPY t FROM STDIN", "set x = 1"] {
            assert!(!is_explainable(sql), "{sql}");
        }
    }
}
