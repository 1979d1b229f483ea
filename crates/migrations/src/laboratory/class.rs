//! Classifies statements by how the laboratory has to repeat them.

use pgwire::Token;

use crate::sql_text;

/// Number of words that are enough to classify a statement.
const WORDS: usize = 12;

/// How the laboratory has to repeat a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StatementClass {
    /// BEGIN or START TRANSACTION.
    Begin,
    /// COMMIT, ROLLBACK or PREPARE TRANSACTION.
    End {
        /// Whether the statement contains AND CHAIN, so that another transaction starts immediately.
        is_chained: bool,
    },
    /// SAVEPOINT, with its name.
    Savepoint(String),
    /// ROLLBACK TO, with the savepoint's name.
    RollbackTo(String),
    /// A statement that doesn't lock a relation, such as SET.
    Bare,
    /// A statement that PostgreSQL refuses in a transaction, such as VACUUM.
    Outside {
        /// Whether the statement changes a whole database, so that the database must not have sessions.
        is_of_database: bool,
    },
    /// Extended-protocol messages that run nothing, or a text that contains no statement.
    Preparation,
    /// Any other statement.
    Ordinary,
}

impl StatementClass {
    pub(super) fn of(sql: &str) -> Self {
        let mut tokens = sql_text::tokens(sql);
        let end = tokens.iter().position(|token| token.is_sign(b';'));
        tokens.truncate(end.unwrap_or(tokens.len()));
        let at = |index: usize, words: &[&[u8]]| {
            tokens.get(index).is_some_and(|token: &Token<'_>| words.iter().any(|word| token.is_word(word)))
        };
        let has = |word: &[u8]| tokens.iter().take(WORDS).any(|token| token.is_word(word));
        let name = |index: usize| tokens.get(index).and_then(Token::name).unwrap_or_default();
        if tokens.is_empty() {
            return Self::Preparation;
        }
        if at(0, &[b"begin"]) || at(0, &[b"start"]) {
            return Self::Begin;
        }
        if at(0, &[b"commit", b"end", b"rollback", b"abort"])
            || at(0, &[b"prepare"]) && at(1, &[b"transaction"])
        {
            if at(1, &[b"prepared"]) {
                return Self::Bare;
            }
            if let Some(to) = (1..=2).find(|index| at(*index, &[b"to"])) {
                let savepoint = usize::from(at(to + 1, &[b"savepoint"]) && tokens.len() > to + 2);
                return Self::RollbackTo(name(to + 1 + savepoint));
            }
            return Self::End { is_chained: has(b"chain") && !has(b"no") };
        }
        if at(0, &[b"savepoint"]) {
            return Self::Savepoint(name(1));
        }
        let is_setting = at(0, &[b"set"]) && !at(1, &[b"constraints"]);
        let bare: [&[u8]; 8] =
            [b"reset", b"show", b"discard", b"listen", b"unlisten", b"deallocate", b"release", b"checkpoint"];
        if is_setting || at(0, &bare) {
            return Self::Bare;
        }
        let is_of_database = at(0, &[b"create", b"drop"]) && at(1, &[b"database"])
            || at(0, &[b"alter"]) && at(1, &[b"database"]) && (has(b"rename") || has(b"tablespace"));
        if is_of_database || is_outside(&tokens) {
            return Self::Outside { is_of_database };
        }
        Self::Ordinary
    }
}

fn is_outside(tokens: &[Token<'_>]) -> bool {
    let words: Vec<_> = tokens.iter().take(WORDS).collect();
    let at = |index: usize, word: &[u8]| words.get(index).is_some_and(|token| token.is_word(word));
    let has = |word: &[u8]| tokens.iter().any(|token| token.is_word(word));
    let is_object = |word: &[u8]| (at(0, b"create") || at(0, b"drop")) && at(1, word);
    let is_concurrent = at(2, b"concurrently") || at(3, b"concurrently");
    at(0, b"vacuum")
        || at(0, b"cluster") && tokens.len() == 1
        || (at(1, b"index") || at(2, b"index")) && (at(0, b"create") || at(0, b"drop")) && is_concurrent
        || at(0, b"reindex") && [&b"concurrently"[..], b"schema", b"database", b"system"].into_iter().any(has)
        || is_object(b"tablespace")
        || at(0, b"alter") && at(1, b"system")
        || at(0, b"alter") && at(1, b"table") && has(b"detach") && has(b"concurrently")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_the_first_words() {
        use StatementClass as Class;
        for (sql, class) in [
            ("begin", Class::Begin),
            ("START TRANSACTION ISOLATION LEVEL SERIALIZABLE", Class::Begin),
            ("/* x */ COMMIT WORK", Class::End { is_chained: false }),
            ("ROLLBACK AND CHAIN", Class::End { is_chained: true }),
            ("COMMIT AND NO CHAIN", Class::End { is_chained: false }),
            ("PREPARE TRANSACTION 'x'", Class::End { is_chained: false }),
            ("COMMIT PREPARED 'x'", Class::Bare),
            ("SAVEPOINT \"A\"", Class::Savepoint("A".to_owned())),
            ("ROLLBACK WORK TO SAVEPOINT a", Class::RollbackTo("a".to_owned())),
            ("ROLLBACK TO savepoint", Class::RollbackTo("savepoint".to_owned())),
            ("RELEASE a", Class::Bare),
            ("SET lock_timeout = '5s'", Class::Bare),
            ("SET CONSTRAINTS ALL IMMEDIATE", Class::Ordinary),
            ("PREPARE p AS SELECT 1", Class::Ordinary),
            ("CREATE UNIQUE INDEX CONCURRENTLY i ON t (a)", Class::Outside { is_of_database: false }),
            ("CREATE INDEX concurrently_done ON t (a)", Class::Ordinary),
            ("DROP INDEX CONCURRENTLY IF EXISTS i", Class::Outside { is_of_database: false }),
            ("REINDEX (CONCURRENTLY) TABLE t", Class::Outside { is_of_database: false }),
            ("REINDEX TABLE t", Class::Ordinary),
            ("REFRESH MATERIALIZED VIEW CONCURRENTLY v", Class::Ordinary),
            ("VACUUM t;", Class::Outside { is_of_database: false }),
            ("CLUSTER", Class::Outside { is_of_database: false }),
            ("CLUSTER t", Class::Ordinary),
            ("ALTER TABLE t DETACH PARTITION p CONCURRENTLY", Class::Outside { is_of_database: false }),
            ("CREATE DATABASE d", Class::Outside { is_of_database: true }),
            ("ALTER DATABASE d SET work_mem = '1MB'", Class::Ordinary),
            ("ALTER DATABASE d RENAME TO e", Class::Outside { is_of_database: true }),
            ("-- ping", Class::Preparation),
        ] {
            assert_eq!(Class::of(sql), class, "{sql}");
        }
    }
}
