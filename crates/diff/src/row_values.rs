//! Reads the values of the rows in the result, and shortens long values.

use std::collections::HashMap;

use contract::{CellValue, Field, FieldChange};
use server::identifier;

use crate::merge::RowLocation;
use crate::relations::{Relation, TableColumn};
use crate::row_texts::texts;
use crate::session::{ReadError, Reader};

/// How much of a value pgfresh reads to find where two long values differ. Counted in characters, or in bytes
/// for a `bytea`.
const MAX_READ_LENGTH: usize = 4000;
/// Maximum length of a value in a result, in characters.
const MAX_SHOWN_LENGTH: usize = 400;
/// Number of equal characters to show before the first difference.
const CONTEXT_LENGTH: usize = 12;
/// Number of rows to read with one query.
const ROWS_PER_QUERY: usize = 50;
const RESTORE_SESSION: &str = "ROLLBACK TO SAVEPOINT cells; RELEASE SAVEPOINT cells";

/// The part of a column's value read by pgfresh.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    /// The value's first characters, or `None` for NULL.
    begin: Option<String>,
    /// Length of the whole value, in characters or bytes.
    length: usize,
    digest: String,
}

/// The cells of each row, keyed by the row's location in the table. A row has one cell per column.
pub(crate) type Cells = HashMap<RowLocation, Vec<Cell>>;

/// Reads the values of these rows.
pub(crate) fn read(
    reader: &mut Reader,
    relation: &Relation,
    columns: &[TableColumn],
    places: &[&RowLocation],
) -> Result<Cells, ReadError> {
    let mut found = Cells::new();
    if columns.is_empty() || places.is_empty() {
        return Ok(found);
    }
    let values: Vec<_> = columns.iter().enumerate().map(|(at, column)| value(at, column)).collect();
    reader.query("SAVEPOINT cells")?;
    for some in places.chunks(ROWS_PER_QUERY) {
        let rows: Vec<_> = some.iter().map(|place| format!("\"{}\"", place.row)).collect();
        let sql = format!(
            "SELECT t.tableoid, t.ctid, v.* FROM {} t CROSS JOIN LATERAL (VALUES {}) v(at, is_null, begin, length, digest) \
             WHERE t.ctid = ANY ('{{{}}}'::tid[])",
            relation.source,
            values.join(", "),
            rows.join(",")
        );
        let rows = match reader.try_query(&sql) {
            Ok(rows) => rows,
            Err(error) => {
                reader.query(RESTORE_SESSION)?;
                return Err(error);
            }
        };
        for row in rows {
            let mut next = texts(row);
            let place = RowLocation { table: next(), row: next() };
            let (at, is_null, begin) = (next().parse().unwrap_or(usize::MAX), next() == "t", next());
            let (length, digest) = (next().parse().unwrap_or(0), next());
            let cells = found.entry(place).or_insert_with(|| vec![Cell::default(); columns.len()]);
            if let Some(cell) = cells.get_mut(at) {
                *cell = Cell { begin: (!is_null).then_some(begin), length, digest };
            }
        }
    }
    reader.query(RESTORE_SESSION)?;
    Ok(found)
}

/// Returns SQL for a column's number, first characters, length and digest.
fn value(at: usize, column: &TableColumn) -> String {
    let name = format!("t.{}", identifier(&column.name));
    if column.is_bytea {
        return format!(
            "({at}, {name} IS NULL, encode(substr({name}, 1, {MAX_READ_LENGTH}), 'hex'), octet_length({name}), md5({name}))"
        );
    }
    // Test the text for NULL, because `IS NULL` is also true for a composite value whose fields are all NULL.
    format!(
        "({at}, {name}::text IS NULL, left({name}::text, {MAX_READ_LENGTH}), length({name}::text), md5({name}::text))"
    )
}

/// Returns all of a row's columns with their values.
pub(crate) fn fields(columns: &[TableColumn], cells: &[Cell]) -> Vec<Field> {
    let field = |(column, cell): (&TableColumn, &Cell)| Field {
        column: column.name.clone(),
        value: cell.part(0, column.is_bytea),
    };
    columns.iter().zip(cells).map(field).collect()
}

/// Returns an updated row's columns whose values differ.
pub(crate) fn changes(columns: &[TableColumn], old: &[Cell], new: &[Cell]) -> Vec<FieldChange> {
    let mut found = Vec::new();
    for (column, (old, new)) in columns.iter().zip(old.iter().zip(new)) {
        if old == new {
            continue;
        }
        let from = if old.is_short() && new.is_short() { 0 } else { first_difference(old, new) };
        let value = |cell: &Cell| cell.part(from, column.is_bytea);
        found.push(FieldChange { column: column.name.clone(), old: value(old), new: value(new) });
    }
    found
}

/// Returns a position shortly before the first difference between two values. Counted in characters, or in hex digits
/// for a `bytea`.
fn first_difference(old: &Cell, new: &Cell) -> usize {
    let (Some(old), Some(new)) = (&old.begin, &new.begin) else { return 0 };
    let same = old.chars().zip(new.chars()).take_while(|(old, new)| old == new).count();
    if same >= MAX_READ_LENGTH && old == new {
        return same;
    }
    same.saturating_sub(CONTEXT_LENGTH) & !1
}

impl Cell {
    /// Builds a cell for a value already in memory. The text itself serves as its digest.
    pub(crate) fn of(value: Option<&str>) -> Self {
        let begin = value.map(|text| text.chars().take(MAX_READ_LENGTH).collect());
        let text = value.unwrap_or_default();
        Self { begin, length: text.chars().count(), digest: text.to_owned() }
    }

    fn is_short(&self) -> bool {
        self.length <= MAX_SHOWN_LENGTH / 4
    }

    /// Returns the part of the value that starts at position `from`, counted in characters, or in hex digits
    /// for a `bytea`.
    fn part(&self, from: usize, bytes: bool) -> CellValue {
        let Some(begin) = &self.begin else { return CellValue::Null };
        let (digits, prefix) = if bytes { (2, "\\x") } else { (1, "") };
        let part: String = begin.chars().skip(from).take(MAX_SHOWN_LENGTH).collect();
        if from == 0 && part.chars().count() == self.length * digits {
            return CellValue::Whole(format!("{prefix}{part}"));
        }
        CellValue::Part { part, from: from / digits, length: self.length, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(text: &str) -> Cell {
        let begin = Some(text.chars().take(MAX_READ_LENGTH).collect());
        Cell { begin, length: text.chars().count(), digest: format!("{text:?}") }
    }

    fn column(is_bytea: bool) -> TableColumn {
        TableColumn { name: "a".into(), is_bytea }
    }

    #[test]
    fn long_values_show_their_differing_part() {
        let long = "x".repeat(1000);
        let [old, new] = ["old", "new"].map(|end| cell(&format!("{long}{end}")));
        let changed = changes(&[column(false)], &[old], &[new]);
        let part = |end: &str| CellValue::Part {
            part: format!("{}{end}", "x".repeat(CONTEXT_LENGTH)),
            from: 1000 - CONTEXT_LENGTH,
            length: 1003,
            bytes: false,
        };
        assert_eq!((&changed[0].old, &changed[0].new), (&part("old"), &part("new")));
    }

    #[test]
    fn difference_beyond_the_read_part_is_reported() {
        let long = "é".repeat(MAX_READ_LENGTH);
        let changed = changes(&[column(false)], &[cell(&format!("{long}a"))], &[cell(&format!("{long}bc"))]);
        let part =
            |length| CellValue::Part { part: String::new(), from: MAX_READ_LENGTH, length, bytes: false };
        assert_eq!(
            (&changed[0].old, &changed[0].new),
            (&part(MAX_READ_LENGTH + 1), &part(MAX_READ_LENGTH + 2))
        );
    }

    #[test]
    fn changes_show_null_and_short_values_skipping_equal() {
        let columns = [column(false), column(false), column(true)];
        let bytes = Cell { begin: Some("00ff".into()), length: 2, digest: "b".into() };
        let old = [Cell::default(), cell("same"), bytes];
        let new = [cell("NULL"), cell("same"), Cell::default()];
        let changed = changes(&columns, &old, &new);
        assert_eq!(changed.len(), 2);
        assert_eq!((&changed[0].old, &changed[0].new), (&CellValue::Null, &CellValue::Whole("NULL".into())));
        assert_eq!(
            (&changed[1].old, &changed[1].new),
            (&CellValue::Whole("\\x00ff".into()), &CellValue::Null)
        );
    }

    #[test]
    fn empty_value_is_complete() {
        assert_eq!(cell("").part(0, false), CellValue::Whole(String::new()));
        let long = cell(&"y".repeat(MAX_SHOWN_LENGTH + 1)).part(0, false);
        assert_eq!(
            long,
            CellValue::Part {
                part: "y".repeat(MAX_SHOWN_LENGTH),
                from: 0,
                length: MAX_SHOWN_LENGTH + 1,
                bytes: false
            }
        );
    }
}
