//! Finds parameters such as `$1` in the text of a statement.

use pgwire::{SqlLexer, Token, TokenKind};

/// Returns true if a statement has parameters such as `$1`.
#[must_use]
pub fn has_parameters(statement: &str) -> bool {
    count_parameters(statement) > 0
}

/// Returns the highest parameter number in a statement, or 0 without parameters.
#[must_use]
pub fn count_parameters(statement: &str) -> usize {
    let mut lexer = SqlLexer::new(statement.as_bytes(), true);
    std::iter::from_fn(|| lexer.token()).filter_map(|token| parameter_number(&token)).max().unwrap_or(0)
}

/// Returns the number of the parameter that `token` is, from 1 to 65,535. `None` for other tokens.
pub(super) fn parameter_number(token: &Token<'_>) -> Option<usize> {
    if token.kind != TokenKind::Parameter {
        return None;
    }
    let digits = std::str::from_utf8(token.text.get(1..)?).ok()?;
    digits.parse().ok().filter(|number| (1..=65_535).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_counted_outside_of_literals() {
        assert_eq!(count_parameters("SELECT '$9', $2, $3 /* $7 */, $$ $8 $$"), 3);
        assert!(!has_parameters("SELECT '$1'"));
    }
}
