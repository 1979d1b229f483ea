//! Formats tables of texts and quantities in several formats.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::Quantity;
use crate::text::{self, Alignment};

/// A column's title and alignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub(crate) title: String,
    pub(crate) alignment: Alignment,
}

impl Column {
    /// Creates a left-aligned column, for example for words.
    #[must_use]
    pub fn left(title: impl Into<String>) -> Self {
        Self { title: title.into(), alignment: Alignment::Left }
    }

    /// Creates a right-aligned column, for example for numbers.
    #[must_use]
    pub fn right(title: impl Into<String>) -> Self {
        Self { title: title.into(), alignment: Alignment::Right }
    }
}

/// A table cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// A text. Any text is fine, because each format escapes it and replaces control characters.
    Text(String),
    /// An SQL statement. HTML pages fold the statement and let readers copy it.
    Statement(String),
    /// A number with a unit.
    Quantity(Quantity),
    /// A value that is unknown or wasn't measured: a dash for humans, empty in CSV, and `null` in JSON.
    Missing,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Quantity> for Cell {
    fn from(quantity: Quantity) -> Self {
        Self::Quantity(quantity)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(cell: Option<T>) -> Self {
        cell.map_or(Self::Missing, Into::into)
    }
}

impl Cell {
    /// Creates a cell with an SQL statement.
    #[must_use]
    pub fn statement(sql: impl Into<String>) -> Self {
        Self::Statement(sql.into())
    }

    /// Formats the cell for humans.
    pub(crate) fn to_human_text(&self) -> String {
        match self {
            Self::Text(text) | Self::Statement(text) => text.clone(),
            Self::Quantity(quantity) => quantity.to_string(),
            Self::Missing => "–".to_owned(),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Text(text) | Self::Statement(text) => json!(text),
            Self::Quantity(quantity) => json!(quantity),
            Self::Missing => Value::Null,
        }
    }

    /// Returns the number with all its digits in the base unit, and the base unit's name. A text has an empty unit.
    pub(crate) fn value_and_unit(&self) -> (String, &'static str) {
        match self {
            Self::Text(text) | Self::Statement(text) => (text.clone(), ""),
            Self::Quantity(Quantity { value, unit }) => (value.to_string(), unit.name()),
            Self::Missing => (String::new(), ""),
        }
    }
}

/// A table with a title. `Display` formats it with aligned columns and without colors. Line length is unlimited.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
    /// A sentence between the title and the rows.
    pub(crate) remark: Option<String>,
}

impl Table {
    /// Creates a table without rows. Column titles must be unique, because they are the cells' keys in JSON.
    #[must_use]
    pub fn new(title: impl Into<String>, columns: impl IntoIterator<Item = Column>) -> Self {
        let (title, columns): (String, Vec<Column>) = (title.into(), columns.into_iter().collect());
        for (index, column) in columns.iter().enumerate() {
            let is_new = columns[..index].iter().all(|other| other.title != column.title);
            debug_assert!(is_new, "two columns of table \"{title}\" are \"{}\"", column.title);
        }
        Self { title, columns, rows: Vec::new(), remark: None }
    }

    /// Creates a table without rows. The first column is for words, and the others are for numbers.
    #[must_use]
    pub fn numbers(
        title: impl Into<String>,
        words: &str,
        numbers: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self::new(title, std::iter::once(Column::left(words)).chain(numbers.into_iter().map(Column::right)))
    }

    /// Sets the sentence below the title. A table without rows then consists of this sentence and has no header.
    pub fn set_remark(&mut self, remark: impl Into<String>) {
        self.remark = Some(remark.into());
    }

    /// Returns true if the table only shows the remark.
    pub(crate) fn is_remark(&self) -> bool {
        self.rows.is_empty() && self.remark.is_some()
    }

    /// Appends a row.
    ///
    /// # Panics
    /// Panics if the number of cells differs from the number of columns.
    pub fn add_row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let row: Vec<Cell> = cells.into_iter().collect();
        assert_eq!(row.len(), self.columns.len(), "cells of a row of table \"{}\"", self.title);
        self.rows.push(row);
    }

    /// Formats the title and, below it, a GitHub Flavored Markdown table. Numbers are rounded for humans.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let rule = |column: &Column| match column.alignment {
            Alignment::Left => ":---".to_owned(),
            Alignment::Right => "---:".to_owned(),
        };
        let head = line(self.columns.iter().map(|column| text::markdown(&column.title)).collect());
        let rule = line(self.columns.iter().map(rule).collect());
        let rows = self
            .rows
            .iter()
            .map(|row| line(row.iter().map(|cell| text::markdown(&cell.to_human_text())).collect()));
        let remark = self.remark.as_ref().map(|remark| text::markdown(remark) + "\n");
        let table = if self.is_remark() { String::new() } else { head + &rule + &rows.collect::<String>() };
        let parts: Vec<String> =
            remark.into_iter().chain(Some(table).filter(|table| !table.is_empty())).collect();
        format!("## {}\n\n{}", text::markdown(&self.title), parts.join("\n"))
    }

    /// Returns `{"title": …, "rows": [{COLUMN: CELL, …}, …]}`, and the remark under `remark` if there is one.
    ///
    /// A cell is a string, null, or `{"value": …, "unit": …}`. The value has all digits and is in the base unit, or is
    /// null if the number isn't finite.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let titles = || self.columns.iter().map(|column| column.title.clone());
        let row = |row: &Vec<Cell>| titles().zip(row.iter().map(Cell::to_json)).collect::<Map<_, _>>();
        let mut value = json!({ "title": self.title, "rows": self.rows.iter().map(row).collect::<Vec<_>>() });
        if let Some(remark) = &self.remark {
            value["remark"] = json!(remark);
        }
        value
    }

    /// Yields the table's title, the row (counted from 1), the column's title, the value and the unit for each cell.
    /// The remark comes first, in row 0.
    pub(crate) fn cells(&self) -> impl Iterator<Item = [String; 5]> {
        let remark =
            self.remark.iter().map(|remark| [&*self.title, "0", "remark", remark, ""].map(str::to_owned));
        let cells = self.rows.iter().enumerate().flat_map(move |(index, row)| {
            row.iter().zip(&self.columns).map(move |(cell, column)| {
                let (value, unit) = cell.value_and_unit();
                [self.title.clone(), (index + 1).to_string(), column.title.clone(), value, unit.to_owned()]
            })
        });
        remark.chain(cells)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_text(usize::MAX))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Unit;
    use crate::quantity::tests::unit;
    use crate::text::tests::read_csv;

    impl Table {
        /// Formats a header line and one line per row. Numbers have all their digits, in the base unit.
        ///
        /// If all numbers in a column share a unit, the column's title contains the unit, as in `median (seconds)`.
        /// Otherwise, the unit follows each number.
        fn to_csv(&self) -> String {
            let units: Vec<Option<Unit>> =
                (0..self.columns.len()).map(|index| self.shared_unit(index)).collect();
            let head = self.columns.iter().zip(&units).map(|(column, unit)| match unit {
                Some(unit) => format!("{} ({})", column.title, unit.name()),
                None => column.title.clone(),
            });
            let row = |row: &Vec<Cell>| {
                let fields = row.iter().zip(&units).map(|(cell, shared)| match cell.value_and_unit() {
                    (value, unit) if shared.is_none() && !unit.is_empty() => format!("{value} {unit}"),
                    (value, _) => value,
                });
                text::csv(&fields.collect::<Vec<_>>())
            };
            text::csv(&head.collect::<Vec<_>>()) + &self.rows.iter().map(row).collect::<String>()
        }

        /// Returns the unit shared by all numbers in a column. Returns `None` if there are several units or no numbers.
        fn shared_unit(&self, column: usize) -> Option<Unit> {
            let mut units = self.rows.iter().filter_map(|row| match row[column] {
                Cell::Quantity(quantity) => Some(quantity.unit),
                Cell::Text(_) | Cell::Statement(_) | Cell::Missing => None,
            });
            let first = units.next()?;
            units.all(|unit| unit == first).then_some(first)
        }
    }

    pub(crate) fn commits() -> Table {
        let mut table = Table::new(
            "Commit",
            [Column::left("settings"), Column::right("median"), Column::right("gain"), Column::left("why")],
        );
        let seconds = |value| Quantity::new(value, Unit::Seconds);
        table.add_row(["default".into(), seconds(0.0118).into(), Cell::Missing, "fsync, and wait".into()]);
        table.add_row([
            "日本 | off".into(),
            seconds(0.000_218).into(),
            Quantity::new(54.0, Unit::Ratio).into(),
            "".into(),
        ]);
        table
    }

    #[test]
    fn terminal_table_has_aligned_columns() {
        let expected = "\
Commit

settings     median    gain  why
──────────  ───────  ──────  ───────────────
default     11.8 ms       –  fsync, and wait
日本 | off   218 µs  54.0 ×
";
        assert_eq!(commits().to_string(), expected);
    }

    #[test]
    fn markdown_table_keeps_alignment_and_escapes_bars() {
        let expected = "\
## Commit

| settings | median | gain | why |
| :--- | ---: | ---: | :--- |
| default | 11.8 ms | – | fsync, and wait |
| 日本 \\| off | 218 µs | 54.0 × |  |
";
        assert_eq!(commits().to_markdown(), expected);
    }

    #[test]
    fn csv_keeps_all_digits_and_unit_in_title() {
        let expected = "\
settings,median (seconds),gain (ratio),why
default,0.0118,,\"fsync, and wait\"
日本 | off,0.000218,54,
";
        assert_eq!(commits().to_csv(), expected);
    }

    #[test]
    fn csv_puts_differing_units_after_numbers() {
        let mut table = Table::new("Disk", [Column::left("what"), Column::right("value")]);
        table.add_row(["flush".into(), Quantity::new(0.002, Unit::Seconds).into()]);
        table.add_row(["cache".into(), Quantity::new(4096.0, Unit::Bytes).into()]);
        table.add_row(["model".into(), "unknown".into()]);
        assert_eq!(table.to_csv(), "what,value\nflush,0.002 seconds\ncache,4096 bytes\nmodel,unknown\n");
    }

    #[test]
    fn json_names_each_cell_by_its_column() {
        let expected = json!({"title": "Commit", "rows": [
            {"settings": "default", "median": {"value": 0.0118, "unit": "seconds"},
             "gain": null, "why": "fsync, and wait"},
            {"settings": "日本 | off", "median": {"value": 0.000_218, "unit": "seconds"},
             "gain": {"value": 54.0, "unit": "ratio"}, "why": ""},
        ]});
        assert_eq!(commits().to_json(), expected);
    }

    #[test]
    fn table_without_rows_has_a_header() {
        let table = Table::new("Empty", [Column::left("a"), Column::left("b")]);
        assert_eq!(table.to_string(), "Empty\n\na  b\n─  ─\n");
        assert_eq!(table.to_csv(), "a,b\n");
    }

    #[test]
    #[should_panic(expected = "cells of a row of table \"Empty\"")]
    fn row_of_wrong_length_panics() {
        Table::new("Empty", [Column::left("a")]).add_row([]);
    }

    #[test]
    #[should_panic(expected = "two columns of table \"t\" are \"95 %\"")]
    fn duplicate_column_titles_panic() {
        drop(Table::new("t", ["what", "95 %", "95 %"].map(Column::right)));
    }

    fn cell() -> impl Strategy<Value = Cell> {
        prop_oneof![
            any::<String>().prop_map(Cell::Text),
            (any::<f64>(), unit()).prop_map(|(value, unit)| Quantity::new(value, unit).into()),
            Just(Cell::Missing),
        ]
    }

    proptest! {
        #[test]
        fn arbitrary_tables_keep_their_shape(rows in prop::collection::vec([cell(), cell()], 0..8)) {
            let mut table = Table::new("t", [Column::left("a,\"b\""), Column::right("c")]);
            for row in &rows {
                table.add_row(row.clone());
            }
            let csv = read_csv(&table.to_csv());
            prop_assert_eq!(csv.len(), rows.len() + 1);
            prop_assert!(csv.iter().all(|line| line.len() == 2));
            prop_assert_eq!(table.to_string().lines().count(), rows.len() + 4);
            prop_assert_eq!(table.to_markdown().lines().count(), rows.len() + 4);
            prop_assert_eq!(table.to_json()["rows"].as_array().map(Vec::len), Some(rows.len()));
        }

        #[test]
        fn json_and_csv_keep_every_digit(value in prop::num::f64::NORMAL) {
            let mut table = Table::new("t", [Column::right("x")]);
            table.add_row([Quantity::new(value, Unit::Ratio).into()]);
            prop_assert_eq!(read_csv(&table.to_csv())[1][0].parse::<f64>().unwrap().to_bits(), value.to_bits());
            prop_assert_eq!(table.to_json()["rows"][0]["x"]["value"].as_f64().unwrap().to_bits(), value.to_bits());
        }
    }
}
