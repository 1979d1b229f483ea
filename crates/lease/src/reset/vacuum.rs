//! Removes what deleted rows leave behind in a table: dead tuples and line pointers. Otherwise, new
//! rows would reuse the space, so a test could read its rows in a different order than in a new copy.
//!
//! VACUUM truncates an empty table to zero pages. Since VACUUM also updates the planner's size estimates in `pg_class`,
//! pgfresh restores those from the template.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::reset::catalog::{Table, TemplateCatalog, planner_columns};
use crate::wal::changes::FileChanges;
use crate::wal::record::RelationFile;

/// Reason to drop a database: VACUUM couldn't remove all pages of the emptied tables, for example because a standby or
/// a replication slot still needs the deleted rows.
pub(crate) const PAGES_LEFT: &str = "its deleted rows could not be removed";

/// Returns SQL that removes all pages of tables without rows. Meanwhile, no other session may use the database.
pub(crate) fn remove_pages(tables: &[(u32, &Table)], has_toast: bool, major: u32) -> String {
    let names: Vec<_> = tables.iter().map(|(_, table)| table.name.as_str()).collect();
    // Don't update the age of the database's oldest row: the reset doesn't need it, and the search takes longer than
    // everything else.
    let statistics = if server::Major(major).has_vacuum_skip_stats() { ", SKIP_DATABASE_STATS" } else { "" };
    let toast =
        if has_toast || !server::Major(major).has_vacuum_toast() { "" } else { ", PROCESS_TOAST OFF" };
    format!("VACUUM (INDEX_CLEANUP ON, TRUNCATE ON, SKIP_LOCKED{statistics}{toast}) {}", names.join(", "))
}

/// Returns true if a file of an emptied table may still have pages, because the log doesn't show that the reset removed
/// all of them. `filled` contains the files that had pages before the reset, `changes` the files changed by the reset.
pub(crate) fn has_pages(
    changes: &HashMap<RelationFile, FileChanges>,
    filled: &HashSet<RelationFile>,
    is_emptied: impl Fn(u32) -> bool,
) -> bool {
    let is_filled = |file: &RelationFile| changes.get(file).is_none_or(|change| change.filled);
    filled.iter().chain(changes.keys()).any(|file| is_emptied(file.number) && is_filled(file))
}

/// Returns SQL that counts the tables that still have pages, either in the table itself or in its TOAST table.
pub(crate) fn count_filled(tables: &[(u32, &Table)]) -> String {
    let oids: Vec<_> = tables.iter().map(|(oid, _)| oid.to_string()).collect();
    format!(
        "SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.oid[]) \
         AND (pg_catalog.pg_relation_size(c.oid) OPERATOR(pg_catalog.>) 0 \
           OR pg_catalog.pg_relation_size(c.reltoastrelid) OPERATOR(pg_catalog.>) 0); ",
        oids.join(",")
    )
}

/// Returns SQL that restores the planner's size estimates of these tables from the template. Relations with equal
/// estimates form a group. Since planning a statement takes longer than updating the rows, each statement restores
/// several groups.
pub(crate) fn restore_planner(catalog: &TemplateCatalog, tables: &[(u32, &Table)]) -> String {
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for oid in tables.iter().flat_map(|(_, table)| &table.relations) {
        if let Some(class) = catalog.classes.get(oid) {
            groups.entry(&class.planner).or_default().push(oid.to_string());
        }
    }
    let columns = planner_columns(catalog.major).collect::<Vec<_>>().join(", ");
    let groups: Vec<_> = groups
        .into_iter()
        .map(|(planner, oids)| Group { values: planner.split(", ").collect(), oids: oids.join(",") })
        .collect();
    groups.chunks(GROUPS_TOGETHER).map(|groups| update_planner(&columns, groups)).collect()
}

/// Maximum number of groups per statement. For each row, the server searches all of the statement's groups.
const GROUPS_TOGETHER: usize = 8;

/// Relations with equal size estimates.
struct Group<'a> {
    values: Vec<&'a str>,
    /// The relations' oids, separated by commas.
    oids: String,
}

/// Returns a statement that sets these `pg_class` columns for the relations of all groups, skipping rows that already
/// have the right values.
fn update_planner(columns: &str, groups: &[Group<'_>]) -> String {
    let is_among = |oids: &str| format!("oid OPERATOR(pg_catalog.=) ANY ('{{{oids}}}'::pg_catalog.oid[])");
    let [others @ .., last] = groups else { return String::new() };
    let value = |(column, last): (usize, &&str)| {
        if others.iter().all(|group| group.values[column] == *last) {
            return (*last).to_owned();
        }
        let when =
            |Group { values, oids }: &Group<'_>| format!("WHEN {} THEN {} ", is_among(oids), values[column]);
        format!("CASE {}ELSE {last} END", others.iter().map(when).collect::<String>())
    };
    let values = last.values.iter().enumerate().map(value).collect::<Vec<_>>().join(", ");
    let all = groups.iter().map(|group| group.oids.as_str()).collect::<Vec<_>>().join(",");
    format!(
        "UPDATE pg_catalog.pg_class SET ({columns}) = ROW({values}) WHERE {} \
         AND NOT ROW({columns}) OPERATOR(pg_catalog.=) ROW({values}); ",
        is_among(&all)
    )
}
