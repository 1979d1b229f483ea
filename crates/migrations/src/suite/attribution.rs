//! Finds the migration's statement that makes a statement of the suite fail.

use std::collections::{BTreeMap, BTreeSet};

use pgwire::TokenKind;
use plans::RelationName;

use crate::sql_text::tokens;
use crate::{LockMode, ObservedStatement};

/// Words in PostgreSQL's messages that aren't names of objects.
const COMMON: &[&str] = &[
    "a",
    "and",
    "any",
    "as",
    "but",
    "cannot",
    "column",
    "conflict",
    "constraint",
    "could",
    "denied",
    "does",
    "enum",
    "exist",
    "exclusion",
    "expression",
    "for",
    "function",
    "in",
    "input",
    "insert",
    "into",
    "invalid",
    "is",
    "match",
    "matching",
    "no",
    "not",
    "null",
    "of",
    "on",
    "operator",
    "or",
    "permission",
    "relation",
    "schema",
    "specification",
    "syntax",
    "table",
    "the",
    "there",
    "to",
    "type",
    "unique",
    "value",
    "violates",
];
/// Lowest score for which pgfresh blames a statement of the migration.
const LEAST: u32 = 2;
/// Score for a name that the message quotes, qualifies with a dot or follows with a parenthesis, if the statement
/// contains this name.
const MARKED: u32 = 8;
/// Score for any other name in the message that the statement contains.
const PLAIN: u32 = 2;
/// Score for an ACCESS EXCLUSIVE lock on a table that the suite's statement uses.
const LOCK: u32 = 3;
/// Score for a statement that alters, drops or revokes something.
const CHANGE: u32 = 1;

/// A failed statement of the suite, and how it failed.
pub(super) struct StatementFailure<'a> {
    pub(super) message: &'a str,
    /// Whether the statement failed because a column doesn't accept NULL.
    pub(super) is_null: bool,
    /// Relations that the statement used before the migration.
    pub(super) relations: BTreeSet<&'a RelationName>,
}

/// Returns the index of the statement with the highest score. If several have it, returns the last one, because a
/// statement can't name an object that an earlier statement dropped.
pub(super) fn attribute(broken: &StatementFailure<'_>, observed: &[ObservedStatement]) -> Option<usize> {
    let names = names_of_message(broken.message);
    let undone = undone_transactions(observed);
    let mut best: Option<(usize, u32)> = None;
    for (index, statement) in observed.iter().enumerate() {
        if statement.tag.is_none() || undone.contains(&(statement.session, statement.transaction)) {
            continue;
        }
        let score = score(&names, broken, statement);
        if score >= LEAST && best.is_none_or(|(_, most)| score >= most) {
            best = Some((index, score));
        }
    }
    best.map(|(index, _)| index)
}

fn score(names: &BTreeMap<String, u32>, broken: &StatementFailure<'_>, statement: &ObservedStatement) -> u32 {
    let words = words(&statement.sql);
    let is_not_null = broken.is_null && can_cause_null(&words);
    let score: u32 = names.iter().filter(|(name, _)| words.contains(*name)).map(|(_, points)| points).sum();
    let locks = statement.locks.iter();
    let is_locked = locks
        .filter(|lock| lock.mode == LockMode::AccessExclusive)
        .any(|lock| broken.relations.contains(&lock.relation));
    let tag = statement.tag.as_deref().unwrap_or_default();
    let changes = ["ALTER", "DROP", "REVOKE"].iter().any(|word| tag.starts_with(word));
    // A message doesn't name the schema of an object that the search path no longer finds.
    let hides_schema = tag == "ALTER SCHEMA" && words.contains("rename") || tag == "DROP SCHEMA";
    let plain = if is_not_null || hides_schema { PLAIN } else { 0 };
    let evidence = score + if is_locked { LOCK } else { 0 } + plain;
    if evidence > 0 && changes { evidence + CHANGE } else { evidence }
}

/// Returns true if a statement with these words can make a column reject the NULL that an INSERT leaves in it.
fn can_cause_null(words: &BTreeSet<String>) -> bool {
    let has = |word: &str| words.contains(word);
    has("null") && !has("default") || has("drop") && has("default")
}

/// Returns the names and the quoted values in a message, with their scores.
fn names_of_message(message: &str) -> BTreeMap<String, u32> {
    let mut names = BTreeMap::new();
    let tokens = tokens(message);
    for (at, token) in tokens.iter().enumerate() {
        let Some(name) = token.name() else { continue };
        let is_sign = |index: Option<usize>, sign| {
            index.and_then(|index| tokens.get(index)).is_some_and(|token| token.is_sign(sign))
        };
        let is_marked = token.kind == TokenKind::QuotedName
            || is_sign(at.checked_sub(1), b'.')
            || is_sign(Some(at + 1), b'.')
            || is_sign(Some(at + 1), b'(');
        if is_marked {
            // Messages quote a schema and its relation together, as in "app.orders".
            names.extend(name.split('.').map(|part| (part.to_owned(), MARKED)));
        } else if !COMMON.contains(&name.as_str()) {
            names.entry(name).or_insert(PLAIN);
        }
    }
    names
}

/// Returns the names and the quoted values in a statement.
fn words(sql: &str) -> BTreeSet<String> {
    let value = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        Some(text.strip_prefix('\'')?.strip_suffix('\'')?.to_owned())
    };
    tokens(sql).iter().filter_map(|token| token.name().or_else(|| value(token.text))).collect()
}

/// Returns the transactions that were rolled back, as pairs of session and transaction number.
fn undone_transactions(observed: &[ObservedStatement]) -> BTreeSet<(usize, usize)> {
    let ended = observed.iter().filter(|statement| {
        statement.tag.as_deref() == Some("ROLLBACK") && !words(&statement.sql).contains("to")
    });
    ended.map(|statement| (statement.session, statement.transaction)).collect()
}

#[cfg(test)]
mod tests {
    use plans::RelationKind;

    use super::*;
    use crate::RelationLock;

    fn statement(sql: &str, table: &str) -> ObservedStatement {
        let relation = name(table);
        let words: Vec<_> = sql.split(' ').take(2).collect();
        ObservedStatement {
            sql: sql.to_owned(),
            tag: Some(if words[0] == "ROLLBACK" { words[0].to_owned() } else { words.join(" ") }),
            locks: vec![RelationLock {
                relation,
                kind: RelationKind::Table,
                mode: LockMode::AccessExclusive,
            }],
            ..ObservedStatement::default()
        }
    }

    fn name(name: &str) -> RelationName {
        RelationName { schema: "public".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn messages_lead_to_the_statement_that_breaks() {
        let migration = [
            statement("ALTER TABLE orders ADD COLUMN note text", "orders"),
            statement("ALTER TABLE orders RENAME COLUMN status TO state", "orders"),
            statement("ALTER TABLE orders ALTER COLUMN state SET NOT NULL", "orders"),
            statement("DROP FUNCTION price(integer)", "none"),
            statement("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'", "none"),
            statement("ALTER TABLE orders RENAME TO sales", "orders"),
            statement("ALTER TABLE customers ALTER COLUMN code TYPE text", "customers"),
            statement("UPDATE customers SET code = NULL", "none"),
        ];
        for (message, table, expected) in [
            ("column \"status\" does not exist", "orders", Some(1)),
            ("column o.status does not exist", "orders", Some(1)),
            (
                "null value in column \"state\" of relation \"orders\" violates not-null constraint",
                "orders",
                Some(2),
            ),
            ("function price(integer) does not exist", "items", Some(3)),
            ("invalid input value for enum mood: \"sad\"", "people", Some(4)),
            ("relation \"orders\" does not exist", "orders", Some(5)),
            ("operator does not exist: text = integer", "customers", Some(6)),
            (
                "there is no unique or exclusion constraint matching the ON CONFLICT specification",
                "items",
                None,
            ),
        ] {
            let table = name(table);
            let is_null = message.starts_with("null");
            let failure = StatementFailure { message, is_null, relations: BTreeSet::from([&table]) };
            assert_eq!(attribute(&failure, &migration), expected, "{message}");
        }
    }

    #[test]
    fn renamed_schemas_hide_their_objects() {
        let migration = [
            statement("ALTER TABLE orders ADD COLUMN note text", "orders"),
            statement("ALTER SCHEMA shop RENAME TO store", "none"),
            statement("COMMIT", "none"),
        ];
        for (message, expected) in [
            ("relation \"shop.products\" does not exist", 1),
            ("function area(integer) does not exist", 1),
            ("column \"note\" does not exist", 0),
        ] {
            let failure = StatementFailure { message, is_null: false, relations: BTreeSet::new() };
            assert_eq!(attribute(&failure, &migration), Some(expected), "{message}");
        }
    }

    #[test]
    fn failed_and_undone_statements_break_nothing() {
        let orders = name("orders");
        let drop = statement("DROP TABLE orders", "orders");
        let failed = ObservedStatement { tag: None, ..drop.clone() };
        let message = "relation \"orders\" does not exist";
        let failure = StatementFailure { message, is_null: false, relations: BTreeSet::from([&orders]) };
        assert_eq!(attribute(&failure, &[failed, drop.clone()]), Some(1));
        let undo = statement("ROLLBACK", "none");
        assert_eq!(attribute(&failure, &[drop, undo]), None);
    }
}
