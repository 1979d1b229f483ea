//! Generates table edits, and checks that the difference equals the edits.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::{CellValue, DatabaseDiff, Field, FieldChange, RowChange, RowCounts, TableDiff};
use diff::DiffLimits;
use lease::Isolation;
use proptest::prelude::*;
use template::ServerOptions;

use crate::common::leases::LeaseFixture;

/// Values of two columns: the first is any text, the second any bytes.
type Values = (Option<String>, Option<Vec<u8>>);

#[derive(Debug, Clone)]
enum Edit {
    Insert(String, Values),
    Update(String, Values),
    Delete(String),
    /// Deletes all keys with this prefix.
    DeleteMany(String),
}

/// Generates texts that a collation treats as equal although their bytes differ, empty texts, and texts
/// that SQL could misread.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{0,2}",
        "[A-Cä\u{301}é'\"\\\\{}(), \n\t]{0,4}",
        Just("NULL".to_owned()),
        Just("é".to_owned()),
        Just("e\u{301}".to_owned()),
        "[a-z]{200}",
        any::<String>().prop_map(|text| text.replace('\0', "")),
    ]
}

fn values() -> impl Strategy<Value = Values> {
    (prop::option::of(text()), prop::option::of(prop::collection::vec(any::<u8>(), 0..20)))
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        3 => (text(), values()).prop_map(|(key, values)| Edit::Insert(key, values)),
        3 => (text(), values()).prop_map(|(key, values)| Edit::Update(key, values)),
        2 => text().prop_map(Edit::Delete),
        1 => "[a-c]".prop_map(Edit::DeleteMany),
    ];
    prop::collection::vec(edit, 0..20)
}

/// Returns the template's rows.
fn seed() -> BTreeMap<String, Values> {
    let keys = ["", "a", "b", "ab", "B", "é", "e\u{301}", "NULL", "it's", "a\nb", "zz"];
    keys.into_iter().map(|key| (key.to_owned(), (Some(format!("{key} value")), Some(key.into())))).collect()
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn sql_of((text, bytes): &Values) -> [String; 2] {
    let null = || "NULL".to_owned();
    let hex = |bytes: &Vec<u8>| format!("'{}'::bytea", shown(bytes));
    [text.as_deref().map_or_else(null, literal), bytes.as_ref().map_or_else(null, hex)]
}

fn shown(bytes: &[u8]) -> String {
    bytes.iter().fold("\\x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

impl Edit {
    /// Returns the edit as SQL, for a table with or without a key.
    fn sql(&self, table: &str, at: usize) -> String {
        match self {
            Self::Insert(key, values) => {
                let [a, b] = sql_of(values);
                let key = literal(key);
                format!(
                    "INSERT INTO {table} SELECT {key}, {a}, {b} WHERE NOT EXISTS (SELECT FROM {table} WHERE k = {key});"
                )
            }
            Self::Update(key, values) => {
                let [a, b] = sql_of(values);
                format!("UPDATE {table} SET v = {a}, data = {b} WHERE k = {};", literal(key))
            }
            Self::Delete(key) => format!("DELETE FROM {table} WHERE k = {};", literal(key)),
            // Some edits move all rows.
            Self::DeleteMany(begin) if at.is_multiple_of(2) => {
                format!(
                    "DELETE FROM {table} WHERE starts_with(k, {}); UPDATE {table} SET k = k;",
                    literal(begin)
                )
            }
            Self::DeleteMany(begin) => {
                format!("DELETE FROM {table} WHERE starts_with(k, {});", literal(begin))
            }
        }
    }

    fn apply(&self, rows: &mut BTreeMap<String, Values>) {
        match self {
            Self::Insert(key, values) => {
                rows.entry(key.clone()).or_insert_with(|| values.clone());
            }
            Self::Update(key, values) => {
                rows.entry(key.clone()).and_modify(|old| old.clone_from(values));
            }
            Self::Delete(key) => drop(rows.remove(key)),
            Self::DeleteMany(begin) => rows.retain(|key, _| !key.starts_with(begin)),
        }
    }
}

fn cells((text, bytes): &Values) -> [(&'static str, CellValue); 2] {
    let whole = |text: Option<String>| match text {
        None => CellValue::Null,
        Some(text) if text.chars().count() <= 400 => CellValue::Whole(text),
        Some(text) => CellValue::Part {
            part: text.chars().take(400).collect(),
            from: 0,
            length: text.chars().count(),
            bytes: false,
        },
    };
    [("v", whole(text.clone())), ("data", whole(bytes.as_deref().map(shown)))]
}

fn field(column: &str, value: CellValue) -> Field {
    Field { column: column.to_owned(), value }
}

fn row(key: &str, values: &Values) -> Vec<Field> {
    let [text, bytes] = cells(values);
    vec![field("k", CellValue::Whole(key.to_owned())), field(text.0, text.1), field(bytes.0, bytes.1)]
}

/// Returns the expected changes in the table with a key.
fn expected(old: &BTreeMap<String, Values>, new: &BTreeMap<String, Values>) -> Vec<RowChange> {
    let mut rows = Vec::new();
    for (key, after) in new {
        let Some(before) = old.get(key).filter(|before| *before != after) else { continue };
        let columns = cells(before).into_iter().zip(cells(after)).filter(|((_, old), (_, new))| old != new);
        rows.push(RowChange::Updated {
            key: vec![field("k", CellValue::Whole(key.clone()))],
            columns: columns
                .map(|((column, old), (_, new))| FieldChange { column: column.to_owned(), old, new })
                .collect(),
        });
    }
    let missing = |from: &BTreeMap<String, Values>, other: &BTreeMap<String, Values>| -> Vec<Vec<Field>> {
        from.iter()
            .filter(|(key, _)| !other.contains_key(*key))
            .map(|(key, values)| row(key, values))
            .collect()
    };
    rows.extend(missing(new, old).into_iter().map(|values| RowChange::Inserted { values }));
    rows.extend(missing(old, new).into_iter().map(|values| RowChange::Deleted { values }));
    rows
}

/// Returns the changes in a table without a key, in no particular order. There, an update is a
/// deletion and an insertion.
fn without_key(old: &BTreeMap<String, Values>, new: &BTreeMap<String, Values>) -> (RowCounts, Vec<String>) {
    let only = |from: &BTreeMap<String, Values>, other: &BTreeMap<String, Values>| -> Vec<Vec<Field>> {
        let differs = |(key, values): &(&String, &Values)| other.get(*key) != Some(*values);
        from.iter().filter(differs).map(|(key, values)| row(key, values)).collect()
    };
    let (inserted, deleted) = (only(new, old), only(old, new));
    let counts = RowCounts { inserted: inserted.len() as u64, updated: 0, deleted: deleted.len() as u64 };
    let inserted = inserted.into_iter().map(|values| RowChange::Inserted { values });
    let all = inserted.chain(deleted.into_iter().map(|values| RowChange::Deleted { values }));
    (counts, sorted(&all.collect::<Vec<_>>()))
}

fn sorted(rows: &[RowChange]) -> Vec<String> {
    let mut rows: Vec<_> = rows.iter().map(|row| format!("{row:?}")).collect();
    rows.sort();
    rows
}

fn find(fixture: &LeaseFixture, name: &str) -> DatabaseDiff {
    let limits = DiffLimits { rows: 1000, ..DiffLimits::default() };
    let (copy, _) = fixture.leases.lease(Isolation::Clone, None, Some("app")).unwrap();
    let [fresh, used] = [&copy, name].map(|name| fixture.leases.inspect(name).unwrap());
    let found = diff::compare(fresh.session, used.session, &limits).unwrap();
    drop(fresh.guard);
    fixture.leases.release(&copy).unwrap();
    found
}

fn check(fixture: &LeaseFixture, edits: &[Edit]) -> Result<(), TestCaseError> {
    let old = seed();
    let mut new = old.clone();
    for edit in edits {
        edit.apply(&mut new);
    }
    let (name, _) = fixture.leases.lease(Isolation::Clone, None, Some("app")).unwrap();
    let sql: String = edits
        .iter()
        .enumerate()
        .flat_map(|(at, edit)| [edit.sql("keyed", at), edit.sql("bag", at)])
        .collect();
    let mut session = fixture.leases.inspect(&name).unwrap();
    session.session.query(&format!("SET search_path = public; {sql}")).unwrap();
    drop(session);
    let found = find(fixture, &name);
    fixture.leases.release(&name).unwrap();
    prop_assert!(
        found.schema.is_empty() && found.sequences.is_empty() && found.not_compared.is_empty(),
        "{found:?}"
    );
    let table = |table: &str| found.tables.iter().find(|found| found.table == table);
    let rows = |table: Option<&TableDiff>| table.map_or_else(Vec::new, |table| table.rows.clone());
    prop_assert_eq!(rows(table("public.keyed")), expected(&old, &new));
    let (counts, bag) = without_key(&old, &new);
    prop_assert_eq!(table("public.bag").map(|table| table.counts).unwrap_or_default(), counts);
    prop_assert_eq!(sorted(&rows(table("public.bag"))), bag);
    prop_assert_eq!(found.is_empty(), old == new);
    Ok(())
}

#[test]
fn the_difference_equals_the_edits() {
    let rows: Vec<_> = seed()
        .iter()
        .map(|(key, values)| {
            let [a, b] = sql_of(values);
            format!("({}, {a}, {b})", literal(key))
        })
        .collect();
    let setup = format!(
        "CREATE TABLE keyed (k text PRIMARY KEY, v text, data bytea); CREATE TABLE bag (k text, v text, data bytea); \
         INSERT INTO keyed VALUES {}; INSERT INTO bag TABLE keyed",
        rows.join(", ")
    );
    let fixture = LeaseFixture::new(ServerOptions::default(), &setup, Duration::from_mins(10), false);
    let config =
        ProptestConfig { cases: 80, max_shrink_iters: 100, failure_persistence: None, ..Default::default() };
    let result =
        proptest::test_runner::TestRunner::new(config).run(&edits(), |edits| check(&fixture, &edits));
    drop(fixture);
    result.unwrap();
}
