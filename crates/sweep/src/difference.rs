//! Rows that a run with a fault has lost, doubled or changed, in comparison with runs without faults.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::contents::{ColumnContent, Contents, Row, Table};

/// Maximum number of rows that a difference shows.
const SHOWN_ROWS: usize = 3;
/// Maximum length of a shown row, in columns.
const ROW_WIDTH: usize = 120;
/// Stands for a number that the server may have generated.
const MASK: &str = "…";

/// Contents of a database at the end of a lease without faults, and the columns whose values are the same in each run.
#[derive(Debug, Clone, Default)]
pub struct SteadyRows {
    contents: Contents,
    /// Positions of the columns to compare, by table. `None` for a table whose rows differ even without faults.
    columns: BTreeMap<String, Option<Vec<usize>>>,
}

/// A table whose rows differ from those of a run without faults.
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
    /// Some of the differing rows: those that are missing or, if there are none, the surplus ones.
    pub rows: Vec<String>,
}

/// How the rows of a table differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceKind {
    /// Rows are there more often than without faults.
    Doubled,
    /// There are rows that are not there without faults.
    Surplus,
    /// Rows are missing.
    Lost,
    /// Rows have other values.
    Changed,
}

impl SteadyRows {
    /// Compares the ends of two runs without faults.
    #[must_use]
    pub fn of(contents: Contents, other: &Contents) -> Self {
        let names: BTreeSet<_> = contents.tables.keys().chain(other.tables.keys()).cloned().collect();
        let none = Table::default();
        let of = |name: String| {
            let one = contents.tables.get(&name).unwrap_or(&none);
            let other = other.tables.get(&name).unwrap_or(&none);
            let columns = stable_columns(one, other);
            (name, columns)
        };
        let columns = names.into_iter().map(of).collect();
        Self { contents, columns }
    }

    /// Returns the tables whose rows differ even between runs without faults.
    pub fn unsteady_tables(&self) -> impl Iterator<Item = &str> {
        let unsteady = self.columns.iter().filter(|(_, columns)| columns.is_none());
        unsteady.map(|(name, _)| name.as_str())
    }

    /// Returns true if no table has a row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contents.tables.values().all(|table| table.count == 0)
    }

    /// Returns the tables whose rows differ at the end of a run with a fault.
    #[must_use]
    pub fn differences(&self, found: &Contents) -> Vec<TableDifference> {
        let none = Table::default();
        let names: BTreeSet<_> = self.columns.keys().chain(found.tables.keys()).collect();
        let of = |name: &String| {
            let expected = self.contents.tables.get(name).unwrap_or(&none);
            let found = found.tables.get(name).unwrap_or(&none);
            let columns = match self.columns.get(name) {
                Some(columns) => columns.clone()?,
                None => (0..found.columns.len()).collect(),
            };
            difference(name, expected, found, &columns)
        };
        names.into_iter().filter_map(of).collect()
    }
}

/// Returns the columns whose values are the same in both runs, or `None` if not even the number of rows is.
fn stable_columns(one: &Table, other: &Table) -> Option<Vec<usize>> {
    if one.count != other.count {
        return None;
    }
    let (Some(rows), Some(others)) = (&one.rows, &other.rows) else { return Some(Vec::new()) };
    let sorted = |rows: &[Row], columns: &[usize]| {
        let mut rows: Vec<_> = rows.iter().map(|row| project(row, columns)).collect();
        rows.sort();
        rows
    };
    let is_same = |columns: &[usize]| sorted(rows, columns) == sorted(others, columns);
    let known = (0..one.columns.len()).filter(|at| {
        one.columns[*at].content != ColumnContent::Generated && other.columns.get(*at) == one.columns.get(*at)
    });
    let stable: Vec<_> = known.filter(|at| is_same(&[*at])).collect();
    // Each column can have the same values in rows that are different as a whole.
    Some(if is_same(&stable) { stable } else { Vec::new() })
}

fn project(row: &Row, columns: &[usize]) -> Row {
    columns.iter().map(|at| row.get(*at).cloned().flatten()).collect()
}

fn difference(name: &str, expected: &Table, found: &Table, columns: &[usize]) -> Option<TableDifference> {
    let of_counts = || {
        let kind = if found.count < expected.count { DifferenceKind::Lost } else { DifferenceKind::Surplus };
        (kind, Vec::new())
    };
    let (kind, rows) = match (&expected.rows, &found.rows) {
        (Some(before), Some(after)) if !columns.is_empty() => {
            let key = |row: &Row| project(row, columns);
            if Counted::of(before, key).balance(&Counted::of(after, key)).is_even() {
                return None;
            }
            // Numbers that the server has generated differ after a second attempt.
            let columns_of = if expected.columns.is_empty() { found } else { expected };
            let key = |row: &Row| masked(row, columns, columns_of);
            let (before, after) = (Counted::of(before, key), Counted::of(after, key));
            let balance = before.balance(&after);
            if balance.is_even() {
                return None;
            }
            let kind = balance.kind(&before);
            let rows = if balance.missing.is_empty() { balance.surplus } else { balance.missing };
            let show = |row: &Row| shown(row, columns, columns_of);
            (kind, rows.iter().take(SHOWN_ROWS).map(show).collect())
        }
        _ if expected.count == found.count => return None,
        _ => of_counts(),
    };
    Some(TableDifference { table: name.to_owned(), expected: expected.count, found: found.count, kind, rows })
}

/// Returns the compared values of a row, without numbers that the server may have generated.
fn masked(row: &Row, columns: &[usize], table: &Table) -> Row {
    let value = |at: &usize| {
        let value = row.get(*at).cloned().flatten();
        match table.columns.get(*at).map(|column| column.content) {
            Some(ColumnContent::Generated | ColumnContent::Reference) => value.map(|_| MASK.to_owned()),
            Some(ColumnContent::Text) => value.map(|text| without_numbers(&text)),
            Some(ColumnContent::Plain) | None => value,
        }
    };
    columns.iter().map(value).collect()
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

fn shown(row: &Row, columns: &[usize], table: &Table) -> String {
    let field = |(value, at): (&Option<String>, &usize)| {
        let name = table.columns.get(*at).map_or("", |column| &column.name);
        let value = value.as_deref().unwrap_or("NULL");
        (value != MASK).then(|| format!("{name}={value}"))
    };
    let fields: Vec<_> = row.iter().zip(columns).filter_map(field).collect();
    report::cut(&fields.join(", "), ROW_WIDTH)
}

/// Number of rows by their values.
struct Counted(BTreeMap<Row, usize>);

/// Rows that two tables do not have equally often, each as often as it differs.
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

    /// Returns the rows that are here more often than in `other`.
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
