//! Removes what deleted rows leave in a table: dead tuples and line pointers, which the next rows would reuse. Otherwise a test
//! could find its rows in a different order than in a new copy.
//!
//! VACUUM truncates a table without rows to zero pages. It also updates the planner's numbers, which pgfresh then restores from the
//! template.

use crate::reset::catalog::{Table, TemplateCatalog, planner_columns};

/// Returns SQL that removes all pages of tables without rows. No other session may work in the database in the meantime.
pub(crate) fn remove_pages(tables: &[(u32, &Table)], has_toast: bool, major: u32) -> String {
    let names: Vec<_> = tables.iter().map(|(_, table)| table.name.as_str()).collect();
    // The reset doesn't need the age of the database's oldest row, and finding it takes longer than everything else.
    let statistics = if major < 16 { "" } else { ", SKIP_DATABASE_STATS" };
    let toast = if has_toast || major < 14 { "" } else { ", PROCESS_TOAST OFF" };
    format!("VACUUM (INDEX_CLEANUP ON, TRUNCATE ON{statistics}{toast}) {}", names.join(", "))
}

/// Returns SQL that counts the tables that still have pages, including their TOAST tables.
pub(crate) fn count_filled(tables: &[(u32, &Table)]) -> String {
    let oids: Vec<_> = tables.iter().map(|(oid, _)| oid.to_string()).collect();
    format!(
        "SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.oid[]) \
         AND (pg_catalog.pg_relation_size(c.oid) OPERATOR(pg_catalog.>) 0 \
           OR pg_catalog.pg_relation_size(c.reltoastrelid) OPERATOR(pg_catalog.>) 0); ",
        oids.join(",")
    )
}

/// Returns SQL that restores the planner's numbers of tables from the template.
pub(crate) fn restore_planner(catalog: &TemplateCatalog, tables: &[(u32, &Table)]) -> String {
    if tables.is_empty() {
        return String::new();
    }
    let columns: Vec<_> = planner_columns(catalog.major).collect();
    let relations = tables.iter().flat_map(|(_, table)| &table.relations);
    let values = relations.filter_map(|oid| Some(format!("({oid}, {})", catalog.classes.get(oid)?.planner)));
    let list = |make: &dyn Fn(&&str) -> String, separator: &str| {
        columns.iter().map(make).collect::<Vec<_>>().join(separator)
    };
    format!(
        "UPDATE pg_catalog.pg_class c SET {} FROM (VALUES {}) t(oid, {}) \
         WHERE c.oid OPERATOR(pg_catalog.=) t.oid::pg_catalog.oid AND NOT ({}); ",
        list(&|column| format!("{column} = t.{column}"), ", "),
        values.collect::<Vec<_>>().join(", "),
        columns.join(", "),
        list(&|column| format!("c.{column} OPERATOR(pg_catalog.=) t.{column}"), " AND "),
    )
}
