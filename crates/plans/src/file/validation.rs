//! Validates statistics from a file. Rejects everything that PostgreSQL itself can't have written.

use std::collections::HashSet;

use crate::import::MOST_PAGES;
use crate::settings;
use crate::{
    ColumnStatistics, CommonCombination, ExtendedStatistics, RelationStatistics, Slot, Statistics,
    StatisticsFileError,
};

/// Maximum statistics target, `MAX_STATISTICS_TARGET`.
const MOST_VALUES: usize = 10_000;
/// Maximum number of most common elements: ten times [`MOST_VALUES`].
const MOST_ELEMENTS: usize = 10 * MOST_VALUES;
/// Number of slots in a `pg_statistic` row, `STATISTIC_NUM_SLOTS`.
pub(crate) const SLOTS: usize = 5;
/// Maximum number of columns and expressions in extended statistics, `STATS_MAX_DIMENSIONS`.
const DIMENSIONS: usize = 8;
/// Maximum height of a B-tree. A taller tree would have more pages than a file can hold.
const HEIGHT: u32 = 32;
/// Server versions that are accepted, which include all versions that `pg_dump --statistics-only` supports.
const VERSIONS: std::ops::Range<u32> = 90_200..1_000_000;

/// Result of a check. The error is the reason why the check fails.
pub(crate) type Check = Result<(), String>;

pub(super) fn check(statistics: &Statistics) -> Result<(), StatisticsFileError> {
    let invalid = |place: String| |reason: String| StatisticsFileError::Invalid { place, reason };
    head(statistics).map_err(invalid("the file".to_owned()))?;
    let mut names = HashSet::new();
    for relation in &statistics.relations {
        let place = format!("relation {:?}.{:?}", relation.schema, relation.name);
        self::relation(relation).map_err(invalid(place.clone()))?;
        ensure(names.insert((&relation.schema, &relation.name)), "it occurs twice")
            .map_err(invalid(place))?;
        columns(&relation.columns)
            .map_err(|(column, reason)| invalid(format!("column {column} of {}", relation.name))(reason))?;
    }
    let mut names = HashSet::new();
    for extended in &statistics.extended {
        let place = format!("extended statistics {:?}.{:?}", extended.schema, extended.name);
        let is_new = names.insert((&extended.schema, &extended.name, extended.inherited));
        ensure(is_new, "they occur twice").map_err(invalid(place.clone()))?;
        self::extended(extended).map_err(invalid(place.clone()))?;
        columns(&extended.expressions)
            .map_err(|(column, reason)| invalid(format!("expression {column} of {place}"))(reason))?;
    }
    Ok(())
}

fn ensure(is_met: bool, reason: &str) -> Check {
    if is_met { Ok(()) } else { Err(reason.to_owned()) }
}

fn head(statistics: &Statistics) -> Check {
    ensure(VERSIONS.contains(&statistics.server_version), "\"server_version\" is not a PostgreSQL version")?;
    statistics.settings.iter().try_for_each(|(name, value)| {
        ensure(settings::is_planner_setting(name), &format!("{name:?} is not a planner setting"))?;
        ensure(
            settings::is_plausible_value(value),
            &format!("the value of {name:?} is not a number, size or word"),
        )
    })
}

fn relation(relation: &RelationStatistics) -> Check {
    is_name(&relation.schema)?;
    is_name(&relation.name)?;
    for (field, pages) in [("pages", relation.pages), ("analyzed_pages", relation.analyzed_pages)] {
        ensure(pages <= MOST_PAGES, &format!("\"{field}\" is above {MOST_PAGES}"))?;
    }
    let limit = f64::from(f32::MAX);
    ensure((-1.0..=limit).contains(&relation.rows), "\"rows\" is not between -1 and 3.4e38")?;
    ensure(relation.height.is_none_or(|height| height <= HEIGHT), &format!("\"height\" is above {HEIGHT}"))?;
    if let Some(table) = &relation.table {
        is_name(table)?;
    }
    let is_index = relation.kind.is_index();
    ensure(!is_index || relation.table.is_some(), "it is an index without a \"table\"")?;
    has_no_nul(relation.definition.as_deref().unwrap_or_default())?;
    let parents = relation.parents.iter().flat_map(|parent| [&parent.schema, &parent.name]);
    parents
        .chain(relation.generated.iter().flat_map(|(name, from)| from.iter().chain([name])))
        .try_for_each(is_name)
}

fn is_name(name: impl AsRef<str>) -> Check {
    ensure(!name.as_ref().is_empty(), "a name is empty")?;
    has_no_nul(name.as_ref())
}

fn has_no_nul(text: &str) -> Check {
    ensure(!text.contains('\0'), "a text contains NUL")
}

/// Checks columns. The error contains the column's name and the reason.
fn columns(columns: &[ColumnStatistics]) -> Result<(), (String, String)> {
    let mut names = HashSet::new();
    columns.iter().try_for_each(|statistics| {
        let of_column = |reason| {
            let number = statistics.number.map_or_else(String::new, |number| number.to_string());
            (if statistics.column.is_empty() { number } else { format!("{:?}", statistics.column) }, reason)
        };
        let is_new = names.insert((&statistics.column, statistics.number, statistics.inherited));
        ensure(is_new, "it occurs twice").map_err(of_column)?;
        column(statistics).map_err(of_column)
    })
}

fn column(column: &ColumnStatistics) -> Check {
    match column.number {
        Some(number) => ensure(number > 0, "\"number\" is not positive")?,
        None => is_name(&column.column)?,
    }
    has_no_nul(&column.type_name)?;
    ensure((0.0..=1.0).contains(&column.null_fraction), "\"null_fraction\" is not between 0 and 1")?;
    ensure(column.width >= 0, "\"width\" is negative")?;
    ensure(
        column.distinct.is_finite() && column.distinct >= -1.0,
        "\"distinct\" is not a number of at least -1",
    )?;
    ensure(column.slots.len() <= SLOTS, "it has more than five slots")?;
    let mut kinds = HashSet::new();
    column.slots.iter().try_for_each(|slot| {
        ensure(kinds.insert(slot.kind), &format!("it has two slots of kind {}", slot.kind))?;
        self::slot(slot).map_err(|reason| format!("slot of kind {}: {reason}", slot.kind))
    })
}

/// Returns an error if PostgreSQL can't have written `slot`.
pub(crate) fn slot(slot: &Slot) -> Check {
    let numbers = slot.numbers.as_deref().unwrap_or_default();
    let values = slot.values.as_deref().unwrap_or_default();
    ensure(
        numbers.iter().all(|number| number.is_finite()),
        "\"numbers\" contains a number that is not finite",
    )?;
    values.iter().try_for_each(|value| has_no_nul(value))?;
    let fractions = || {
        ensure(
            numbers.iter().all(|number| (0.0..=1.0).contains(number)),
            "a frequency is not between 0 and 1",
        )
    };
    let has_bounds = || {
        ensure(
            (2..=MOST_VALUES + 1).contains(&values.len()),
            "the number of values is not between 2 and 10001",
        )
    };
    let numbers_are =
        |count: usize| ensure(numbers.len() == count, &format!("it does not have {count} \"numbers\""));
    match slot.kind {
        1 => {
            fractions()?;
            ensure(
                (1..=MOST_VALUES).contains(&values.len()),
                "the number of values is not between 1 and 10000",
            )?;
            numbers_are(values.len())
        }
        2 | 7 => has_bounds().and_then(|()| numbers_are(0)),
        // The server computes a correlation with rounding errors, so it can slightly exceed the range.
        3 => {
            numbers_are(1)?;
            ensure(numbers[0].abs() <= 1.001 && slot.values.is_none(), "it is not a correlation")
        }
        // The frequencies are followed by their minimum and maximum and, for arrays, by the frequency of NULL elements.
        4 => {
            fractions()?;
            ensure(
                (1..=MOST_ELEMENTS).contains(&values.len()),
                "the number of values is not between 1 and 100000",
            )?;
            let extra = numbers.len().wrapping_sub(values.len());
            ensure((2..=3).contains(&extra), "it does not have two or three more \"numbers\" than values")
        }
        5 => {
            ensure(numbers.iter().all(|number| *number >= 0.0), "a count is negative")?;
            let is_histogram = (3..=MOST_VALUES + 2).contains(&numbers.len()) && slot.values.is_none();
            ensure(is_histogram, "it is not a histogram of counts")
        }
        6 => {
            has_bounds()?;
            fractions()?;
            numbers_are(1)
        }
        _ => Err("\"kind\" is not between 1 and 7".to_owned()),
    }
}

fn extended(extended: &ExtendedStatistics) -> Check {
    for name in [&extended.schema, &extended.name, &extended.table.schema, &extended.table.name] {
        is_name(name)?;
    }
    ensure(
        (1..=DIMENSIONS).contains(&extended.columns.len()),
        "the number of columns is not between 1 and 8",
    )?;
    extended.columns.iter().try_for_each(is_name)?;
    let known: HashSet<&String> = extended.columns.iter().collect();
    ensure(known.len() == extended.columns.len(), "a column occurs twice")?;
    let combination = |columns: &[String], least: usize| {
        let distinct: HashSet<&String> = columns.iter().collect();
        let is_one = columns.len() >= least && distinct.len() == columns.len() && distinct.is_subset(&known);
        ensure(is_one, "a combination does not consist of distinct columns of the object")
    };
    for distinct in &extended.distinct {
        combination(&distinct.columns, 2)?;
        ensure(
            distinct.count.is_finite() && distinct.count >= 0.0,
            "\"count\" is not a number of at least 0",
        )?;
    }
    for dependency in &extended.dependencies {
        combination(&dependency.columns, 1)?;
        let is_other =
            known.contains(&dependency.determines) && !dependency.columns.contains(&dependency.determines);
        ensure(is_other, "\"determines\" is not a different column of the object")?;
        ensure((0.0..=1.0).contains(&dependency.degree), "\"degree\" is not between 0 and 1")?;
    }
    ensure(extended.common.len() <= MOST_VALUES, "they have more than 10000 combinations")?;
    extended.common.iter().try_for_each(|common| self::common(common, extended.columns.len()))?;
    let are_known = extended.expressions.iter().all(|expression| known.contains(&expression.column));
    ensure(are_known, "an expression is not a column of the object")
}

/// Returns an error if PostgreSQL can't have written a combination for this number of columns.
pub(crate) fn common(common: &CommonCombination, columns: usize) -> Check {
    ensure(common.values.len() == columns, "a combination does not have one value for each column")?;
    common.values.iter().flatten().try_for_each(|value| has_no_nul(value))?;
    let is_fraction = |number: f64| (0.0..=1.0).contains(&number);
    let are_fractions = is_fraction(common.frequency) && is_fraction(common.base_frequency);
    ensure(are_fractions, "a frequency is not between 0 and 1")
}

#[cfg(test)]
mod tests {
    use crate::Slot;

    #[test]
    fn slots_with_contradictions_are_refused() {
        let slot = |kind, numbers: &[f32], values: usize| Slot {
            kind,
            numbers: Some(numbers.to_vec()).filter(|numbers| !numbers.is_empty()),
            values: Some(vec!["1".to_owned(); values]).filter(|values| !values.is_empty()),
        };
        for good in [slot(1, &[0.5], 1), slot(2, &[], 2), slot(3, &[-1.0], 0), slot(4, &[0.5, 0.1, 0.2], 1)] {
            assert_eq!(super::slot(&good), Ok(()), "{good:?}");
        }
        for bad in [
            slot(1, &[0.5], 2),
            slot(1, &[2.0], 1),
            slot(1, &[f32::INFINITY], 1),
            slot(2, &[], 1),
            slot(3, &[], 0),
            slot(4, &[0.5], 1),
            slot(6, &[], 2),
            slot(99, &[], 2),
        ] {
            assert!(super::slot(&bad).is_err(), "{bad:?}");
        }
    }
}
