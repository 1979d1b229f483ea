//! Splits SQL into tokens.

use pgwire::{SqlLexer, Token, TokenKind};

/// Returns the tokens of `sql`, without comments.
pub(crate) fn tokens(sql: &str) -> Vec<Token<'_>> {
    let mut lexer = SqlLexer::new(sql.as_bytes(), true);
    std::iter::from_fn(|| lexer.token()).collect()
}

/// Returns the text of a literal, without its quotes.
pub(crate) fn literal_text(literal: &Token<'_>) -> String {
    let text = String::from_utf8_lossy(literal.text);
    // A prefix such as E can precede the quote.
    let text = text.trim_start_matches(|sign| sign != '$' && sign != '\'');
    let quote = text.strip_prefix('$').and_then(|rest| rest.find('$')).map_or(1, |end| end + 2);
    let inner = text.get(quote..text.len().saturating_sub(quote)).unwrap_or_default();
    if text.starts_with('\'') { inner.replace("''", "'") } else { inner.to_owned() }
}

/// Returns the body of a DO block. `None` for other statements.
pub(crate) fn block_body(sql: &str) -> Option<String> {
    let tokens = tokens(sql);
    let is_block = tokens.first().is_some_and(|first| first.is_word(b"do"));
    let body = tokens.iter().find(|token| token.kind == TokenKind::Text).filter(|_| is_block)?;
    Some(literal_text(body))
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
    fn block_bodies_have_no_quotes() {
        for (sql, body) in [
            ("DO $$ a $b$ $$", Some(" a $b$ ")),
            ("/* x */ do language sql $x$$$ $x$", Some("$$ ")),
            ("DO 'a ''b'''", Some("a 'b'")),
            ("DO E'a'", Some("a")),
            ("SELECT 'a'", None),
            ("DO x", None),
        ] {
            assert_eq!(block_body(sql).as_deref(), body, "{sql}");
        }
    }

    #[test]
    fn leading_comments_are_left_out() {
        assert_eq!(without_leading_comments("-- x\n /* y */ SELECT 1 -- z"), "SELECT 1 -- z");
        assert_eq!(without_leading_comments("-- x"), "-- x");
    }
}
