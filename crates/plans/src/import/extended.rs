//! Reads extended statistics from `pg_stats_ext` and, since version 14, from `pg_stats_ext_exprs`.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use super::Gaps;
use super::array::{self, Element};
use super::catalog::USER_SCHEMA;
use super::columns::{self, COLUMNS};
use super::error::ImportError;
use super::session::{Row, Session};
use crate::{
    ColumnStatistics, CommonCombination, Dependency, DistinctCombinations, ExtendedStatistics, RelationName,
};

const PART: &str = "extended statistics";

/// Name of an object, and whether its statistics include child tables.
type Key = (RelationName, bool);

pub(super) fn read(
    session: &mut Session,
    version: u32,
    gaps: &mut Gaps,
) -> Result<Vec<ExtendedStatistics>, ImportError> {
    let expressions = if version >= 140_000 { "s.exprs::text" } else { "NULL" };
    let inherited = if version >= 150_000 { "s.inherited" } else { "false" };
    let query = format!(
        "SELECT n.nspname, x.stxname, tn.nspname AS table_schema, t.relname, s.statistics_name IS NULL AS hidden,
            {inherited} AS inherited, {expressions} AS expressions, x.stxkeys::text AS numbers,
            ARRAY(SELECT a.attname FROM unnest(x.stxkeys::int2[]) WITH ORDINALITY k(number, position)
                JOIN pg_attribute a ON a.attrelid = x.stxrelid AND a.attnum = k.number ORDER BY position) AS columns,
            s.n_distinct::text AS distinct, s.dependencies::text, s.most_common_vals, s.most_common_freqs,
            s.most_common_base_freqs
        FROM pg_statistic_ext x JOIN pg_namespace n ON n.oid = x.stxnamespace
            JOIN pg_class t ON t.oid = x.stxrelid JOIN pg_namespace tn ON tn.oid = t.relnamespace
            LEFT JOIN pg_stats_ext s ON s.statistics_schemaname = n.nspname AND s.statistics_name = x.stxname
        WHERE {USER_SCHEMA}"
    );
    // The view prints expressions, which requires a lock on their table, so the query can fail.
    let Some(rows) = session.try_rows(PART, &query)? else {
        return unreadable(session, gaps);
    };
    let mut of_expressions = read_expressions(session, version, inherited)?;
    let mut objects = Vec::new();
    for row in &rows {
        let name = name(row, "nspname", "stxname")?;
        if row.is_true("hidden") {
            gaps.extended.push(name);
            continue;
        }
        let key = (name, row.is_true("inherited"));
        let expressions = of_expressions.remove(&key).unwrap_or_default();
        objects.push(object(row, key, expressions)?);
    }
    Ok(objects)
}

/// Records all objects as gaps.
fn unreadable(session: &mut Session, gaps: &mut Gaps) -> Result<Vec<ExtendedStatistics>, ImportError> {
    let query = format!(
        "SELECT n.nspname, x.stxname FROM pg_statistic_ext x JOIN pg_namespace n ON n.oid = x.stxnamespace
        WHERE {USER_SCHEMA}"
    );
    for row in session.rows(PART, &query)? {
        gaps.extended.push(name(&row, "nspname", "stxname")?);
    }
    Ok(Vec::new())
}

fn name(row: &Row, schema: &'static str, relation: &'static str) -> Result<RelationName, ImportError> {
    Ok(RelationName { schema: row.text(schema)?.to_owned(), name: row.text(relation)?.to_owned() })
}

fn read_expressions(
    session: &mut Session,
    version: u32,
    inherited: &str,
) -> Result<HashMap<Key, Vec<ColumnStatistics>>, ImportError> {
    let mut found: HashMap<Key, Vec<ColumnStatistics>> = HashMap::new();
    if version < 140_000 {
        return Ok(found);
    }
    let query = format!(
        "SELECT s.statistics_schemaname, s.statistics_name, s.expr, {inherited} AS inherited, {COLUMNS}
        FROM pg_stats_ext_exprs s JOIN pg_namespace n ON n.nspname = s.statistics_schemaname
        WHERE {USER_SCHEMA} AND s.null_frac IS NOT NULL"
    );
    for row in session.try_rows(PART, &query)?.unwrap_or_default() {
        let key = (name(&row, "statistics_schemaname", "statistics_name")?, row.is_true("inherited"));
        let statistics = ColumnStatistics {
            column: row.text("expr")?.to_owned(),
            inherited: key.1,
            ..columns::column(&row, (',', ','))?
        };
        found.entry(key).or_default().push(statistics);
    }
    Ok(found)
}

fn object(
    row: &Row,
    (name, inherited): Key,
    expressions: Vec<ColumnStatistics>,
) -> Result<ExtendedStatistics, ImportError> {
    let mut columns = row.list("columns")?;
    let numbers = row.optional("numbers").unwrap_or_default().split_whitespace().map(str::to_owned);
    let printed = row.list("expressions")?;
    // The server numbers expressions -1, -2 and so on.
    let expression_numbers = (1..=printed.len()).map(|number| format!("-{number}"));
    let names: BTreeMap<String, String> =
        numbers.zip(columns.iter().cloned()).chain(expression_numbers.zip(printed.iter().cloned())).collect();
    columns.extend(printed);
    Ok(ExtendedStatistics {
        schema: name.schema,
        name: name.name,
        table: self::name(row, "table_schema", "relname")?,
        inherited,
        distinct: distinct(row, &names)?,
        dependencies: dependencies(row, &names)?,
        common: common(row, columns.len())?,
        columns,
        expressions,
    })
}

/// Parses `n_distinct`, such as `{"1, 2": 11}`.
fn distinct(row: &Row, names: &BTreeMap<String, String>) -> Result<Vec<DistinctCombinations>, ImportError> {
    let combinations = entries(row, "distinct")?.into_iter().map(|(numbers, count)| {
        let columns = named(&numbers, names).ok_or(row.invalid("distinct"))?;
        Ok(DistinctCombinations { columns, count })
    });
    combinations.collect()
}

/// Parses `dependencies`, such as `{"1, 2 => 3": 0.5}`.
fn dependencies(row: &Row, names: &BTreeMap<String, String>) -> Result<Vec<Dependency>, ImportError> {
    let invalid = || row.invalid("dependencies");
    let dependencies = entries(row, "dependencies")?.into_iter().map(|(numbers, degree)| {
        let (from, to) = numbers.split_once(" => ").ok_or_else(invalid)?;
        let columns = named(from, names).ok_or_else(invalid)?;
        let determines = names.get(to).ok_or_else(invalid)?.clone();
        Ok(Dependency { columns, determines, degree })
    });
    dependencies.collect()
}

/// Parses a column that maps combinations to numbers. Empty for NULL.
fn entries(row: &Row, column: &'static str) -> Result<BTreeMap<String, f64>, ImportError> {
    let text = row.optional(column).unwrap_or("{}");
    let printed: Printed = serde_json::from_str(text).map_err(|_| row.invalid(column))?;
    Ok(printed.into_entries())
}

/// Text form of the types `pg_ndistinct` and `pg_dependencies`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Printed {
    /// Form until version 18, such as `{"1, 2": 11}` and `{"1, 2 => 3": 0.5}`.
    Object(BTreeMap<String, f64>),
    List(Vec<Entry>),
}

/// An entry in the form since version 19, such as `{"attributes": [1, 2], "dependency": 3, "degree": 0.5}`.
#[derive(Deserialize)]
struct Entry {
    attributes: Vec<i32>,
    dependency: Option<i32>,
    #[serde(alias = "ndistinct", alias = "degree")]
    number: f64,
}

impl Printed {
    fn into_entries(self) -> BTreeMap<String, f64> {
        let entry = |entry: Entry| {
            let numbers = entry.attributes.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
            let determined = entry.dependency.map_or_else(String::new, |number| format!(" => {number}"));
            (numbers + &determined, entry.number)
        };
        match self {
            Self::Object(entries) => entries,
            Self::List(entries) => entries.into_iter().map(entry).collect(),
        }
    }
}

fn named(numbers: &str, names: &BTreeMap<String, String>) -> Option<Vec<String>> {
    numbers.split(", ").map(|number| names.get(number).cloned()).collect()
}

fn common(row: &Row, columns: usize) -> Result<Vec<CommonCombination>, ImportError> {
    let Some(text) = row.optional("most_common_vals") else { return Ok(Vec::new()) };
    let values = || {
        let combination = |element| match element {
            Element::Array(values) if values.len() == columns => values.into_iter().map(value).collect(),
            _ => None,
        };
        array::parse(text, ',')?.into_iter().map(combination).collect::<Option<Vec<Vec<_>>>>()
    };
    let values = values().ok_or(row.invalid("most_common_vals"))?;
    let frequencies = doubles(row, "most_common_freqs", values.len())?;
    let base_frequencies = doubles(row, "most_common_base_freqs", values.len())?;
    let combinations = values.into_iter().zip(frequencies).zip(base_frequencies);
    Ok(combinations
        .map(|((values, frequency), base_frequency)| CommonCombination { values, frequency, base_frequency })
        .collect())
}

#[expect(clippy::option_option, reason = "the outer one says that the element is no value")]
fn value(element: Element) -> Option<Option<String>> {
    match element {
        Element::Value(value) => Some(Some(value)),
        Element::Null => Some(None),
        Element::Array(_) => None,
    }
}

fn doubles(row: &Row, column: &'static str, length: usize) -> Result<Vec<f64>, ImportError> {
    let numbers: Option<Vec<f64>> = row.list(column)?.into_iter().map(|number| number.parse().ok()).collect();
    numbers.filter(|numbers| numbers.len() == length).ok_or(row.invalid(column))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_of_all_versions_are_read() {
        for (old, new) in [
            (
                r#"{"1, 2": 11, "1, -1": 5}"#,
                r#"[{"attributes": [1, 2], "ndistinct": 11}, {"attributes": [1, -1], "ndistinct": 5}]"#,
            ),
            (r#"{"1, 2 => 3": 0.5}"#, r#"[{"attributes": [1, 2], "dependency": 3, "degree": 0.5}]"#),
        ] {
            let entries = |text: &str| serde_json::from_str::<Printed>(text).unwrap().into_entries();
            assert_eq!(entries(old), entries(new));
        }
        assert!(serde_json::from_str::<Printed>(r#"{"1, 2": "x"}"#).is_err());
    }
}
