//! Matches statements against patterns. A pattern is the beginning of a statement, with `…` in place of any text.

use crate::sql::{SqlLexer, TokenKind};

/// Matches any text.
const ANY: char = '…';

/// A pattern, prepared for comparison with many statements. The comparison ignores case and treats any white space as
/// one space. `…` matches any text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedPattern {
    /// The text before the first `…`, between consecutive ones, and after the last one.
    parts: Vec<String>,
}

/// A statement's text, prepared for comparison with many patterns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainStatement(String);

impl PreparedPattern {
    /// Parses a pattern. Ignores comments before its first token.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        let mut lexer = SqlLexer::new(pattern.as_bytes(), true);
        let start = lexer.token().map_or(0, |first| lexer.position() - first.text.len());
        let pattern = pattern.get(start..).unwrap_or(pattern);
        Self { parts: pattern.split(ANY).map(plain).collect() }
    }

    /// Returns true if the statement begins with the pattern.
    #[must_use]
    pub fn matches(&self, statement: &PlainStatement) -> bool {
        let mut rest = statement.0.as_str();
        for (at, part) in self.parts.iter().enumerate() {
            let found = if at == 0 { rest.starts_with(part).then_some(0) } else { rest.find(part) };
            let Some(found) = found else { return false };
            rest = &rest[found + part.len()..];
        }
        true
    }
}

impl PlainStatement {
    /// Prepares a statement's text.
    #[must_use]
    pub fn new(sql: &str) -> Self {
        Self(plain(sql))
    }
}

/// Returns true if a statement begins with `pattern`: see [`PreparedPattern`].
#[must_use]
pub fn matches_pattern(pattern: &str, statement: &str) -> bool {
    PreparedPattern::new(pattern).matches(&PlainStatement::new(statement))
}

/// Returns a pattern that matches a statement regardless of its values and comments. `…` replaces each of them, and the
/// end of a long statement. Without that last `…`, the pattern has at most `longest` bytes, unless its first word is
/// longer.
#[must_use]
pub fn statement_pattern(sql: &str, longest: usize) -> String {
    let mut lexer = SqlLexer::new(sql.as_bytes(), true);
    let mut pattern = String::new();
    let mut end = 0;
    while let Some(token) = lexer.token() {
        let (begin, before) = (lexer.position() - token.text.len(), end);
        end = lexer.position();
        let gap = &sql[before..begin];
        let mut word = String::new();
        if !gap.trim().is_empty() && !pattern.ends_with(ANY) {
            word.push_str(if pattern.is_empty() { "…" } else { " …" });
        }
        if matches!(token.kind, TokenKind::Text | TokenKind::Number) {
            if !pattern.ends_with(ANY) && !word.ends_with(ANY) {
                word.push_str(if gap.is_empty() || pattern.is_empty() { "…" } else { " …" });
            }
        } else {
            let is_first = pattern.is_empty() && word.is_empty();
            word.push_str(if gap.is_empty() || is_first { "" } else { " " });
            word.push_str(&sql[begin..end]);
        }
        if !pattern.is_empty() && pattern.len() + word.len() > longest {
            pattern.push_str(if pattern.ends_with(ANY) { "" } else { " …" });
            break;
        }
        pattern.push_str(&word);
    }
    pattern
}

fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ellipsis_stands_for_any_text() {
        for (pattern, statement, expected) in [
            ("SELECT … FROM orders", "select a, b from  orders where c", true),
            ("SELECT … FROM orders", "select a from items", false),
            ("… orders", "DELETE FROM orders", true),
            ("SELECT", "WITH x AS (SELECT 1) SELECT", false),
            ("/* a */ -- b\n SELECT a", "SELECT a", true),
            ("/* a */ … orders", "DELETE FROM orders", true),
        ] {
            assert_eq!(matches_pattern(pattern, statement), expected, "{pattern} {statement}");
        }
    }

    #[test]
    fn pattern_leaves_values_and_comments_out() {
        for (sql, pattern) in [
            ("COMMIT", "COMMIT"),
            ("INSERT  INTO t (a, b)\nVALUES ('x', 5)", "INSERT INTO t (a, b) VALUES (…, …)"),
            ("UPDATE t SET a = $1 /* trace */ WHERE b=-2", "UPDATE t SET a = $1 … WHERE b=-…"),
            ("SELECT 1", "SELECT …"),
            ("SELECT a FROM t LIMIT 5 OFFSET 2 -- end", "SELECT a FROM t LIMIT … OFFSET …"),
            ("SELECT 1 2 /* a */ 'b' c", "SELECT … c"),
            ("SELECT /* a */ 'b', 'c'", "SELECT …, …"),
            ("/* trace */ SELECT a", "… SELECT a"),
        ] {
            assert_eq!(statement_pattern(sql, 60), pattern);
        }
        assert_eq!(statement_pattern("SELECT alpha, beta FROM gamma", 14), "SELECT alpha, …");
    }

    proptest! {
        #[test]
        fn pattern_matches_its_own_statement(
            words in prop::collection::vec(prop::sample::select(&[
                "select", "a", "'x'", "5", "-- c\n", "/* d */", "(", ")", "=", "$1", "é", "\"Q\"", "1.5",
            ][..]), 0..12),
            blanks in prop::collection::vec(prop::sample::select(&[" ", "  ", "\n"][..]), 12),
            longest in 1_usize..80,
        ) {
            let sql: String = words.iter().zip(&blanks).flat_map(|(word, blank)| [*word, *blank]).collect();
            let pattern = statement_pattern(&sql, longest);
            prop_assert!(matches_pattern(&pattern, &sql), "{pattern:?} {sql:?}");
        }
    }
}
