//! Compares the rows after a run with a fault with the rows after runs without faults, to find lost, doubled and
//! changed rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::contents::{ColumnContent, Contents, Row, Table};

/// Maximum number of rows that a [`TableDifference`] shows.
const SHOWN_ROWS: usize = 3;
/// Maximum width of a shown row in terminal columns.
const ROW_WIDTH: usize = 120;
/// Replaces a value that may differ between attempts, such as a generated number.
const MASK: &str = "…";

/// Contents of a database at the end of a lease without faults, and rules for comparing them with another run.
#[derive(Debug, Clone, Default)]
pub struct SteadyRows {
    contents: Contents,
    /// How to compare each table.
    tables: BTreeMap<String, Comparison>,
}

/// How to compare the rows of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Comparison {
    /// Compare these columns.
    Columns(Vec<ComparedColumn>),
    /// Don't compare, because the rows differ even without faults.
    Unsteady,
    /// Don't compare, because the user ignores the table (`--ignore`).
    Ignored,
}

/// A column to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ComparedColumn {
    /// Position of the column in the table, from 0.
    at: usize,
    detail: Detail,
}

/// Part of a value that a comparison takes into account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// The whole value.
    Value,
    /// The text with `…` in place of its numbers.
    WithoutNumbers,
    /// Only whether the value is NULL.
    Presence,
}

/// A table whose rows differ between a run with a fault and runs without faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableDifference {
    /// Qualified name of the table.
    pub table: String,
    /// Number of rows without faults.
    pub expected: u64,
    /// Number of rows with the fault.
    pub found: u64,
    /// How the rows differ.
    pub kind: DifferenceKind,
    /// Up to three missing rows or, if no row is missing, surplus rows. Omits rows that consist only of numbers that
    /// the server may have generated. Empty for a table whose rows pgfresh didn't read.
    pub rows: Vec<String>,
}

/// How the rows of a table differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceKind {
    /// The table contains rows more often than without faults, but no new ones.
    Doubled,
    /// The table contains rows that it doesn't contain without faults.
    Surplus,
    /// Rows are missing.
    Lost,
    /// Rows are missing, and other rows are there instead: their values have changed.
    Changed,
}

impl SteadyRows {
    /// Compares the contents at the end of two runs without faults. `ignored` lists tables and columns to leave out, as
    /// `TABLE` or `TABLE.COLUMN`, with or without the schema.
    #[must_use]
    pub fn of(contents: Contents, other: &Contents, ignored: &[String]) -> Self {
        let names: BTreeSet<_> = contents.tables.keys().chain(other.tables.keys()).cloned().collect();
        let none = Table::default();
        let of = |name: String| {
            let one = contents.tables.get(&name).unwrap_or(&none);
            let other = other.tables.get(&name).unwrap_or(&none);
            let comparison = if ignored.iter().any(|ignored| names_table(ignored, &name)) {
                Comparison::Ignored
            } else {
                let is_compared = |at: &usize| {
                    !ignored.iter().any(|ignored| names_column(ignored, &name, &one.columns[*at].name))
                };
                stable_columns(one, other, is_compared)
            };
            (name, comparison)
        };
        let tables = names.into_iter().map(of).collect();
        Self { contents, tables }
    }

    /// Returns true if `ignored` names a table or a column of these contents.
    #[must_use]
    pub fn has(&self, ignored: &str) -> bool {
        self.contents.tables.iter().any(|(name, table)| {
            let mut columns = table.columns.iter();
            names_table(ignored, name) || columns.any(|column| names_column(ignored, name, &column.name))
        })
    }

    /// Returns the tables whose rows differ even between runs without faults.
    pub fn unsteady_tables(&self) -> impl Iterator<Item = &str> {
        let unsteady = self.tables.iter().filter(|(_, comparison)| **comparison == Comparison::Unsteady);
        unsteady.map(|(name, _)| name.as_str())
    }

    /// Returns true if all tables are empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contents.tables.values().all(|table| table.count == 0)
    }

    /// Returns the tables whose rows differ from `found`, the contents at the end of a run with a fault.
    #[must_use]
    pub fn differences(&self, found: &Contents) -> Vec<TableDifference> {
        let none = Table::default();
        let names: BTreeSet<_> = self.tables.keys().chain(found.tables.keys()).collect();
        let of = |name: &String| {
            let expected = self.contents.tables.get(name).unwrap_or(&none);
            let table = found.tables.get(name).unwrap_or(&none);
            let columns = match self.tables.get(name) {
                Some(Comparison::Columns(columns)) => columns.clone(),
                Some(Comparison::Unsteady | Comparison::Ignored) => return None,
                None => (0..table.columns.len()).map(ComparedColumn::of_value).collect(),
            };
            let columns_of = if expected.columns.is_empty() { table } else { expected };
            let relax = |column: &ComparedColumn| {
                let follows = self.follows_sequence(found, name, column.at);
                column.relaxed(columns_of.columns.get(column.at).map(|column| column.content), follows)
            };
            difference(name, (expected, table), &columns.iter().map(relax).collect::<Vec<_>>())
        };
        names.into_iter().filter_map(of).collect()
    }

    /// Returns true if a client fills an integer column from a sequence, and advanced the sequence further than without
    /// faults. The evidence is that in both runs, the column's largest value equals the sequence's last value.
    fn follows_sequence(&self, found: &Contents, table: &str, at: usize) -> bool {
        let largest = |contents: &Contents| -> Option<i64> {
            let table = contents.tables.get(table)?;
            table.columns.get(at).filter(|column| column.content == ColumnContent::Integer)?;
            table.rows.as_ref()?.iter().filter_map(|row| row.get(at)?.as_ref()?.parse().ok()).max()
        };
        let (before, after) = (largest(&self.contents), largest(found));
        let follows = |(name, last): (&String, &i64)| {
            let later = found.sequences.get(name).copied();
            before == Some(*last) && after == later && later > before
        };
        before.is_some() && self.contents.sequences.iter().any(follows)
    }
}

/// Returns true if `ignored` names `table`, with or without the schema.
fn names_table(ignored: &str, table: &str) -> bool {
    ignored == table || table.split_once('.').is_some_and(|(_, bare)| ignored == bare)
}

/// Returns true if `ignored` consists of the table's name, a dot, and the column's name.
fn names_column(ignored: &str, table: &str, column: &str) -> bool {
    let rest = ignored.strip_suffix(column).and_then(|rest| rest.strip_suffix('.'));
    rest.is_some_and(|rest| names_table(rest, table))
}

/// Determines how to compare a table. Compares columns whose values are the same in both runs, and of other columns the
/// NULLs if at least these are the same. A table whose row count differs is unsteady. `is_compared` returns false for
/// columns that the user ignores.
fn stable_columns(one: &Table, other: &Table, is_compared: impl Fn(&usize) -> bool) -> Comparison {
    if one.count != other.count {
        return Comparison::Unsteady;
    }
    let (Some(rows), Some(others)) = (&one.rows, &other.rows) else { return Comparison::Columns(Vec::new()) };
    let sorted = |rows: &[Row], columns: &[ComparedColumn]| {
        let mut rows: Vec<_> = rows.iter().map(|row| project(row, columns)).collect();
        rows.sort();
        rows
    };
    let is_same = |columns: &[ComparedColumn]| sorted(rows, columns) == sorted(others, columns);
    let known = (0..one.columns.len()).filter(|at| {
        one.columns[*at].content != ColumnContent::Generated && other.columns.get(*at) == one.columns.get(*at)
    });
    let steady = |at: usize| {
        let details = [Detail::Value, Detail::Presence].map(|detail| ComparedColumn { at, detail });
        details.into_iter().find(|column| is_same(&[*column]))
    };
    let stable: Vec<_> = known.filter(is_compared).filter_map(steady).collect();
    let of_values = stable.iter().copied().filter(|column| column.detail == Detail::Value).collect();
    // Each column alone can have the same values in both runs while the rows combine them differently. If so, fall back
    // to fewer columns.
    let columns = [stable, of_values].into_iter().find(|columns| is_same(columns));
    Comparison::Columns(columns.unwrap_or_default())
}

impl ComparedColumn {
    fn of_value(at: usize) -> Self {
        Self { at, detail: Detail::Value }
    }

    /// Returns the column with a detail that a second attempt can't change, that is, without times and numbers that the
    /// server generates.
    fn relaxed(self, content: Option<ColumnContent>, follows_sequence: bool) -> Self {
        let detail = match (self.detail, content) {
            (
                Detail::Value,
                Some(ColumnContent::Generated | ColumnContent::Reference | ColumnContent::Time),
            ) => Detail::Presence,
            (Detail::Value, Some(ColumnContent::Text)) => Detail::WithoutNumbers,
            (Detail::Value, _) if follows_sequence => Detail::Presence,
            (detail, _) => detail,
        };
        Self { detail, ..self }
    }
}

/// Returns the values of `row` to compare.
fn project(row: &Row, columns: &[ComparedColumn]) -> Row {
    let value = |column: &ComparedColumn| {
        let value = row.get(column.at).cloned().flatten()?;
        Some(match column.detail {
            Detail::Value => value,
            Detail::WithoutNumbers => without_numbers(&value),
            Detail::Presence => MASK.to_owned(),
        })
    };
    columns.iter().map(value).collect()
}

/// Compares two tables. Returns `None` if the compared parts of `columns` are equal.
fn difference(
    name: &str,
    (expected, found): (&Table, &Table),
    columns: &[ComparedColumn],
) -> Option<TableDifference> {
    let (kind, rows) = match (&expected.rows, &found.rows) {
        (Some(before), Some(after)) if !columns.is_empty() => {
            let counted = |rows: &[Row]| Counted::of(rows, |row| project(row, columns));
            let (before, after) = (counted(before), counted(after));
            let balance = before.balance(&after);
            if balance.is_even() {
                return None;
            }
            let kind = balance.kind(&before);
            let rows = if balance.missing.is_empty() { balance.surplus } else { balance.missing };
            let columns_of = if expected.columns.is_empty() { found } else { expected };
            let show = |row: &Row| shown(row, columns, columns_of);
            (kind, rows.iter().map(show).filter(|row| !row.is_empty()).take(SHOWN_ROWS).collect())
        }
        _ if expected.count == found.count => return None,
        _ if found.count < expected.count => (DifferenceKind::Lost, Vec::new()),
        _ => (DifferenceKind::Surplus, Vec::new()),
    };
    Some(TableDifference { table: name.to_owned(), expected: expected.count, found: found.count, kind, rows })
}

fn without_numbers(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        if !letter.is_ascii_digit() {
            plain.push(letter);
        } else if !plain.ends_with('…') {
            plain.push('…');
        }
    }
    plain
}

/// Formats the compared values of a row. Omits masked numbers, because a mask isn't informative.
fn shown(row: &Row, columns: &[ComparedColumn], table: &Table) -> String {
    let field = |(value, compared): (&Option<String>, &ComparedColumn)| {
        let column = table.columns.get(compared.at);
        let is_number = column.is_some_and(|column| {
            use ColumnContent::{Generated, Integer, Reference};
            matches!(column.content, Generated | Integer | Reference)
        });
        let value = value.as_deref().unwrap_or("NULL");
        let name = column.map_or("", |column| &column.name);
        (!is_number || value != MASK).then(|| format!("{name}={value}"))
    };
    let fields: Vec<_> = row.iter().zip(columns).filter_map(field).collect();
    report::cut(&fields.join(", "), ROW_WIDTH)
}

/// Number of occurrences of each distinct row.
struct Counted(BTreeMap<Row, usize>);

/// Rows that one table contains more often than the other. Each row is repeated as often as the counts differ.
struct Balance {
    missing: Vec<Row>,
    surplus: Vec<Row>,
}

impl Counted {
    fn of(rows: &[Row], key: impl Fn(&Row) -> Row) -> Self {
        let mut counts = BTreeMap::new();
        for row in rows {
            *counts.entry(key(row)).or_default() += 1;
        }
        Self(counts)
    }

    fn balance(&self, after: &Self) -> Balance {
        Balance { missing: self.more_than(after), surplus: after.more_than(self) }
    }

    /// Returns the rows that occur more often in `self` than in `other`.
    fn more_than(&self, other: &Self) -> Vec<Row> {
        let more = |(row, count): (&Row, &usize)| {
            vec![row.clone(); count.saturating_sub(other.0.get(row).copied().unwrap_or_default())]
        };
        self.0.iter().flat_map(more).collect()
    }
}

impl Balance {
    fn is_even(&self) -> bool {
        self.missing.is_empty() && self.surplus.is_empty()
    }

    fn kind(&self, before: &Counted) -> DifferenceKind {
        let is_known = |row: &Row| before.0.contains_key(row);
        match (self.missing.is_empty(), self.surplus.is_empty()) {
            (false, true) => DifferenceKind::Lost,
            (true, _) if self.surplus.iter().all(is_known) => DifferenceKind::Doubled,
            (true, _) => DifferenceKind::Surplus,
            (false, false) => DifferenceKind::Changed,
        }
    }
}

impl fmt::Display for TableDifference {
    /// Describes the difference: `public.orders has 2 rows instead of 1; twice: item=lamp`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, expected, found, kind, rows } = self;
        let rows_word = if *found == 1 { "row" } else { "rows" };
        match kind {
            DifferenceKind::Changed if expected == found => write!(formatter, "{table} has other values")?,
            _ => write!(formatter, "{table} has {found} {rows_word} instead of {expected}")?,
        }
        let about = match kind {
            DifferenceKind::Doubled => "twice",
            DifferenceKind::Surplus => "surplus",
            DifferenceKind::Lost | DifferenceKind::Changed => "missing",
        };
        if rows.is_empty() { Ok(()) } else { write!(formatter, "; {about}: {}", rows.join("; ")) }
    }
}

#[cfg(test)]
mod tests;
