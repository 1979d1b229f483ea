//! Classifies SQL statements by their effect on transactions.
//!
//! Splits a query string into statements as the server does, and examines the first words of each statement.

use std::ops::Range;

use super::setting_changes::SettingChanges;
use pgwire::{SavepointStatement, SetStatement, SqlLexer, Token, TokenKind};

/// Maximum number of words to consider at the start of a statement. The longest relevant statement is a BEGIN with a
/// list of modes.
const MAX_WORDS: usize = 24;

/// A statement's effect on transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Begin {
        /// Whether the statement is START TRANSACTION, which has its own command tag.
        start: bool,
        modes: Modes,
    },
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Savepoint(SavepointStatement),
    SetTransaction(Modes),
    SetConstraints,
    SetLocal(SettingChanges),
    /// SET or RESET that lasts for the session.
    Set(SettingChanges),
    /// A statement other than SET that may change settings, for example because it calls a function.
    MaySet(SettingChanges),
    Lock,
    /// Declares a cursor that ends with its transaction.
    Declare,
    DiscardAll,
    PrepareTransaction,
}

/// Transaction modes requested by a statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Modes {
    pub(super) read_only: Option<bool>,
    /// Whether the statement requests an isolation level different from the lease transaction's.
    pub(super) level: bool,
    /// The statement that a server's warning names if there is no transaction. `None` if it doesn't warn.
    pub(super) warning: Option<&'static str>,
}

impl Kind {
    /// Returns true if the session must, in some states, handle a statement of this kind itself.
    pub(super) fn is_control(&self) -> bool {
        !matches!(self, Self::Plain | Self::MaySet(_))
    }

    /// Returns true if the server treats the next statement like the first one in its group.
    pub(super) fn ends_pipeline(&self) -> bool {
        matches!(self, Self::Begin { .. } | Self::Commit { .. } | Self::Rollback { .. } | Self::DiscardAll)
    }
}

/// One statement in a string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statement {
    /// The statement's position in the string, without the semicolon.
    pub(super) place: Range<usize>,
    pub(super) kind: Kind,
}

/// Splits `sql` into statements, omitting empty ones. `plain` means that a backslash is an ordinary character in plain
/// literals.
pub(super) fn statements(sql: &[u8], plain: bool) -> Vec<Statement> {
    let mut lexer = SqlLexer::new(sql, plain);
    let (mut found, mut words, mut start) = (Vec::new(), Vec::new(), 0);
    let (mut parentheses, mut blocks, mut last): (u32, u32, &[u8]) = (0, 0, b"");
    loop {
        let begin = lexer.position();
        let next = lexer.token();
        let token = next.map(|token| token.text);
        let is = |word: &str| token.is_some_and(|token| token.eq_ignore_ascii_case(word.as_bytes()));
        match token {
            Some(b"(") => parentheses += 1,
            Some(b")") => parentheses = parentheses.saturating_sub(1),
            // END closes the body of an SQL function, but also a CASE.
            Some(_) if blocks == 0 => {
                let opens =
                    last.eq_ignore_ascii_case(b"BEGIN") && is("ATOMIC") && first_is(&words, b"create");
                blocks = u32::from(opens);
            }
            Some(_) if is("CASE") => blocks += 1,
            Some(_) if is("END") => blocks -= 1,
            _ => {}
        }
        match token {
            Some(token) if token != b";" || parentheses > 0 || blocks > 0 => {
                if words.len() < MAX_WORDS {
                    words.extend(next);
                }
                last = token;
            }
            _ => {
                if !words.is_empty() {
                    let kind = match kind(&words) {
                        Kind::Plain => may_set(&words, &sql[start..begin], plain),
                        kind => kind,
                    };
                    found.push(Statement { place: start..begin, kind });
                }
                words.clear();
                (start, parentheses, blocks, last) = (lexer.position(), 0, 0, b"");
            }
        }
        if token.is_none() {
            return found;
        }
    }
}

fn first_is(words: &[Token<'_>], word: &[u8]) -> bool {
    words.first().is_some_and(|first| first.is_word(word))
}

/// Returns the kind of a statement that starts with `words`. The statement must not end or divide a transaction.
fn may_set(words: &[Token<'_>], sql: &[u8], plain: bool) -> Kind {
    if [&b"execute"[..], b"fetch", b"move"].iter().any(|word| first_is(words, word)) {
        return Kind::MaySet(SettingChanges::of_earlier_statement(sql, plain));
    }
    SettingChanges::of_statement(sql, plain).map_or(Kind::Plain, Kind::MaySet)
}

/// Returns the kind of consecutive statements. Only a single statement can end or divide a transaction.
pub(super) fn kind_of_all(statements: &[Statement]) -> Kind {
    if let [one] = statements {
        return one.kind.clone();
    }
    let mut all: Option<SettingChanges> = None;
    for statement in statements {
        if let Kind::MaySet(changes) = &statement.kind {
            all.get_or_insert_default().extend(changes);
        }
    }
    all.map_or(Kind::Plain, Kind::MaySet)
}

/// Returns the kind of a statement that starts with `tokens`. A malformed transaction statement counts as plain, so that
/// the server reports the error.
fn kind(tokens: &[Token<'_>]) -> Kind {
    if let Some(statement) = SavepointStatement::read(tokens) {
        return Kind::Savepoint(statement);
    }
    let words: Vec<String> = tokens.iter().map(upper_case).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["START", "TRANSACTION", rest @ ..] => begin(true, rest),
        ["BEGIN", rest @ ..] => begin(false, skip_optional_words(rest)),
        ["COMMIT" | "END", rest @ ..] => match chain(skip_optional_words(rest)) {
            Some(chain) => Kind::Commit { chain },
            None => Kind::Plain,
        },
        ["ROLLBACK" | "ABORT", rest @ ..] => match chain(skip_optional_words(rest)) {
            Some(chain) => Kind::Rollback { chain },
            None => Kind::Plain,
        },
        ["LOCK", ..] => Kind::Lock,
        ["DECLARE", rest @ ..] => {
            let holds = rest.windows(2).any(|pair| pair == ["WITH", "HOLD"]);
            if holds { Kind::Plain } else { Kind::Declare }
        }
        ["DISCARD", "ALL"] => Kind::DiscardAll,
        ["PREPARE", "TRANSACTION", ..] => Kind::PrepareTransaction,
        ["SET", "LOCAL" | "SESSION", "TRANSACTION", rest @ ..] | ["SET", "TRANSACTION", rest @ ..] => {
            let warned = |modes| Modes { warning: Some("SET TRANSACTION"), ..modes };
            modes(rest).map_or(Kind::Plain, |modes| Kind::SetTransaction(warned(modes)))
        }
        ["SET", scope @ ("LOCAL" | "SESSION"), "TRANSACTION_READ_ONLY", "=" | "TO", access] => {
            set_access(access, (*scope == "LOCAL").then_some("SET LOCAL"))
        }
        ["SET", "TRANSACTION_READ_ONLY", "=" | "TO", access] => set_access(access, None),
        ["SET", "CONSTRAINTS", ..] => Kind::SetConstraints,
        _ => SetStatement::read(tokens).map_or(Kind::Plain, |statement| set(&statement)),
    }
}

/// Returns the kind of a SET or RESET that doesn't set the transaction's modes.
fn set(statement: &SetStatement<'_, '_>) -> Kind {
    let changes = SettingChanges::of_set(statement);
    // The server must receive the rest of the string together with this statement, because it reads the whole string
    // before the statement changes the meaning of backslashes.
    if changes.names_for_session("standard_conforming_strings") {
        return Kind::MaySet(changes);
    }
    if statement.is_local { Kind::SetLocal(changes) } else { Kind::Set(changes) }
}

/// Returns a token in upper case, with one quote before a quoted name, so that it equals no keyword.
fn upper_case(token: &Token<'_>) -> String {
    match token.kind {
        TokenKind::Word => token.name().unwrap_or_default().to_uppercase(),
        TokenKind::QuotedName => format!("\"{}", token.name().unwrap_or_default().to_uppercase()),
        TokenKind::Sign => String::from_utf8_lossy(token.text).into_owned(),
        // No keyword is a literal or a number.
        TokenKind::Text | TokenKind::Number | TokenKind::Parameter => String::new(),
    }
}

fn skip_optional_words<'w>(words: &'w [&'w str]) -> &'w [&'w str] {
    if let ["WORK" | "TRANSACTION", rest @ ..] = words { rest } else { words }
}

fn begin(start: bool, rest: &[&str]) -> Kind {
    modes(rest).map_or(Kind::Plain, |modes| Kind::Begin { start, modes })
}

fn chain(rest: &[&str]) -> Option<bool> {
    match rest {
        [] | ["AND", "NO", "CHAIN"] => Some(false),
        ["AND", "CHAIN"] => Some(true),
        _ => None,
    }
}

/// Parses a list of transaction modes, which must not be followed by anything else.
fn modes(mut rest: &[&str]) -> Option<Modes> {
    let mut modes = Modes::default();
    loop {
        rest = match rest {
            [] => return Some(modes),
            ["," | "DEFERRABLE", rest @ ..]
            | ["NOT", "DEFERRABLE", rest @ ..]
            | ["ISOLATION", "LEVEL", "READ", "COMMITTED" | "UNCOMMITTED", rest @ ..] => rest,
            ["READ", access @ ("ONLY" | "WRITE"), rest @ ..] => {
                modes.read_only = Some(*access == "ONLY");
                rest
            }
            ["ISOLATION", "LEVEL", "REPEATABLE", "READ", rest @ ..]
            | ["ISOLATION", "LEVEL", "SERIALIZABLE", rest @ ..] => {
                modes.level = true;
                rest
            }
            _ => return None,
        };
    }
}

/// Returns the kind of a statement that sets `transaction_read_only` to `access`.
fn set_access(access: &str, warning: Option<&'static str>) -> Kind {
    match access.trim_matches('"') {
        "ON" | "TRUE" => Kind::SetTransaction(Modes { read_only: Some(true), level: false, warning }),
        "OFF" | "FALSE" => Kind::SetTransaction(Modes { read_only: Some(false), level: false, warning }),
        _ if warning.is_some() => {
            Kind::SetLocal(SettingChanges::of_setting(Some("transaction_read_only"), true))
        }
        _ => Kind::Set(SettingChanges::of_setting(Some("transaction_read_only"), false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(sql: &str) -> Vec<Kind> {
        statements(sql.as_bytes(), true).into_iter().map(|statement| statement.kind).collect()
    }

    #[test]
    fn statement_keywords_parse_like_the_server() {
        let begin =
            |read_only, level| Kind::Begin { start: false, modes: Modes { read_only, level, warning: None } };
        for (sql, kind) in [
            ("begin", begin(None, false)),
            ("/* a /* b */ */ BEGIN -- c\n work", begin(None, false)),
            ("BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY", begin(Some(true), true)),
            ("BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE", begin(Some(false), false)),
            ("START TRANSACTION NOT DEFERRABLE", Kind::Begin { start: true, modes: Modes::default() }),
            ("END", Kind::Commit { chain: false }),
            ("COMMIT AND CHAIN", Kind::Commit { chain: true }),
            ("COMMIT WORK AND NO CHAIN", Kind::Commit { chain: false }),
            ("COMMIT PREPARED 'x'", Kind::MaySet(SettingChanges::unknown())),
            ("abort work", Kind::Rollback { chain: false }),
            ("ROLLBACK TO \"A\"", Kind::Savepoint(SavepointStatement::RollBackTo("A".to_owned()))),
            ("PREPARE transaction 'x'", Kind::PrepareTransaction),
            ("PREPARE x AS SELECT 1", Kind::Plain),
            ("SELECT f()", Kind::MaySet(SettingChanges::of_statement(b"SELECT f()", true).unwrap())),
            ("SET transaction_read_only TO off", set_access("OFF", None)),
            ("SET LOCAL TRANSACTION_READ_ONLY = TRUE", set_access("TRUE", Some("SET LOCAL"))),
            ("SET LOCAL time zone 'UTC'", Kind::SetLocal(SettingChanges::of_setting(Some("timezone"), true))),
            (
                &format!("SET LOCAL app.\"{}\" = 'x'", "U".repeat(70)),
                Kind::SetLocal(SettingChanges::of_setting(Some(&format!("app.{}", "u".repeat(63))), true)),
            ),
            (
                "SET LOCAL app.\"User\" = 'x'",
                Kind::SetLocal(SettingChanges::of_setting(Some("app.user"), true)),
            ),
            ("SET SESSION work_mem TO 1", Kind::Set(SettingChanges::of_setting(Some("work_mem"), false))),
            ("RESET ALL", Kind::Set(SettingChanges::of_setting(None, false))),
            ("EXECUTE x", Kind::MaySet(SettingChanges::of_earlier_statement(b"", true))),
            ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", Kind::Plain),
            ("DECLARE c CURSOR FOR SELECT 1", Kind::Declare),
        ] {
            assert_eq!(kinds(sql), [kind], "{sql}");
        }
    }

    #[test]
    fn invalid_transaction_statements_are_plain() {
        for sql in ["BEGIN nonsense", "COMMIT x", "ROLLBACK AND", "BEGIN READ", "ABORT TO a", "START"] {
            assert_eq!(kinds(sql), [Kind::Plain], "{sql}");
        }
    }

    #[test]
    fn strings_are_split_outside_of_everything_that_quotes() {
        for sql in [
            "SELECT ';COMMIT;', \"a;b\", $$;COMMIT;$$, $x$ $$;$x$, E'\\';', (1;2) -- ;\n/*;*/",
            "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END",
            "CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2)",
            "SELECT 'it''s;' \"x\"\";\" ;;; ",
        ] {
            let kinds = kinds(sql);
            assert!(kinds.len() == 1 && !kinds[0].is_control(), "{sql}: {kinds:?}");
        }
        assert_eq!(kinds(" ; -- nothing\n"), []);
        assert_eq!(kinds("SELECT 'a\\';COMMIT").len(), 2);
        assert_eq!(statements(b"SELECT 'a\\';COMMIT", false).len(), 1);
        let found = statements(b"SELECT 1; COMMIT ;x", true);
        assert_eq!(found.iter().map(|one| one.place.clone()).collect::<Vec<_>>(), [0..8, 9..16, 18..19]);
        assert_eq!(statements("SELECT $1; ü'".as_bytes(), true).len(), 2);
    }
}
