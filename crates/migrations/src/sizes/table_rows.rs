//! Parses row counts that the user gives, as in `--rows orders=48M`.

use std::fmt;
use std::str::FromStr;

use pgwire::Token;
use plans::RelationName;

use crate::sql_text::tokens;

/// A table's number of rows in production, as the user writes it: `orders=48M`, `shop."Order"=1.5k`.
#[derive(Debug, Clone, PartialEq)]
pub struct TableRows {
    /// Schema of the table. `None` if the user didn't give one.
    pub schema: Option<String>,
    /// Name of the table.
    pub name: String,
    /// Number of rows.
    pub rows: f64,
}

/// Error for a text that isn't a table name with a row count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseTableRowsError {
    /// The part before `=` isn't a table name.
    #[error("expected a table and its number of rows, such as orders=48M")]
    Table,
    /// The part after `=` isn't a number.
    #[error("expected a number of rows such as 5000, 200k, 48M or 1.5G")]
    Rows,
}

impl FromStr for TableRows {
    type Err = ParseTableRowsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, rows) = text.rsplit_once('=').ok_or(ParseTableRowsError::Table)?;
        let tokens = tokens(name);
        let name = |token: &Token<'_>| {
            token.name().filter(|name| !name.is_empty()).ok_or(ParseTableRowsError::Table)
        };
        let (schema, name) = match &tokens[..] {
            [table] => (None, name(table)?),
            [schema, dot, table] if dot.is_sign(b'.') => (Some(name(schema)?), name(table)?),
            _ => return Err(ParseTableRowsError::Table),
        };
        Ok(Self { schema, name, rows: parse_rows(rows.trim()).ok_or(ParseTableRowsError::Rows)? })
    }
}

/// Parses a number of rows with an optional suffix: k, M or G.
fn parse_rows(text: &str) -> Option<f64> {
    let (digits, factor) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 1e3),
        (at, 'm' | 'M') => (&text[..at], 1e6),
        (at, 'g' | 'G') => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let rows = digits.parse::<f64>().ok().filter(|_| is_number)? * factor;
    Some(rows.round()).filter(|rows| *rows < 1e15)
}

impl TableRows {
    /// Returns true if the user's name matches this relation.
    pub(super) fn names(&self, relation: &RelationName) -> bool {
        self.name == relation.name && self.schema.as_ref().is_none_or(|schema| *schema == relation.schema)
    }
}

impl fmt::Display for TableRows {
    /// Formats the table name as SQL requires.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema.clone().unwrap_or_else(|| "public".to_owned());
        RelationName { schema, name: self.name.clone() }.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(Option<String>, String, f64), ParseTableRowsError> {
        text.parse().map(|TableRows { schema, name, rows }| (schema, name, rows))
    }

    #[test]
    fn numbers_have_optional_suffixes() {
        for (text, rows) in
            [("5000", 5000.0), ("200k", 200e3), ("48M", 48e6), ("1.5G", 1.5e9), (" 2m ", 2e6), ("0", 0.0)]
        {
            assert_eq!(parse(&format!("orders={text}")), Ok((None, "orders".to_owned(), rows)));
        }
        for text in ["", "M", "-5", "1e9", "inf", "48 M", "48T", "1.2.3", "many", "999999999G"] {
            assert_eq!(parse(&format!("orders={text}")), Err(ParseTableRowsError::Rows), "{text}");
        }
    }

    #[test]
    fn names_are_those_of_sql() {
        for (text, schema, name) in [
            ("Orders=1", None, "orders"),
            ("\"Orders\"=1", None, "Orders"),
            ("shop.orders = 1", Some("shop"), "orders"),
            ("\"a.b\".\"c=d\"=1", Some("a.b"), "c=d"),
        ] {
            assert_eq!(parse(text), Ok((schema.map(str::to_owned), name.to_owned(), 1.0)));
        }
        for text in ["orders", "=1", "a.b.c=1", "a b=1", "\"\"=1", "'a'=1", "a.=1"] {
            assert_eq!(parse(text), Err(ParseTableRowsError::Table), "{text}");
        }
    }
}
