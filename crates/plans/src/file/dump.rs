//! Parses the output of `pg_dump --statistics-only`: calls of `pg_restore_relation_stats` and
//! `pg_restore_attribute_stats`, and the settings that precede them.
//!
//! Source: `dumpRelationStats_dumper` in `src/bin/pg_dump/pg_dump.c` of version 18.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

use pgwire::{SqlLexer, Token, TokenKind};

use super::{StatisticsFileError, line};
use crate::import::{numbers, values};
use crate::statistics::FORMAT;
use crate::{ColumnStatistics, RelationKind, RelationName, RelationStatistics, Slot, Statistics};

/// Maximum number of arguments in a call.
const ARGUMENTS: usize = 100;

/// Reason why a call is invalid.
type Reason = String;

pub(super) fn parse(text: &str) -> Result<Statistics, StatisticsFileError> {
    let lexer = SqlLexer::new(text.as_bytes(), true);
    let mut parser = Parser { text, start: 0, lexer, standard_strings: true, token_start: 0 };
    let mut dump = Dump::default();
    while let Some(first) = parser.next() {
        let begun = parser.token_start;
        parser.statement(first, &mut dump).map_err(|reason| StatisticsFileError::Syntax {
            line: line(&text.as_bytes()[..begun]),
            reason,
        })?;
    }
    if dump.relations.is_empty() {
        let reason =
            "the file has no statistics: it is neither JSON nor the output of \"pg_dump --statistics-only\"";
        return Err(StatisticsFileError::Syntax { line: 1, reason: reason.to_owned() });
    }
    Ok(Statistics {
        format: FORMAT,
        server_version: dump.version,
        taken: 0,
        settings: BTreeMap::new(),
        relations: dump.relations,
        extended: Vec::new(),
    })
}

/// Statistics from the calls parsed so far.
#[derive(Default)]
struct Dump {
    version: u32,
    relations: Vec<RelationStatistics>,
    by_name: HashMap<RelationName, usize>,
}

struct Parser<'a> {
    text: &'a str,
    /// Start of the lexer's text in the whole text.
    start: usize,
    lexer: SqlLexer<'a>,
    /// Whether a backslash is an ordinary character in plain string literals.
    standard_strings: bool,
    token_start: usize,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.lexer.token()?;
        self.token_start = self.start + self.lexer.position() - token.text.len();
        Some(token)
    }

    /// Continues lexing at `start`.
    fn restart(&mut self, start: usize) {
        self.start = start;
        self.lexer = SqlLexer::new(&self.text.as_bytes()[start..], self.standard_strings);
    }

    fn statement(&mut self, first: Token<'a>, dump: &mut Dump) -> Result<(), Reason> {
        if first.is_sign(b'\\') {
            // \restrict and \unrestrict are psql commands, which end at the end of the line.
            let rest = &self.text[self.token_start..];
            let end = rest.find('\n').map_or(self.text.len(), |end| self.token_start + end);
            self.restart(end);
            return Ok(());
        }
        if first.is_word(b"set") {
            return self.setting();
        }
        if !first.is_word(b"select") {
            return Err("this is not a call that \"pg_dump --statistics-only\" writes".to_owned());
        }
        let mut name = self.name()?;
        if name == "*" {
            let from = self.next().is_some_and(|token| token.is_word(b"from"));
            name = if from { self.name()? } else { String::new() };
        }
        match name.strip_prefix("pg_catalog.").unwrap_or(&name) {
            // Since version 19, dumps also contain extended statistics. Their format isn't usable in other versions, so
            // skip them.
            "set_config" | "pg_restore_extended_stats" => self.skip_statement(),
            "pg_restore_relation_stats" => dump.relation(&self.arguments()?),
            "pg_restore_attribute_stats" => dump.column(&self.arguments()?),
            _ => Err("this is not a call that \"pg_dump --statistics-only\" writes".to_owned()),
        }
    }

    /// Parses `SET name = value;`.
    fn setting(&mut self) -> Result<(), Reason> {
        let name = self.next().filter(Token::is_name).ok_or("a setting has no name")?;
        let sign = self.next().is_some_and(|token| token.is_sign(b'=') || token.is_word(b"to"));
        let value = self.next().filter(|_| sign).ok_or("a setting has no value")?;
        let ends = self.next().is_some_and(|token| token.is_sign(b';'));
        if !ends {
            return Err("a setting does not end with \";\"".to_owned());
        }
        if name.is_word(b"standard_conforming_strings") {
            self.standard_strings = value.is_word(b"on");
            self.restart(self.start + self.lexer.position());
        }
        let encodings = [&b"'UTF8'"[..], b"'SQL_ASCII'"];
        if name.is_word(b"client_encoding") && !encodings.contains(&value.text) {
            return Err("the file is not in UTF-8: run pg_dump with --encoding=UTF8".to_owned());
        }
        Ok(())
    }

    /// Parses a qualified name, up to the parenthesis that follows it, or `*`.
    fn name(&mut self) -> Result<String, Reason> {
        let mut name = String::new();
        loop {
            let token = self.next().ok_or("a call is not complete")?;
            match token.kind {
                TokenKind::Word => name.push_str(&String::from_utf8_lossy(token.text)),
                _ if token.is_sign(b'.') => name.push('.'),
                _ if token.is_sign(b'*') && name.is_empty() => return Ok("*".to_owned()),
                _ if token.is_sign(b'(') => return Ok(name),
                _ => return Err("a call has no name".to_owned()),
            }
        }
    }

    fn skip_statement(&mut self) -> Result<(), Reason> {
        while let Some(token) = self.next() {
            if token.is_sign(b';') {
                return Ok(());
            }
        }
        Err("a statement does not end with \";\"".to_owned())
    }

    /// Parses `'name', value::type, …);`.
    fn arguments(&mut self) -> Result<Arguments, Reason> {
        let mut arguments = Arguments(BTreeMap::new());
        loop {
            let name = self.next().and_then(|token| self.literal(token)).ok_or("an argument has no name")?;
            if !self.next().is_some_and(|token| token.is_sign(b',')) {
                return Err(format!("argument {name:?} has no value"));
            }
            let value = self.value().ok_or(format!("argument {name:?} is not a literal, number or word"))?;
            let after = self.after_value().ok_or(format!("argument {name:?} does not end"))?;
            let is_new = arguments.0.insert(name.clone(), value).is_none();
            if !is_new || arguments.0.len() > ARGUMENTS {
                return Err(format!("argument {name:?} occurs twice, or is one too many"));
            }
            if after.is_sign(b')') {
                break;
            }
        }
        if !self.next().is_some_and(|token| token.is_sign(b';')) {
            return Err("the call does not end with \";\"".to_owned());
        }
        Ok(arguments)
    }

    /// Parses a literal, a number or a word such as `true`. The inner `None` stands for NULL.
    #[expect(clippy::option_option, reason = "the outer one says that there is no value")]
    fn value(&mut self) -> Option<Option<String>> {
        let token = self.next()?;
        match token.kind {
            TokenKind::Text => self.literal(token).map(Some),
            TokenKind::Word if token.is_word(b"null") => Some(None),
            TokenKind::Word | TokenKind::Number => {
                Some(Some(String::from_utf8_lossy(token.text).into_owned()))
            }
            TokenKind::Sign if token.text == b"-" => {
                let number = self.next().filter(|token| token.kind == TokenKind::Number)?;
                Some(Some(format!("-{}", String::from_utf8_lossy(number.text))))
            }
            _ => None,
        }
    }

    /// Decodes a quoted literal, with or without the prefix E. Returns `None` for other tokens.
    fn literal(&self, token: Token<'_>) -> Option<String> {
        let text = std::str::from_utf8(token.text).ok().filter(|_| token.kind == TokenKind::Text)?;
        let (body, is_escaped) = match text.strip_prefix(['E', 'e']) {
            Some(body) => (body, true),
            None => (text, !self.standard_strings),
        };
        let body = body.strip_prefix('\'')?.strip_suffix('\'')?;
        let mut value = String::with_capacity(body.len());
        let mut characters = body.chars();
        while let Some(character) = characters.next() {
            match character {
                '\'' => value.push(characters.next().filter(|next| *next == '\'')?),
                // pg_dump only escapes backslashes.
                '\\' if is_escaped => {
                    value.push(characters.next().filter(|next| matches!(next, '\\' | '\''))?);
                }
                _ => value.push(character),
            }
        }
        Some(value)
    }

    /// Skips a cast, and returns the comma or parenthesis that follows it.
    fn after_value(&mut self) -> Option<Token<'a>> {
        loop {
            let token = self.next()?;
            let is_cast = token.kind == TokenKind::Word || matches!(token.text, b":" | b"[" | b"]" | b".");
            if token.is_sign(b',') || token.is_sign(b')') {
                return Some(token);
            }
            if !is_cast {
                return None;
            }
        }
    }
}

/// Arguments of a call by name. `None` stands for NULL.
struct Arguments(BTreeMap<String, Option<String>>);

impl Arguments {
    fn optional(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_deref()
    }

    fn text(&self, name: &str) -> Result<&str, Reason> {
        self.optional(name).ok_or(format!("argument {name:?} is missing"))
    }

    fn number<N: FromStr>(&self, name: &str) -> Result<N, Reason> {
        self.text(name)?.parse().map_err(|_| format!("argument {name:?} is not a valid number"))
    }

    fn numbers(&self, name: &str) -> Result<Option<Vec<f32>>, Reason> {
        let invalid = || format!("argument {name:?} is not an array of numbers");
        self.optional(name).map(|text| numbers(text).ok_or_else(invalid)).transpose()
    }

    fn values(&self, name: &str) -> Result<Option<Vec<String>>, Reason> {
        let invalid = || format!("argument {name:?} is not an array of values");
        self.optional(name).map(|text| values(text, ',').ok_or_else(invalid)).transpose()
    }

    fn relation(&self) -> Result<RelationName, Reason> {
        Ok(RelationName {
            schema: self.text("schemaname")?.to_owned(),
            name: self.text("relname")?.to_owned(),
        })
    }
}

impl Dump {
    fn relation(&mut self, arguments: &Arguments) -> Result<(), Reason> {
        self.version = arguments.number("version")?;
        let name = arguments.relation()?;
        // For a partitioned table, `relpages` is -1.
        let pages = u32::try_from(arguments.number::<i64>("relpages")?.max(0));
        let pages = pages.map_err(|_| "argument \"relpages\" is too large")?;
        if self.by_name.insert(name.clone(), self.relations.len()).is_some() {
            return Err(format!("relation {:?}.{:?} occurs twice", name.schema, name.name));
        }
        self.relations.push(RelationStatistics {
            schema: name.schema,
            name: name.name,
            kind: RelationKind::Unknown,
            pages,
            analyzed_pages: pages,
            rows: arguments.number("reltuples")?,
            all_visible: arguments.number("relallvisible")?,
            table: None,
            definition: None,
            parents: Vec::new(),
            generated: BTreeMap::new(),
            height: None,
            columns: Vec::new(),
        });
        Ok(())
    }

    fn column(&mut self, arguments: &Arguments) -> Result<(), Reason> {
        let name = arguments.relation()?;
        let index = *self
            .by_name
            .get(&name)
            .ok_or(format!("relation {:?}.{:?} has no size before this call", name.schema, name.name))?;
        let number = match arguments.optional("attname") {
            Some(_) => None,
            None => Some(arguments.number("attnum")?),
        };
        self.relations[index].columns.push(ColumnStatistics {
            column: arguments.optional("attname").unwrap_or_default().to_owned(),
            number,
            type_name: String::new(),
            redacted: false,
            inherited: matches!(arguments.text("inherited")?, "t" | "true"),
            null_fraction: arguments.number("null_frac")?,
            width: arguments.number("avg_width")?,
            distinct: arguments.number("n_distinct")?,
            slots: slots(arguments)?,
        });
        Ok(())
    }
}

/// For each kind of slot, the arguments with its numbers and values.
const SLOTS: [(i16, Option<&str>, Option<&str>); 7] = [
    (1, Some("most_common_freqs"), Some("most_common_vals")),
    (2, None, Some("histogram_bounds")),
    (3, Some("correlation"), None),
    (4, Some("most_common_elem_freqs"), Some("most_common_elems")),
    (5, Some("elem_count_histogram"), None),
    (6, Some("range_empty_frac"), Some("range_length_histogram")),
    (7, None, Some("range_bounds_histogram")),
];

fn slots(arguments: &Arguments) -> Result<Vec<Slot>, Reason> {
    let mut slots = Vec::new();
    for (kind, numbers, values) in SLOTS {
        let numbers = match numbers {
            Some(name @ ("correlation" | "range_empty_frac")) => arguments
                .optional(name)
                .map(|_| Ok::<_, Reason>(vec![arguments.number(name)?]))
                .transpose()?,
            Some(name) => arguments.numbers(name)?,
            None => None,
        };
        let values = values.map(|name| arguments.values(name)).transpose()?.flatten();
        if numbers.is_some() || values.is_some() {
            slots.push(Slot { kind, numbers, values });
        }
    }
    Ok(slots)
}
