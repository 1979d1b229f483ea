//! Finds keywords in statements. Comments, literals and quoted names don't count.

use crate::sql::{SqlLexer, Token};

/// Returns true if the first word of the statement is in `words`, which must be in lower case.
#[must_use]
pub fn begins_with(sql: &str, words: &[&str]) -> bool {
    let first = SqlLexer::new(sql.as_bytes(), true).token();
    first.is_some_and(|token| words.iter().any(|word| token.is_word(word.as_bytes())))
}

/// Returns true if the statement contains `words` consecutively. They must be in lower case.
#[must_use]
pub fn has_words(sql: &str, words: &[&str]) -> bool {
    let mut lexer = SqlLexer::new(sql.as_bytes(), true);
    let tokens: Vec<_> = std::iter::from_fn(|| lexer.token()).collect();
    let is_word = |(token, word): (&Token<'_>, &&str)| token.is_word(word.as_bytes());
    tokens.windows(words.len()).any(|part| part.iter().zip(words).all(is_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_words_are_found_behind_comments() {
        assert!(begins_with("/* x */ CREATE TABLE a ()", &["alter", "create"]));
        assert!(!begins_with("\"create\" x", &["create"]) && !begins_with("", &["create"]));
    }

    #[test]
    fn words_must_follow_each_other() {
        for (sql, expected) in [
            ("SELECT a FROM t FOR /* x */ Update", true),
            ("SELECT a FROM t FOR SHARE; UPDATE t", false),
            ("SELECT 'for update'", false),
            ("SELECT \"for\" \"update\"", false),
            ("for", false),
        ] {
            assert_eq!(has_words(sql, &["for", "update"]), expected, "{sql}");
        }
    }
}
