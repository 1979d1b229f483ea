//! Parses keywords and names at the start of a statement.

use pgwire::Token;

/// A name in SQL, with or without a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SqlName {
    /// The schema. `None` if the statement doesn't name one.
    pub(super) schema: Option<String>,
    /// Name without the schema.
    pub(super) name: String,
}

/// The unread rest of a statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [Token<'a>],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(tokens: &'a [Token<'a>]) -> Self {
        Self { rest: tokens }
    }

    /// Returns the tokens that are still unread.
    pub(super) fn rest(&self) -> &'a [Token<'a>] {
        self.rest
    }

    /// Returns true if `words` come next. They must be lowercase and separated by single spaces, as in `if exists`.
    pub(super) fn is_at(&self, words: &str) -> bool {
        let mut rest = self.rest.iter();
        words.split(' ').all(|word| rest.next().is_some_and(|token| token.is_word(word.as_bytes())))
    }

    /// Skips `words` if they come next. Returns true if they did.
    pub(super) fn skip(&mut self, words: &str) -> bool {
        let is_next = self.is_at(words);
        if is_next {
            self.rest = &self.rest[words.split(' ').count()..];
        }
        is_next
    }

    /// Skips `sign` if it comes next. Returns true if it did.
    pub(super) fn skip_sign(&mut self, sign: u8) -> bool {
        let is_next = self.rest.first().is_some_and(|token| token.is_sign(sign));
        if is_next {
            self.rest = &self.rest[1..];
        }
        is_next
    }

    /// Skips everything up to and including the first `word` outside parentheses. Returns `None` if there is no `word`.
    pub(super) fn skip_past(&mut self, word: &str) -> Option<()> {
        let outer = outer(self.rest);
        let (at, _) = outer.iter().find(|(_, token)| token.is_word(word.as_bytes()))?;
        self.rest = &self.rest[at + 1..];
        Some(())
    }

    /// Reads a name without a schema.
    pub(super) fn identifier(&mut self) -> Option<String> {
        let (first, rest) = self.rest.split_first()?;
        let name = first.name()?;
        self.rest = rest;
        Some(name)
    }

    /// Reads a name with or without a schema.
    pub(super) fn name(&mut self) -> Option<SqlName> {
        let mut parts = vec![self.identifier()?];
        while self.skip_sign(b'.') {
            parts.push(self.identifier()?);
        }
        let name = parts.pop()?;
        Some(SqlName { schema: parts.pop(), name })
    }

    /// Reads comma-separated names.
    pub(super) fn names(&mut self) -> Vec<SqlName> {
        let mut names: Vec<_> = self.name().into_iter().collect();
        while self.skip_sign(b',') {
            names.extend(self.name());
        }
        names
    }

    /// Splits the rest at the commas outside parentheses.
    pub(super) fn list(&self) -> Vec<Self> {
        let mut parts = Vec::new();
        let mut start = 0;
        for (at, _) in outer(self.rest).into_iter().filter(|(_, token)| token.is_sign(b',')) {
            parts.push(Self { rest: &self.rest[start..at] });
            start = at + 1;
        }
        parts.push(Self { rest: &self.rest[start..] });
        parts
    }

    /// Returns true if `words` appear outside parentheses, one directly after the other.
    pub(super) fn has(&self, words: &str) -> bool {
        let outer: Vec<_> = outer(self.rest).into_iter().map(|(_, token)| token).collect();
        (0..outer.len()).any(|at| Cursor { rest: &outer[at..] }.is_at(words))
    }
}

/// Returns the tokens outside parentheses and brackets, with their positions.
fn outer<'a>(tokens: &[Token<'a>]) -> Vec<(usize, Token<'a>)> {
    let mut depth = 0_usize;
    let mut outer = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.is_sign(b'(') || token.is_sign(b'[') {
            depth += 1;
        } else if token.is_sign(b')') || token.is_sign(b']') {
            depth = depth.saturating_sub(1);
        } else if depth == 0 {
            outer.push((at, *token));
        }
    }
    outer
}
