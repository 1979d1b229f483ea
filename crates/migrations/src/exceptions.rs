//! Applies exceptions: statements that the user allows although they exceed a budget, each with a reason.

use std::fmt;

use crate::ReportedStatement;
use crate::sql_text::normal_form;

/// An exception, from `[[migrate.allow]]` in `pgfresh.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationException {
    /// Pattern for the statement's SQL. `None` matches every statement.
    pub statement: Option<StatementPattern>,
    /// Pattern for the migration's name. `None` matches every migration.
    pub migration: Option<NamePattern>,
    /// Why the user allows the statement.
    pub reason: String,
}

/// A pattern for SQL. `*` matches any text. Case, whitespace, comments and a trailing semicolon are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementPattern(String);

/// A pattern for names. `*` matches any text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern(String);

impl StatementPattern {
    /// Creates a pattern from the user's text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns true if the statement matches the pattern.
    #[must_use]
    pub fn matches(&self, sql: &str) -> bool {
        matches(&normal_form(&self.0), &normal_form(sql))
    }
}

impl NamePattern {
    /// Creates a pattern from the user's text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns true if the name matches the pattern.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        matches(&self.0, name)
    }
}

impl MigrationException {
    fn allows(&self, statement: &ReportedStatement) -> bool {
        let is_statement =
            self.statement.as_ref().is_none_or(|pattern| pattern.matches(&statement.observed.sql));
        let name = statement.migration.as_deref().unwrap_or_default();
        is_statement && self.migration.as_ref().is_none_or(|pattern| pattern.matches(name))
    }
}

impl fmt::Display for MigrationException {
    /// Formats the patterns, for example as `statement = "DROP TABLE *"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statement = self.statement.iter().map(|pattern| ("statement", &pattern.0));
        let migration = self.migration.iter().map(|pattern| ("migration", &pattern.0));
        let written = statement.chain(migration).map(|(key, pattern)| format!("{key} = {pattern:?}"));
        f.write_str(&written.collect::<Vec<_>>().join(", "))
    }
}

/// Sets the reason of each statement that an exception allows. If several exceptions match a statement, the first one
/// counts. Returns the positions of exceptions that match nothing.
pub fn apply_exceptions(
    statements: &mut [ReportedStatement],
    exceptions: &[MigrationException],
) -> Vec<usize> {
    let mut unused: Vec<usize> = (0..exceptions.len()).collect();
    for statement in statements {
        for (position, exception) in exceptions.iter().enumerate() {
            if exception.allows(statement) {
                unused.retain(|other| *other != position);
                statement.exception.get_or_insert_with(|| exception.reason.clone());
            }
        }
    }
    unused
}

/// Returns true if `text` consists of the parts of `pattern` that its `*` separate, in this order, with any text in
/// between.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*').map(str::trim);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObservedStatement;

    #[test]
    fn patterns_ignore_case_and_blanks() {
        for (pattern, sql, is_match) in [
            ("DROP TABLE *", "drop  table\n old_orders;", true),
            ("drop table old_orders", "DROP TABLE old_orders -- gone", true),
            ("DROP TABLE old", "DROP TABLE old_orders", false),
            ("*orders*", "ALTER TABLE orders ADD a int", true),
            ("alter table * add *", "ALTER TABLE orders ADD a int", true),
            ("ALTER TABLE * DROP *", "ALTER TABLE orders ADD a int", false),
            ("*", "anything", true),
            ("UPDATE t SET a = 'X' *", "update t set a = 'x' where b", false),
            ("ALTER TABLE \"Orders\" *", "alter table \"Orders\" add a int", true),
            ("a*a", "a", false),
            ("numeric(10,2) *", "NUMERIC ( 10 , 2 ) x", true),
        ] {
            assert_eq!(StatementPattern::new(pattern).matches(sql), is_match, "{pattern} {sql}");
        }
        assert!(NamePattern::new("0042_*").matches("0042_orders.py"));
        assert!(!NamePattern::new("0042_*").matches("0043_orders.py"));
    }

    #[test]
    fn exceptions_mark_statements_and_unused_are_returned() {
        let statement = |sql: &str, migration: Option<&str>| ReportedStatement {
            observed: ObservedStatement { sql: sql.to_owned(), ..ObservedStatement::default() },
            migration: migration.map(str::to_owned),
            ..ReportedStatement::default()
        };
        let mut statements = [
            statement("DROP TABLE a", Some("0001")),
            statement("DROP TABLE b", Some("0002")),
            statement("x", None),
        ];
        let exception = |sql: Option<&str>, migration: Option<&str>, reason: &str| MigrationException {
            statement: sql.map(StatementPattern::new),
            migration: migration.map(NamePattern::new),
            reason: reason.to_owned(),
        };
        let exceptions = [
            exception(Some("DROP TABLE *"), Some("0002"), "both"),
            exception(Some("DROP TABLE c"), None, "unused"),
            exception(None, Some("0002"), "later"),
        ];
        assert_eq!(apply_exceptions(&mut statements, &exceptions), [1]);
        let reasons = statements.each_ref().map(|statement| statement.exception.as_deref());
        assert_eq!(reasons, [None, Some("both"), None]);
        assert_eq!(exceptions[0].to_string(), "statement = \"DROP TABLE *\", migration = \"0002\"");
    }
}
