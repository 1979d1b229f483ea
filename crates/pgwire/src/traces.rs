//! Determines whether a session leaves state in its backend that DISCARD ALL doesn't reset. If so, pgfresh closes the
//! backend instead of giving it to another client. The decision is based only on the client's statements.
//!
//! One list contains the words that a statement may start with, another the built-in functions that leave no state.
//! All other statements are assumed to leave state, including those we can't parse. The lists don't contain any
//! functions, types or views that a template defines.
//!
//! | state | recognized by |
//! |---|---|
//! | libraries: LOAD, functions in C or PL, dictionaries of text search, JIT settings | a word or function that is not allowed, `@@` |
//! | `setseed()`, `SET seed`, settings with a dot, replication origins, `set_config()` | a word or function that is not allowed |
//! | SQL in a string: DO, `query_to_xml()`, `ts_stat()` | a word or function that is not allowed |
//! | `(0.5).setseed`, UPDATE of `pg_settings` | attributes, and catalogs in a statement that writes |
//! | the schema of temporary tables | CREATE, SELECT INTO |

mod names;
#[cfg(test)]
mod tests;

use crate::frame::until_zero;
use crate::{FramePrefix, SqlLexer, Token, TokenKind};
use names::{ATTRIBUTE_PREFIXES, ATTRIBUTES, FUNCTIONS, KEYWORDS, SETTINGS, TEXT_SEARCH};

/// Maximum length in bytes of a message to check. Longer ones are assumed to leave state.
const LONGEST: usize = 64 << 10;
/// Maximum length of a name in PostgreSQL, in bytes. Source: `NAMEDATALEN`.
const NAME: usize = 63;

/// Whether a session has left state in its backend. Once left, the state is never removed.
#[derive(Debug, Clone, Default)]
pub struct SessionTraces {
    left: bool,
}

impl SessionTraces {
    /// Returns a session's initial state, based on the server's startup response. We can check statements only if the
    /// encoding is ASCII-safe and `standard_conforming_strings` is on.
    #[must_use]
    pub fn of_session(startup_response: &[u8]) -> Self {
        let has = |setting: &[u8]| startup_response.windows(setting.len()).any(|window| window == setting);
        let encoding = has(b"client_encoding\0UTF8\0") || has(b"client_encoding\0SQL_ASCII\0");
        Self { left: !(encoding && has(b"standard_conforming_strings\0on\0")) }
    }

    /// Checks a frame from the client. `body` may contain only the first part of the frame's body.
    pub fn observe_client(&mut self, FramePrefix { tag, length, body }: FramePrefix<'_>) {
        if self.left || !matches!(tag, b'Q' | b'P' | b'F') {
            return;
        }
        let text = match tag {
            _ if length > LONGEST => None,
            b'Q' => body.get(..length).and_then(until_zero).map(|(sql, _)| sql),
            b'P' => body.get(..length).and_then(|body| {
                let (_, rest) = until_zero(body)?;
                until_zero(rest).map(|(sql, _)| sql)
            }),
            _ => None,
        };
        self.left = !text.is_some_and(leaves_nothing);
    }

    /// Returns true if DISCARD ALL would make the backend equivalent to a new one.
    #[must_use]
    pub fn leaves_nothing(&self) -> bool {
        !self.left
    }
}

/// Returns true if `sql` certainly leaves nothing in its backend and changes settings only with SET and RESET. Parses
/// the text as a server with `standard_conforming_strings` on does.
#[must_use]
pub fn leaves_nothing(sql: &[u8]) -> bool {
    let mut statements = Statements::new(sql);
    while statements.next.is_some() {
        if statements.statement().is_none() {
            return false;
        }
    }
    !(statements.writes && statements.names_catalog)
}

/// A name in lower case, unless it was quoted.
struct Folded {
    bytes: [u8; NAME],
    length: usize,
    quoted: bool,
}

impl Folded {
    /// Creates a folded name. The result is empty if the name is too long or contains a quote, because built-in
    /// functions don't have such names.
    fn new(token: Token<'_>) -> Self {
        let quoted = token.kind == TokenKind::QuotedName;
        let text = token.text;
        let text = if quoted { text.get(1..text.len() - 1).unwrap_or_default() } else { text };
        let mut bytes = [0; NAME];
        let length = if text.len() > NAME { 0 } else { text.len() };
        bytes[..length].copy_from_slice(&text[..length]);
        if !quoted {
            bytes[..length].make_ascii_lowercase();
        }
        Self { bytes, length, quoted }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Returns the name as a keyword, or an empty one if it was quoted.
    fn word(&self) -> &[u8] {
        if self.quoted { b"" } else { self.as_bytes() }
    }

    fn is_in(&self, names: &[&str]) -> bool {
        names.binary_search_by(|name| name.as_bytes().cmp(self.as_bytes())).is_ok()
    }
}

/// Parser for statements. Functions that return an [`Option`] return `None` as soon as they find that a statement may
/// leave state.
struct Statements<'a> {
    lexer: SqlLexer<'a>,
    next: Option<Token<'a>>,
    /// Whether the statement contains a word that changes data.
    writes: bool,
    /// Whether the statement contains a name that could be a catalog. For example, changing `pg_settings`
    /// changes settings.
    names_catalog: bool,
}

impl<'a> Statements<'a> {
    fn new(sql: &'a [u8]) -> Self {
        let mut lexer = SqlLexer::new(sql, true);
        let next = lexer.token();
        Self { lexer, next, writes: false, names_catalog: false }
    }

    fn take(&mut self) -> Option<Token<'a>> {
        std::mem::replace(&mut self.next, self.lexer.token())
    }

    /// Consumes the next token if it is `sign`.
    fn takes(&mut self, sign: u8) -> bool {
        let is = self.next_is(sign);
        if is {
            self.take();
        }
        is
    }

    fn next_is(&self, sign: u8) -> bool {
        self.next.is_some_and(|token| token.is_sign(sign))
    }

    /// Returns the next token if it is a name or a word.
    fn name(&self) -> Option<Folded> {
        self.next.filter(Token::is_name).map(Folded::new)
    }

    /// Consumes the next word, or returns `None` if the next token isn't a word.
    fn word(&mut self) -> Option<Folded> {
        let word = self.name().filter(|name| !name.quoted)?;
        self.take();
        Some(word)
    }

    /// Reads one statement and the semicolon after it.
    fn statement(&mut self) -> Option<()> {
        if self.takes(b';') {
            return Some(());
        }
        let mut queries_only = false;
        while self.takes(b'(') {
            queries_only = true;
        }
        let first = self.name().filter(|name| !name.quoted)?;
        match first.word() {
            b"select" | b"with" | b"values" | b"table" => self.body(),
            _ if queries_only => None,
            b"insert" | b"update" | b"delete" | b"merge" | b"truncate" | b"begin" | b"start" | b"end"
            | b"abort" | b"savepoint" | b"release" | b"declare" | b"fetch" | b"move" | b"close" | b"lock"
            | b"show" | b"execute" | b"deallocate" | b"discard" | b"listen" | b"unlisten" | b"notify" => {
                self.body()
            }
            b"commit" | b"rollback" => {
                self.take();
                if self.name().is_some_and(|name| name.word() == b"prepared") { None } else { self.body() }
            }
            b"prepare" => {
                self.take();
                if self.name()?.word() == b"transaction" {
                    None
                } else {
                    self.declared().and_then(|()| self.body())
                }
            }
            b"copy" => {
                self.take();
                self.writes = true;
                if self.next_is(b'(') { self.copy() } else { self.declared().and_then(|()| self.copy()) }
            }
            b"set" | b"reset" => {
                self.take();
                self.setting()
            }
            b"explain" => {
                self.take();
                self.explain()
            }
            _ => None,
        }
    }

    /// Reads the rest of an EXPLAIN: its options and a statement.
    fn explain(&mut self) -> Option<()> {
        if self.takes(b'(') {
            self.until_closed()?;
            // The parentheses contained a query, not options.
            if self.next.is_none() || self.takes(b';') {
                return Some(());
            }
        }
        while self.name().is_some_and(|name| matches!(name.word(), b"analyze" | b"analyse" | b"verbose")) {
            self.take();
        }
        self.statement()
    }

    /// Reads the contents of parentheses and the closing parenthesis.
    fn until_closed(&mut self) -> Option<()> {
        let mut open = 1_u32;
        let mut last = Last::default();
        while open > 0 {
            if self.next.is_none() || self.next_is(b';') {
                return None;
            }
            if self.next_is(b'(') {
                open += 1;
            } else if self.next_is(b')') {
                open -= 1;
            }
            self.part(&mut last)?;
        }
        Some(())
    }

    /// Reads the rest of a COPY after its table. Programs are rejected, and so are encodings, because the server may
    /// load a library for them.
    fn copy(&mut self) -> Option<()> {
        let mut last = Last::default();
        while self.next.is_some() && !self.takes(b';') {
            if self.name().is_some_and(|name| matches!(name.as_bytes(), b"program" | b"encoding")) {
                return None;
            }
            self.part(&mut last)?;
        }
        Some(())
    }

    /// Reads the rest of a SET or RESET.
    fn setting(&mut self) -> Option<()> {
        let mut name = self.word()?;
        if matches!(name.word(), b"session" | b"local") {
            name = self.word()?;
        }
        if self.next_is(b'.') {
            return None;
        }
        match name.word() {
            b"time" | b"transaction" | b"constraints" | b"role" | b"authorization" | b"characteristics"
            | b"schema" | b"xml" | b"all" => {}
            b"names" | b"client_encoding" => {
                let value = self.value();
                [&b""[..], b"utf8", b"utf-8", b"unicode", b"default"]
                    .contains(&value.as_bytes())
                    .then_some(())?;
            }
            b"standard_conforming_strings" => {
                [&b""[..], b"on", b"true", b"default"].contains(&self.value().as_bytes()).then_some(())?;
            }
            _ if name.is_in(SETTINGS) => {}
            _ => return None,
        }
        while self.next.is_some() && !self.takes(b';') {
            self.take();
        }
        Some(())
    }

    /// Reads a setting's value, in lower case and without quotes. The result is empty if there is no value.
    fn value(&mut self) -> Folded {
        if self.name().is_some_and(|name| name.word() == b"to") || self.next_is(b'=') {
            self.take();
        }
        let token = self.next.filter(|token| !token.is_sign(b';'));
        let text = token.map_or(&b""[..], |token| token.text);
        let plain = text.strip_prefix(b"'").and_then(|text| text.strip_suffix(b"'")).unwrap_or(text);
        Folded::new(Token { kind: TokenKind::Word, text: plain })
    }

    /// Reads the rest of a statement.
    fn body(&mut self) -> Option<()> {
        let mut last = Last::default();
        while self.next.is_some() && !self.takes(b';') {
            self.part(&mut last)?;
        }
        Some(())
    }

    /// Reads a name before a parenthesis that doesn't start a call.
    fn declared(&mut self) -> Option<()> {
        self.part(&mut Last { declares: true, ..Last::default() })
    }

    /// Reads the next token, or a name with all its parts.
    fn part(&mut self, last: &mut Last) -> Option<()> {
        let Last { declares, colon, writes } = std::mem::take(last);
        let token = self.take()?;
        if !token.is_name() {
            if token.is_sign(b'.') {
                return self.attributes(None, declares);
            }
            // Between two texts, `@@` is a search, which may use a library's dictionaries.
            if token.is_sign(b'@') && self.next_is(b'@') {
                return None;
            }
            last.colon = token.is_sign(b':');
            last.declares = colon && last.colon;
            return Some(());
        }
        let meaning = Meaning::of(token);
        if meaning == Meaning::Unicode && self.next_is(b'&') {
            return None;
        }
        if self.takes(b'.') {
            return self.attributes(Some(token), declares);
        }
        match meaning {
            Meaning::Into if !writes => return None,
            Meaning::Into | Meaning::Declares => last.declares = true,
            Meaning::Inserts => (self.writes, last.writes) = (true, true),
            Meaning::Changes => self.writes = true,
            Meaning::Unicode | Meaning::Nothing => {}
        }
        if !self.next_is(b'(') {
            self.names_catalog |= is_catalog(token);
        } else if !declares {
            let name = Folded::new(token);
            if name.quoted || !name.is_in(KEYWORDS) {
                self.call(&name)?;
            }
        }
        Some(())
    }

    /// Reads the names after a dot. If `first` is a name, these are its further parts. Otherwise, they are attributes
    /// of a value, which can also be functions.
    fn attributes(&mut self, first: Option<Token<'_>>, declares: bool) -> Option<()> {
        let in_catalog = first.is_some_and(|first| Folded::new(first).as_bytes() == b"pg_catalog");
        self.names_catalog |= !in_catalog && first.is_some_and(is_catalog);
        let mut parts = 1;
        while let Some(token) = self.next.filter(Token::is_name) {
            self.take();
            if Meaning::of(token) == Meaning::Unicode && self.next_is(b'&') {
                return None;
            }
            let calls = self.next_is(b'(') && !declares;
            if calls {
                return if in_catalog && parts == 1 { self.call(&Folded::new(token)) } else { None };
            }
            if is_attribute(token) {
                return None;
            }
            self.names_catalog |= is_catalog(token);
            parts += 1;
            if !self.takes(b'.') {
                break;
            }
        }
        Some(())
    }

    /// Checks the call of a built-in function, whose opening parenthesis must come next.
    fn call(&self, name: &Folded) -> Option<()> {
        if name.is_in(FUNCTIONS) {
            return Some(());
        }
        let mut ahead = self.lexer.clone();
        let argument = ahead.token()?.text.strip_prefix(b"'")?.strip_suffix(b"'")?;
        let ends = |token: Token<'_>| token.is_sign(b',') || token.is_sign(b')');
        let harmless = match name.as_bytes() {
            // A setting with a dot in its name may belong to a library.
            b"current_setting" => !argument.contains(&b'.') && ends(ahead.token()?),
            // All other configurations use dictionaries from libraries.
            _ if name.is_in(TEXT_SEARCH) => {
                let mut next = ahead.token()?;
                if next.is_sign(b':') && ahead.token()?.is_sign(b':') && ahead.token()?.text == b"regconfig" {
                    next = ahead.token()?;
                }
                matches!(argument, b"simple" | b"pg_catalog.simple") && next.is_sign(b',')
            }
            _ => false,
        };
        harmless.then_some(())
    }
}

/// The meaning of a word in any position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Nothing,
    /// INTO, which either belongs to INSERT or MERGE or precedes a new table's name.
    Into,
    /// A word after which a name with a parenthesis isn't a call.
    Declares,
    /// INSERT or MERGE.
    Inserts,
    /// Any other word that changes data.
    Changes,
    /// U, which could be the start of U&"…".
    Unicode,
}

impl Meaning {
    fn of(token: Token<'_>) -> Self {
        let is = |word: &[u8]| token.is_word(word);
        match token.text[0] | 0x20 {
            b'i' if is(b"into") => Self::Into,
            b'i' if is(b"insert") => Self::Inserts,
            b'm' if is(b"merge") => Self::Inserts,
            b'a' if is(b"as") => Self::Declares,
            b'w' if is(b"with") => Self::Declares,
            b'r' if is(b"recursive") => Self::Declares,
            b'o' if is(b"ordinality") => Self::Declares,
            b'e' if is(b"execute") => Self::Declares,
            b'u' if is(b"u") => Self::Unicode,
            b'u' if is(b"update") => Self::Changes,
            b'd' if is(b"delete") => Self::Changes,
            b't' if is(b"truncate") => Self::Changes,
            _ => Self::Nothing,
        }
    }
}

/// Returns a name without its opening quote.
fn bare(token: Token<'_>) -> &[u8] {
    token.text.strip_prefix(b"\"").unwrap_or(token.text)
}

/// Returns true if the token could be the name of a catalog or of a view of one.
fn is_catalog(token: Token<'_>) -> bool {
    bare(token).get(..3).is_some_and(|prefix| prefix.eq_ignore_ascii_case(b"pg_"))
}

/// Returns true if a name after a value and a dot could be a call of a function that leaves state.
fn is_attribute(token: Token<'_>) -> bool {
    // Check the first letter, which makes the search unnecessary for most names.
    let [first, _, _, ..] = bare(token) else { return false };
    if !matches!(first.to_ascii_lowercase(), b'b' | b'd' | b'f' | b'l' | b'p' | b's' | b't' | b'w') {
        return false;
    }
    let name = Folded::new(token);
    name.is_in(ATTRIBUTES)
        || ATTRIBUTE_PREFIXES.iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()))
}

/// The effect of a token on the next one.
#[derive(Default)]
struct Last {
    /// True if a name after this token isn't a call, even if a parenthesis follows. The name is that of a table, a
    /// type, an alias or a prepared statement.
    declares: bool,
    /// Whether the token was a colon. After two colons, a type follows.
    colon: bool,
    /// Whether INTO is allowed next, because no new table's name follows it.
    writes: bool,
}
