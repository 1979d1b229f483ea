//! Reads the sizes that relations had before the migration.

use std::collections::HashMap;

use pgwire::begins_with;
use plans::RelationName;
use report::as_f64;
use server::{AdminConnection, identifier};

use super::catalog::{Relations, kind};
use super::error::{During, LaboratoryError};
use crate::{Observations, RelationSize};

/// Maximum number of rows to count in a table.
const COUNTED: u32 = 1_000_000;

/// Keywords that start a query.
const QUERIES: [&str; 6] = ["select", "with", "fetch", "values", "table", "declare"];
/// Keywords that start another statement that may contain a query.
const WITH_QUERIES: [&str; 7] = ["insert", "update", "delete", "merge", "do", "call", "execute"];

/// Lists tables, indexes and materialized views. Each index follows its table.
const RELATIONS: &str = "\
SELECT n.nspname, c.relname, c.relkind, tn.nspname, t.relname, \
 CASE WHEN c.relkind IN ('r', 'm', 'i') THEN pg_relation_size(c.oid) ELSE 0 END / 8192, \
 CASE WHEN c.reltoastrelid <> 0 THEN pg_relation_size(c.reltoastrelid) ELSE 0 END / 8192, \
 greatest(c.reltuples, 0), c.relkind = 'p' OR c.relkind IN ('r', 'm') AND c.relispopulated, c.oid \
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
LEFT JOIN pg_index x ON x.indexrelid = c.oid LEFT JOIN pg_class t ON t.oid = x.indrelid \
LEFT JOIN pg_namespace tn ON tn.oid = t.relnamespace \
WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p', 'm', 'f', 'i', 'I') AND n.nspname <> 'pg_toast' \
 AND c.relpersistence <> 't' \
ORDER BY x.indexrelid IS NOT NULL, n.nspname, c.relname";

/// Sizes of the relations in all databases.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    sizes: Vec<RelationSize>,
    /// Positions in `sizes`, keyed by database and object identifier.
    places: HashMap<(String, u32), usize>,
}

impl Sizes {
    /// Returns all sizes.
    pub(super) fn into_sizes(self) -> Vec<RelationSize> {
        self.sizes
    }

    /// Returns true if the sizes of a database have been read.
    pub(super) fn has(&self, database: &str) -> bool {
        self.sizes.iter().any(|size| size.database == database)
    }

    /// Adds renamed relations under their new names too, and the indexes of renamed tables.
    pub(super) fn note_renamed(&mut self, database: &str, committed: &Relations) {
        for (oid, relation) in committed {
            let Some(place) = self.places.get(&(database.to_owned(), *oid)) else { continue };
            let size = &self.sizes[*place];
            if size.relation == relation.name && size.table == relation.table {
                continue;
            }
            let (name, table) = (relation.name.clone(), relation.table.clone());
            let renamed = RelationSize { relation: name.clone(), table, ..size.clone() };
            if self.sizes.contains(&renamed) {
                continue;
            }
            let is_index =
                |one: &&RelationSize| one.database == database && one.table.as_ref() == Some(&size.relation);
            let mut indexes: Vec<_> = self.sizes.iter().filter(is_index).cloned().collect();
            for index in &mut indexes {
                index.table = Some(name.clone());
            }
            self.sizes.push(renamed);
            self.sizes.extend(indexes);
        }
    }

    /// Reads the sizes in `database`, which the session is connected to.
    pub(super) fn read(
        &mut self,
        session: &mut AdminConnection,
        database: &str,
    ) -> Result<(), LaboratoryError> {
        let first = self.sizes.len();
        for row in session.query(RELATIONS).during("read the sizes of tables")? {
            let text = |column: usize| row.get(column).and_then(Option::as_deref);
            let name = |column: usize| {
                Some(RelationName { schema: text(column)?.to_owned(), name: text(column + 1)?.to_owned() })
            };
            let number = |column: usize| text(column).and_then(|text| text.parse().ok()).unwrap_or(0);
            let Some(relation) = name(0) else { continue };
            let letter = text(2).and_then(|letter| letter.chars().next()).unwrap_or_default();
            let table = name(3);
            let estimate = text(7).and_then(|rows| rows.parse().ok()).unwrap_or(0.0);
            let rows = match &table {
                Some(table) => self.sizes[first..]
                    .iter()
                    .find(|size| size.relation == *table)
                    .map_or(estimate, |size| size.rows),
                None if text(8) == Some("t") => count(session, &relation, letter, estimate),
                None => estimate,
            };
            if let Some(oid) = text(9).and_then(|oid| oid.parse().ok()) {
                self.places.insert((database.to_owned(), oid), self.sizes.len());
            }
            self.sizes.push(RelationSize {
                database: database.to_owned(),
                relation,
                kind: kind(letter),
                table,
                pages: number(5),
                toast_pages: number(6),
                rows,
            });
        }
        Ok(())
    }
}

/// Counts a table's rows. Returns `estimate` if there are too many rows or the count takes too long.
fn count(session: &mut AdminConnection, relation: &RelationName, letter: char, estimate: f64) -> f64 {
    let only = if letter == 'p' { "" } else { "ONLY " };
    let (schema, name) = (identifier(&relation.schema), identifier(&relation.name));
    let sql =
        format!("SELECT count(*) FROM (SELECT FROM {only}{schema}.{name} LIMIT {}) AS rows", COUNTED + 1);
    let counted = session.query(&sql).ok().and_then(|rows| rows.first()?.first()?.as_ref()?.parse().ok());
    match counted {
        Some(counted) if counted <= f64::from(COUNTED) => counted,
        Some(counted) => estimate.max(counted),
        None => estimate,
    }
}

/// Leaves out scans that a query ended early, for example because of LIMIT or EXISTS. DDL always reads all rows.
pub(super) fn leave_out_partial_scans(observations: &mut Observations) {
    let Observations { statements, sizes, .. } = observations;
    for statement in statements {
        let is_query = begins_with(&statement.sql, &QUERIES);
        if !is_query && !begins_with(&statement.sql, &WITH_QUERIES) {
            continue;
        }
        let database = &statement.database;
        let rows = |relation: &RelationName| {
            let size = sizes.iter().find(|size| size.database == *database && size.relation == *relation);
            size.map_or(0.0, |size| size.rows)
        };
        statement.scans.retain(|scan| {
            // A block may scan the table in several queries. A single complete scan is enough, so the block needs only
            // that many rows.
            let scans = if is_query { as_f64(scan.scans) } else { 1.0 };
            as_f64(scan.rows) >= scans * rows(&scan.relation) / 2.0
        });
    }
}

#[cfg(test)]
mod tests {
    use plans::RelationKind;

    use super::*;
    use crate::{ObservedStatement, TableScan};

    #[test]
    fn scans_that_stop_early_are_left_out() {
        let relation = RelationName { schema: "public".to_owned(), name: "t".to_owned() };
        let size = RelationSize {
            database: "app".to_owned(),
            relation: relation.clone(),
            kind: RelationKind::Table,
            table: None,
            pages: 10,
            toast_pages: 0,
            rows: 1000.0,
        };
        for (sql, scans, rows, is_kept) in [
            ("SELECT 1 FROM t LIMIT 1", 1, 1, false),
            ("SELECT count(*) FROM t", 1, 1000, true),
            ("DO $$ BEGIN PERFORM 1 FROM t LIMIT 1; END $$", 1, 1, false),
            ("CALL fill()", 3, 40, false),
            ("DO $$ BEGIN PERFORM 1 FROM t LIMIT 1; PERFORM count(*) FROM t; END $$", 2, 1001, true),
            ("EXECUTE p", 1, 1, false),
            ("INSERT INTO u SELECT * FROM t LIMIT 1", 1, 1, false),
            ("UPDATE u SET a = (SELECT max(b) FROM t)", 1, 1000, true),
            ("ALTER TABLE t ALTER a SET NOT NULL", 1, 700, true),
        ] {
            let scan = TableScan { relation: relation.clone(), scans, rows };
            let statement = ObservedStatement {
                database: "app".to_owned(),
                sql: sql.to_owned(),
                scans: vec![scan],
                ..ObservedStatement::default()
            };
            let sizes = vec![size.clone()];
            let mut observations =
                Observations { statements: vec![statement], sizes, ..Observations::default() };
            leave_out_partial_scans(&mut observations);
            assert_eq!(observations.statements[0].scans.len(), usize::from(is_kept), "{sql}");
        }
    }
}
