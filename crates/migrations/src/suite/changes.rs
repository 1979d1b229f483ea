//! Finds out what a statement changes: the tables from its plan, and the columns from its text.

use std::collections::{BTreeMap, BTreeSet};

use pgwire::{Token, TokenKind};
use plans::RelationName;
use serde_json::Value;

use super::catalog::{Change, Columns};
use super::explain::visit_nodes;
use crate::sql_text::tokens;

/// Returns the changes to each table. `text` is the statement's SQL.
pub(super) fn changes(plans: &[Value], text: &str) -> BTreeMap<RelationName, BTreeSet<Change>> {
    let mut found = BTreeMap::<_, BTreeSet<_>>::new();
    for plan in plans {
        visit_nodes(plan, &mut |node| {
            if let Some((relation, changes)) = changes_of(node, text) {
                found.entry(relation).or_default().extend(changes);
            }
        });
    }
    found
}

/// Returns the table that a plan node changes, and the changes.
fn changes_of(node: &Value, text: &str) -> Option<(RelationName, Vec<Change>)> {
    let relation = changed_relation(node)?;
    let mut changes = Vec::new();
    let updates_on_conflict = node.get("Conflict Resolution").is_some_and(|way| way == "UPDATE");
    match node.get("Operation").and_then(Value::as_str)? {
        "Insert" => {
            changes.push(Change::Insert);
            if updates_on_conflict {
                changes.push(Change::Update(set_columns(text)));
            }
        }
        "Update" => changes.push(Change::Update(set_columns(text))),
        "Delete" => changes.push(Change::Delete),
        "Merge" => {
            let words = words(text);
            let has = |word: &str| words.contains(word);
            changes.extend(has("insert").then_some(Change::Insert));
            changes.extend(has("update").then(|| Change::Update(set_columns(text))));
            changes.extend(has("delete").then_some(Change::Delete));
        }
        _ => return None,
    }
    Some((relation, changes))
}

/// Returns the table that a `ModifyTable` node changes.
pub(super) fn changed_relation(node: &Value) -> Option<RelationName> {
    let text = |name: &str| node.get(name).and_then(Value::as_str).map(str::to_owned);
    // Before version 14, a node with several targets has the table's name only in "Target Tables".
    let first = node.get("Target Tables").and_then(|tables| tables.get(0));
    let of_first = |name: &str| first?.get(name)?.as_str().map(str::to_owned);
    node.get("Node Type").filter(|kind| *kind == "ModifyTable")?;
    Some(RelationName {
        schema: text("Schema").or_else(|| of_first("Schema"))?,
        name: text("Relation Name").or_else(|| of_first("Relation Name"))?,
    })
}

fn words(text: &str) -> BTreeSet<String> {
    let tokens = tokens(text);
    tokens.iter().filter(|token| token.kind == TokenKind::Word).filter_map(Token::name).collect()
}

/// Returns the columns in all SET lists of a statement.
fn set_columns(text: &str) -> Columns {
    let tokens = tokens(text);
    let mut columns = BTreeSet::new();
    let mut has_list = false;
    for (at, token) in tokens.iter().enumerate() {
        if token.is_word(b"set") {
            has_list = true;
            if read_set_list(&tokens[at + 1..], &mut columns).is_none() {
                return Columns::Any;
            }
        }
    }
    // An UPDATE without a SET list in its text can come from a rewrite rule, so it may set any column.
    if has_list { Columns::Only(columns) } else { Columns::Any }
}

/// Reads the tokens after SET up to the end of the list. Returns `None` if the list has an unknown form.
fn read_set_list(mut rest: &[Token<'_>], columns: &mut BTreeSet<String>) -> Option<()> {
    loop {
        let (first, after) = rest.split_first()?;
        if first.is_sign(b'(') {
            let end = after.iter().position(|token| token.is_sign(b')'))?;
            for column in after[..end].split(|token| token.is_sign(b',')) {
                columns.insert(column.first()?.name()?);
            }
            rest = &after[end + 1..];
        } else {
            columns.insert(first.name()?);
            rest = after;
        }
        // A field or an element of the column may be set, as in `a.b = 1` or `a[1] = 1`.
        let equals = rest.iter().position(|token| token.is_sign(b'='))?;
        rest = match after_expression(&rest[equals + 1..]) {
            Some(next) => next,
            None => return Some(()),
        };
    }
}

/// Skips an expression and the comma after it. Returns the remaining tokens, or `None` if the list ends after the
/// expression.
fn after_expression<'a, 'b>(tokens: &'a [Token<'b>]) -> Option<&'a [Token<'b>]> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        let is_open = token.is_sign(b'(') || token.is_sign(b'[') || token.is_word(b"case");
        let is_close = token.is_sign(b')') || token.is_sign(b']') || token.is_word(b"end");
        let ends = |words: &[&[u8]]| words.iter().any(|word| token.is_word(word));
        let is_distinct = at > 0 && tokens[at - 1].is_word(b"distinct") && token.is_word(b"from");
        if is_open {
            depth += 1;
        } else if is_close {
            depth = depth.checked_sub(1)?;
        } else if depth == 0 && token.is_sign(b',') {
            return Some(&tokens[at + 1..]);
        } else if depth == 0 && !is_distinct && ends(&[b"from", b"where", b"returning", b"when"]) {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn only(names: &[&str]) -> Columns {
        Columns::Only(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn columns_of_updates_are_read() {
        for (text, columns) in [
            ("UPDATE t SET a = 1", only(&["a"])),
            ("update t set A = (SELECT 1, 2 WHERE true), \"B b\" = $1 WHERE c = 1", only(&["a", "B b"])),
            (
                "UPDATE t SET (a, b) = (1, 2), c = d IS DISTINCT FROM e, f = 1 FROM x",
                only(&["a", "b", "c", "f"]),
            ),
            (
                "UPDATE t SET a.x = 1, b[1:2] = ARRAY[1, 2], c = DEFAULT RETURNING a, b",
                only(&["a", "b", "c"]),
            ),
            ("UPDATE t SET a = CASE WHEN b THEN 1 ELSE 2 END, c = 'x, y = z'", only(&["a", "c"])),
            ("WITH u AS (UPDATE t SET a = 1) UPDATE s SET b = 2", only(&["a", "b"])),
            ("INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET a = excluded.a", only(&["a"])),
            (
                "MERGE INTO t USING s ON true WHEN MATCHED THEN UPDATE SET a = 1 WHEN NOT MATCHED THEN DO NOTHING",
                only(&["a"]),
            ),
            ("UPDATE t SET", Columns::Any),
            ("SELECT change()", Columns::Any),
        ] {
            assert_eq!(set_columns(text), columns, "{text}");
        }
    }

    #[test]
    fn changes_of_plans_are_found_at_all_depths() {
        let plan = json!({"Node Type": "Limit", "Plans": [
            {"Node Type": "ModifyTable", "Operation": "Insert", "Schema": "s", "Relation Name": "a",
             "Conflict Resolution": "UPDATE"},
            {"Node Type": "ModifyTable", "Operation": "Delete",
             "Target Tables": [{"Schema": "s", "Relation Name": "b"}]},
            {"Node Type": "Seq Scan", "Schema": "s", "Relation Name": "c"}]});
        let found = changes(&[plan], "… ON CONFLICT DO UPDATE SET x = 1");
        let name = |name: &str| RelationName { schema: "s".to_owned(), name: name.to_owned() };
        let expected = [
            (name("a"), BTreeSet::from([Change::Insert, Change::Update(only(&["x"]))])),
            (name("b"), BTreeSet::from([Change::Delete])),
        ];
        assert_eq!(found, BTreeMap::from(expected));
    }
}
