//! Classifies client statements by how they can fail.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use pgwire::{PlainStatement, SqlLexer, Token, TokenKind, statement_places};

use super::sql_request::is_request;

/// Maximum length of the statement text that a session stores, in bytes.
const LONGEST_TEXT: usize = 8 << 10;
/// Number of tokens that determine a statement's kind.
const MOST_TOKENS: usize = 64;

/// How a statement can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A statement that isn't any of the kinds below.
    Plain,
    Begin,
    Commit {
        chain: bool,
    },
    PrepareTransaction,
    Rollback {
        chain: bool,
    },
    RollbackTo,
    /// A statement such as CALL that can commit by itself if no transaction block is open.
    Call,
    /// The statement can't run in a transaction block, so it can't be undone.
    Alone,
    /// SET pgfresh.fault, which adds a fault.
    Fault,
}

impl Kind {
    /// Returns true for statements that end a transaction and keep its work.
    pub(super) fn commits(self) -> bool {
        matches!(self, Self::Commit { .. } | Self::PrepareTransaction)
    }

    /// Returns true for statements that roll back a transaction. These can't fail.
    pub(super) fn rolls_back(self) -> bool {
        matches!(self, Self::Rollback { .. } | Self::RollbackTo)
    }
}

/// A client's statement.
#[derive(Debug, Clone)]
pub(super) struct Statement {
    /// The text from the first token on. At most [`LONGEST_TEXT`] bytes, except for fault requests.
    pub(super) text: Arc<str>,
    pub(super) kind: Kind,
    /// Byte range in the query string.
    pub(super) place: Range<usize>,
    /// The normalized text for pattern matching, computed at the first comparison. All executions of a prepared
    /// statement share it.
    plain: Arc<OnceLock<PlainStatement>>,
}

impl Statement {
    /// Returns a plain statement whose text is only a name for reports.
    pub(super) fn named(name: &str) -> Self {
        Self::of_kind(Kind::Plain, name)
    }

    /// Returns a statement of the given kind whose text is only a name for reports.
    pub(super) fn of_kind(kind: Kind, name: &str) -> Self {
        Self { text: name.into(), kind, place: 0..0, plain: Arc::default() }
    }

    /// Returns the normalized text for pattern matching.
    pub(super) fn plain(&self) -> &PlainStatement {
        self.plain.get_or_init(|| PlainStatement::new(&self.text))
    }
}

/// Splits a query string into its statements. Omits statements without tokens.
pub(super) fn statements(sql: &[u8], standard_strings: bool) -> Vec<Statement> {
    let found = statement_places(sql, standard_strings).into_iter();
    found.filter_map(|place| statement(sql, place, standard_strings)).collect()
}

fn statement(sql: &[u8], place: Range<usize>, standard_strings: bool) -> Option<Statement> {
    let whole = &sql[place.clone()];
    let mut lexer = SqlLexer::new(whole, standard_strings);
    let first = lexer.token()?;
    let start = lexer.position() - first.text.len();
    let text = String::from_utf8_lossy(whole[start..].trim_ascii_end());
    let rest = std::iter::from_fn(|| lexer.token()).take(MOST_TOKENS);
    let tokens: Vec<Token<'_>> = std::iter::once(first).chain(rest).collect();
    let kind = if is_request(whole) { Kind::Fault } else { kind(&tokens) };
    // A fault request is parsed later, so keep it complete.
    let end = if kind == Kind::Fault { text.len() } else { text.floor_char_boundary(LONGEST_TEXT) };
    let text = text[..end].into();
    Some(Statement { text, kind, place: place.start + start..place.end, plain: Arc::default() })
}

fn kind(tokens: &[Token<'_>]) -> Kind {
    let is = |at: usize, words: &[&str]| {
        tokens.get(at).is_some_and(|token| words.iter().any(|word| token.is_word(word.as_bytes())))
    };
    let has = |word: &str| tokens.iter().any(|token| token.is_word(word.as_bytes()));
    // The server refuses COMMIT with other words, so such statements are plain.
    if (is(0, &["commit"]) || is(0, &["end"])) && !is(1, &["prepared"]) {
        return chains(tokens).map_or(Kind::Plain, |chain| Kind::Commit { chain });
    }
    // Matches `AND CHAIN` but not `AND NO CHAIN`.
    let chain = tokens.windows(2).any(|pair| pair[0].is_word(b"and") && pair[1].is_word(b"chain"));
    let Some(first) = tokens.first() else { return Kind::Plain };
    match first.text.to_ascii_lowercase().as_slice() {
        b"begin" | b"start" => Kind::Begin,
        b"commit" | b"rollback" if is(1, &["prepared"]) => Kind::Alone,
        b"rollback" if is(1, &["to"]) || is(1, &["work", "transaction"]) && is(2, &["to"]) => {
            Kind::RollbackTo
        }
        b"rollback" | b"abort" => Kind::Rollback { chain },
        b"prepare"
            if tokens.len() == 3
                && is(1, &["transaction"])
                && tokens.get(2).is_some_and(|token| token.kind == TokenKind::Text) =>
        {
            Kind::PrepareTransaction
        }
        b"call" | b"do" => Kind::Call,
        b"vacuum" => Kind::Alone,
        b"cluster" if tokens.len() == 1 => Kind::Alone,
        b"discard" if is(1, &["all"]) => Kind::Alone,
        b"alter" if is(1, &["system"]) => Kind::Alone,
        b"create" | b"drop" if is(1, &["database", "tablespace", "subscription"]) => Kind::Alone,
        b"create" | b"drop" | b"alter" | b"reindex" if has("concurrently") => Kind::Alone,
        b"reindex" if has("database") || has("system") || has("schema") => Kind::Alone,
        _ => Kind::Plain,
    }
}

/// Returns whether COMMIT or END begins another transaction (`AND CHAIN`). Returns `None` if unexpected words follow.
fn chains(tokens: &[Token<'_>]) -> Option<bool> {
    let words: Vec<_> = tokens[1..].iter().map(|token| token.text.to_ascii_lowercase()).collect();
    let words: Vec<_> = words.iter().map(Vec::as_slice).collect();
    let rest = match &words[..] {
        [b"work" | b"transaction", rest @ ..] | rest => rest,
    };
    match rest {
        [] | [b"and", b"no", b"chain"] => Some(false),
        [b"and", b"chain"] => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_from_words() {
        for (sql, expected) in [
            ("UPDATE t SET a = 1", Kind::Plain),
            ("/* app */ select 1", Kind::Plain),
            ("start transaction isolation level serializable", Kind::Begin),
            ("END", Kind::Commit { chain: false }),
            ("COMMIT AND NO CHAIN", Kind::Commit { chain: false }),
            ("commit work and chain", Kind::Commit { chain: true }),
            ("end transaction and no chain", Kind::Commit { chain: false }),
            ("commit garbage", Kind::Plain),
            ("commit and chain and chain", Kind::Plain),
            ("PREPARE TRANSACTION 'a' garbage", Kind::Plain),
            ("COMMIT PREPARED 'a'", Kind::Alone),
            ("PREPARE TRANSACTION 'a'", Kind::PrepareTransaction),
            ("PREPARE transaction AS SELECT 1", Kind::Plain),
            ("ROLLBACK", Kind::Rollback { chain: false }),
            ("ROLLBACK TRANSACTION TO SAVEPOINT a", Kind::RollbackTo),
            ("CREATE UNIQUE INDEX CONCURRENTLY i ON t (a)", Kind::Alone),
            ("SET pgfresh.fault = '{}'", Kind::Fault),
            ("SET SESSION PGFRESH.Fault TO '{}'", Kind::Fault),
            ("SET search_path = pgfresh.fault", Kind::Plain),
            ("SET pgfresh.fault FROM CURRENT", Kind::Plain),
        ] {
            assert_eq!(statements(sql.as_bytes(), true)[0].kind, expected, "{sql}");
        }
    }

    #[test]
    fn text_begins_with_first_token() {
        let sql = b" ; /* a */ SELECT 1 ;; -- b\n UPDATE t ;";
        let found = statements(sql, true);
        let texts: Vec<&str> = found.iter().map(|statement| &*statement.text).collect();
        assert_eq!(texts, ["SELECT 1", "UPDATE t"]);
        assert_eq!(&sql[found[1].place.clone()], b"UPDATE t ");
    }
}
