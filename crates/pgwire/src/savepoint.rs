//! Recognizes statements about savepoints.

use crate::sql::Token;

/// A statement about a savepoint, with the savepoint's name. The name is empty if the statement has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SavepointStatement {
    /// SAVEPOINT, which creates a savepoint.
    Define(String),
    /// ROLLBACK TO SAVEPOINT.
    RollBackTo(String),
    /// RELEASE SAVEPOINT.
    Release(String),
}

impl SavepointStatement {
    /// Reads the first tokens of a statement, of which there need be at most five. Returns `None` for other statements.
    /// Source: `TransactionStmt` in `gram.y`.
    #[must_use]
    pub fn read(tokens: &[Token<'_>]) -> Option<Self> {
        let (first, rest) = tokens.split_first()?;
        if first.is_word(b"savepoint") {
            return Some(Self::Define(name(rest)));
        }
        if first.is_word(b"release") {
            return Some(Self::Release(name_after_keyword(rest)));
        }
        if !first.is_word(b"rollback") {
            return None;
        }
        let (to, rest) = match rest {
            [word, rest @ ..] if word.is_word(b"work") || word.is_word(b"transaction") => {
                rest.split_first()?
            }
            rest => rest.split_first()?,
        };
        to.is_word(b"to").then(|| Self::RollBackTo(name_after_keyword(rest)))
    }

    /// Returns the command's name in the server's messages.
    #[must_use]
    pub fn command(&self) -> &'static str {
        match self {
            Self::Define(_) => "SAVEPOINT",
            Self::RollBackTo(_) => "ROLLBACK TO SAVEPOINT",
            Self::Release(_) => "RELEASE SAVEPOINT",
        }
    }
}

/// Returns the savepoint's name in `tokens`, which may begin with the keyword SAVEPOINT. A savepoint can also have this
/// keyword as its name.
fn name_after_keyword(tokens: &[Token<'_>]) -> String {
    match tokens {
        [keyword, tokens @ ..] if keyword.is_word(b"savepoint") && !tokens.is_empty() => name(tokens),
        tokens => name(tokens),
    }
}

fn name(tokens: &[Token<'_>]) -> String {
    tokens.first().and_then(Token::name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::SavepointStatement::{Define, Release, RollBackTo};
    use super::*;
    use crate::SqlLexer;

    fn read(sql: &str) -> Option<SavepointStatement> {
        let mut lexer = SqlLexer::new(sql.as_bytes(), true);
        let tokens: Vec<_> = std::iter::from_fn(|| lexer.token()).collect();
        SavepointStatement::read(&tokens)
    }

    #[test]
    fn names_are_read_as_the_server_reads_them() {
        let long = "é".repeat(40);
        for (sql, expected) in [
            ("SAVEPOINT a", Define("a".to_owned())),
            ("savepoint \"A\"\"b\"", Define("A\"b".to_owned())),
            ("SAVEPOINT savepoint", Define("savepoint".to_owned())),
            ("RELEASE Ab", Release("ab".to_owned())),
            ("RELEASE SAVEPOINT \"A\"", Release("A".to_owned())),
            ("RELEASE savepoint", Release("savepoint".to_owned())),
            ("ROLLBACK TO a", RollBackTo("a".to_owned())),
            ("ROLLBACK WORK TO SAVEPOINT a", RollBackTo("a".to_owned())),
            ("rollback /* all */ transaction to savepoint", RollBackTo("savepoint".to_owned())),
            (&format!("SAVEPOINT {long}"), Define("é".repeat(31))),
            (&format!("ROLLBACK TO \"{long}\""), RollBackTo("é".repeat(31))),
        ] {
            assert_eq!(read(sql), Some(expected), "{sql}");
        }
    }

    #[test]
    fn other_statements_are_not_about_savepoints() {
        for sql in
            ["", "ROLLBACK", "ROLLBACK WORK", "ABORT TO a", "COMMIT", "\"savepoint\" a", "ROLLBACK AND CHAIN"]
        {
            assert_eq!(read(sql), None, "{sql}");
        }
    }
}
