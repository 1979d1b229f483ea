//! Determines from the SQL text which settings a statement changes and for how long.
//!
//! The server reports which settings have changed, but not whether a change ends with its transaction. Only the
//! statement's text shows that, for example `set_config('a.b', 'x', true)`. The server doesn't list settings with a dot
//! in their names either, so this module collects all texts that might be such names.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use pgwire::{SetStatement, SetTarget, SqlLexer, Token, TokenKind, leaves_nothing, split_zero};

/// Maximum nesting depth of SQL within strings. For example, the body of a DO block is a string that can contain other
/// strings with SQL.
const MAX_DEPTH: usize = 3;

/// Maximum number of tokens to read of a SET. A longer one has a long value, which doesn't matter.
const MAX_SET_TOKENS: usize = 24;

/// Maximum number of tokens in an argument whose value the gateway reads. This also bounds the recursion.
const MAX_ARGUMENT_TOKENS: usize = 64;

/// An argument of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Argument {
    Text(String),
    /// A statement parameter, counted from 0.
    Parameter(usize),
    /// The opposite of a boolean.
    Not(Box<Argument>),
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
    /// For each earlier statement that the statement runs, as EXECUTE and FETCH do, the values of its parameters.
    earlier: Vec<Vec<Argument>>,
    /// Names of the functions that the statement may call.
    called: BTreeSet<String>,
    /// Texts with a dot that may be setting names.
    pub(super) names: Vec<String>,
}

impl SettingChanges {
    /// Returns the change that a SET or RESET makes.
    pub(super) fn of_set(set: &SetStatement<'_, '_>) -> Self {
        let name = match &set.target {
            // Changing the session's user also changes the role.
            SetTarget::Named(name) if name != "session_authorization" => Some(name.as_str()),
            SetTarget::Named(_) | SetTarget::All | SetTarget::Unnamed => None,
        };
        Self::of_setting(name, set.is_local)
    }

    /// Returns the change to one setting, or to any setting if there is no name.
    pub(super) fn of_setting(name: Option<&str>, local: bool) -> Self {
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
        let mut lexer = SqlLexer::new(sql, plain);
        lexer.token();
        lexer.token();
        let values = arguments(lexer).unwrap_or_default().iter().map(|tokens| value_of(tokens)).collect();
        Self { earlier: vec![values], hidden: false, ..Self::of_text(sql, plain) }
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
            } else if token.is_word(b"update") {
                self.extend(&update(lexer.clone()).unwrap_or_default());
            } else if token.is_name() && lexer.clone().token().is_some_and(|next| next.is_sign(b'(')) {
                self.called.extend(token.name());
            } else if begins && (token.is_word(b"set") || token.is_word(b"reset")) {
                let tokens = statement_tokens(token, lexer.clone());
                self.extend(&SetStatement::read(&tokens).map(|set| Self::of_set(&set)).unwrap_or_default());
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
        self.earlier.extend_from_slice(&others.earlier);
        self.called.extend(others.called.iter().cloned());
    }

    /// Adds the changes of the earlier statements that the statement runs. `prepared` contains all that it can run.
    pub(super) fn with_earlier(&self, prepared: &Self) -> Cow<'_, Self> {
        let mut all = Cow::Borrowed(self);
        for values in &self.earlier {
            all.to_mut().extend(&prepared.clone().filled(&|number| values.get(number).cloned()));
        }
        if !self.earlier.is_empty() {
            all.to_mut().earlier.clear();
        }
        all
    }

    /// Adds the changes of the functions that the statement may call, and of those that these call.
    pub(super) fn with_functions(&self, functions: &BTreeMap<String, Self>) -> Cow<'_, Self> {
        let mut all = Cow::Borrowed(self);
        let (mut pending, mut known) = (self.called.clone(), BTreeSet::new());
        while let Some(name) = pending.pop_first() {
            if let Some(changes) = functions.get(&name).filter(|_| !known.contains(&name)) {
                all.to_mut().extend(changes);
                pending.extend(changes.called.iter().cloned());
                known.insert(name);
            }
        }
        all
    }

    pub(super) fn calls_functions(&self) -> bool {
        !self.called.is_empty()
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
        self.calls.iter().any(|call| call.name.has_parameter() || call.local.has_parameter())
    }

    /// Fills in the parameter values from a Bind message.
    pub(super) fn with_values(self, bind: &[u8]) -> Self {
        if !self.wants_values() {
            return self;
        }
        let values = values_of(bind).unwrap_or_default();
        self.filled(&|number| {
            Some(Argument::Text(match *values.get(number)? {
                [1] => "true".to_owned(),
                [0] => "false".to_owned(),
                value => String::from_utf8_lossy(value).to_lowercase(),
            }))
        })
    }

    /// Fills in the values of parameters.
    fn filled(mut self, value: &dyn Fn(usize) -> Option<Argument>) -> Self {
        for call in &mut self.calls {
            let has_name = matches!(call.name, Argument::Text(_));
            call.name.fill(value);
            call.local.fill(value);
            if let Argument::Text(name) = &call.name
                && !has_name
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

    /// Returns the argument as a boolean, in any spelling that the server accepts. Returns `None` if it is unknown.
    fn boolean(&self) -> Option<bool> {
        match self {
            Self::Text(text) => match text.trim() {
                "on" | "1" => Some(true),
                "off" | "of" | "0" => Some(false),
                "" => None,
                text if "true".starts_with(text) || "yes".starts_with(text) => Some(true),
                text if "false".starts_with(text) || "no".starts_with(text) => Some(false),
                _ => None,
            },
            Self::Not(other) => other.boolean().map(|other| !other),
            Self::Parameter(_) | Self::Unknown => None,
        }
    }

    fn is_true(&self) -> bool {
        self.boolean() == Some(true)
    }

    fn has_parameter(&self) -> bool {
        match self {
            Self::Parameter(_) => true,
            Self::Not(other) => other.has_parameter(),
            Self::Text(_) | Self::Unknown => false,
        }
    }

    /// Replaces a parameter by its value.
    fn fill(&mut self, value: &dyn Fn(usize) -> Option<Self>) {
        match self {
            Self::Parameter(number) => *self = value(*number).unwrap_or(Self::Unknown),
            Self::Not(other) => other.fill(value),
            Self::Text(_) | Self::Unknown => {}
        }
    }

    fn of(token: Token<'_>) -> Self {
        let text = String::from_utf8_lossy(token.text);
        match token.kind {
            TokenKind::Text => Self::Text(String::from_utf8_lossy(content(token.text)).to_lowercase()),
            TokenKind::Word if token.is_word(b"true") || token.is_word(b"false") => {
                Self::Text(text.to_lowercase())
            }
            TokenKind::Number => Self::Text(text.into_owned()),
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
fn call(lexer: SqlLexer<'_>) -> Option<Call> {
    let arguments = arguments(lexer)?;
    let argument = |at: usize, name: &[u8]| {
        let named = arguments.iter().find_map(|tokens| match tokens.as_slice() {
            [first, one, two, value @ ..]
                if first.is_word(name)
                    && (one.is_sign(b'=') && two.is_sign(b'>') || one.is_sign(b':') && two.is_sign(b'=')) =>
            {
                Some(value)
            }
            _ => None,
        });
        named.or_else(|| arguments.get(at).map(Vec::as_slice)).map_or(Argument::Unknown, value_of)
    };
    Some(Call { name: argument(0, b"setting_name"), local: argument(2, b"is_local") })
}

/// Returns the tokens of each argument in a list in parentheses.
fn arguments(mut lexer: SqlLexer<'_>) -> Option<Vec<Vec<Token<'_>>>> {
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
    Some(arguments)
}

/// Returns an argument's value, ignoring casts and parentheses.
fn value_of(tokens: &[Token<'_>]) -> Argument {
    if tokens.len() > MAX_ARGUMENT_TOKENS {
        return Argument::Unknown;
    }
    if let Some(cast) = outside(tokens, |token| token.is_sign(b':')) {
        return value_of(&tokens[..cast]);
    }
    match tokens {
        [value] => Argument::of(*value),
        [not, value @ ..] if not.is_word(b"not") => Argument::Not(Box::new(value_of(value))),
        [select, value @ ..] if select.is_word(b"select") => value_of(value),
        [kind, value] if kind.kind == TokenKind::Word && value.kind == TokenKind::Text => {
            Argument::of(*value)
        }
        [open, value @ .., close] if open.is_sign(b'(') && close.is_sign(b')') && is_balanced(value) => {
            value_of(value)
        }
        [cast, open, value @ .., close]
            if cast.is_word(b"cast") && open.is_sign(b'(') && close.is_sign(b')') && is_balanced(value) =>
        {
            outside(value, |token| token.is_word(b"as"))
                .map_or(Argument::Unknown, |at| value_of(&value[..at]))
        }
        _ => Argument::Unknown,
    }
}

/// Returns the position of the first token outside parentheses that is `wanted`.
fn outside(tokens: &[Token<'_>], wanted: impl Fn(&Token<'_>) -> bool) -> Option<usize> {
    let mut open = 0_u32;
    tokens.iter().position(|token| {
        match token.text {
            b"(" | b"[" => open += 1,
            b")" | b"]" => open = open.saturating_sub(1),
            _ => {}
        }
        open == 0 && wanted(token)
    })
}

/// Returns true if no parenthesis closes before it opens.
fn is_balanced(tokens: &[Token<'_>]) -> bool {
    let mut open = 0_u32;
    tokens.iter().all(|token| match token.text {
        b"(" => {
            open += 1;
            true
        }
        b")" => open.checked_sub(1).map(|left| open = left).is_some(),
        _ => true,
    })
}

/// Parses what follows UPDATE. Updating the view `pg_settings` is the same as SET.
fn update(mut lexer: SqlLexer<'_>) -> Option<SettingChanges> {
    let words = [&b"only"[..], b"pg_catalog", b"."];
    let mut tokens = std::iter::from_fn(|| lexer.token())
        .skip_while(|token| words.iter().any(|word| token.text.eq_ignore_ascii_case(word)));
    tokens.next().filter(|token| is_named(*token, b"pg_settings"))?;
    let tokens: Vec<_> = tokens.take_while(|token| !token.is_sign(b';')).collect();
    let name = tokens.windows(3).find_map(|part| match Argument::of(part[2]) {
        Argument::Text(name) if part[0].is_word(b"name") && part[1].is_sign(b'=') => Some(name),
        _ => None,
    });
    Some(SettingChanges::of_setting(name.as_deref(), false))
}

/// Returns the tokens of the SET or RESET that starts with `first`.
fn statement_tokens<'s>(first: Token<'s>, mut lexer: SqlLexer<'s>) -> Vec<Token<'s>> {
    let rest = std::iter::from_fn(|| lexer.token()).take_while(|token| !token.is_sign(b';'));
    std::iter::once(first).chain(rest).take(MAX_SET_TOKENS).collect()
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
            ("SELECT set_config('a', '', cast('on' as bool))", "a", Some(true)),
            ("SELECT set_config(cast('a' as text), '', NOT (select cast((false) AS bool)))", "a", Some(true)),
            ("SELECT set_config('a', '', is_local := boolean 'yes')", "a", Some(true)),
            ("SELECT set_config(is_local => false, setting_name => 'a', new_value => 't')", "a", Some(false)),
            ("SELECT set_config('a', '', (true) or (false))", "a", Some(false)),
            ("UPDATE ONLY pg_catalog.pg_settings SET setting = 1", "a", Some(false)),
            ("UPDATE pg_settings SET setting = 1 WHERE name = 'a'; SELECT 'b'", "a", Some(false)),
            ("UPDATE pg_settings SET setting = 1 WHERE name = 'a'; SELECT f()", "b", Some(false)),
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
    fn deeply_nested_arguments_are_unknown() {
        for (open, close) in [("not ", ""), ("(", ")"), ("cast(", " as bool)"), ("select ", "")] {
            let (open, close) = (open.repeat(100_000), close.repeat(100_000));
            let sql = format!("SELECT set_config('a', '', {open}true{close})");
            let changes = SettingChanges::of_statement(sql.as_bytes(), true).unwrap();
            assert_eq!(changes.is_local("a"), Some(false));
        }
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
