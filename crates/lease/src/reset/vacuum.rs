//! Removes what deleted rows leave behind in a table: dead tuples and line pointers. New rows would reuse these, and a test could
//! then find its rows in a different order than in a new copy.
//!
//! VACUUM truncates a table without rows to zero pages. It also updates the numbers that the planner uses, so pgfresh restores
//! these from the template.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::reset::catalog::{Table, TemplateCatalog, planner_columns};
use crate::wal::changes::FileChanges;
use crate::wal::record::RelationFile;

/// Reason to drop a database in which VACUUM couldn't remove all pages of the emptied tables. A standby or a replication slot may
/// still need them.
pub(crate) const PAGES_LEFT: &str = "its deleted rows could not be removed";

/// Returns SQL that removes all pages of tables without rows. Meanwhile, no other session may work in the database.
pub(crate) fn remove_pages(tables: &[(u32, &Table)], has_toast: bool, major: u32) -> String {
    let names: Vec<_> = tables.iter().map(|(_, table)| table.name.as_str()).collect();
    // Skip the age of the database's oldest row. The reset doesn't need it, and finding it would take longer than everything
    // else.
    let statistics = if server::Major(major).has_vacuum_skip_stats() { ", SKIP_DATABASE_STATS" } else { "" };
    let toast =
        if has_toast || !server::Major(major).has_vacuum_toast() { "" } else { ", PROCESS_TOAST OFF" };
    format!("VACUUM (INDEX_CLEANUP ON, TRUNCATE ON, SKIP_LOCKED{statistics}{toast}) {}", names.join(", "))
}

/// Whether some file of an emptied table may still have pages, because the log doesn't show that the reset removed all of them.
/// `filled` has the files that had pages before the reset, and `changes` are those of the reset.
pub(crate) fn has_pages(
    changes: &HashMap<RelationFile, FileChanges>,
    filled: &HashSet<RelationFile>,
    is_emptied: impl Fn(u32) -> bool,
) -> bool {
    let is_filled = |file: &RelationFile| changes.get(file).is_none_or(|change| change.filled);
    filled.iter().chain(changes.keys()).any(|file| is_emptied(file.number) && is_filled(file))
}

/// Returns SQL that counts the tables that still have pages, be it in the table itself or in its TOAST table.
pub(crate) fn count_filled(tables: &[(u32, &Table)]) -> String {
    let oids: Vec<_> = tables.iter().map(|(oid, _)| oid.to_string()).collect();
    format!(
        "SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.oid[]) \
         AND (pg_catalog.pg_relation_size(c.oid) OPERATOR(pg_catalog.>) 0 \
           OR pg_catalog.pg_relation_size(c.reltoastrelid) OPERATOR(pg_catalog.>) 0); ",
        oids.join(",")
    )
}

/// Returns SQL that restores the planner's numbers for these tables from the template. It has one statement for all relations
/// with the same numbers. Most relations of a template have, so there are few statements, which take half as long as a join
/// would.
pub(crate) fn restore_planner(catalog: &TemplateCatalog, tables: &[(u32, &Table)]) -> String {
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for oid in tables.iter().flat_map(|(_, table)| &table.relations) {
        if let Some(class) = catalog.classes.get(oid) {
            groups.entry(&class.planner).or_default().push(oid.to_string());
        }
    }
    let columns = planner_columns(catalog.major).collect::<Vec<_>>().join(", ");
    let update = |(planner, oids): (&str, Vec<String>)| {
        format!(
            "UPDATE pg_catalog.pg_class SET ({columns}) = ROW({planner}) \
             WHERE oid OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.oid[]) \
             AND NOT ROW({columns}) OPERATOR(pg_catalog.=) ROW({planner}); ",
            oids.join(",")
        )
    };
    groups.into_iter().map(update).collect()
}
