//! Writes extended statistics (`CREATE STATISTICS`) into `pg_statistic_ext_data`.
//!
//! The types in this catalog have no input functions before version 19. Numbers of distinct values and functional
//! dependencies have a simple binary form, which pgfresh writes itself and casts from `bytea`. The binary form of
//! common combinations depends on the types of their values, so pgfresh lets PostgreSQL analyze a table with one row
//! for each combination, and replaces the frequencies in the result.
//!
//! Source: `mvdistinct.c`, `dependencies.c`, `mcv.c` and `statistics.h` of PostgreSQL 13 to 18.

use std::collections::HashMap;

use server::{AdminConnection, Major, SessionError, identifier, literal};

use super::applied::{Applied, Reason};
use super::error::{During, ScratchError};
use super::sizes::number;
use crate::file::validation;
use crate::redact::without_literals;
use crate::{CommonCombination, ExtendedStatistics, Statistics};

/// Magic numbers at the start of the binary forms, and the only type number that each form has.
const DISTINCT_MAGIC: u32 = 0xA352_BFA4;
const DEPENDENCIES_MAGIC: u32 = 0xB454_9A2C;
const COMMON_MAGIC: u32 = 0xE1A6_51C2;
const BASIC: u32 = 1;
/// Maximum number of common combinations. Source: `STATS_MCVLIST_MAX_ITEMS`.
const MOST_COMBINATIONS: usize = 10_000;
/// Maximum number of columns. Source: `STATS_MAX_DIMENSIONS`.
const MOST_COLUMNS: usize = 8;

/// Name of the column with a combination's position. The space makes a conflict with a user's column unlikely.
const ORD: &str = "\"pgfresh position\"";

/// Casts that exist until the server stops. They work because the types are stored like `bytea`.
const CASTS: &str = "
CREATE CAST (bytea AS pg_ndistinct) WITHOUT FUNCTION;
CREATE CAST (bytea AS pg_dependencies) WITHOUT FUNCTION;
CREATE CAST (bytea AS pg_mcv_list) WITHOUT FUNCTION;";

/// A statistics object in the copy.
struct Object {
    oid: u32,
    table: String,
    /// Columns in the order of their numbers, followed by expressions, which have negative numbers.
    columns: Vec<(i16, String)>,
}

impl Object {
    /// Replaces the literals in those expressions that the file only has without literals.
    fn redact_like(&mut self, extended: &ExtendedStatistics) {
        for (_, name) in self.columns.iter_mut().filter(|(number, _)| *number < 0) {
            let redacted = without_literals(name);
            if !extended.columns.contains(name) && extended.columns.contains(&redacted) {
                *name = redacted;
            }
        }
    }
}

/// Imports extended statistics. Requires that [`super::relations::import`] has matched the relations.
pub(super) fn import(
    session: &mut AdminConnection,
    major: u32,
    statistics: &Statistics,
    applied: &mut Applied,
) -> Result<(), ScratchError> {
    if statistics.extended.is_empty() {
        return Ok(());
    }
    session.query(CASTS).during("prepare extended statistics")?;
    let mut objects = objects(session, major)?;
    for extended in &statistics.extended {
        let label = format!("{}.{}", extended.schema, extended.name);
        let Some(object) = objects.get_mut(&(extended.schema.clone(), extended.name.clone())) else {
            applied.leave_out(label, Reason::ExtendedOnlyInProduction);
            continue;
        };
        object.redact_like(extended);
        match write(session, major, object, extended) {
            Ok(Ok(())) => {
                applied.extended += 1;
                if !extended.expressions.is_empty() {
                    applied.leave_out(label, Reason::Unsupported("statistics of these expressions"));
                }
            }
            Ok(Err(reason)) => applied.leave_out(label, reason),
            Err(error) if error.is_fatal() => return Err(error).during("import extended statistics"),
            Err(error) => applied.leave_out(label, Reason::Refused(super::columns::message(&error))),
        }
    }
    Ok(())
}

/// Reads the copy's statistics objects, by name.
fn objects(
    session: &mut AdminConnection,
    major: u32,
) -> Result<HashMap<(String, String), Object>, ScratchError> {
    let sql = "SELECT n.nspname, s.stxname, s.oid, format('%I.%I', tn.nspname, t.relname), a.attnum, a.attname \
               FROM pg_statistic_ext s JOIN pg_namespace n ON n.oid = s.stxnamespace JOIN pg_class t ON t.oid = s.stxrelid \
               JOIN pg_namespace tn ON tn.oid = t.relnamespace \
               LEFT JOIN pg_attribute a ON a.attrelid = s.stxrelid AND a.attnum = ANY (s.stxkeys) ORDER BY s.oid, a.attnum";
    let mut objects: HashMap<(String, String), Object> = HashMap::new();
    for row in session.query(sql).during("read extended statistics")? {
        let [Some(schema), Some(name), oid, Some(table), attnum, column] = &row[..] else { continue };
        let object = objects.entry((schema.clone(), name.clone())).or_insert_with(|| Object {
            oid: number(oid.as_ref()),
            table: table.clone(),
            columns: Vec::new(),
        });
        if let Some(column) = column {
            object.columns.push((number(attnum.as_ref()), column.clone()));
        }
    }
    if Major(major).has_expression_statistics() {
        let sql = "SELECT n.nspname, s.stxname, e.text, e.position FROM pg_statistic_ext s \
                   JOIN pg_namespace n ON n.oid = s.stxnamespace \
                   CROSS JOIN LATERAL unnest(pg_get_statisticsobjdef_expressions(s.oid)) WITH ORDINALITY e(text, position) \
                   WHERE s.stxexprs IS NOT NULL ORDER BY s.oid, e.position";
        for row in session.query(sql).during("read extended statistics")? {
            let [Some(schema), Some(name), Some(text), position] = &row[..] else { continue };
            if let Some(object) = objects.get_mut(&(schema.clone(), name.clone())) {
                let position: i16 = number(position.as_ref());
                object.columns.push((-position, text.clone()));
            }
        }
    }
    Ok(objects)
}

/// Writes the data of one object. The inner error is the reason why nothing was written.
fn write(
    session: &mut AdminConnection,
    major: u32,
    object: &Object,
    extended: &ExtendedStatistics,
) -> Result<Result<(), Reason>, SessionError> {
    let names: Vec<&str> = object.columns.iter().map(|(_, name)| name.as_str()).collect();
    let same = names.len() == extended.columns.len()
        && extended.columns.iter().all(|name| names.contains(&name.as_str()));
    if !same {
        return Ok(Err(Reason::ExtendedOnlyInProduction));
    }
    if extended.inherited && !Major(major).has_inherited_extended_statistics() {
        return Ok(Err(Reason::Unsupported("inherited statistics of this kind before version 15")));
    }
    let (distinct, dependencies) = match (distinct(object, extended), dependencies(object, extended)) {
        (Ok(distinct), Ok(dependencies)) => (distinct, dependencies),
        (Err(why), _) | (_, Err(why)) => return Ok(Err(Reason::Invalid(why.into()))),
    };
    let common = match common(session, object, extended)? {
        Ok(common) => common,
        Err(reason) => return Ok(Err(reason)),
    };
    let hex = |bytes: Option<Vec<u8>>| bytes.map_or_else(|| "NULL".to_owned(), |bytes| bytea(&bytes));
    let (distinct, dependencies, common) = (hex(distinct), hex(dependencies), hex(common));
    let (oid, inherited) = (object.oid, extended.inherited);
    let mut key = vec![("stxoid", oid.to_string())];
    if Major(major).has_inherited_extended_statistics() {
        key.push(("stxdinherit", inherited.to_string()));
    }
    let condition: Vec<String> = key.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    key.push(("stxdndistinct", format!("{distinct}::pg_ndistinct")));
    key.push(("stxddependencies", format!("{dependencies}::pg_dependencies")));
    key.push(("stxdmcv", format!("{common}::pg_mcv_list")));
    let (columns, values): (Vec<&str>, Vec<String>) = key.into_iter().unzip();
    session.query(&format!(
        "DELETE FROM pg_statistic_ext_data WHERE {}; INSERT INTO pg_statistic_ext_data ({}) VALUES ({})",
        condition.join(" AND "),
        columns.join(", "),
        values.join(", ")
    ))?;
    Ok(Ok(()))
}

fn bytea(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("'\\x{}'::bytea", digits.concat())
}

/// Returns column numbers in PostgreSQL's order: columns in ascending order, then expressions.
fn numbers(object: &Object, names: &[String]) -> Result<Vec<i16>, &'static str> {
    let number =
        |name: &String| object.columns.iter().find(|(_, column)| column == name).map(|(number, _)| *number);
    let found: Option<Vec<i16>> = names.iter().map(number).collect();
    let mut found = found.ok_or("it names a column that the object lacks")?;
    found.sort_unstable();
    found.dedup();
    if (1..=MOST_COLUMNS).contains(&found.len()) { Ok(found) } else { Err("it has too many columns") }
}

/// Encodes numbers of distinct combinations in the binary form of `pg_ndistinct`.
fn distinct(object: &Object, extended: &ExtendedStatistics) -> Result<Option<Vec<u8>>, &'static str> {
    if extended.distinct.is_empty() {
        return Ok(None);
    }
    let mut bytes = head(DISTINCT_MAGIC, extended.distinct.len());
    for item in &extended.distinct {
        let numbers = numbers(object, &item.columns)?;
        if numbers.len() < 2 || !(0.0..=1e15).contains(&item.count) {
            return Err("a number of distinct combinations is out of range");
        }
        bytes.extend(item.count.to_ne_bytes());
        bytes.extend(i32::try_from(numbers.len()).unwrap_or(0).to_ne_bytes());
        bytes.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
    }
    Ok(Some(bytes))
}

/// Encodes functional dependencies in the binary form of `pg_dependencies`.
fn dependencies(object: &Object, extended: &ExtendedStatistics) -> Result<Option<Vec<u8>>, &'static str> {
    if extended.dependencies.is_empty() {
        return Ok(None);
    }
    let mut bytes = head(DEPENDENCIES_MAGIC, extended.dependencies.len());
    for item in &extended.dependencies {
        let mut numbers = numbers(object, &item.columns)?;
        numbers.extend(self::numbers(object, std::slice::from_ref(&item.determines))?);
        if !(0.0..=1.0).contains(&item.degree) || numbers.len() > MOST_COLUMNS {
            return Err("a dependency is out of range");
        }
        bytes.extend(item.degree.to_ne_bytes());
        bytes.extend(i16::try_from(numbers.len()).unwrap_or(0).to_ne_bytes());
        bytes.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
    }
    Ok(Some(bytes))
}

fn head(magic: u32, count: usize) -> Vec<u8> {
    [magic, BASIC, u32::try_from(count).unwrap_or(u32::MAX)]
        .iter()
        .flat_map(|number| number.to_ne_bytes())
        .collect()
}

/// Lets PostgreSQL build the list of common combinations, and returns the list with production's frequencies.
fn common(
    session: &mut AdminConnection,
    object: &Object,
    extended: &ExtendedStatistics,
) -> Result<Result<Option<Vec<u8>>, Reason>, SessionError> {
    let combinations = &extended.common;
    if combinations.is_empty() {
        return Ok(Ok(None));
    }
    if object.columns.iter().any(|(number, _)| *number < 0) {
        return Ok(Err(Reason::Unsupported("common combinations of expressions")));
    }
    let fits = |item: &CommonCombination| validation::common(item, extended.columns.len()).is_ok();
    if combinations.len() > MOST_COMBINATIONS || !combinations.iter().all(fits) {
        return Ok(Err(Reason::Invalid("a common combination is out of range".into())));
    }
    build(session, object, extended)?;
    let rows = session.query(
        "SELECT encode(d.stxdmcv::bytea, 'hex') FROM pg_statistic_ext s \
         JOIN pg_statistic_ext_data d ON d.stxoid = s.oid WHERE s.stxrelid = 'pg_temp.combination'::regclass",
    );
    let texts = object.columns.iter().map(|(_, name)| {
        let name = identifier(name);
        format!("CASE WHEN c.{name} IS NOT NULL THEN format('%s', c.{name}) END")
    });
    let texts = texts.collect::<Vec<_>>().join(", ");
    let list = rows.and_then(|rows| {
        let order = session.query(&format!(
            "SELECT c.{ORD}, m.index FROM pg_temp.combination c, pg_statistic_ext s, pg_statistic_ext_data d, \
             pg_mcv_list_items(d.stxdmcv) m WHERE s.stxrelid = 'pg_temp.combination'::regclass AND d.stxoid = s.oid \
             AND ARRAY[{texts}] = m.values"
        ))?;
        Ok((rows, order))
    });
    session.query("DROP TABLE IF EXISTS pg_temp.combination")?;
    let (rows, order) = list?;
    let hex = rows.first().and_then(|row| row[0].clone()).unwrap_or_default();
    let positions = order.iter().map(|row| (number(row[1].as_ref()), number(row[0].as_ref()))).collect();
    Ok(replace_frequencies(&hex, &positions, combinations, object.columns.len())
        .map(Some)
        .ok_or_else(|| Reason::Invalid("PostgreSQL merges some of the common combinations".into())))
}

/// Creates and analyzes a temporary table with one row for each combination.
fn build(
    session: &mut AdminConnection,
    object: &Object,
    extended: &ExtendedStatistics,
) -> Result<(), SessionError> {
    // The table's columns follow the order of the copy's object. Values in the file may have a different order, so
    // match them by column name.
    let names: Vec<String> = object.columns.iter().map(|(_, name)| identifier(name)).collect();
    let order: Vec<usize> = object
        .columns
        .iter()
        .filter_map(|(_, name)| extended.columns.iter().position(|column| column == name))
        .collect();
    let row = |(ord, item): (usize, &CommonCombination)| {
        let values = order.iter().map(|index| item.values[*index].as_ref());
        let values: Vec<String> =
            values.map(|value| value.map_or_else(|| "NULL".to_owned(), |value| literal(value))).collect();
        format!("({}, {ord})", values.join(", "))
    };
    let rows: Vec<String> = extended.common.iter().enumerate().map(row).collect();
    session.query(&format!(
        "DROP TABLE IF EXISTS pg_temp.combination; \
         CREATE TEMP TABLE combination AS SELECT {}, 0 AS {ORD} FROM {} WITH NO DATA; \
         INSERT INTO combination VALUES {}; \
         CREATE STATISTICS pg_temp.combination_list (mcv) ON {} FROM combination; \
         ALTER STATISTICS pg_temp.combination_list SET STATISTICS 10000; ANALYZE pg_temp.combination",
        names.join(", "),
        object.table,
        rows.join(", "),
        names.join(", "),
    ))?;
    Ok(())
}

/// Replaces the frequencies in the binary form of `pg_mcv_list`. `positions` maps each item to its combination. Returns
/// `None` unless every item matches exactly one combination.
fn replace_frequencies(
    hex: &str,
    positions: &HashMap<usize, usize>,
    combinations: &[CommonCombination],
    columns: usize,
) -> Option<Vec<u8>> {
    let mut bytes: Vec<u8> = (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok())
        .collect::<Option<_>>()?;
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let count = usize::try_from(word(8)?).ok()?;
    if word(0)? != COMMON_MAGIC
        || word(4)? != BASIC
        || count != combinations.len()
        || positions.len() != count
    {
        return None;
    }
    // Layout of an item: a NULL flag for each column, two frequencies, and a two-byte index for each column.
    let item = columns + 16 + 2 * columns;
    let start = bytes.len().checked_sub(count * item)?;
    for index in 0..count {
        let combination = combinations.get(*positions.get(&index)?)?;
        let at = start + index * item + columns;
        bytes.get_mut(at..at + 8)?.copy_from_slice(&combination.frequency.to_ne_bytes());
        bytes.get_mut(at + 8..at + 16)?.copy_from_slice(&combination.base_frequency.to_ne_bytes());
    }
    Some(bytes)
}
