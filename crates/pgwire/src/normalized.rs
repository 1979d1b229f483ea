//! Normalizes statements by removing their values, so that reports can group statements that differ only in
//! their values.

use std::fmt;

use crate::sql::{SqlLexer, TokenKind};

/// Maximum length of a normalized statement's text, in bytes.
const LONGEST: usize = 1000;

/// The kind of a statement, determined by its first words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatementKind {
    /// Empties tables.
    Truncate,
    /// Creates, alters or drops objects inside a database.
    Ddl,
    /// Creates, alters or drops databases.
    Database,
    /// Adds rows.
    Insert,
    /// Changes rows. `MERGE` is of this kind too, although it can also add or remove rows.
    Update,
    /// Removes rows.
    Delete,
    /// Reads rows.
    Select,
    /// Copies rows in bulk.
    Copy,
    /// Commits a transaction.
    Commit,
    /// Begins or rolls back a transaction or a savepoint.
    Transaction,
    /// VACUUM, ANALYZE, CHECKPOINT and similar commands.
    Maintenance,
    /// Settings, notifications, locks, procedures, and all remaining statements.
    Other,
    /// Starts a session.
    Connect,
}

impl StatementKind {
    /// Returns the name that appears in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Truncate => "TRUNCATE",
            Self::Ddl => "DDL",
            Self::Database => "CREATE/DROP DATABASE",
            Self::Insert => "INSERT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Select => "SELECT",
            Self::Copy => "COPY",
            Self::Commit => "COMMIT",
            Self::Transaction => "BEGIN/ROLLBACK",
            Self::Maintenance => "VACUUM and the like",
            Self::Other => "others",
            Self::Connect => "connecting",
        }
    }
}

impl fmt::Display for StatementKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// A statement without its values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NormalizedStatement {
    /// The kind of the statement.
    pub kind: StatementKind,
    /// The text on a single line, with `?` in place of each value.
    pub text: String,
    /// Whether the statement empties entire tables, i.e. whether it is a `TRUNCATE` or a `DELETE` without
    /// `WHERE`.
    pub clears: bool,
}

impl NormalizedStatement {
    /// Normalizes a client's statement, which may be truncated at any point. If a message contains several
    /// statements, the kind is that of the first one that is neither transaction control nor of the kind
    /// `Other`.
    #[must_use]
    pub fn read(sql: &str) -> Self {
        let mut tokens = tokens(sql);
        // A semicolon at the end makes no difference.
        while tokens.pop_if(|token| token.is(";")).is_some() {}
        let parts =
            tokens.split(|token| *token == OperatorToken::Symbol(";")).filter(|part| !part.is_empty());
        let mut kinds = parts.map(|part| (kind_of(part), part));
        let first = kinds.clone().next();
        let weighty = kinds
            .find(|(kind, _)| !matches!(kind, StatementKind::Transaction | StatementKind::Other))
            .or(first);
        let (kind, part) = weighty.unwrap_or((StatementKind::Other, &[]));
        let clears = kind == StatementKind::Truncate
            || (kind == StatementKind::Delete && !part.iter().any(|token| token.is_word("where")));
        Self { kind, text: spell(&tokens, LONGEST), clears }
    }

    /// Returns the whole text of a statement without its values, however long it is.
    #[must_use]
    pub fn whole_text(sql: &str) -> String {
        spell(&tokens(sql), usize::MAX)
    }

    /// Returns a placeholder for a statement that got no response because the session ended first.
    #[must_use]
    pub fn interrupted() -> Self {
        Self {
            kind: StatementKind::Other,
            text: "(a session was ended in the midst of it)".to_owned(),
            clears: false,
        }
    }

    /// Returns a placeholder for a statement of unknown text that has no response yet.
    #[must_use]
    pub fn running() -> Self {
        Self { kind: StatementKind::Other, text: "(a statement was still running)".to_owned(), clears: false }
    }

    /// Returns a placeholder for the start of a session, which has no statement.
    #[must_use]
    pub fn connecting() -> Self {
        Self { kind: StatementKind::Connect, text: "(a session is being started)".to_owned(), clears: false }
    }
}

/// A token for comparison and output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperatorToken<'a> {
    /// A keyword or identifier.
    Word(&'a str),
    /// A constant or parameter.
    Value,
    /// An operator, or any other single character.
    Symbol(&'a str),
}

impl OperatorToken<'_> {
    fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(this) if this.eq_ignore_ascii_case(word))
    }

    fn is(&self, symbol: &str) -> bool {
        *self == OperatorToken::Symbol(symbol)
    }
}

/// Characters that can be part of an operator. Source: the manual's "Lexical Structure".
const OPERATOR: &[u8] = b"+-*/<>=~!@#%^&|`?:";

/// Returns the tokens of `sql`, joining the characters of an operator. A number is joined with a word
/// directly after it, because a number's digits can be letters.
fn tokens(sql: &str) -> Vec<OperatorToken<'_>> {
    let mut lexer = SqlLexer::new(sql.as_bytes(), true);
    let mut tokens = Vec::new();
    let (mut start, mut end, mut number) = (0, 0, false);
    while let Some(token) = lexer.token() {
        let begin = lexer.position() - token.text.len();
        let adjacent = begin == end;
        end = lexer.position();
        let is_number = matches!(token.kind, TokenKind::Number | TokenKind::Parameter);
        if adjacent && number && (is_number || token.kind == TokenKind::Word) {
            continue;
        }
        number = is_number;
        let text = &sql[begin..end];
        let is_operator = |token: &str| token.bytes().all(|sign| OPERATOR.contains(&sign));
        match tokens.last_mut() {
            Some(OperatorToken::Symbol(last)) if adjacent && is_operator(last) && is_operator(text) => {
                *last = &sql[start..end];
                continue;
            }
            _ => start = begin,
        }
        tokens.push(match token.kind {
            TokenKind::Word | TokenKind::QuotedName => OperatorToken::Word(text),
            TokenKind::Sign => OperatorToken::Symbol(text),
            TokenKind::Text | TokenKind::Number | TokenKind::Parameter => OperatorToken::Value,
        });
    }
    tokens
}

fn kind_of(tokens: &[OperatorToken<'_>]) -> StatementKind {
    let mut words = tokens.iter().filter_map(|token| match token {
        OperatorToken::Word(word) => Some(word.to_ascii_lowercase()),
        _ => None,
    });
    let (Some(first), second) = (words.next(), words.next().unwrap_or_default()) else {
        return StatementKind::Other;
    };
    match first.as_str() {
        "truncate" => StatementKind::Truncate,
        "create" | "drop" | "alter" if second == "database" => StatementKind::Database,
        "create" | "drop" | "alter" | "comment" | "grant" | "revoke" | "refresh" | "reassign"
        | "security" | "import" => StatementKind::Ddl,
        "select" | "values" | "table" | "fetch" | "declare" | "close" | "explain" | "move" => {
            StatementKind::Select
        }
        "copy" => StatementKind::Copy,
        "commit" | "end" => StatementKind::Commit,
        "prepare" if second == "transaction" => StatementKind::Commit,
        "begin" | "start" | "rollback" | "abort" | "savepoint" | "release" => StatementKind::Transaction,
        "vacuum" | "analyze" | "analyse" | "checkpoint" | "reindex" | "cluster" | "repack" => {
            StatementKind::Maintenance
        }
        "with" => kind_of_with(tokens),
        first => writing_kind(first).unwrap_or(StatementKind::Other),
    }
}

/// Returns the kind of the statement that follows the subqueries of a `WITH`, all of which are in parentheses. If that
/// statement only reads, returns the kind of the first subquery that writes.
fn kind_of_with(tokens: &[OperatorToken<'_>]) -> StatementKind {
    let mut depth = 0_usize;
    let mut of_subquery = None;
    for (place, token) in tokens.iter().enumerate() {
        match token {
            OperatorToken::Symbol("(") => depth += 1,
            OperatorToken::Symbol(")") => depth = depth.saturating_sub(1),
            OperatorToken::Word(word) if depth <= 1 => {
                let word = word.to_ascii_lowercase();
                match writing_kind(&word) {
                    Some(kind) if depth == 0 => return kind,
                    Some(kind) if begins_subquery(&tokens[..place]) => {
                        of_subquery.get_or_insert(kind);
                    }
                    None if depth == 0 && matches!(word.as_str(), "select" | "values" | "table") => break,
                    _ => {}
                }
            }
            _ => {}
        }
    }
    of_subquery.unwrap_or(StatementKind::Select)
}

/// Returns true if the next token starts a subquery of a `WITH`, rather than a list of columns.
fn begins_subquery(before: &[OperatorToken<'_>]) -> bool {
    matches!(before, [.., word, parenthesis]
        if parenthesis.is("(") && (word.is_word("as") || word.is_word("materialized")))
}

/// Returns the kind of a statement that changes rows, given its first word in lower case. Returns `None` for other
/// words.
fn writing_kind(first: &str) -> Option<StatementKind> {
    match first {
        "insert" => Some(StatementKind::Insert),
        "update" | "merge" => Some(StatementKind::Update),
        "delete" => Some(StatementKind::Delete),
        _ => None,
    }
}

/// Formats the tokens as one line of at most `longest` bytes, ending with an ellipsis if the text is longer. Values
/// become `?`, lists of values become `(?, …)`, and several rows of values become a single list.
fn spell(tokens: &[OperatorToken<'_>], longest: usize) -> String {
    let mut words: Vec<&str> = Vec::with_capacity(tokens.len());
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        if is_sign(tokens, index) {
            index += 1;
            continue;
        }
        let after_savepoint = index > 0 && tokens[index - 1].is_word("savepoint");
        words.push(match token {
            // Drivers put numbers into savepoint names.
            OperatorToken::Word(_) if after_savepoint => "?",
            OperatorToken::Value => "?",
            OperatorToken::Word(text) | OperatorToken::Symbol(text) => text,
        });
        index += 1;
        if *token == OperatorToken::Value {
            index += cast(&tokens[index..]);
        }
        match words[..] {
            [.., "?", ",", ref mut last @ "?"] => *last = "…",
            [.., "…", ",", "?"] => words.truncate(words.len() - 2),
            _ => {}
        }
    }
    let mut text = String::new();
    let mut before = "";
    for word in collapse_rows(&words) {
        let glued = matches!(word, "," | ")" | ";" | "." | "]" | "[" | "::")
            || matches!(before, "" | "(" | "." | "[" | "::")
            || (word == "(" && !matches!(before, "," | "=") && !is_key_word(before));
        if !glued {
            text.push(' ');
        }
        // A quoted name can contain any character.
        text.extend(word.chars().map(|letter| if letter.is_control() { ' ' } else { letter }));
        before = word;
        if text.len() > longest {
            text.truncate(text.floor_char_boundary(longest));
            text.push('…');
            break;
        }
    }
    text
}

/// Returns true if the token is the sign of a number rather than an operator between two operands.
fn is_sign(tokens: &[OperatorToken<'_>], index: usize) -> bool {
    let sign = tokens[index].is("-") || tokens[index].is("+");
    let before = index.checked_sub(1).map(|before| tokens[before]);
    let first = matches!(before, Some(OperatorToken::Symbol(symbol)) if symbol != ")" && symbol != "]");
    sign && first && tokens.get(index + 1) == Some(&OperatorToken::Value)
}

/// Returns the number of tokens in a cast, such as `::numeric(10, 2)[]` or `::timestamp with time zone`, or 0
/// if there is no cast.
fn cast(tokens: &[OperatorToken<'_>]) -> usize {
    const MORE: [&str; 6] = ["varying", "precision", "with", "without", "time", "zone"];
    let [OperatorToken::Symbol("::"), OperatorToken::Word(_), rest @ ..] = tokens else { return 0 };
    let more = rest.iter().take_while(|token| MORE.iter().any(|word| token.is_word(word))).count();
    let rest = &rest[more..];
    let closed = rest.iter().position(|token| token.is(")")).map_or(0, |end| end + 1);
    let closed = if rest.first().is_some_and(|token| token.is("(")) { closed } else { 0 };
    let arrays = rest[closed..].iter().take_while(|token| token.is("[") || token.is("]")).count();
    let length = 2 + more + closed + arrays;
    length + cast(&tokens[length..])
}

/// Replaces `(?), (?), (?)` with `(?), …`. Rows with several values work too.
fn collapse_rows<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let rows: [&[&str]; 2] = [&["(", "?", ")"], &["(", "?", ",", "…", ")"]];
    let mut kept = Vec::with_capacity(words.len());
    let mut at = 0;
    while at < words.len() {
        let Some(row) = rows.iter().find(|row| words[at..].starts_with(row)) else {
            kept.push(words[at]);
            at += 1;
            continue;
        };
        kept.extend_from_slice(row);
        at += row.len();
        let mut more = false;
        while words[at..].first() == Some(&",") && words[at + 1..].starts_with(row) {
            at += 1 + row.len();
            more = true;
        }
        if more {
            kept.extend([",", "…"]);
        }
    }
    kept
}

/// Returns true if a space belongs between the word and a parenthesis after it.
fn is_key_word(word: &str) -> bool {
    const WORDS: &str = "in values and or not as from where on using select returning set exists over join";
    WORDS.split(' ').any(|known| word.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kind(sql: &str) -> StatementKind {
        NormalizedStatement::read(sql).kind
    }

    fn text(sql: &str) -> String {
        NormalizedStatement::read(sql).text
    }

    #[test]
    fn the_first_words_tell_the_kind() {
        for (sql, expected) in [
            ("TRUNCATE a, b RESTART IDENTITY CASCADE", StatementKind::Truncate),
            ("create table t (a int)", StatementKind::Ddl),
            ("CREATE DATABASE x TEMPLATE y", StatementKind::Database),
            ("DROP DATABASE IF EXISTS x", StatementKind::Database),
            ("/* a /* b */ c */ -- d\n INSERT INTO t VALUES (1)", StatementKind::Insert),
            ("MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE", StatementKind::Update),
            ("(SELECT 1) UNION SELECT 2", StatementKind::Select),
            (
                "WITH a AS (SELECT 1), b AS (DELETE FROM t RETURNING *) INSERT INTO u SELECT * FROM a",
                StatementKind::Insert,
            ),
            ("WITH RECURSIVE a(n) AS (VALUES (1)) SELECT * FROM a", StatementKind::Select),
            ("WITH a AS (INSERT INTO t VALUES (1) RETURNING id) SELECT * FROM a", StatementKind::Insert),
            (
                "WITH a AS (SELECT 1), b(c) AS NOT MATERIALIZED (DELETE FROM t RETURNING *) TABLE b",
                StatementKind::Delete,
            ),
            ("WITH a(update) AS (SELECT (delete) FROM t) SELECT * FROM a", StatementKind::Select),
            ("COPY t FROM STDIN", StatementKind::Copy),
            ("END", StatementKind::Commit),
            ("COMMIT PREPARED 'x'", StatementKind::Commit),
            ("prepare transaction 'x'", StatementKind::Commit),
            ("PREPARE p AS SELECT 1", StatementKind::Other),
            ("ROLLBACK TO SAVEPOINT s", StatementKind::Transaction),
            ("vacuum full t", StatementKind::Maintenance),
            ("SET timezone = 'UTC'", StatementKind::Other),
            ("", StatementKind::Other),
            ("BEGIN; INSERT INTO t VALUES (1); COMMIT", StatementKind::Insert),
            ("SET a = 1; TRUNCATE t", StatementKind::Truncate),
            ("BEGIN; SET a = 1", StatementKind::Transaction),
        ] {
            assert_eq!(kind(sql), expected, "{sql}");
        }
    }

    #[test]
    fn only_what_empties_whole_tables_clears() {
        assert!(NormalizedStatement::read("truncate t").clears);
        assert!(NormalizedStatement::read("DELETE FROM t").clears);
        assert!(!NormalizedStatement::read("DELETE FROM t WHERE id = 'delete'").clears);
        assert!(!NormalizedStatement::read("SELECT 'DELETE FROM t'").clears);
    }

    #[test]
    fn values_and_blanks_make_no_difference() {
        let one = text("SELECT a.b, 'x''y' FROM t  WHERE id = 12.5e-3 AND n IN (1, 2,\n 3)");
        assert_eq!(one, "SELECT a.b, ? FROM t WHERE id = ? AND n IN (?, …)");
        assert_eq!(text("SELECT a.b, E'\\'' FROM t WHERE id = $1 AND n IN ($2, $3)"), one);
        assert_eq!(
            text("INSERT INTO t (a, b) VALUES (1, 'a'), (2, 'b'), ($1, $2)"),
            "INSERT INTO t(a, b) VALUES (?, …), …"
        );
        assert_eq!(text("SELECT count(*) FROM \"T 1\""), "SELECT count(*) FROM \"T 1\"");
        assert_eq!(text("DO $x$ BEGIN 'a' $x$"), "DO ?");
        assert_eq!(
            text("SELECT f(a) - 1, a[1] - 1 WHERE a - 1 = -1"),
            "SELECT f(a) - ?, a[?] - ? WHERE a - ? = ?"
        );
        assert_eq!(text("SELECT 1; ;"), "SELECT ?");
        assert_eq!(text("SELECT 1;SELECT 'a';"), "SELECT ?; SELECT ?");
        assert_eq!(text("SELECT $$a"), "SELECT ?");
        assert_eq!(text("SAVEPOINT sa_savepoint_17"), "SAVEPOINT ?");
        assert_eq!(text("SELECT t1.c2 FROM t1"), "SELECT t1.c2 FROM t1");
        assert_eq!(text("SELECT x::text, U&'a' || b, .5"), "SELECT x::text, ? || b, ?");
        assert_eq!(text("SELECT B'1', x'1f', N'a' || 0x1f, 1_000, 1., 'a'\n'b'"), "SELECT ?, … || ?, …");
        assert_eq!(text("SELECT a->>'b' @> $1, u&1, u & 1"), "SELECT a ->> ? @> ?, u & ?, u & ?");
        assert_eq!(text("SELECT count(*)--a\n>=/* b */-1"), "SELECT count(*) >= ?");
        assert_eq!(
            text("SELECT 'a'::numeric(10, 2)[], $1::timestamp with time zone, a[1]"),
            "SELECT ?, …, a[?]"
        );
        assert_eq!(
            text("VALUES ($1::INT::TEXT, 2::double precision) FOR UPDATE"),
            "VALUES (?, …) FOR UPDATE"
        );
    }

    #[test]
    fn long_ones_are_cut() {
        let long = text(&format!("SELECT {}", "column_of_some_length, ".repeat(200)));
        assert!(long.len() < LONGEST + 30 && long.ends_with('…'), "{long}");
    }

    proptest! {
        #[test]
        #[expect(clippy::let_underscore_must_use, reason = "it only must not panic")]
        fn any_text_can_be_read(sql in "[a-z'\"$;()/*\\\\,.0-9 \n-]{0,60}|\\PC{0,40}") {
            let statement = NormalizedStatement::read(&sql);
            prop_assert!(!statement.text.contains('\n'));
            // A statement truncated in the middle can still be parsed.
            let end = sql.floor_char_boundary(sql.len() / 2);
            let _ = NormalizedStatement::read(&sql[..end]);
        }

        #[test]
        fn numbers_never_matter(one: i64, other: i64) {
            let sql = |n: i64| format!("UPDATE t SET a = a + {n} WHERE b = '{n}' AND c IN ({n}, {n})");
            prop_assert_eq!(text(&sql(one)), text(&sql(other)));
        }
    }
}
