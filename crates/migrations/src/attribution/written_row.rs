//! Parses the columns and values of a row that a statement inserts, updates or deletes.

use pgwire::{Token, TokenKind};
use plans::BoundValue;

use crate::sql_text::tokens;

/// How a statement changes a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowChange {
    /// An INSERT with a column list and a single row.
    Insert,
    Update,
    Delete,
}

/// A row that a statement inserts, updates or deletes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WrittenRow {
    pub(super) change: RowChange,
    /// Name of the table, without its schema.
    pub(super) table: String,
    columns: Vec<Column>,
}

#[derive(Debug, PartialEq, Eq)]
struct Column {
    /// Name in lowercase, because some tools quote names and others don't.
    name: String,
    /// The value. `None` for NULL and for an expression.
    value: Option<String>,
    /// Whether the column is in the WHERE clause.
    is_condition: bool,
}

impl WrittenRow {
    /// Returns `None` for other statements, for an INSERT of several rows, and for an INSERT without a column list.
    pub(super) fn read(sql: &str, parameters: &[BoundValue]) -> Option<Self> {
        let mut tokens = Tokens::new(sql, parameters);
        let first = tokens.next()?;
        if first.is_word(b"insert") {
            tokens.expect_word(b"into")?;
            let table = tokens.table()?;
            return Some(Self { change: RowChange::Insert, table, columns: tokens.inserted()? });
        }
        if first.is_word(b"update") {
            let table = tokens.table()?;
            return Some(Self { change: RowChange::Update, table, columns: tokens.equations() });
        }
        if first.is_word(b"delete") {
            tokens.expect_word(b"from")?;
            let table = tokens.table()?;
            return Some(Self { change: RowChange::Delete, table, columns: tokens.equations() });
        }
        None
    }

    /// Returns true if the statement names all of `columns`.
    pub(super) fn has(&self, columns: &[&str]) -> bool {
        columns.iter().all(|wanted| self.columns.iter().any(|column| column.name == *wanted))
    }

    /// Returns the row's value after the statement. If the statement doesn't set the column, this is the value in
    /// WHERE.
    pub(super) fn value(&self, column: &str) -> Option<&str> {
        self.new_value(column).or_else(|| self.condition(column))
    }

    /// Returns the value that the statement assigns to a column.
    pub(super) fn new_value(&self, column: &str) -> Option<&str> {
        self.find(column, false)
    }

    /// Returns the value that WHERE compares a column with.
    pub(super) fn condition(&self, column: &str) -> Option<&str> {
        self.find(column, true)
    }

    fn find(&self, column: &str, is_condition: bool) -> Option<&str> {
        let mut columns = self.columns.iter();
        columns.find(|one| one.name == column && one.is_condition == is_condition)?.value.as_deref()
    }
}

/// Reads a statement's tokens from left to right.
struct Tokens<'a> {
    all: Vec<Token<'a>>,
    at: usize,
    parameters: &'a [BoundValue],
}

impl<'a> Tokens<'a> {
    fn new(sql: &'a str, parameters: &'a [BoundValue]) -> Self {
        Self { all: tokens(sql), at: 0, parameters }
    }

    fn peek(&self) -> Option<Token<'a>> {
        self.all.get(self.at).copied()
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    fn skip_word(&mut self, word: &[u8]) -> bool {
        let is_word = self.peek().is_some_and(|token| token.is_word(word));
        self.at += usize::from(is_word);
        is_word
    }

    fn skip_sign(&mut self, sign: u8) -> bool {
        let is_sign = self.peek().is_some_and(|token| token.is_sign(sign));
        self.at += usize::from(is_sign);
        is_sign
    }

    fn expect_word(&mut self, word: &[u8]) -> Option<()> {
        self.skip_word(word).then_some(())
    }

    fn expect_sign(&mut self, sign: u8) -> Option<()> {
        self.skip_sign(sign).then_some(())
    }

    /// Parses a qualified name and returns its last part.
    fn name(&mut self) -> Option<String> {
        let mut name = self.next()?.name()?;
        while self.skip_sign(b'.') {
            name = self.next()?.name()?;
        }
        Some(name)
    }

    fn table(&mut self) -> Option<String> {
        self.skip_word(b"only");
        self.name()
    }

    /// Parses `(column, …) VALUES (value, …)`.
    fn inserted(&mut self) -> Option<Vec<Column>> {
        if self.skip_word(b"as") {
            self.next()?;
        }
        self.expect_sign(b'(')?;
        let mut names = vec![self.name()?.to_lowercase()];
        while self.skip_sign(b',') {
            names.push(self.name()?.to_lowercase());
        }
        self.expect_sign(b')')?;
        if self.skip_word(b"overriding") {
            self.at += 2;
        }
        self.expect_word(b"values")?;
        self.expect_sign(b'(')?;
        let mut values = vec![self.expression()];
        while self.skip_sign(b',') {
            values.push(self.expression());
        }
        self.expect_sign(b')')?;
        if self.skip_sign(b',') || values.len() != names.len() {
            return None;
        }
        let columns = names.into_iter().zip(values);
        Some(columns.map(|(name, value)| Column { name, value, is_condition: false }).collect())
    }

    /// Parses `column = value` and `column IN (value)`, before and after WHERE.
    fn equations(&mut self) -> Vec<Column> {
        let (mut columns, mut is_condition) = (Vec::new(), false);
        while let Some(token) = self.peek() {
            is_condition |= token.is_word(b"where");
            let start = self.at;
            if let Some(name) = self.name() {
                let is_equal = self.skip_sign(b'=') || self.skip_word(b"in") && self.skip_sign(b'(');
                if is_equal {
                    let value = self.expression();
                    columns.push(Column { name: name.to_lowercase(), value, is_condition });
                    continue;
                }
            }
            self.at = start + 1;
        }
        columns
    }

    /// Skips an expression. Returns its value if it starts with a literal or a parameter.
    fn expression(&mut self) -> Option<String> {
        let value = self.peek().and_then(|token| self.constant(token));
        let mut open = 0_usize;
        while let Some(token) = self.peek() {
            let ends = token.is_sign(b',')
                || token.is_sign(b')')
                || [&b"where"[..], b"and", b"returning"].iter().any(|word| token.is_word(word));
            if ends && open == 0 {
                break;
            }
            if token.is_sign(b'(') {
                open += 1;
            } else if token.is_sign(b')') {
                open -= 1;
            }
            self.at += 1;
        }
        value
    }

    fn constant(&self, token: Token<'_>) -> Option<String> {
        let text = std::str::from_utf8(token.text).ok()?;
        match token.kind {
            TokenKind::Text => {
                let quoted = &text[text.find('\'')? + 1..];
                Some(quoted.strip_suffix('\'')?.replace("''", "'"))
            }
            TokenKind::Number => Some(text.to_owned()),
            TokenKind::Parameter => {
                let number: usize = text[1..].parse().ok()?;
                decoded(self.parameters.get(number.checked_sub(1)?)?)
            }
            TokenKind::Word if token.is_word(b"true") || token.is_word(b"false") => Some(text.to_lowercase()),
            _ => None,
        }
    }
}

/// Returns a parameter's value as text. If the driver lets the server determine the type, only the bytes distinguish
/// text from an integer. A binary integer below 2⁵⁶ starts with a control character, and text doesn't contain any.
fn decoded(parameter: &BoundValue) -> Option<String> {
    let value = parameter.value.as_deref()?;
    let text = std::str::from_utf8(value).ok();
    if parameter.format == 0 {
        return text.map(str::to_owned);
    }
    if let Some(text) = text.filter(|text| !text.contains(char::is_control)) {
        return Some(text.to_owned());
    }
    let integer = match value.len() {
        1 => i8::from_be_bytes(value.try_into().ok()?).into(),
        2 => i16::from_be_bytes(value.try_into().ok()?).into(),
        4 => i32::from_be_bytes(value.try_into().ok()?).into(),
        8 => i64::from_be_bytes(value.try_into().ok()?),
        _ => return None,
    };
    Some(integer.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(format: i16, value: &[u8]) -> BoundValue {
        BoundValue { type_oid: 0, format, value: Some(value.to_vec()) }
    }

    #[test]
    fn values_are_found_in_each_spelling() {
        for (sql, parameters, column, value) in [
            ("INSERT INTO v (n) VALUES ('a''b') RETURNING n", vec![], "n", Some("a'b")),
            (
                "insert into \"p\".\"v\" as x (\"Id\", n) values (now(), $1::text)",
                vec![parameter(0, b"a")],
                "n",
                Some("a"),
            ),
            ("INSERT INTO v (a, n) VALUES (f(1, 2), 12)", vec![], "n", Some("12")),
            (
                "INSERT INTO v (n, b) VALUES ($1, $2)",
                vec![parameter(1, &7_i64.to_be_bytes())],
                "n",
                Some("7"),
            ),
            ("INSERT INTO v (n) VALUES ($1)", vec![parameter(1, b"0042_a")], "n", Some("0042_a")),
            (
                "INSERT INTO v (n) VALUES ($1)",
                vec![parameter(1, &20_260_101_i32.to_be_bytes())],
                "n",
                Some("20260101"),
            ),
            ("INSERT INTO v (n) VALUES (true)", vec![], "n", Some("true")),
            ("INSERT INTO v (n) VALUES (NULL)", vec![], "n", None),
            ("UPDATE v SET m = 'x', n='b' WHERE v.n = 'a'", vec![], "n", Some("b")),
            ("UPDATE v SET m = 'x' WHERE (v.n = 'a')", vec![], "n", Some("a")),
            ("DELETE FROM ONLY v WHERE m = f(1) AND n = $1", vec![parameter(0, b"a")], "n", Some("a")),
            ("delete from v where n in ($1)", vec![parameter(0, b"a")], "n", Some("a")),
        ] {
            let row = WrittenRow::read(sql, &parameters).unwrap_or_else(|| panic!("{sql}"));
            assert_eq!((row.table.as_str(), row.value(column)), ("v", value), "{sql}");
        }
    }

    #[test]
    fn other_statements_have_no_row() {
        for sql in [
            "",
            "SELECT 1",
            "INSERT INTO v VALUES (1)",
            "INSERT INTO v (n) VALUES (1), (2)",
            "INSERT INTO v (n) SELECT 1",
            "INSERT INTO v (n, m) VALUES (1)",
            "INSERT",
        ] {
            assert_eq!(WrittenRow::read(sql, &[]), None, "{sql}");
        }
    }
}
