//! Words of a statement.

use pgwire::SqlLexer;

/// Returns true if these words follow each other in a statement.
pub(crate) fn has_words(text: &str, words: &[&[u8]]) -> bool {
    let mut lexer = SqlLexer::new(text.as_bytes(), true);
    let tokens: Vec<_> = std::iter::from_fn(|| lexer.token()).collect();
    tokens.windows(words.len()).any(|part| part.iter().zip(words).all(|(token, word)| token.is_word(word)))
}
