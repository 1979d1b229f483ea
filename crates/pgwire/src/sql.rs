//! Splits SQL into tokens just as the server does, without parsing or copying it.
//!
//! Source: `scan.l` of PostgreSQL 13 to 18.

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A keyword, or a name without quotes.
    Word,
    /// A name in double quotes, including the quotes.
    QuotedName,
    /// A literal in quotes or between dollar signs. The text includes the quotes and the prefix before them
    /// (B, E, N, X or U&).
    Text,
    /// A number, including its decimal point and exponent.
    Number,
    /// A dollar sign followed by digits.
    Parameter,
    /// Any other byte.
    Sign,
}

/// Maximum length of a name in bytes. The server truncates longer ones. Source: `NAMEDATALEN`.
const LONGEST_NAME: usize = 63;

/// A token and its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// The kind of the token.
    pub kind: TokenKind,
    /// The token's bytes in the statement.
    pub text: &'a [u8],
}

impl Token<'_> {
    /// Returns true if the token is the word `word`, which must be in lower case.
    #[must_use]
    pub fn is_word(&self, word: &[u8]) -> bool {
        self.kind == TokenKind::Word && self.text.eq_ignore_ascii_case(word)
    }

    /// Returns true if the token is a name or a keyword.
    #[must_use]
    pub fn is_name(&self) -> bool {
        matches!(self.kind, TokenKind::Word | TokenKind::QuotedName)
    }

    /// Returns the token's name as a server with UTF-8 databases reads it: with ASCII letters folded to lower case or
    /// without its quotes, and at most 63 bytes long. Returns `None` for other tokens, and for names that are
    /// incomplete or not UTF-8. Source: `scansup.c`.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        let text = std::str::from_utf8(self.text).ok()?;
        let mut name = match self.kind {
            TokenKind::Word => text.to_ascii_lowercase(),
            TokenKind::QuotedName => {
                let quoted = text.strip_prefix('"')?.strip_suffix('"')?;
                quoted.replace("\"\"", "\"")
            }
            _ => return None,
        };
        name.truncate(name.floor_char_boundary(LONGEST_NAME));
        Some(name)
    }

    /// Returns true if the token is the single byte `sign`.
    #[must_use]
    pub fn is_sign(&self, sign: u8) -> bool {
        self.kind == TokenKind::Sign && self.text[0] == sign
    }
}

/// Reads tokens from the start of a string to its end.
#[derive(Debug, Clone)]
pub struct SqlLexer<'a> {
    sql: &'a [u8],
    at: usize,
    standard_strings: bool,
}

impl<'a> SqlLexer<'a> {
    /// Creates a lexer. `standard_strings` is the value of `standard_conforming_strings`: if true, a
    /// backslash is an ordinary character in plain literals.
    #[must_use]
    pub fn new(sql: &'a [u8], standard_strings: bool) -> Self {
        Self { sql, at: 0, standard_strings }
    }

    /// Returns the number of bytes read so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Skips white space and comments, then returns the next token.
    pub fn token(&mut self) -> Option<Token<'a>> {
        self.skip_blank(true);
        let start = self.at;
        let first = *self.sql.get(start)?;
        self.at += 1;
        let kind = match first {
            b'\'' => self.literal(!self.standard_strings),
            b'"' => {
                self.until(b'"', false);
                TokenKind::QuotedName
            }
            b'$' => self.dollar(),
            b'0'..=b'9' => self.number(false),
            b'.' if self.peek(0).is_ascii_digit() => self.number(true),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => {
                self.skip_while(
                    |byte| matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'$' | 0x80..),
                );
                let letter = if self.at == start + 1 { first.to_ascii_lowercase() } else { 0 };
                match (letter, self.peek(0), self.peek(1)) {
                    (b'b' | b'e' | b'n' | b'x', b'\'', _) => {
                        self.at += 1;
                        // The server treats N'…' like a plain literal. Source: `xnstart` in `scan.l`.
                        self.literal(letter == b'e' || letter == b'n' && !self.standard_strings)
                    }
                    (b'u', b'&', b'\'') => {
                        self.at += 2;
                        self.literal(false)
                    }
                    _ => TokenKind::Word,
                }
            }
            _ => TokenKind::Sign,
        };
        Some(Token { kind, text: &self.sql[start..self.at] })
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.sql.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn skip_while(&mut self, is_part: impl Fn(u8) -> bool) {
        let rest = &self.sql[self.at..];
        self.at += rest.iter().position(|byte| !is_part(*byte)).unwrap_or(rest.len());
    }

    fn skip_digits(&mut self) {
        self.skip_while(|byte| byte.is_ascii_digit());
    }

    /// Reads the rest of a number after its first digit. `has_point` means that a decimal point preceded this
    /// digit. Two consecutive points aren't part of a number.
    fn number(&mut self, has_point: bool) -> TokenKind {
        self.skip_digits();
        if !has_point && self.peek(0) == b'.' && self.peek(1) != b'.' {
            self.at += 1;
            self.skip_digits();
        }
        let exponent = 1 + usize::from(b"+-".contains(&self.peek(1)));
        if self.peek(0).eq_ignore_ascii_case(&b'e') && self.peek(exponent).is_ascii_digit() {
            self.at += exponent;
            self.skip_digits();
        }
        TokenKind::Number
    }

    /// Skips white space and comments, but `/* … */` only if `blocks` is true. Returns true if this skipped
    /// the end of a line.
    fn skip_blank(&mut self, blocks: bool) -> bool {
        let mut ended = false;
        loop {
            match (self.peek(0), self.peek(1)) {
                (byte @ (b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c), _) => {
                    ended |= matches!(byte, b'\n' | b'\r');
                    self.at += 1;
                }
                (b'-', b'-') => self.skip_while(|byte| !b"\n\r".contains(&byte)),
                (b'/', b'*') if blocks => self.skip_comment(),
                _ => return ended,
            }
        }
    }

    /// Skips a comment, including nested comments.
    fn skip_comment(&mut self) {
        let mut depth = 0_u32;
        while self.at < self.sql.len() {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => (depth, self.at) = (depth + 1, self.at + 2),
                (b'*', b'/') => (depth, self.at) = (depth - 1, self.at + 2),
                _ => self.at += 1,
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Reads the rest of a literal after its first quote. The literal can continue on another line in a new
    /// pair of quotes, where backslashes have the same meaning as on the first line.
    fn literal(&mut self, backslashes: bool) -> TokenKind {
        loop {
            self.until(b'\'', backslashes);
            let end = self.at;
            if !(self.skip_blank(false) && self.peek(0) == b'\'') {
                self.at = end;
                return TokenKind::Text;
            }
            self.at += 1;
        }
    }

    /// Reads up to the closing quote. A doubled quote is part of the text.
    fn until(&mut self, quote: u8, backslashes: bool) {
        while self.at < self.sql.len() {
            let byte = self.peek(0);
            self.at += 1;
            if byte == b'\\' && backslashes {
                self.at = (self.at + 1).min(self.sql.len());
            } else if byte == quote {
                if self.peek(0) != quote {
                    return;
                }
                self.at += 1;
            }
        }
    }

    /// Reads `$1`, `$tag$…$tag$`, or a single dollar sign.
    fn dollar(&mut self) -> TokenKind {
        if self.peek(0).is_ascii_digit() {
            self.skip_digits();
            return TokenKind::Parameter;
        }
        let rest = &self.sql[self.at..];
        let is_of_tag = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_' || **byte >= 0x80;
        let tag = rest.iter().take_while(is_of_tag).count();
        if rest.get(tag) != Some(&b'$') {
            return TokenKind::Sign;
        }
        let delimiter = &self.sql[self.at - 1..=self.at + tag];
        let body = self.at + tag + 1;
        let end = self.sql[body..].windows(delimiter.len()).position(|window| window == delimiter);
        self.at = end.map_or(self.sql.len(), |end| body + end + delimiter.len());
        TokenKind::Text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(sql: &str, standard_strings: bool) -> Vec<&str> {
        let mut lexer = SqlLexer::new(sql.as_bytes(), standard_strings);
        let tokens = std::iter::from_fn(|| lexer.token());
        tokens.map(|token| std::str::from_utf8(token.text).unwrap()).collect()
    }

    #[test]
    fn tokens_end_where_the_server_ends_them() {
        for (sql, tokens) in [
            ("a/*b/*c*/d*/e--f\ng", &["a", "e", "g"][..]),
            ("'a''b' \"c\"\"d\" E'e\\'f' U&\"g\"", &["'a''b'", "\"c\"\"d\"", "E'e\\'f'", "U", "&", "\"g\""]),
            (
                "b'1' X'1f'n'a\\' U&'\\0061' bx'1' u& 'a'",
                &["b'1'", "X'1f'", "n'a\\'", "U&'\\0061'", "bx", "'1'", "u", "&", "'a'"],
            ),
            ("$$a'b$$ $x$ $$ $x$ $1 a$b$c", &["$$a'b$$", "$x$ $$ $x$", "$1", "a$b$c"]),
            (
                "12.5e3::int8 .5E-1 1.e+2 1e 1..2",
                &["12.5e3", ":", ":", "int8", ".5E-1", "1.e+2", "1", "e", "1", ".", ".2"],
            ),
            // After a parameter and a point, a name is an attribute. After a number that ends with a point, a
            // name is a separate token.
            ("$1.a 1.a a.5", &["$1", ".", "a", "1.", "a", "a", ".5"]),
            // A literal can continue on another line. In E'…', backslash escapes are valid there too.
            ("E'a' -- b\n '\\'c' d", &["E'a' -- b\n '\\'c'", "d"]),
            ("E'a' '\\' d", &["E'a'", "'\\'", "d"]),
            ("'a'\n'b'", &["'a'\n'b'"]),
            ("E'a'/*\n*/'\\' d", &["E'a'", "'\\'", "d"]),
        ] {
            assert_eq!(texts(sql, true), tokens, "{sql}");
        }
        assert_eq!(texts("'a\\'' b", false), ["'a\\''", "b"]);
        assert_eq!(texts("N'a\\' || '; COMMIT; --'", false), ["N'a\\' || '", ";", "COMMIT", ";"]);
        assert_eq!(texts("b'a\\' x'\\' c", false), ["b'a\\'", "x'\\'", "c"]);
    }

    proptest! {
        #[test]
        fn every_byte_is_read_once(sql in prop::collection::vec(prop_oneof![
            prop::sample::select(&b"'\"$\\/*-eE\n a1."[..]), any::<u8>(),
        ], 0..60)) {
            let mut lexer = SqlLexer::new(&sql, true);
            let mut end = 0;
            while let Some(token) = lexer.token() {
                prop_assert!(!token.text.is_empty() && lexer.position() > end);
                end = lexer.position();
            }
            prop_assert_eq!(lexer.position(), sql.len());
        }
    }
}
