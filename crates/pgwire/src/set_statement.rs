//! Recognizes statements that change settings.

use crate::sql::Token;

/// A SET or RESET of settings. SET TRANSACTION and SET CONSTRAINTS aren't among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetStatement<'t, 's> {
    /// The settings that it changes.
    pub target: SetTarget,
    /// The tokens of the new value. `None` if the statement contains no value, like RESET.
    pub value: Option<&'t [Token<'s>]>,
    /// Whether the change ends with its transaction.
    pub is_local: bool,
}

/// The target of a [`SetStatement`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetTarget {
    /// One setting, by its name in lower case.
    Named(String),
    /// All settings.
    All,
    /// Settings whose names the statement doesn't contain: those of SET SESSION CHARACTERISTICS, or of an incomplete
    /// statement.
    Unnamed,
}

impl<'t, 's> SetStatement<'t, 's> {
    /// Reads the tokens of a statement without its semicolon. Returns `None` for other statements. Source:
    /// `VariableSetStmt` and `VariableResetStmt` in `gram.y`.
    #[must_use]
    pub fn read(tokens: &'t [Token<'s>]) -> Option<Self> {
        let (first, rest) = tokens.split_first()?;
        if first.is_word(b"reset") {
            let target = read_target(rest)?.0;
            return Some(Self { target, value: None, is_local: false });
        }
        if !first.is_word(b"set") {
            return None;
        }
        let (is_local, rest) = match rest {
            [local, rest @ ..] if local.is_word(b"local") && !follows_name(rest) => (true, rest),
            [session, rest @ ..]
                if session.is_word(b"session") && !follows_name(rest) && !follows_session(rest) =>
            {
                (false, rest)
            }
            rest => (false, rest),
        };
        let (target, value) = read_target(rest)?;
        Some(Self { target, value: (!value.is_empty()).then_some(value), is_local })
    }
}

/// Returns true if the word before `tokens` is the name of a setting.
fn follows_name(tokens: &[Token<'_>]) -> bool {
    tokens.first().is_some_and(|next| next.is_sign(b'.') || is_assignment(*next))
}

/// Returns true if the word SESSION before `tokens` doesn't mean the scope.
fn follows_session(tokens: &[Token<'_>]) -> bool {
    tokens.first().is_some_and(|next| next.is_word(b"authorization") || next.is_word(b"characteristics"))
}

fn is_assignment(token: Token<'_>) -> bool {
    token.is_sign(b'=') || token.is_word(b"to")
}

/// Splits the tokens after SET, RESET or the scope into the setting and its value.
fn read_target<'t, 's>(tokens: &'t [Token<'s>]) -> Option<(SetTarget, &'t [Token<'s>])> {
    if let Some((name, [assignment, value @ ..])) = read_name(tokens)
        && is_assignment(*assignment)
    {
        return Some((SetTarget::Named(name), value));
    }
    let is = |at: usize, word: &[u8]| tokens.get(at).is_some_and(|token: &Token<'_>| token.is_word(word));
    if is(0, b"transaction") || is(0, b"constraints") {
        return None;
    }
    let (name, words) = if is(0, b"all") && tokens.len() == 1 {
        return Some((SetTarget::All, &[]));
    } else if is(0, b"time") && is(1, b"zone") {
        ("timezone", 2)
    } else if is(0, b"xml") && is(1, b"option") {
        ("xmloption", 2)
    } else if is(0, b"session") && is(1, b"authorization") {
        ("session_authorization", 2)
    } else if is(0, b"schema") && tokens.len() > 1 {
        ("search_path", 1)
    } else if is(0, b"names") {
        ("client_encoding", 1)
    } else if is(0, b"role") && tokens.len() > 1 {
        ("role", 1)
    } else {
        let named = read_name(tokens).filter(|(_, rest)| rest.is_empty());
        return Some((named.map_or(SetTarget::Unnamed, |(name, _)| SetTarget::Named(name)), &[]));
    };
    Some((SetTarget::Named(name.to_owned()), &tokens[words..]))
}

/// Reads a name of one or more parts. Returns it with the tokens after it.
fn read_name<'t, 's>(tokens: &'t [Token<'s>]) -> Option<(String, &'t [Token<'s>])> {
    let (first, mut rest) = tokens.split_first()?;
    let mut name = first.name()?;
    while let [dot, part, after @ ..] = rest
        && dot.is_sign(b'.')
    {
        name = name + "." + &part.name()?;
        rest = after;
    }
    // The server ignores the case of ASCII letters also within quotes.
    Some((name.to_ascii_lowercase(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqlLexer;

    /// Returns the setting's name, the text of its value, and whether the change is local.
    fn read(sql: &str) -> Option<(SetTarget, Option<String>, bool)> {
        let mut lexer = SqlLexer::new(sql.as_bytes(), true);
        let tokens: Vec<_> = std::iter::from_fn(|| lexer.token()).collect();
        let SetStatement { target, value, is_local } = SetStatement::read(&tokens)?;
        let text = |value: &[Token<'_>]| {
            let words: Vec<_> = value.iter().map(|token| String::from_utf8_lossy(token.text)).collect();
            words.join(" ")
        };
        Some((target, value.map(text), is_local))
    }

    #[test]
    fn every_form_is_read_as_by_the_server() {
        let long = "U".repeat(70);
        for (sql, name, value, is_local) in [
            ("SET work_mem = '1MB'", "work_mem", Some("'1MB'"), false),
            ("set local Work_Mem to default", "work_mem", Some("default"), true),
            ("SET SESSION search_path TO a, \"B\"", "search_path", Some("a , \"B\""), false),
            ("SET app.\"User\" = 'x'", "app.user", Some("'x'"), false),
            ("SET LOCAL a.b.c = 1", "a.b.c", Some("1"), true),
            ("SET \"a.b\" TO 1", "a.b", Some("1"), false),
            ("SET session.a = 1", "session.a", Some("1"), false),
            ("SET local.a = 1", "local.a", Some("1"), false),
            ("SET LOCAL local.a = 1", "local.a", Some("1"), true),
            ("SET time.zone = 1", "time.zone", Some("1"), false),
            ("SET names.a TO 1", "names.a", Some("1"), false),
            ("SET LOCAL TIME ZONE -7", "timezone", Some("- 7"), true),
            ("SET TIME ZONE LOCAL", "timezone", Some("LOCAL"), false),
            ("SET XML OPTION DOCUMENT", "xmloption", Some("DOCUMENT"), false),
            ("SET NAMES 'LATIN1'", "client_encoding", Some("'LATIN1'"), false),
            ("SET NAMES", "client_encoding", None, false),
            ("SET SCHEMA 'a'", "search_path", Some("'a'"), false),
            ("SET ROLE none", "role", Some("none"), false),
            ("SET role = a", "role", Some("a"), false),
            ("SET SESSION AUTHORIZATION a", "session_authorization", Some("a"), false),
            ("SET SESSION SESSION AUTHORIZATION a", "session_authorization", Some("a"), false),
            ("SET LOCAL SESSION AUTHORIZATION a", "session_authorization", Some("a"), true),
            (&format!("SET a.{long} = 1"), &format!("a.{}", "u".repeat(63)), Some("1"), false),
            ("RESET work_mem", "work_mem", None, false),
            ("RESET a.b", "a.b", None, false),
            ("RESET TIME ZONE", "timezone", None, false),
            ("RESET SESSION AUTHORIZATION", "session_authorization", None, false),
            ("RESET role", "role", None, false),
        ] {
            let expected = (SetTarget::Named(name.to_owned()), value.map(str::to_owned), is_local);
            assert_eq!(read(sql), Some(expected), "{sql}");
        }
        assert_eq!(read("RESET ALL"), Some((SetTarget::All, None, false)));
    }

    #[test]
    fn statements_without_names_change_unnamed_settings() {
        for (sql, is_local) in [
            ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", false),
            ("SET LOCAL SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", true),
            ("SET LOCAL %I = %L", true),
            ("SET a.%I = %L", false),
        ] {
            assert_eq!(read(sql), Some((SetTarget::Unnamed, None, is_local)), "{sql}");
        }
    }

    #[test]
    fn other_statements_change_no_settings() {
        for sql in [
            "",
            "SELECT 1",
            "\"set\" a = 1",
            "SET TRANSACTION READ ONLY",
            "SET LOCAL TRANSACTION READ ONLY",
            "SET CONSTRAINTS ALL DEFERRED",
        ] {
            assert_eq!(read(sql), None, "{sql}");
        }
    }
}
