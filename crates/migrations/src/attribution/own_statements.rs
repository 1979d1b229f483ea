//! Recognizes the statements that a migration tool sends for its own purposes.

use pgwire::Token;

use super::ledger::Ledgers;
use crate::sql_text::tokens;

/// Functions that tools call before they begin, and that have no effect on tables.
const FUNCTIONS: [&str; 15] = [
    "version",
    "set_config",
    "current_setting",
    "current_schema",
    "current_schemas",
    "current_database",
    "pg_advisory_lock",
    "pg_advisory_xact_lock",
    "pg_advisory_unlock",
    "pg_advisory_unlock_all",
    "pg_try_advisory_lock",
    "pg_try_advisory_xact_lock",
    "pg_backend_pid",
    "pg_is_in_recovery",
    "pg_my_temp_schema",
];

/// Returns true if the statement uses the tool's own tables, reads only catalogs, takes an advisory lock or configures
/// the session. Setting a timeout doesn't count, because a timeout determines how long other sessions wait.
pub(super) fn is_of_tool(sql: &str, ledgers: &Ledgers) -> bool {
    let tokens = tokens(sql);
    let Some(first) = tokens.first() else { return true };
    let is = |word: &[u8]| first.is_word(word);
    if has_ledger(&tokens, ledgers) {
        return true;
    }
    if is(b"set") || is(b"reset") {
        return !tokens
            .iter()
            .filter_map(Token::name)
            .any(|name| name.ends_with("_timeout") || name == "constraints");
    }
    is(b"show") || (is(b"select") || is(b"with")) && reads_only_catalogs(&tokens)
}

/// Returns true if the statement names a tool's table.
pub(super) fn names_ledger(sql: &str, ledgers: &Ledgers) -> bool {
    has_ledger(&tokens(sql), ledgers)
}

fn has_ledger(tokens: &[Token<'_>], ledgers: &Ledgers) -> bool {
    tokens.iter().filter_map(Token::name).any(|name| ledgers.has(&name))
}

/// Returns true if each table after FROM and JOIN is a catalog. A statement without tables counts only if none of its
/// function calls affects tables.
fn reads_only_catalogs(tokens: &[Token<'_>]) -> bool {
    let is_word = |token: &Token<'_>, words: &[&[u8]]| words.iter().any(|word| token.is_word(word));
    let mut has_catalog = false;
    let mut is_pure = true;
    for (at, token) in tokens.iter().enumerate() {
        let rest = &tokens[at + 1..];
        if is_word(token, &[b"insert", b"update", b"delete", b"into", b"call", b"lock"]) {
            return false;
        }
        if is_word(token, &[b"from", b"join"]) {
            let after = rest.iter().find(|token| !is_word(token, &[b"only", b"lateral"]));
            match after.map(|token| (token.name(), token.is_sign(b'('))) {
                Some((Some(name), _)) if name.starts_with("pg_") || name == "information_schema" => {
                    has_catalog = true;
                }
                Some((_, true)) => {}
                _ => return false,
            }
        }
        if rest.first().is_some_and(|token| token.is_sign(b'(')) {
            is_pure &= token.name().is_none_or(|name| FUNCTIONS.contains(&name.as_str()));
        }
    }
    has_catalog || is_pure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_of_tools_differ_from_those_of_migrations() {
        let ledgers = Ledgers::of(&[]);
        for sql in [
            "-- ping",
            "SELECT version FROM _sqlx_migrations ORDER BY version",
            "LOCK TABLE \"public\".\"Schema_Migrations\" IN SHARE UPDATE EXCLUSIVE MODE",
            "CREATE INDEX flyway_schema_history_s_idx ON public.flyway_schema_history (success)",
            "SELECT pg_catalog.version()",
            "SELECT CURRENT_SCHEMA()",
            "SELECT 1",
            "SHOW search_path",
            "SET client_min_messages TO 'warning'",
            "SET ROLE 'postgres'",
            "SELECT pg_advisory_lock($1)",
            "SELECT count(*) FROM information_schema.tables WHERE table_name = 'x'",
            "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace)",
        ] {
            assert!(is_of_tool(sql, &ledgers), "{sql}");
        }
        for sql in [
            "BEGIN",
            "SET lock_timeout = '1s'",
            "SET LOCAL \"statement_timeout\" = 0",
            "SET CONSTRAINTS ALL IMMEDIATE",
            "SELECT create_hypertable('conditions', 'time')",
            "SELECT setval('orders_id_seq', max(id)) FROM orders",
            "SELECT * FROM pg_class, orders JOIN orders o ON true",
            "WITH x AS (DELETE FROM orders RETURNING id) SELECT relname FROM pg_class",
            "SELECT relname INTO copy FROM pg_class",
            "UPDATE orders SET note = 'schema_migrations'",
            "INSERT INTO migrations (name) SELECT 'a'",
        ] {
            assert!(!is_of_tool(sql, &ledgers), "{sql}");
        }
    }
}
