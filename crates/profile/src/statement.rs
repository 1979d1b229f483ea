//! Statements as people think of them: what kind, and which ones are the same but for their values.

use std::fmt;

/// The longest text that is kept of a statement, in bytes.
const LONGEST: usize = 1000;

/// What a statement does, as far as its first words tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Empties tables.
    Truncate,
    /// Creates, alters or drops what is in a database.
    Ddl,
    /// Creates, alters or drops databases themselves.
    Database,
    /// Adds rows.
    Insert,
    /// Changes rows, or adds or removes them by `MERGE`.
    Update,
    /// Removes rows.
    Delete,
    /// Reads rows.
    Select,
    /// Rows in bulk.
    Copy,
    /// Makes a transaction's work last.
    Commit,
    /// Begins or undoes a transaction or a part of it.
    Transaction,
    /// Vacuum, analyze, checkpoint and the like.
    Maintenance,
    /// Settings, notifications, locks, procedures, and what has no other name.
    Other,
    /// A session is being started.
    Connect,
}

impl Kind {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 13] = [
        Self::Truncate,
        Self::Ddl,
        Self::Database,
        Self::Insert,
        Self::Update,
        Self::Delete,
        Self::Select,
        Self::Copy,
        Self::Commit,
        Self::Transaction,
        Self::Maintenance,
        Self::Other,
        Self::Connect,
    ];

    /// What people call it.
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

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// A statement without its values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Statement {
    /// What it does.
    pub kind: Kind,
    /// One line; `?` stands for every value.
    pub text: String,
    /// Whether it empties whole tables: `TRUNCATE`, or `DELETE` without `WHERE`.
    pub clears: bool,
}

impl Statement {
    /// Reads what a client has sent, which may be cut off anywhere. Of several statements in one message, the first that
    /// neither begins a transaction nor sets anything counts for all.
    #[must_use]
    pub fn read(sql: &str) -> Self {
        let tokens: Vec<Token<'_>> = Tokens(sql).collect();
        let parts = tokens.split(|token| *token == Token::Symbol(";")).filter(|part| !part.is_empty());
        let mut kinds = parts.map(|part| (kind_of(part), part));
        let first = kinds.clone().next();
        let weighty = kinds.find(|(kind, _)| !matches!(kind, Kind::Transaction | Kind::Other)).or(first);
        let (kind, part) = weighty.unwrap_or((Kind::Other, &[]));
        let clears = kind == Kind::Truncate
            || (kind == Kind::Delete && !part.iter().any(|token| token.is_word("where")));
        Self { kind, text: spell(&tokens), clears }
    }

    /// What was never answered, for its session was ended before.
    pub(crate) fn interrupted() -> Self {
        Self { kind: Kind::Other, text: "(a session was ended in the midst of it)".to_owned(), clears: false }
    }

    /// A session's start, of which the server shows no statement.
    pub(crate) fn connecting() -> Self {
        Self { kind: Kind::Connect, text: "(a session is being started)".to_owned(), clears: false }
    }
}

/// What PostgreSQL's own scanner would see, values and comments aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    /// A key word or an identifier.
    Word(&'a str),
    /// A constant or a parameter.
    Value,
    /// Anything else: an operator, or one character.
    Symbol(&'a str),
}

impl Token<'_> {
    fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(this) if this.eq_ignore_ascii_case(word))
    }

    fn is(&self, symbol: &str) -> bool {
        *self == Token::Symbol(symbol)
    }
}

/// What operators are made of. Source: the manual's "Lexical Structure", less what begins a comment.
const OPERATOR: &str = "+-*/<>=~!@#%^&|`?:";

struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.0 = skip_blanks(self.0);
        let text = self.0;
        let first = text.chars().next()?;
        let (length, value) = match first {
            '\'' => (quoted(text, '\'', false), true),
            '"' => (quoted(text, '"', false), false),
            '$' => dollar(text),
            '0'..='9' => (number(text), true),
            '.' if text[1..].starts_with(|c: char| c.is_ascii_digit()) => (1 + number(&text[1..]), true),
            letter if letter.is_alphabetic() || letter == '_' => word(text),
            letter if OPERATOR.contains(letter) => (operator(text), false),
            other => (other.len_utf8(), false),
        };
        let (token, rest) = text.split_at(length);
        self.0 = rest;
        let is_name = first == '"' || first.is_alphabetic() || first == '_';
        Some(match (value, is_name) {
            (true, _) => Token::Value,
            (false, true) => Token::Word(token),
            (false, false) => Token::Symbol(token),
        })
    }
}

/// Bytes of the operator that `text` begins with: up to a comment.
fn operator(text: &str) -> usize {
    let end = text.find(|letter| !OPERATOR.contains(letter)).unwrap_or(text.len());
    let comment = ["--", "/*"].iter().filter_map(|comment| text[..end].find(comment)).min();
    comment.unwrap_or(end)
}

/// What comes after blanks and comments; block comments nest.
fn skip_blanks(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        if text.starts_with("--") {
            text = text.find('\n').map_or("", |end| &text[end..]);
        } else if text.starts_with("/*") {
            let (mut depth, mut at) = (0_usize, 0);
            while at < text.len() {
                let rest = &text.as_bytes()[at..];
                let step = if rest.starts_with(b"/*") {
                    depth += 1;
                    2
                } else if rest.starts_with(b"*/") {
                    depth -= 1;
                    2
                } else {
                    1
                };
                at += step;
                if depth == 0 {
                    break;
                }
            }
            text = text.get(at..).unwrap_or("");
        } else {
            return text;
        }
    }
}

/// Bytes of what `text` begins with, in quotes that are doubled within, and behind backslashes if those `escape`.
fn quoted(text: &str, quote: char, escape: bool) -> usize {
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' && escape {
            letters.next();
        } else if letter == quote {
            match letters.peek() {
                Some((_, next)) if *next == quote => drop(letters.next()),
                _ => return at + 1,
            }
        }
    }
    text.len()
}

/// `$1`, or a constant in dollar quotes; otherwise a symbol.
fn dollar(text: &str) -> (usize, bool) {
    let name = text[1..].find(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(text.len(), |at| at + 1);
    if text[1..name].starts_with(|c: char| c.is_ascii_digit()) {
        return (name, true);
    }
    if !text[name..].starts_with('$') {
        return (1, false);
    }
    let tag = &text[..=name];
    let end = text[name + 1..].find(tag).map_or(text.len(), |at| name + 1 + at + tag.len());
    (end, true)
}

fn number(text: &str) -> usize {
    let mut before = ' ';
    let part = |letter: char| {
        let sign = (letter == '+' || letter == '-') && (before == 'e' || before == 'E');
        before = letter;
        !(letter.is_ascii_alphanumeric() || letter == '.' || letter == '_' || sign)
    };
    text.find(part).unwrap_or(text.len())
}

/// A word, or a constant behind one of `E B X N U&`.
fn word(text: &str) -> (usize, bool) {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(text.len());
    let prefix = &text[..end];
    let rest = &text[end..];
    let escape = prefix.eq_ignore_ascii_case("e");
    let constant = escape || ["b", "x", "n"].iter().any(|known| prefix.eq_ignore_ascii_case(known));
    if constant && rest.starts_with('\'') {
        return (end + quoted(rest, '\'', escape), true);
    }
    if prefix.eq_ignore_ascii_case("u") && rest.starts_with("&'") {
        return (end + 1 + quoted(&rest[1..], '\'', false), true);
    }
    (end, false)
}

fn kind_of(tokens: &[Token<'_>]) -> Kind {
    let mut words = tokens.iter().filter_map(|token| match token {
        Token::Word(word) => Some(word.to_ascii_lowercase()),
        _ => None,
    });
    let (Some(first), second) = (words.next(), words.next().unwrap_or_default()) else { return Kind::Other };
    match first.as_str() {
        "truncate" => Kind::Truncate,
        "create" | "drop" | "alter" if second == "database" => Kind::Database,
        "create" | "drop" | "alter" | "comment" | "grant" | "revoke" | "refresh" | "reassign"
        | "security" | "import" => Kind::Ddl,
        "insert" => Kind::Insert,
        "update" | "merge" => Kind::Update,
        "delete" => Kind::Delete,
        "select" | "values" | "table" | "fetch" | "declare" | "close" | "explain" | "move" => Kind::Select,
        "copy" => Kind::Copy,
        "commit" | "end" => Kind::Commit,
        "prepare" if second == "transaction" => Kind::Commit,
        "begin" | "start" | "rollback" | "abort" | "savepoint" | "release" => Kind::Transaction,
        "vacuum" | "analyze" | "analyse" | "checkpoint" | "reindex" | "cluster" => Kind::Maintenance,
        "with" => kind_of_with(tokens),
        _ => Kind::Other,
    }
}

/// What comes behind the subqueries of `WITH`, which are all in parentheses.
fn kind_of_with(tokens: &[Token<'_>]) -> Kind {
    let mut depth = 0_usize;
    for token in tokens {
        if token.is("(") {
            depth += 1;
        } else if token.is(")") {
            depth = depth.saturating_sub(1);
        } else if let (0, Token::Word(word)) = (depth, token) {
            match word.to_ascii_lowercase().as_str() {
                "insert" => return Kind::Insert,
                "update" | "merge" => return Kind::Update,
                "delete" => return Kind::Delete,
                "select" | "values" | "table" => return Kind::Select,
                _ => {}
            }
        }
    }
    Kind::Select
}

/// One line, in which `?` stands for values, `(?, …)` for lists of them, and such lists for rows of such lists.
fn spell(tokens: &[Token<'_>]) -> String {
    let mut words: Vec<&str> = Vec::with_capacity(tokens.len());
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        if is_sign(tokens, index) {
            index += 1;
            continue;
        }
        let after_savepoint = index > 0 && tokens[index - 1].is_word("savepoint");
        words.push(match token {
            // Drivers number them.
            Token::Word(_) if after_savepoint => "?",
            Token::Value => "?",
            Token::Word(text) | Token::Symbol(text) => text,
        });
        index += 1;
        if *token == Token::Value {
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
        // A quoted name may have anything in it.
        text.extend(word.chars().map(|letter| if letter.is_control() { ' ' } else { letter }));
        before = word;
        if text.len() > LONGEST {
            text.truncate(text.floor_char_boundary(LONGEST));
            text.push('…');
            break;
        }
    }
    text
}

/// Whether it is the sign of a number and not between two operands.
fn is_sign(tokens: &[Token<'_>], index: usize) -> bool {
    let sign = tokens[index].is("-") || tokens[index].is("+");
    let before = index.checked_sub(1).map(|before| tokens[before]);
    let first = matches!(before, Some(Token::Symbol(symbol)) if symbol != ")" && symbol != "]");
    sign && first && tokens.get(index + 1) == Some(&Token::Value)
}

/// How many tokens make up the type that a value is cast to, if it is: `::numeric(10, 2)[]`, `::timestamp with time zone`.
fn cast(tokens: &[Token<'_>]) -> usize {
    const MORE: [&str; 6] = ["varying", "precision", "with", "without", "time", "zone"];
    let [Token::Symbol("::"), Token::Word(_), rest @ ..] = tokens else { return 0 };
    let more = rest.iter().take_while(|token| MORE.iter().any(|word| token.is_word(word))).count();
    let rest = &rest[more..];
    let closed = rest.iter().position(|token| token.is(")")).map_or(0, |end| end + 1);
    let closed = if rest.first().is_some_and(|token| token.is("(")) { closed } else { 0 };
    let arrays = rest[closed..].iter().take_while(|token| token.is("[") || token.is("]")).count();
    let length = 2 + more + closed + arrays;
    length + cast(&tokens[length..])
}

/// `(?), (?), (?)` becomes `(?), …`, and so do longer rows.
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

/// Words behind which a parenthesis stands apart.
fn is_key_word(word: &str) -> bool {
    const WORDS: [&str; 16] = [
        "in",
        "values",
        "and",
        "or",
        "not",
        "as",
        "from",
        "where",
        "on",
        "using",
        "select",
        "returning",
        "set",
        "exists",
        "over",
        "join",
    ];
    WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kind(sql: &str) -> Kind {
        Statement::read(sql).kind
    }

    fn text(sql: &str) -> String {
        Statement::read(sql).text
    }

    #[test]
    fn the_first_words_tell_the_kind() {
        for (sql, expected) in [
            ("TRUNCATE a, b RESTART IDENTITY CASCADE", Kind::Truncate),
            ("create table t (a int)", Kind::Ddl),
            ("CREATE DATABASE x TEMPLATE y", Kind::Database),
            ("DROP DATABASE IF EXISTS x", Kind::Database),
            ("/* a /* b */ c */ -- d\n INSERT INTO t VALUES (1)", Kind::Insert),
            ("MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE", Kind::Update),
            ("(SELECT 1) UNION SELECT 2", Kind::Select),
            (
                "WITH a AS (SELECT 1), b AS (DELETE FROM t RETURNING *) INSERT INTO u SELECT * FROM a",
                Kind::Insert,
            ),
            ("WITH RECURSIVE a(n) AS (VALUES (1)) SELECT * FROM a", Kind::Select),
            ("COPY t FROM STDIN", Kind::Copy),
            ("END", Kind::Commit),
            ("COMMIT PREPARED 'x'", Kind::Commit),
            ("prepare transaction 'x'", Kind::Commit),
            ("PREPARE p AS SELECT 1", Kind::Other),
            ("ROLLBACK TO SAVEPOINT s", Kind::Transaction),
            ("vacuum full t", Kind::Maintenance),
            ("SET timezone = 'UTC'", Kind::Other),
            ("", Kind::Other),
            ("BEGIN; INSERT INTO t VALUES (1); COMMIT", Kind::Insert),
            ("SET a = 1; TRUNCATE t", Kind::Truncate),
            ("BEGIN; SET a = 1", Kind::Transaction),
        ] {
            assert_eq!(kind(sql), expected, "{sql}");
        }
    }

    #[test]
    fn only_what_empties_whole_tables_clears() {
        assert!(Statement::read("truncate t").clears);
        assert!(Statement::read("DELETE FROM t").clears);
        assert!(!Statement::read("DELETE FROM t WHERE id = 'delete'").clears);
        assert!(!Statement::read("SELECT 'DELETE FROM t'").clears);
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
        assert_eq!(text("SELECT $$a"), "SELECT ?");
        assert_eq!(text("SAVEPOINT sa_savepoint_17"), "SAVEPOINT ?");
        assert_eq!(text("SELECT t1.c2 FROM t1"), "SELECT t1.c2 FROM t1");
        assert_eq!(text("SELECT x::text, U&'a' || b, .5"), "SELECT x::text, ? || b, ?");
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
        fn any_text_can_be_read(sql in "[a-z'\"$;()/*\\\\,.0-9 \n-]{0,60}|\\PC{0,40}") {
            let statement = Statement::read(&sql);
            prop_assert!(!statement.text.contains('\n'));
            // What is cut off in the middle can be read as well.
            let end = sql.floor_char_boundary(sql.len() / 2);
            let _ = Statement::read(&sql[..end]);
        }

        #[test]
        fn numbers_never_matter(one: i64, other: i64) {
            let sql = |n: i64| format!("UPDATE t SET a = a + {n} WHERE b = '{n}' AND c IN ({n}, {n})");
            prop_assert_eq!(text(&sql(one)), text(&sql(other)));
        }
    }
}
