//! Compares two databases. Decides how to read each table and how many of the differences the result includes.

use std::collections::BTreeSet;

use contract::{CellValue, DatabaseDiff, Field, FieldChange, NotCompared, RowChange, RowCounts, TableDiff};
use server::AdminConnection;

use crate::merge::{Entry, RowLocation, RowStep, merge};
use crate::relations::{Matching, Relation, relations};
use crate::row_values::{self, Cells};
use crate::session::{ReadError, Reader};
use crate::stream::RowStream;
use crate::{DiffError, digest, objects, sequences};

/// Maximum total size of the values in a result, in bytes.
const MAX_RESULT_BYTES: usize = 8 << 20;

/// Limits for a comparison's result.
#[derive(Debug, Clone)]
pub struct DiffLimits {
    /// Table to compare, with or without its schema: its rows and its definitions. `None` compares everything.
    pub table: Option<String>,
    /// Maximum number of tables whose rows the result contains.
    pub tables: usize,
    /// Maximum number of rows for each table.
    pub rows: usize,
    /// Maximum number of differing definitions in the result. The same limit applies to differing sequences.
    pub objects: usize,
}

impl Default for DiffLimits {
    fn default() -> Self {
        Self { table: None, tables: 20, rows: 10, objects: 50 }
    }
}

/// A table whose rows may differ, with the differences found so far.
#[derive(Debug)]
struct Candidate<'a> {
    name: &'a str,
    template: Option<&'a Relation>,
    database: Option<&'a Relation>,
    matching: Matching,
    counts: RowCounts,
    inserted: Vec<Entry>,
    updated: Vec<(Entry, Entry)>,
    deleted: Vec<Entry>,
}

/// Compares `database` with `template`. Both sessions must be pgfresh's own, with the parameters from
/// [`admin_params`](server::admin_params).
///
/// # Errors
/// Returns an error if a session ends, if the encodings differ, or if neither side has the table in `limits`. A table
/// that can't be read doesn't cause an error, but is listed in `not_compared`.
pub fn compare(
    template: AdminConnection,
    database: AdminConnection,
    limits: &DiffLimits,
) -> Result<DatabaseDiff, DiffError> {
    let mut template = Reader::new(template, "template")?;
    let mut database = Reader::new(database, "database")?;
    if template.encoding != database.encoding {
        return Err(DiffError::Encodings { template: template.encoding, database: database.encoding });
    }
    let (old, new) = (relations(&mut template)?, relations(&mut database)?);
    let mut names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut diff = DatabaseDiff::default();
    if let Some(table) = &limits.table {
        names.retain(|name| matches_table(name, table));
        if names.is_empty() {
            return Err(DiffError::UnknownTable(table.clone()));
        }
    }
    let tables = limits.table.as_ref().map(|_| &names);
    let schema = objects::changes(&mut template, &mut database, tables);
    let schema = record_refusal("definitions", schema, &mut diff.not_compared)?.unwrap_or_default();
    (diff.schema, diff.schema_left_out) = take_first(schema, limits.objects);
    if limits.table.is_none() {
        let sequences = sequences::changes(&mut template, &mut database);
        let sequences = record_refusal("sequences", sequences, &mut diff.not_compared)?.unwrap_or_default();
        (diff.sequences, diff.sequences_left_out) = take_first(sequences, limits.objects);
    }
    let mut candidates = Vec::new();
    for name in names {
        let (before, after) = (old.get(name), new.get(name));
        let candidate = differing(name, before, after, &mut template, &mut database, limits.rows);
        let candidate = record_refusal(name, candidate, &mut diff.not_compared)?;
        candidates.extend(candidate.filter(|candidate| candidate.counts.total() > 0));
        if candidates.len() > 2 * limits.tables {
            keep_most_changed(&mut candidates, limits.tables, &mut diff);
        }
    }
    keep_most_changed(&mut candidates, limits.tables, &mut diff);
    let mut budget = MAX_RESULT_BYTES;
    for candidate in candidates {
        let name = candidate.name;
        let table = candidate.read(&mut template, &mut database, limits.rows, &mut budget);
        diff.tables.extend(record_refusal(name, table, &mut diff.not_compared)?);
    }
    Ok(diff)
}

/// Unwraps a reader's result. If the server refused the query, adds the reason to `not_compared` and returns `None`.
fn record_refusal<T>(
    name: &str,
    found: Result<T, ReadError>,
    not_compared: &mut Vec<NotCompared>,
) -> Result<Option<T>, DiffError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(ReadError::Refused(reason)) => {
            not_compared.push(NotCompared { name: name.to_owned(), reason });
            Ok(None)
        }
        Err(ReadError::Lost(error)) => Err(error),
    }
}

/// Returns true if `wanted`, as typed by the user, refers to the table `name`. `name` is qualified with its schema and
/// quoted where necessary.
fn matches_table(name: &str, wanted: &str) -> bool {
    let bare = |text: &str| text.replace('"', "");
    let table = |text: &str| text.split_once('.').map(|(_, table)| table.to_owned());
    name == wanted
        || bare(name) == wanted
        || table(name).is_some_and(|table| table == wanted || bare(&table) == wanted)
}

fn take_first<T>(mut all: Vec<T>, most: usize) -> (Vec<T>, usize) {
    let left_out = all.len().saturating_sub(most);
    all.truncate(most);
    (all, left_out)
}

/// Keeps the tables with the most changes, in this order, and only counts the remaining tables.
fn keep_most_changed(candidates: &mut Vec<Candidate<'_>>, most: usize, diff: &mut DatabaseDiff) {
    candidates.sort_by(|one, other| (other.counts.total(), one.name).cmp(&(one.counts.total(), other.name)));
    for candidate in candidates.drain(most.min(candidates.len())..) {
        diff.tables_left_out.tables += 1;
        add(&mut diff.tables_left_out.counts, candidate.counts);
    }
}

fn add(to: &mut RowCounts, more: RowCounts) {
    to.inserted += more.inserted;
    to.updated += more.updated;
    to.deleted += more.deleted;
}

/// Finds a table's differing rows.
fn differing<'a>(
    name: &'a str,
    template: Option<&'a Relation>,
    database: Option<&'a Relation>,
    old: &mut Reader,
    new: &mut Reader,
    rows: usize,
) -> Result<Candidate<'a>, ReadError> {
    if [template, database].into_iter().flatten().any(|relation| relation.is_foreign) {
        return Err(ReadError::Refused("it has partitions on other servers".to_owned()));
    }
    let mut candidate = Candidate {
        name,
        template,
        database,
        matching: Matching::of(template, database),
        counts: RowCounts::default(),
        inserted: Vec::new(),
        updated: Vec::new(),
        deleted: Vec::new(),
    };
    if digest::are_equal(old, new, template, database, &candidate.matching)? {
        return Ok(candidate);
    }
    let mut before = RowStream::begin(old, template, &candidate.matching)?;
    let mut after = match RowStream::begin(new, database, &candidate.matching) {
        Ok(after) => after,
        Err(error) => return before.end().and(Err(error)),
    };
    let merged = merge(
        || before.next(),
        || after.next(),
        |step| match step {
            RowStep::Same => {}
            RowStep::Inserted(entry) => {
                candidate.counts.inserted += 1;
                push_within(&mut candidate.inserted, entry, rows);
            }
            RowStep::Updated(before, after) => {
                candidate.counts.updated += 1;
                push_within(&mut candidate.updated, (before, after), rows);
            }
            RowStep::Deleted(entry) => {
                candidate.counts.deleted += 1;
                push_within(&mut candidate.deleted, entry, rows);
            }
        },
    );
    before.end()?;
    after.end()?;
    merged.map(|()| candidate)
}

fn push_within<T>(kept: &mut Vec<T>, entry: T, most: usize) {
    if kept.len() < most {
        kept.push(entry);
    }
}

/// Divides `room` among the three kinds of change. Each kind gets up to a third of `room`, and space that one kind
/// doesn't need goes to the other kinds.
fn divide_room(counts: [usize; 3], room: usize) -> [usize; 3] {
    let mut shares = counts.map(|count| count.min(room / 3));
    let mut left = room - shares.iter().sum::<usize>();
    for (share, count) in shares.iter_mut().zip(counts) {
        let more = left.min(count - *share);
        *share += more;
        left -= more;
    }
    shares
}

impl Candidate<'_> {
    /// Reads all columns of the rows that the result includes.
    fn read(
        mut self,
        old: &mut Reader,
        new: &mut Reader,
        room: usize,
        budget: &mut usize,
    ) -> Result<TableDiff, ReadError> {
        let counts = [self.updated.len(), self.inserted.len(), self.deleted.len()];
        let [updated, inserted, deleted] = divide_room(counts, room);
        self.updated.truncate(updated);
        self.inserted.truncate(inserted);
        self.deleted.truncate(deleted);
        let mut shown = Vec::new();
        if let (Some(before), Some(after)) = (self.template, self.database) {
            let places = |pick: fn(&(Entry, Entry)) -> &Entry| -> Vec<&RowLocation> {
                self.updated.iter().map(|pair| &pick(pair).place).collect()
            };
            let columns = &self.matching.columns;
            let old_cells = row_values::read(old, before, columns, &places(|pair| &pair.0))?;
            let new_cells = row_values::read(new, after, columns, &places(|pair| &pair.1))?;
            shown.extend(self.updated.iter().filter_map(|pair| self.update(pair, &old_cells, &new_cells)));
        }
        if let Some(after) = self.database {
            let values = whole_rows(new, after, &self.inserted)?;
            shown.extend(values.into_iter().map(|values| RowChange::Inserted { values }));
        }
        if let Some(before) = self.template {
            let values = whole_rows(old, before, &self.deleted)?;
            shown.extend(values.into_iter().map(|values| RowChange::Deleted { values }));
        }
        shown.retain(|row| {
            let bytes = row_bytes(row);
            let fits = bytes <= *budget;
            *budget = budget.saturating_sub(bytes);
            fits
        });
        let mut left_out = self.counts;
        for row in &shown {
            match row {
                RowChange::Inserted { .. } => left_out.inserted -= 1,
                RowChange::Updated { .. } => left_out.updated -= 1,
                RowChange::Deleted { .. } => left_out.deleted -= 1,
            }
        }
        Ok(TableDiff {
            table: self.name.to_owned(),
            key: self.matching.key.iter().map(|column| column.name.clone()).collect(),
            counts: self.counts,
            rows: shown,
            rows_left_out: left_out,
        })
    }

    fn update(&self, (before, after): &(Entry, Entry), old: &Cells, new: &Cells) -> Option<RowChange> {
        let (old, new) = (old.get(&before.place)?, new.get(&after.place)?);
        let columns = &self.matching.columns;
        let mut fields = row_values::fields(columns, new);
        let key = self.matching.key.iter().filter_map(|column| {
            let at = fields.iter().position(|field| field.column == column.name)?;
            Some(fields.swap_remove(at))
        });
        Some(RowChange::Updated { key: key.collect(), columns: row_values::changes(columns, old, new) })
    }
}

/// Reads all columns of these rows on one side.
fn whole_rows(
    reader: &mut Reader,
    relation: &Relation,
    entries: &[Entry],
) -> Result<Vec<Vec<Field>>, ReadError> {
    let places: Vec<_> = entries.iter().map(|entry| &entry.place).collect();
    let columns = &relation.columns;
    let cells = row_values::read(reader, relation, columns, &places)?;
    let nothing = Vec::new();
    let row = |place: &&RowLocation| row_values::fields(columns, cells.get(place).unwrap_or(&nothing));
    Ok(places.iter().map(row).collect())
}

/// Returns the total size in bytes of a row's names and values.
fn row_bytes(row: &RowChange) -> usize {
    let of = |value: &CellValue| match value {
        CellValue::Null => 4,
        CellValue::Whole(text) | CellValue::Part { part: text, .. } => text.len(),
    };
    let field = |field: &Field| field.column.len() + of(&field.value);
    let change = |change: &FieldChange| change.column.len() + of(&change.old) + of(&change.new);
    match row {
        RowChange::Inserted { values } | RowChange::Deleted { values } => values.iter().map(field).sum(),
        RowChange::Updated { key, columns } => {
            key.iter().map(field).sum::<usize>() + columns.iter().map(change).sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_rows_include_each_kind_of_change() {
        assert_eq!(divide_room([1, 1000, 1], 10), [1, 8, 1]);
        assert_eq!(divide_room([1000, 1000, 1000], 10), [4, 3, 3]);
        assert_eq!(divide_room([2, 0, 3], 10), [2, 0, 3]);
        assert_eq!(divide_room([5, 5, 5], 0), [0, 0, 0]);
        assert_eq!(divide_room([5, 5, 5], 1), [1, 0, 0]);
    }

    #[test]
    fn table_matches_any_of_its_names() {
        for wanted in ["public.orders", "orders"] {
            assert!(matches_table("public.orders", wanted), "{wanted}");
        }
        for wanted in ["\"My App\".\"Orders\"", "My App.Orders", "\"Orders\"", "Orders"] {
            assert!(matches_table("\"My App\".\"Orders\"", wanted), "{wanted}");
        }
        assert!(!matches_table("public.orders", "order") && !matches_table("public.orders", "other.orders"));
    }
}
