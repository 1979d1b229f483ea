//! Splits SQL into tokens.

use pgwire::{SqlLexer, Token, TokenKind};

/// Returns the tokens of `sql`, without comments.
pub(crate) fn tokens(sql: &str) -> Vec<Token<'_>> {
    let mut lexer = SqlLexer::new(sql.as_bytes(), true);
    std::iter::from_fn(|| lexer.token()).collect()
}

/// Returns a form that is equal for texts with the same tokens: keywords and names in lowercase, single spaces between
/// tokens, no comments, and no trailing semicolon.
pub(crate) fn normal_form(sql: &str) -> String {
    let text = |token: &Token<'_>| {
        let text = String::from_utf8_lossy(token.text);
        if token.kind == TokenKind::Word { text.to_lowercase() } else { text.into_owned() }
    };
    let mut tokens = tokens(sql);
    while tokens.pop_if(|token| token.is_sign(b';')).is_some() {}
    tokens.iter().map(text).collect::<Vec<_>>().join(" ")
}

/// Returns a statement without the comments at its start.
pub(crate) fn without_leading_comments(sql: &str) -> &str {
    let mut lexer = SqlLexer::new(sql.as_bytes(), true);
    lexer.token().map_or(sql, |first| &sql[lexer.position() - first.text.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_forms_have_the_same_tokens() {
        for (sql, normal) in [
            ("-- A\nSELECT  1 ;;", "select 1"),
            ("Select \"A b\",'C  d' /* e */ From T", "select \"A b\" , 'C  d' from t"),
            ("", ""),
        ] {
            assert_eq!(normal_form(sql), normal);
        }
    }

    #[test]
    fn leading_comments_are_left_out() {
        assert_eq!(without_leading_comments("-- x\n /* y */ SELECT 1 -- z"), "SELECT 1 -- z");
        assert_eq!(without_leading_comments("-- x"), "-- x");
    }
}
