//! Writes production's column statistics into `pg_statistic`, in the same way for all major versions.
//!
//! A row of `pg_statistic` contains operators and collations whose OIDs differ between databases. pgfresh therefore
//! takes them from the copy, and takes only numbers and values from the file. Values pass through the input functions
//! of their types. If a function rejects a value, the import continues without that slot.

use std::collections::BTreeSet;
use std::ops::Range;

use server::{AdminConnection, Major, SessionError};

use super::applied::{Applied, Reason};
use super::error::{During, ScratchError};
use super::relations::label;
use super::rows::{Rows, array};
use crate::file::validation::{self, SLOTS};
use crate::{ColumnStatistics, Slot, Statistics};

/// Matches columns and prepares slots. pgfresh replaces a comment in this SQL with [`MULTIRANGE`].
const PREPARE: &str = include_str!("columns.sql");
/// Looks up the range type of a multirange type.
const MULTIRANGE: &str =
    "WHEN t.typtype = 'm' THEN (SELECT r.rngtypid FROM pg_range r WHERE r.rngmultitypid = t.oid)";
/// Number of columns that one INSERT writes.
const BATCH: usize = 1000;
/// Maximum average width of a column's values: 1 GB.
const MOST_WIDTH: i32 = 1 << 30;

const TABLES: &str = "
CREATE TEMP TABLE production_column (
    ord int4, relation int4, name text, number int2, type text, inherited bool,
    null_fraction float4, width int4, \"distinct\" float4);
CREATE TEMP TABLE expression_type (relation oid, number int2, type oid);
CREATE TEMP TABLE production_slot (ord int4, position int4, kind int2, numbers float4[], vals text)";

/// Selects index expressions whose index may store another type than the expression returns, such as the words of a
/// text.
const EXPRESSIONS: &str = "
SELECT i.indexrelid, k.position, i.indrelid::regclass, pg_get_indexdef(i.indexrelid, k.position::int4, false)
FROM pg_index i JOIN relation_match m ON m.oid = i.indexrelid JOIN pg_class c ON c.oid = i.indexrelid
     JOIN pg_am a ON a.oid = c.relam AND a.amname <> 'btree'
     CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(number, position)
WHERE k.number = 0";

/// Selects columns that the copy lacks, and columns whose type has a different name.
const DIFFERENT: &str = "
SELECT m.ord, format_type(m.stored_type, NULL)
FROM column_match m JOIN production_column p ON p.ord = m.ord
WHERE m.number IS NULL OR (p.type <> '' AND p.type <> format_type(m.stored_type, NULL))
ORDER BY m.ord";

/// Selects columns without statistics in the file, in tables where other columns have them.
const MISSING: &str = "
SELECT r.schema, r.name, a.attname
FROM template_relation r JOIN pg_attribute a ON a.attrelid = r.oid
WHERE r.table_oid IS NULL AND a.attnum > 0 AND NOT a.attisdropped AND a.attstattarget IS DISTINCT FROM 0
      AND r.oid IN (SELECT relation FROM column_match)
      AND NOT EXISTS (SELECT FROM column_match m WHERE m.relation = r.oid AND m.number = a.attnum)
ORDER BY 1, 2, a.attnum";

/// Groups of types whose values have the same text form and the same sort order.
const INTERCHANGEABLE: [&[&str]; 4] = [
    &["smallint", "integer", "bigint", "numeric", "real", "double precision"],
    &["text", "character varying", "character", "name"],
    &["date", "timestamp without time zone", "timestamp with time zone"],
    &["json", "jsonb"],
];

/// Imports column statistics. Requires that [`super::relations::import`] has matched the relations.
pub(super) fn import(
    session: &mut AdminConnection,
    major: u32,
    statistics: &Statistics,
    applied: &mut Applied,
) -> Result<(), ScratchError> {
    session.query(TABLES).during("prepare the import")?;
    read_expression_types(session)?;
    let columns = send(session, statistics, applied)?;
    let (before, after) = PREPARE.split_once("-- Types as ANALYZE").unwrap_or((PREPARE, ""));
    session.query(before).during("match columns")?;
    compare(session, &columns, applied)?;
    let multirange = if Major(major).has_multiranges() { MULTIRANGE } else { "" };
    let prepare = format!("--{after}").replace("/* multirange */", multirange);
    session.query(&prepare).during("prepare the statistics of columns")?;
    let mut start = 0;
    while start < columns.len() {
        let end = columns.len().min(start + BATCH);
        insert(session, start..end, &columns, applied)?;
        start = end;
    }
    Ok(())
}

/// Fills the table `expression_type`. A temporary view reveals each expression's type.
fn read_expression_types(session: &mut AdminConnection) -> Result<(), ScratchError> {
    for row in session.query(EXPRESSIONS).during("read the expressions of indexes")? {
        let [Some(index), Some(position), Some(table), Some(expression)] = &row[..] else { continue };
        let sql = format!(
            "CREATE TEMP VIEW expression AS SELECT {expression} AS value FROM {table}; \
             INSERT INTO expression_type SELECT {index}, {position}, atttypid FROM pg_attribute \
             WHERE attrelid = 'pg_temp.expression'::regclass AND attname = 'value'; DROP VIEW pg_temp.expression"
        );
        session.query(&sql).during("read the expressions of indexes")?;
    }
    Ok(())
}

/// A column in the file. Its position in a list is its number in the SQL tables.
struct Column<'a> {
    label: String,
    column: &'a ColumnStatistics,
}

/// Sends all columns with plausible statistics to the server. Returns them in the order of their numbers.
fn send<'a>(
    session: &mut AdminConnection,
    statistics: &'a Statistics,
    applied: &mut Applied,
) -> Result<Vec<Column<'a>>, ScratchError> {
    let (mut columns, mut rows, mut slots) = (Vec::new(), Rows::default(), Rows::default());
    for (relation, owner) in statistics.relations.iter().enumerate() {
        for column in &owner.columns {
            let name = column.number.filter(|_| column.column.is_empty());
            let name = name.map_or_else(|| column.column.clone(), |number| format!("column {number}"));
            let label = format!("{}.{name}", label(owner));
            if let Err(why) = check(column) {
                applied.leave_out(label, Reason::Invalid(why.into()));
                continue;
            }
            let ord = columns.len();
            add(&mut rows, ord, relation, column);
            for (position, slot) in column.slots.iter().enumerate() {
                // Inconsistent statistics can crash the server. For example, it relies on each common value having a
                // frequency.
                match validation::slot(slot) {
                    Ok(()) => add_slot(&mut slots, ord, position, slot),
                    Err(why) => applied.leave_out(label.clone(), Reason::Invalid(why.into())),
                }
            }
            columns.push(Column { label, column });
        }
    }
    rows.copy_to(session, "production_column").during("import the statistics of columns")?;
    slots.copy_to(session, "production_slot").during("import the statistics of columns")?;
    Ok(columns)
}

/// Checks a column's numbers. Returns the reason if they can't be valid.
fn check(column: &ColumnStatistics) -> Result<(), &'static str> {
    if column.column.contains('\0') || column.type_name.contains('\0') {
        return Err("a name has a zero byte");
    }
    if !(0.0..=1.0).contains(&column.null_fraction) {
        return Err("the fraction of NULLs is not from 0 to 1");
    }
    if !(0..=MOST_WIDTH).contains(&column.width) {
        return Err("the width is out of range");
    }
    if !(-1.0..=1e15).contains(&column.distinct) {
        return Err("the number of distinct values is out of range");
    }
    if column.slots.len() > SLOTS {
        return Err("there are more than five slots");
    }
    Ok(())
}

fn add(rows: &mut Rows, ord: usize, relation: usize, column: &ColumnStatistics) {
    rows.add(&[
        Some(&ord.to_string()),
        Some(&relation.to_string()),
        Some(&column.column),
        column.number.map(|number| number.to_string()).as_deref(),
        Some(&without_modifier(&column.type_name)),
        Some(if column.inherited { "t" } else { "f" }),
        Some(&column.null_fraction.to_string()),
        Some(&column.width.to_string()),
        Some(&column.distinct.to_string()),
    ]);
}

fn add_slot(rows: &mut Rows, ord: usize, position: usize, slot: &Slot) {
    let numbers = slot.numbers.as_ref().map(|numbers| array(numbers.iter().map(ToString::to_string)));
    rows.add(&[
        Some(&ord.to_string()),
        Some(&position.to_string()),
        Some(&slot.kind.to_string()),
        numbers.as_deref(),
        slot.values.as_ref().map(array).as_deref(),
    ]);
}

/// Removes the length or precision from a type name: `character varying(20)[]` becomes `character varying[]`.
fn without_modifier(name: &str) -> String {
    // Quoted names may contain parentheses, so leave them unchanged. In practice, these types have no modifiers.
    match (name.find('('), name.find(')')) {
        (Some(start), Some(end)) if start < end && !name.contains('"') => {
            format!("{}{}", &name[..start], &name[end + 1..])
        }
        _ => name.to_owned(),
    }
}

/// Reports columns that exist on only one side and types that differ. Discards values of incompatible types.
fn compare(
    session: &mut AdminConnection,
    columns: &[Column<'_>],
    applied: &mut Applied,
) -> Result<(), ScratchError> {
    let mut incompatible = Vec::new();
    for row in session.query(DIFFERENT).during("compare columns")? {
        let Some(ord) = row[0].as_ref().and_then(|ord| ord.parse::<usize>().ok()) else { continue };
        let Column { label, column } = &columns[ord];
        let Some(template) = row[1].clone() else {
            applied.leave_out(label.clone(), Reason::ColumnOnlyInProduction);
            continue;
        };
        let production = without_modifier(&column.type_name);
        let is_in =
            |group: &&[&str]| group.contains(&production.as_str()) && group.contains(&template.as_str());
        if !INTERCHANGEABLE.iter().any(is_in) {
            incompatible.push(ord.to_string());
            applied.leave_out(label.clone(), Reason::Type { production, template });
        }
    }
    if !incompatible.is_empty() {
        let sql =
            format!("DELETE FROM production_slot WHERE kind <> 3 AND ord IN ({})", incompatible.join(","));
        session.query(&sql).during("compare columns")?;
    }
    for row in session.query(MISSING).during("compare columns")? {
        if let [Some(schema), Some(table), Some(column)] = &row[..] {
            applied.leave_out(format!("{schema}.{table}.{column}"), Reason::ColumnOnlyInTemplate);
        }
    }
    Ok(())
}

/// Returns SQL that writes the statistics of the columns in `range`, and returns the number of columns written.
fn insert_sql(range: &Range<usize>) -> String {
    let each = |text: &str| {
        (0..SLOTS).map(|slot| text.replace('?', &format!("s{slot}"))).collect::<Vec<_>>().join(", ")
    };
    let joins = (0..SLOTS).map(|slot| {
        format!(" LEFT JOIN column_slot s{slot} ON s{slot}.ord = m.ord AND s{slot}.position = {slot}")
    });
    format!(
        "WITH written AS (INSERT INTO pg_statistic SELECT m.relation, m.number, c.inherited, c.null_fraction, c.width, \
         c.\"distinct\", {}, {}, {}, {}, {} FROM column_match m JOIN production_column c ON c.ord = m.ord{} \
         WHERE m.number IS NOT NULL AND m.ord >= {} AND m.ord < {} RETURNING 1) SELECT count(*) FROM written",
        each("coalesce(?.kind, 0)"),
        each("coalesce(?.operator, 0)"),
        each("coalesce(?.collation, 0)"),
        each("?.numbers"),
        each("CASE WHEN ?.vals IS NOT NULL THEN array_in(textout(?.vals), ?.element, -1) END"),
        joins.collect::<String>(),
        range.start,
        range.end,
    )
}

/// Inserts the columns in `range`. If the server rejects them, splits the range in half repeatedly, down to the column
/// and slot that cause the error.
fn insert(
    session: &mut AdminConnection,
    range: Range<usize>,
    columns: &[Column<'_>],
    applied: &mut Applied,
) -> Result<(), ScratchError> {
    match session.query(&insert_sql(&range)) {
        Ok(rows) => {
            let count =
                rows.first().and_then(|row| row[0].as_ref()).and_then(|count| count.parse::<u64>().ok());
            applied.columns += count.unwrap_or(0);
            Ok(())
        }
        Err(error) if error.is_fatal() => Err(error).during("import the statistics of columns"),
        Err(error) if range.len() == 1 => insert_without_refused(session, &range, columns, applied, &error),
        Err(_) => {
            let middle = range.start + range.len() / 2;
            insert(session, range.start..middle, columns, applied)?;
            insert(session, middle..range.end, columns, applied)
        }
    }
}

/// Inserts one column without the slots whose values the server rejects.
fn insert_without_refused(
    session: &mut AdminConnection,
    range: &Range<usize>,
    columns: &[Column<'_>],
    applied: &mut Applied,
    first: &SessionError,
) -> Result<(), ScratchError> {
    let (ord, label) = (range.start, &columns[range.start].label);
    let mut refused = BTreeSet::new();
    for position in 0..SLOTS {
        let slot = format!("FROM column_slot WHERE ord = {ord} AND position = {position}");
        let tried = session.query(&format!("SELECT array_in(textout(vals), element, -1) IS NULL {slot}"));
        if let Err(error) = tried {
            refused.insert(message(&error));
            session.query(&format!("DELETE {slot}")).during("import the statistics of columns")?;
        }
    }
    match session.query(&insert_sql(range)) {
        Ok(_) => applied.columns += 1,
        Err(error) if error.is_fatal() => return Err(error).during("import the statistics of columns"),
        Err(_) => {
            refused.insert(message(first));
        }
    }
    for message in refused {
        applied.leave_out(label.clone(), Reason::Refused(message));
    }
    Ok(())
}

/// Returns the server's message without the value that it may quote, because messages must not contain production's
/// values.
pub(super) fn message(error: &SessionError) -> String {
    match error {
        // RAISE in a template's function can put values anywhere into the message, so replace it.
        SessionError::Server { sqlstate, .. } if sqlstate.starts_with("P0") => {
            "a function of the template raised an error".to_owned()
        }
        SessionError::Server { message, .. } => without_quotes(message),
        SessionError::Io { .. } => error.to_string(),
    }
}

/// Replaces everything between the first and the last quotation mark, because the value itself may contain quotation
/// marks.
fn without_quotes(text: &str) -> String {
    match (text.find('"'), text.rfind('"')) {
        (Some(start), Some(end)) if start < end => format!("{}…{}", &text[..=start], &text[end..]),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_contain_no_values() {
        for (message, expected) in [
            (
                "invalid input syntax for type bigint: \"a \"b\" c\"",
                "invalid input syntax for type bigint: \"…\"",
            ),
            ("value \"99\" is out of range for type bigint", "value \"…\" is out of range for type bigint"),
            ("malformed array literal: \"", "malformed array literal: \""),
        ] {
            assert_eq!(without_quotes(message), expected);
        }
    }

    #[test]
    fn type_modifiers_are_removed() {
        for (name, plain) in [
            ("character varying(20)", "character varying"),
            ("numeric(10,2)[]", "numeric[]"),
            ("timestamp(3) without time zone", "timestamp without time zone"),
            ("shop.\"a(b)\"", "shop.\"a(b)\""),
        ] {
            assert_eq!(without_modifier(name), plain);
        }
    }
}
