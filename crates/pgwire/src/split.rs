//! Splits a query string into statements, and finds the part of a statement that the server plans.

use std::ops::Range;

use crate::sql::{SqlLexer, Token};

/// Returns the statements in `sql`, without the semicolons between them and without surrounding white space.
#[must_use]
pub fn split_statements(sql: &str) -> Vec<&str> {
    statement_places(sql.as_bytes(), true).into_iter().map(|place| sql[place].trim()).collect()
}

/// Returns the byte ranges of the statements in `sql`, without the semicolons between them. Omits statements without
/// tokens. `standard_strings` is the value of `standard_conforming_strings`.
///
/// A semicolon in parentheses, or in the body of a function in standard SQL, doesn't end a statement. Source:
/// `psqlscan.l`.
#[must_use]
pub fn statement_places(sql: &[u8], standard_strings: bool) -> Vec<Range<usize>> {
    let mut lexer = SqlLexer::new(sql, standard_strings);
    let mut places = Vec::new();
    let (mut start, mut open, mut body) = (0, 0_usize, Body::Start);
    let mut is_empty = true;
    while let Some(token) = lexer.token() {
        if token.is_sign(b';') && open == 0 && !body.is_open() {
            if !is_empty {
                places.push(start..lexer.position() - 1);
            }
            (start, is_empty, body) = (lexer.position(), true, Body::Start);
            continue;
        }
        is_empty = false;
        body = body.read(token);
        if token.is_sign(b'(') {
            open += 1;
        } else if token.is_sign(b')') {
            open = open.saturating_sub(1);
        }
    }
    if !is_empty {
        places.push(start..sql.len());
    }
    places
}

/// The position in a statement that might contain the body of a function in standard SQL: `BEGIN ATOMIC … END`.
#[derive(Clone, Copy, Default)]
enum Body {
    /// Before the first word.
    #[default]
    Start,
    /// After CREATE or CREATE OR REPLACE.
    Create,
    /// In the definition of a function or procedure, with the number of open BEGIN and CASE.
    Routine(usize),
    /// In any other statement.
    None,
}

impl Body {
    fn read(self, token: Token<'_>) -> Self {
        let is = |words: &[&[u8]]| words.iter().any(|word| token.is_word(word));
        match self {
            Self::Start if is(&[b"create"]) => Self::Create,
            Self::Create if is(&[b"or", b"replace"]) => Self::Create,
            Self::Create if is(&[b"function", b"procedure"]) => Self::Routine(0),
            Self::Routine(open) if is(&[b"begin"]) || open > 0 && is(&[b"case"]) => Self::Routine(open + 1),
            Self::Routine(open) if is(&[b"end"]) => Self::Routine(open.saturating_sub(1)),
            Self::Routine(open) => Self::Routine(open),
            Self::Start | Self::Create | Self::None => Self::None,
        }
    }

    fn is_open(self) -> bool {
        matches!(self, Self::Routine(1..))
    }
}

/// Returns the part of a single statement that EXPLAIN accepts: the statement itself, or the query of a cursor or of a
/// `COPY (…) TO`. Returns `None` if the server doesn't plan the statement.
#[must_use]
pub fn planned_query(statement: &str) -> Option<&str> {
    let mut lexer = SqlLexer::new(statement.as_bytes(), true);
    let first = lexer.token()?;
    let is = |words: &[&[u8]]| words.iter().any(|word| first.is_word(word));
    if is(&[b"select", b"insert", b"update", b"delete", b"merge", b"with", b"values", b"table"])
        || first.is_sign(b'(')
    {
        return Some(statement);
    }
    if is(&[b"declare"]) {
        let at_query = std::iter::from_fn(|| lexer.token()).any(|token| token.is_word(b"for"));
        return at_query.then(|| statement[lexer.position()..].trim()).filter(|query| !query.is_empty());
    }
    if is(&[b"copy"]) && lexer.token()?.is_sign(b'(') {
        let (start, mut open) = (lexer.position(), 1_usize);
        while let Some(token) = lexer.token() {
            if token.is_sign(b'(') {
                open += 1;
            } else if token.is_sign(b')') {
                open -= 1;
            }
            if open == 0 {
                return planned_query(statement[start..lexer.position() - 1].trim());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn statements_end_at_their_semicolons() {
        for (sql, statements) in [
            ("", &[][..]),
            (" ; -- a\n; ", &[]),
            ("BEGIN; SELECT ';' ;COMMIT", &["BEGIN", "SELECT ';'", "COMMIT"]),
            ("SELECT $$a;b$$; /* ; */ SELECT \"a;b\";", &["SELECT $$a;b$$", "/* ; */ SELECT \"a;b\""]),
            (
                "CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2); SELECT 3",
                &["CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2)", "SELECT 3"],
            ),
            (
                "create or replace function f() returns int begin atomic select case when true then 1 end; select 2; end; SELECT 3",
                &[
                    "create or replace function f() returns int begin atomic select case when true then 1 end; select 2; end",
                    "SELECT 3",
                ],
            ),
            (
                "CREATE TABLE begin (); BEGIN; END; SELECT 1",
                &["CREATE TABLE begin ()", "BEGIN", "END", "SELECT 1"],
            ),
        ] {
            assert_eq!(split_statements(sql), statements, "{sql}");
        }
    }

    #[test]
    fn planned_part_is_found() {
        for (statement, planned) in [
            ("SELECT 1", Some("SELECT 1")),
            ("/* a */ with a as (select 1) table a", Some("/* a */ with a as (select 1) table a")),
            ("(SELECT 1) UNION (SELECT 2)", Some("(SELECT 1) UNION (SELECT 2)")),
            (
                "DECLARE \"for\" NO SCROLL CURSOR WITH HOLD FOR SELECT 1 FOR UPDATE",
                Some("SELECT 1 FOR UPDATE"),
            ),
            ("DECLARE c CURSOR FOR", None),
            ("COPY (SELECT ')', (1)) TO STDOUT", Some("SELECT ')', (1)")),
            ("COPY t (a) FROM STDIN", None),
            ("COPY (SELECT 1", None),
            ("FETCH 10 FROM c", None),
            ("EXPLAIN SELECT 1", None),
            ("", None),
        ] {
            assert_eq!(planned_query(statement), planned, "{statement}");
        }
    }

    proptest! {
        #[test]
        fn parts_are_in_the_text(sql in "[a-zé;()' \"$\n]{0,60}", words in prop::collection::vec(
            prop::sample::select(&["begin", "end", "create", "function", "case", ";", "declare", "for", "copy ("][..]),
            0..12,
        )) {
            let sql = [words.join(" "), sql].concat();
            let parts = split_statements(&sql);
            let mut rest = &sql[..];
            for part in parts {
                let (_, after) = rest.split_once(part).unwrap();
                rest = after;
                prop_assert!(planned_query(part).is_none_or(|query| part.contains(query)));
            }
        }
    }
}
