//! Determines from the SQL text which settings a statement changes and for how long.
//!
//! The server reports which settings have changed, but not whether a change ends with its transaction. Only the
//! statement's text shows that, for example `set_config('a.b', 'x', true)`. The server doesn't list settings with a dot
//! in their names either, so this module collects all texts that might be such names.

use pgwire::{SqlLexer, Token, TokenKind, leaves_nothing, split_zero};

/// Maximum nesting depth of SQL within strings. For example, the body of a DO block is a string that can contain other
/// strings with SQL.
const MAX_DEPTH: usize = 3;

/// An argument of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Argument {
    Text(String),
    /// A statement parameter, counted from 0.
    Parameter(usize),
    Unknown,
}

/// A call of `set_config`, or a SET.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Call {
    name: Argument,
    /// Whether the change ends with its transaction.
    local: Argument,
}

/// The changes that statements might make to settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SettingChanges {
    calls: Vec<Call>,
    /// Whether a statement might change settings although its text doesn't contain a call, for example through a
    /// function.
    pub(super) hidden: bool,
    /// Whether the statement runs an earlier statement, as EXECUTE and FETCH do.
    pub(super) runs_earlier_statement: bool,
    /// Texts with a dot that may be setting names.
    pub(super) names: Vec<String>,
}

impl SettingChanges {
    /// Returns the change that a SET or RESET makes. Without a name, the statement can change any setting.
    pub(super) fn set(name: Option<&str>, local: bool) -> Self {
        let text = |name: &str| Argument::Text(name.to_owned());
        let name = name.map_or(Argument::Unknown, text);
        let local = text(if local { "true" } else { "false" });
        let names = if let Argument::Text(name) = &name { vec![name.clone()] } else { Vec::new() };
        let names = names.into_iter().filter(|name| is_custom(name)).collect();
        Self { calls: vec![Call { name, local }], names, ..Self::default() }
    }

    /// Returns the changes that a statement might make, or `None` if it can't change settings.
    pub(super) fn of_statement(sql: &[u8], plain: bool) -> Option<Self> {
        if plain && leaves_nothing(sql) {
            return None;
        }
        let mut changes = Self::of_text(sql, plain);
        changes.hidden |= changes.calls.is_empty();
        Some(changes)
    }

    /// Returns the changes that a statement makes if it runs an earlier statement.
    pub(super) fn of_earlier_statement(sql: &[u8], plain: bool) -> Self {
        Self { runs_earlier_statement: true, hidden: false, ..Self::of_text(sql, plain) }
    }

    /// Returns the changes found in the text of a function, a rule or an expression.
    pub(super) fn of_text(sql: &[u8], plain: bool) -> Self {
        let mut changes = Self::default();
        changes.scan(sql, plain, MAX_DEPTH);
        changes
    }

    fn scan(&mut self, sql: &[u8], plain: bool, depth: usize) {
        let mut lexer = SqlLexer::new(sql, plain);
        // True where a statement in a function's body can begin.
        let mut begins = true;
        while let Some(token) = lexer.token() {
            if token.kind == TokenKind::Text {
                let inner = content(token.text);
                let text = String::from_utf8_lossy(inner);
                if is_custom(&text) {
                    self.names.push(text.to_lowercase());
                } else if depth > 0 {
                    self.scan(inner, plain, depth - 1);
                }
            } else if is_named(token, b"set_config") {
                self.calls.extend(call(lexer.clone()));
            } else if begins && (token.is_word(b"set") || token.is_word(b"reset")) {
                self.extend(&set(lexer.clone(), token.is_word(b"reset")));
            }
            // PL/pgSQL computes the executed statement's text at run time, so the text is unknown here.
            self.hidden |= begins && token.is_word(b"execute");
            begins = token.is_sign(b';')
                || [&b"begin"[..], b"then", b"else", b"loop"].iter().any(|word| token.is_word(word));
        }
    }

    /// Returns the changes of a statement that might change any setting.
    pub(super) fn unknown() -> Self {
        Self { hidden: true, ..Self::default() }
    }

    /// Adds the changes of another statement.
    pub(super) fn extend(&mut self, others: &Self) {
        self.calls.extend_from_slice(&others.calls);
        self.names.extend_from_slice(&others.names);
        self.hidden |= others.hidden;
        self.runs_earlier_statement |= others.runs_earlier_statement;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && !self.hidden
    }

    /// Returns true if all changes last for the whole session.
    pub(super) fn are_of_session(&self) -> bool {
        !self.hidden && self.calls.iter().all(|call| !call.local.is_true())
    }

    /// Returns true if the order of these changes and `others` matters, because both may change the same setting, one
    /// for the session and the other for the transaction.
    pub(super) fn contradict(&self, others: &Self) -> bool {
        self.calls.iter().any(|one| others.calls.iter().any(|other| one.contradicts(other)))
    }

    /// Returns true if a change to the setting `name` ends with its transaction. Returns `None` if the text doesn't
    /// contain a call that could have made this change.
    pub(super) fn is_local(&self, name: &str) -> Option<bool> {
        let of = |wanted: &dyn Fn(&Call) -> bool| {
            let found: Vec<_> = self.calls.iter().filter(|call| wanted(call)).collect();
            (!found.is_empty()).then(|| found.iter().all(|call| call.local.is_true()))
        };
        of(&|call| call.name.is(name))
            .or_else(|| of(&|call| !matches!(call.name, Argument::Text(_))))
            .or_else(|| {
                // SET LOCAL SESSION AUTHORIZATION also changes the role.
                of(&|_| !self.hidden)
            })
    }

    /// Returns true if a call changes the setting `name` for the whole session.
    pub(super) fn names_for_session(&self, name: &str) -> bool {
        self.calls.iter().any(|call| call.name.is(name) && !call.local.is_true())
    }

    /// Returns true if the changes depend on statement parameters, so that the parameter values would make them more
    /// precise.
    pub(super) fn wants_values(&self) -> bool {
        let is_parameter = |argument: &Argument| matches!(argument, Argument::Parameter(_));
        self.calls.iter().any(|call| is_parameter(&call.name) || is_parameter(&call.local))
    }

    /// Fills in the parameter values from a Bind message.
    pub(super) fn with_values(mut self, bind: &[u8]) -> Self {
        if !self.wants_values() {
            return self;
        }
        let values = values_of(bind).unwrap_or_default();
        for call in &mut self.calls {
            for argument in [&mut call.name, &mut call.local] {
                let Argument::Parameter(number) = *argument else { continue };
                *argument = match values.get(number) {
                    Some([1]) => Argument::Text("true".to_owned()),
                    Some([0]) => Argument::Text("false".to_owned()),
                    Some(value) => Argument::Text(String::from_utf8_lossy(value).to_lowercase()),
                    None => Argument::Unknown,
                };
            }
            if let Argument::Text(name) = &call.name
                && is_custom(name)
            {
                self.names.push(name.clone());
            }
        }
        self
    }
}

impl Argument {
    fn is(&self, text: &str) -> bool {
        matches!(self, Self::Text(known) if known == text)
    }

    fn is_true(&self) -> bool {
        ["true", "t", "yes", "y", "on", "1"].iter().any(|word| self.is(word))
    }

    fn of(token: Token<'_>) -> Self {
        let text = String::from_utf8_lossy(token.text);
        match token.kind {
            TokenKind::Text => Self::Text(String::from_utf8_lossy(content(token.text)).to_lowercase()),
            TokenKind::Word => Self::Text(text.to_lowercase()),
            TokenKind::Parameter => match text.trim_start_matches('$').parse::<usize>() {
                Ok(number) if number > 0 => Self::Parameter(number - 1),
                _ => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }
}

impl Call {
    fn contradicts(&self, other: &Self) -> bool {
        let named = |call: &Self| matches!(call.name, Argument::Text(_));
        self.local.is_true() != other.local.is_true()
            && (!named(self) || !named(other) || self.name == other.name)
    }
}

/// Parses the arguments that follow the name `set_config`. The setting's name must be a single literal rather than an
/// expression.
fn call(mut lexer: SqlLexer<'_>) -> Option<Call> {
    lexer.token().filter(|token| token.is_sign(b'('))?;
    let mut arguments: Vec<Vec<Token<'_>>> = vec![Vec::new()];
    let mut open = 1_u32;
    while let Some(token) = lexer.token() {
        match token.text {
            b"(" | b"[" => open += 1,
            b")" | b"]" => open -= 1,
            _ => {}
        }
        if open == 0 {
            break;
        }
        if open == 1 && token.is_sign(b',') {
            arguments.push(Vec::new());
        } else {
            arguments.last_mut()?.push(token);
        }
    }
    let argument = |at: usize| arguments.get(at).map_or(Argument::Unknown, |tokens| only(tokens));
    Some(Call { name: argument(0), local: argument(2) })
}

/// Returns an argument's value, ignoring any cast.
fn only(tokens: &[Token<'_>]) -> Argument {
    // Skip a named argument's name.
    let named = tokens.windows(2).position(|pair| pair[1].is_sign(b'>') && (pair[0].is_sign(b'=')));
    let named = named.map_or(0, |at| at + 2);
    match &tokens[named..] {
        [value] => Argument::of(*value),
        [value, cast, ..] if cast.is_sign(b':') => Argument::of(*value),
        _ => Argument::Unknown,
    }
}

/// Parses what follows SET or RESET.
fn set(mut lexer: SqlLexer<'_>, resets: bool) -> SettingChanges {
    let mut next = lexer.token();
    let is = |token: Option<Token<'_>>, word: &[u8]| token.is_some_and(|token| token.is_word(word));
    let local = !resets && is(next, b"local");
    if local || is(next, b"session") {
        next = lexer.token();
    }
    let Some(first) = next.filter(Token::is_name) else { return SettingChanges::set(None, local) };
    let name = |token: Token<'_>| String::from_utf8_lossy(token.text).to_lowercase().replace('"', "");
    let after = lexer.token().filter(|token| token.is_sign(b'.')).and_then(|_| lexer.token());
    let dotted = after.filter(Token::is_name).map(|second| format!("{}.{}", name(first), name(second)));
    SettingChanges::set(Some(&dotted.unwrap_or_else(|| name(first))), local)
}

/// Returns the text between the quotes of a literal.
fn content(literal: &[u8]) -> &[u8] {
    let from = literal.iter().position(|byte| matches!(byte, b'\'' | b'$')).map_or(0, |at| at + 1);
    let inner = &literal[from..];
    if literal.get(from - usize::from(from > 0)) == Some(&b'$') {
        let tag = inner.iter().position(|byte| *byte == b'$').map_or(0, |at| at + 1);
        return inner.get(tag..inner.len().saturating_sub(tag + 1)).unwrap_or_default();
    }
    inner.strip_suffix(b"'").unwrap_or(inner)
}

fn is_named(token: Token<'_>, name: &[u8]) -> bool {
    let text = token.text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(token.text);
    token.is_name() && text.eq_ignore_ascii_case(name)
}

/// Returns true if the text can be the name of a custom setting, i.e. one not declared by any library.
fn is_custom(name: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_' || !first.is_ascii())
            && part
                .chars()
                .all(|one| one.is_ascii_alphanumeric() || matches!(one, '_' | '$') || !one.is_ascii())
    };
    name.len() < 128 && name.contains('.') && name.split('.').all(is_part)
}

/// Returns the values in the body of a Bind message. A NULL value becomes empty.
fn values_of(bind: &[u8]) -> Option<Vec<&[u8]>> {
    let rest = split_zero(split_zero(bind).1).1;
    let count = |bytes: &[u8]| bytes.first_chunk().map(|count| usize::from(u16::from_be_bytes(*count)));
    let mut rest = rest.get(2 + 2 * count(rest)?..)?;
    let values = count(rest)?;
    rest = &rest[2..];
    let mut found = Vec::new();
    for _ in 0..values {
        let length = i32::from_be_bytes(*rest.first_chunk()?);
        let (value, after) = rest.get(4..)?.split_at_checked(usize::try_from(length).unwrap_or(0))?;
        found.push(value);
        rest = after;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_calls_show_duration_of_change() {
        for (sql, name, local) in [
            ("SELECT set_config('App.x', 'y', TRUE)", "app.x", Some(true)),
            ("SELECT set_config('app.x', 'y', false)", "app.x", Some(false)),
            (
                "SELECT set_config('a', f('x', (1)), true), pg_catalog.\"set_config\"('b', '', 't'::bool)",
                "b",
                Some(true),
            ),
            ("SELECT set_config('a', '', true), set_config('b', '', false)", "a", Some(true)),
            ("SELECT set_config('a', '', true), set_config('b', '', false)", "b", Some(false)),
            ("SELECT set_config(value => '', setting_name => n, is_local => true)", "a", Some(true)),
            ("SELECT set_config(n, '', true) FROM t", "a", Some(true)),
            ("SELECT f()", "a", None),
            ("DO $$ BEGIN SET LOCAL a.b = 1; PERFORM set_config('c', '', false); END $$", "a.b", Some(true)),
            ("DO $$ BEGIN EXECUTE 'SET LOCAL a.b = 1'; UPDATE t SET c = 1; END $$", "a.b", Some(true)),
            ("DO $$ BEGIN EXECUTE 'SET LOCAL a.b = 1'; UPDATE t SET c = 1; END $$", "c", None),
        ] {
            let changes = SettingChanges::of_statement(sql.as_bytes(), true).unwrap();
            assert_eq!(changes.is_local(name), local, "{name} in {sql}");
        }
        assert_eq!(SettingChanges::of_statement(b"SELECT count(*) FROM t", true), None);
    }

    #[test]
    fn dotted_setting_names_are_found_in_string_literals() {
        let sql =
            b"DO $x$ BEGIN EXECUTE format('SELECT set_config(%L, %L, true)', 'App.name', 'v 1.5'); END $x$";
        assert_eq!(SettingChanges::of_text(sql, true).names, ["app.name"]);
    }

    #[test]
    fn values_of_parameters_are_names_and_scopes() {
        let changes = SettingChanges::of_statement(b"SELECT set_config($1, $2, $3)", true).unwrap();
        let bind = b"\0\0\0\0\0\x03\0\0\0\x05App.x\xff\xff\xff\xff\0\0\0\x01t\0\0";
        let bound = changes.with_values(bind);
        assert_eq!((bound.is_local("app.x"), &bound.names[..]), (Some(true), &["app.x".to_owned()][..]));
    }
}
