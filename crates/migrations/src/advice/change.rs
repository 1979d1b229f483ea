//! Reads from a statement's text which change it makes, in the detail that the advice needs.

use pgwire::{Token, TokenKind};

use super::cursor::{Cursor, SqlName};
use super::table_action::{TableAction, table_actions};
use crate::sql_text::{block_body, literal_text, tokens};

/// A change of the schema or of rows, such as `DROP TABLE` or an `UPDATE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SchemaChange {
    AlterTable {
        table: SqlName,
        actions: Vec<TableAction>,
    },
    AlterDomain,
    RenameEnumValue,
    CreateIndex {
        table: SqlName,
        is_concurrent: bool,
    },
    DropIndex {
        is_concurrent: bool,
    },
    Reindex {
        is_concurrent: bool,
    },
    /// CLUSTER or VACUUM FULL.
    Compact,
    CreateTable {
        name: SqlName,
        is_partition: bool,
    },
    CreateView {
        name: SqlName,
    },
    CreateMaterializedView {
        name: SqlName,
    },
    DropTables {
        names: Vec<SqlName>,
    },
    DropMaterializedViews {
        names: Vec<SqlName>,
    },
    Refresh {
        view: SqlName,
        is_concurrent: bool,
    },
    CreateTrigger {
        trigger: String,
        table: SqlName,
    },
    DropTrigger {
        trigger: String,
        table: SqlName,
    },
    CreateExtension {
        name: String,
        if_not_exists: bool,
    },
    DropExtension,
    RenameSchema {
        schema: String,
    },
    /// DROP SCHEMA, TYPE or DOMAIN with CASCADE.
    DropCascade,
    WriteRows {
        table: SqlName,
        share: RowShare,
    },
    /// A DO block that changes rows in its caller's transaction.
    WriteRowsInBlock,
    Other,
}

/// Share of its table's rows that an UPDATE or DELETE changes, estimated from its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowShare {
    /// Rows where a column equals a value, as in `WHERE id = 7`.
    Value,
    /// A range of keys or a limited number of rows, as in `WHERE id BETWEEN 1 AND 1000`.
    Batch,
    /// All rows, or those that match a condition which many rows might match.
    Unbounded,
}

impl SchemaChange {
    /// Reads the change from a single statement.
    pub(super) fn read(sql: &str) -> Self {
        let tokens = tokens(sql);
        let mut cursor = Cursor::new(&tokens);
        let change = if cursor.skip("alter") {
            alter(cursor)
        } else if cursor.skip("create") {
            create(cursor)
        } else if cursor.skip("drop") {
            drop(cursor)
        } else {
            other(cursor)
        };
        change.unwrap_or(Self::Other)
    }

    /// Reads the changes that a DO block makes. Empty for other statements, and for SQL that the block runs with EXECUTE.
    pub(super) fn read_block(sql: &str) -> Vec<Self> {
        changes_in(sql)
    }
}

fn alter(mut cursor: Cursor<'_>) -> Option<SchemaChange> {
    if cursor.skip("table") || cursor.skip("foreign table") || cursor.skip("materialized view") {
        cursor.skip("if exists");
        cursor.skip("only");
        let table = cursor.name()?;
        cursor.skip_sign(b'*');
        return Some(SchemaChange::AlterTable { table, actions: table_actions(cursor) });
    }
    if cursor.skip("domain") {
        return Some(SchemaChange::AlterDomain);
    }
    if cursor.skip("schema") {
        let schema = cursor.identifier()?;
        return cursor.is_at("rename to").then_some(SchemaChange::RenameSchema { schema });
    }
    if cursor.skip("type") {
        cursor.name()?;
        return cursor.is_at("rename value").then_some(SchemaChange::RenameEnumValue);
    }
    None
}

fn create(mut cursor: Cursor<'_>) -> Option<SchemaChange> {
    cursor.skip("or replace");
    for word in ["global", "local", "temporary", "temp", "unlogged", "constraint", "recursive", "unique"] {
        cursor.skip(word);
    }
    if cursor.skip("index") {
        let is_concurrent = cursor.skip("concurrently");
        cursor.skip_past("on")?;
        cursor.skip("only");
        return Some(SchemaChange::CreateIndex { table: cursor.name()?, is_concurrent });
    }
    if cursor.skip("trigger") {
        let trigger = cursor.identifier()?;
        cursor.skip_past("on")?;
        return Some(SchemaChange::CreateTrigger { trigger, table: cursor.name()? });
    }
    if cursor.skip("table") {
        cursor.skip("if not exists");
        let name = cursor.name()?;
        return Some(SchemaChange::CreateTable { name, is_partition: cursor.is_at("partition of") });
    }
    if cursor.skip("view") {
        return Some(SchemaChange::CreateView { name: cursor.name()? });
    }
    if cursor.skip("materialized view") {
        cursor.skip("if not exists");
        return Some(SchemaChange::CreateMaterializedView { name: cursor.name()? });
    }
    if cursor.skip("extension") {
        let if_not_exists = cursor.skip("if not exists");
        return Some(SchemaChange::CreateExtension { name: cursor.identifier()?, if_not_exists });
    }
    None
}

fn drop(mut cursor: Cursor<'_>) -> Option<SchemaChange> {
    if cursor.skip("index") {
        return Some(SchemaChange::DropIndex { is_concurrent: cursor.skip("concurrently") });
    }
    if cursor.skip("extension") {
        return Some(SchemaChange::DropExtension);
    }
    if cursor.skip("schema") || cursor.skip("type") || cursor.skip("domain") {
        return cursor.has("cascade").then_some(SchemaChange::DropCascade);
    }
    if cursor.skip("table") {
        cursor.skip("if exists");
        return Some(SchemaChange::DropTables { names: cursor.names() });
    }
    if cursor.skip("materialized view") {
        cursor.skip("if exists");
        return Some(SchemaChange::DropMaterializedViews { names: cursor.names() });
    }
    if cursor.skip("trigger") {
        cursor.skip("if exists");
        let trigger = cursor.identifier()?;
        cursor.skip_past("on")?;
        return Some(SchemaChange::DropTrigger { trigger, table: cursor.name()? });
    }
    None
}

fn other(mut cursor: Cursor<'_>) -> Option<SchemaChange> {
    if cursor.skip("refresh materialized view") {
        let is_concurrent = cursor.skip("concurrently");
        return Some(SchemaChange::Refresh { view: cursor.name()?, is_concurrent });
    }
    if cursor.skip("reindex") {
        let is_concurrent = cursor.rest().iter().any(|token| token.is_word(b"concurrently"));
        return Some(SchemaChange::Reindex { is_concurrent });
    }
    let is_full = |token: &Token<'_>| token.is_word(b"full");
    if cursor.is_at("cluster") || cursor.is_at("vacuum") && cursor.rest().iter().any(is_full) {
        return Some(SchemaChange::Compact);
    }
    if cursor.skip("do") {
        let body = cursor.rest().iter().find(|token| token.kind == TokenKind::Text)?;
        return writes_in_one_transaction(body).then_some(SchemaChange::WriteRowsInBlock);
    }
    let all = cursor.rest();
    if cursor.skip("with") {
        let is_write = |token: &Token<'_>| token.is_word(b"update") || token.is_word(b"delete");
        cursor = Cursor::new(&all[all.iter().position(is_write)?..]);
    }
    if !(cursor.skip("update") || cursor.skip("delete from")) {
        return None;
    }
    cursor.skip("only");
    Some(SchemaChange::WriteRows { table: cursor.name()?, share: row_share(all) })
}

/// Returns true if the quoted body of a DO block contains an UPDATE or DELETE, but no COMMIT.
fn writes_in_one_transaction(body: &Token<'_>) -> bool {
    let body = literal_text(body);
    let tokens = tokens(&body);
    let has = |word: &[u8]| tokens.iter().any(|token| token.is_word(word));
    (has(b"update") || has(b"delete")) && !has(b"commit")
}

/// Returns the changes of the ALTER, CREATE and DROP statements in a DO block. Leaves out SQL that EXECUTE runs.
fn changes_in(sql: &str) -> Vec<SchemaChange> {
    let body = block_body(sql).unwrap_or_default();
    let tokens = tokens(&body);
    let is_start = |at: usize| {
        let starts: [&[u8]; 4] = [b"begin", b"then", b"else", b"loop"];
        at.checked_sub(1)
            .and_then(|before| tokens.get(before))
            .is_some_and(|before| before.is_sign(b';') || starts.iter().any(|word| before.is_word(word)))
    };
    let changes = (0..tokens.len()).filter(|at| is_start(*at)).filter_map(|at| {
        let end = tokens[at..].iter().position(|token| token.is_sign(b';'))?;
        let mut cursor = Cursor::new(&tokens[at..at + end]);
        if cursor.skip("alter") {
            alter(cursor)
        } else if cursor.skip("create") {
            create(cursor)
        } else {
            cursor.skip("drop").then(|| drop(cursor)).flatten()
        }
    });
    changes.collect()
}

/// Estimates the share from the conditions of an UPDATE or DELETE. A comparison with a column, as in a join, doesn't
/// limit the number of rows.
fn row_share(statement: &[Token<'_>]) -> RowShare {
    let has = |word: &[u8]| statement.iter().any(|token| token.is_word(word));
    let condition = statement.iter().position(|token| token.is_word(b"where"));
    let comparisons = comparisons(condition.map_or(&[], |at| &statement[at..]));
    let has_comparison = |operators: &[&str]| comparisons.iter().any(|found| operators.contains(&&**found));
    let is_range = has_comparison(&["<", "<="]) && has_comparison(&[">", ">="]);
    if is_range || ["between", "limit", "fetch", "ctid"].iter().any(|word| has(word.as_bytes())) {
        RowShare::Batch
    } else if has_comparison(&["=", "in"]) {
        RowShare::Value
    } else {
        RowShare::Unbounded
    }
}

/// Returns the operators that are followed by a literal or a parameter.
fn comparisons(condition: &[Token<'_>]) -> Vec<String> {
    let is_part = |token: &&Token<'_>| token.kind == TokenKind::Sign && b"<>=!~".contains(&token.text[0]);
    let mut found = Vec::new();
    let mut rest = condition;
    while let Some(first) = rest.first() {
        let length = rest.iter().take_while(is_part).count();
        let operator = &rest[..length.max(1)];
        rest = &rest[operator.len()..];
        if (length > 0 || first.is_word(b"in")) && is_value(rest) {
            let text: Vec<_> = operator.iter().flat_map(|token| token.text).copied().collect();
            found.push(String::from_utf8_lossy(&text).to_lowercase());
        }
    }
    found
}

/// Returns true if a literal, a parameter or `ANY` comes next.
fn is_value(tokens: &[Token<'_>]) -> bool {
    let next = tokens.iter().find(|token| !(token.is_sign(b'-') || token.is_sign(b'(')));
    next.is_some_and(|token| {
        matches!(token.kind, TokenKind::Text | TokenKind::Number | TokenKind::Parameter)
            || token.is_word(b"any")
    })
}
