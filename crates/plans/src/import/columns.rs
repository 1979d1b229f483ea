//! Reads column statistics from `pg_stats`.

use super::array;
use super::catalog::{Relations, USER_SCHEMA};
use super::error::ImportError;
use super::session::{Row, Session};
use crate::{ColumnStatistics, RelationName, Slot};

const PART: &str = "the statistics of columns";

/// Columns that `pg_stats` and `pg_stats_ext_exprs` have in common. Their arrays can contain any type, so they are read
/// as text.
pub(super) const COLUMNS: &str = "s.null_frac, s.avg_width, s.n_distinct, s.most_common_vals::text,
    s.most_common_freqs, s.histogram_bounds::text, s.correlation, s.most_common_elems::text,
    s.most_common_elem_freqs, s.elem_count_histogram";
/// First server version whose `pg_stats` contains range statistics.
const RANGES_SINCE: u32 = 170_000;
/// Columns of `pg_stats` with range statistics, since [`RANGES_SINCE`].
const RANGES: &str = "s.range_length_histogram::text, s.range_empty_frac, s.range_bounds_histogram::text";
/// SQL condition that is true if the role may read `pg_statistic`, for example as a superuser.
const MAY_READ_CATALOG: &str =
    "SELECT 1 AS allowed WHERE has_table_privilege('pg_catalog.pg_statistic', 'SELECT')";
/// Joins the row of `pg_statistic` that contains the range statistics before version 17.
const CATALOG: &str = "LEFT JOIN pg_statistic p ON p.starelid = c.oid AND p.staattnum = a.attnum AND p.stainherit = s.inherited";

/// Returns SQL that selects the columns in [`RANGES`] from `pg_statistic`.
fn ranges_of_catalog() -> String {
    let slot = |kind: u32, column: &str, suffix: &str| {
        let cases = (1..=5).map(|slot| format!("WHEN p.stakind{slot} THEN p.{column}{slot}{suffix}"));
        format!("CASE {kind} {} END", cases.collect::<Vec<_>>().join(" "))
    };
    format!(
        "{} AS range_length_histogram, {} AS range_empty_frac, {} AS range_bounds_histogram",
        slot(6, "stavalues", "::text"),
        slot(6, "stanumbers", "[1]"),
        slot(7, "stavalues", "::text")
    )
}

pub(super) fn read(
    session: &mut Session,
    version: u32,
    relations: &mut Relations,
) -> Result<(), ImportError> {
    let mut may_read_catalog = false;
    if version < RANGES_SINCE {
        session.each(PART, MAY_READ_CATALOG, |_| {
            may_read_catalog = true;
            Ok(())
        })?;
    }
    let (ranges, catalog) = match (version >= RANGES_SINCE, may_read_catalog) {
        (true, _) => (format!(", {RANGES}"), ""),
        (false, true) => (format!(", {}", ranges_of_catalog()), CATALOG),
        (false, false) => (String::new(), ""),
    };
    let query = format!(
        "SELECT s.schemaname, s.tablename, s.attname, s.inherited, format_type(a.atttypid, a.atttypmod) AS type,
            t.typdelim, coalesce(e.typdelim, ',') AS element_delimiter, {COLUMNS}{ranges}
        FROM pg_stats s JOIN pg_namespace n ON n.nspname = s.schemaname
            JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = s.tablename
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = s.attname
            JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type e ON e.oid = t.typelem
            {catalog}
        WHERE {USER_SCHEMA}"
    );
    session.each(PART, &query, |row| {
        let name = RelationName {
            schema: row.text("schemaname")?.to_owned(),
            name: row.text("tablename")?.to_owned(),
        };
        if let Some(relation) = relations.find(&name) {
            let delimiters = (delimiter(row, "typdelim")?, delimiter(row, "element_delimiter")?);
            relation.columns.push(ColumnStatistics {
                column: row.text("attname")?.to_owned(),
                type_name: row.text("type")?.to_owned(),
                inherited: row.is_true("inherited"),
                ..column(row, delimiters)?
            });
        }
        Ok(())
    })
}

fn delimiter(row: &Row, column: &'static str) -> Result<char, ImportError> {
    row.text(column)?.chars().next().ok_or(row.invalid(column))
}

/// Reads a column's statistics from a row, without names. `delimiters` are the delimiter between values and the
/// delimiter between their elements.
pub(super) fn column(row: &Row, delimiters: (char, char)) -> Result<ColumnStatistics, ImportError> {
    let (value, element) = delimiters;
    let read = Reader { row };
    let mut slots = Vec::new();
    slots.extend(read.slot(1, "most_common_freqs", Some(("most_common_vals", value)))?);
    slots.extend(read.bounds(2, "histogram_bounds", value)?);
    if row.optional("correlation").is_some() {
        slots.push(Slot { kind: 3, numbers: Some(vec![row.number("correlation")?]), values: None });
    }
    slots.extend(read.slot(4, "most_common_elem_freqs", Some(("most_common_elems", element)))?);
    slots.extend(read.slot(5, "elem_count_histogram", None)?);
    if let Some(mut lengths) = read.bounds(6, "range_length_histogram", ',')? {
        lengths.numbers = Some(vec![row.number("range_empty_frac")?]);
        slots.push(lengths);
    }
    slots.extend(read.bounds(7, "range_bounds_histogram", ',')?);
    Ok(ColumnStatistics {
        column: String::new(),
        number: None,
        type_name: String::new(),
        redacted: false,
        inherited: false,
        null_fraction: row.number("null_frac")?,
        width: row.number("avg_width")?,
        distinct: row.number("n_distinct")?,
        slots,
    })
}

struct Reader<'a> {
    row: &'a Row,
}

impl Reader<'_> {
    /// Reads a slot with numbers. Also reads values if `values` contains their column and delimiter.
    fn slot(
        &self,
        kind: i16,
        numbers: &'static str,
        values: Option<(&'static str, char)>,
    ) -> Result<Option<Slot>, ImportError> {
        let Some(text) = self.row.optional(numbers) else { return Ok(None) };
        let numbers = array::numbers(text).ok_or(self.row.invalid(numbers))?;
        let Some((column, delimiter)) = values else {
            return Ok(Some(Slot { kind, numbers: Some(numbers), values: None }));
        };
        // Values that aren't UTF-8 can't be written to the file, so skip the slot.
        let Some(text) = self.row.optional(column) else { return Ok(None) };
        let values = array::values(text, delimiter).ok_or(self.row.invalid(column))?;
        Ok(Some(Slot { kind, numbers: Some(numbers), values: Some(values) }))
    }

    /// Reads a slot with values but without numbers.
    fn bounds(&self, kind: i16, column: &'static str, delimiter: char) -> Result<Option<Slot>, ImportError> {
        let Some(text) = self.row.optional(column) else { return Ok(None) };
        let values = array::values(text, delimiter).ok_or(self.row.invalid(column))?;
        Ok(Some(Slot { kind, numbers: None, values: Some(values) }))
    }
}
