//! Determines the sizes of all files: the same sizes as in production where the statistics have them, and estimates for
//! indexes that only the template has.

use std::collections::HashMap;

use server::{AdminConnection, Rows};

use super::applied::Applied;
use super::error::{During, ScratchError};
use super::estimate::{KeyColumn, Tree};
use super::files::{Contents, Resize};
use super::pages::{HIGHEST, PAGE};
use crate::Statistics;
use crate::statistics::scaled;

/// Selects relations that have a file and belong to a table with statistics.
const RELATIONS: &str = "
SELECT r.oid, pg_relation_filepath(r.oid), m.ord, r.table_oid, a.amname, c.reltuples,
       c.relallvisible, pg_relation_size(r.oid) / 8192
FROM template_relation r JOIN pg_class c ON c.oid = r.oid LEFT JOIN pg_am a ON a.oid = c.relam
     LEFT JOIN relation_match m ON m.oid = r.oid
WHERE r.kind IN ('r', 'm', 'i')
      AND (CASE WHEN r.table_oid IS NULL THEN r.oid ELSE r.table_oid END) IN (SELECT oid FROM relation_match)
ORDER BY r.table_oid NULLS FIRST, r.oid";

/// Returns SQL that selects the columns of the B-trees that match `condition`.
pub(super) fn key_columns(condition: &str) -> String {
    format!(
        "SELECT i.indexrelid, i.indnkeyatts, a.attlen, \
         CASE a.attalign WHEN 'c' THEN 1 WHEN 's' THEN 2 WHEN 'i' THEN 4 ELSE 8 END, \
         coalesce(s.stawidth, CASE WHEN a.attlen > 0 THEN a.attlen ELSE 32 END), \
         coalesce(s.stanullfrac, 0), coalesce(s.stadistinct, 0), \
         coalesce(substring(array_to_string(c.reloptions, ',') FROM 'fillfactor=([0-9]+)'), '90'), \
         i.indnatts = i.indnkeyatts \
         AND coalesce(array_to_string(c.reloptions, ',') !~ 'deduplicate_items=(off|false|no|0)', true), \
         a.atttypid IN (700, 701, 1700, 1231, 1021, 1022) OR t.typtype IN ('c', 'r', 'm') OR t.typcategory = 'A' \
         FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam AND m.amname = 'btree' \
         CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(number, position) \
         JOIN pg_attribute a ON a.attrelid = i.indexrelid AND a.attnum = k.position \
         JOIN pg_type t ON t.oid = a.atttypid \
         LEFT JOIN LATERAL (SELECT * FROM pg_statistic s \
           WHERE s.starelid = CASE WHEN k.number = 0 THEN i.indexrelid ELSE i.indrelid END \
           AND s.staattnum = CASE WHEN k.number = 0 THEN k.position ELSE k.number END ORDER BY s.stainherit LIMIT 1) s ON true \
         WHERE {condition} ORDER BY i.indexrelid, k.position"
    )
}

/// Converts the result of [`key_columns`] into a tree for each index. The caller sets the row counts.
pub(super) fn trees(rows: &Rows) -> HashMap<u32, Tree> {
    let mut trees: HashMap<u32, Tree> = HashMap::new();
    for row in rows {
        let [oid, keys, length, alignment, width, nulls, distinct, fill, shares, lossy] = &row[..] else {
            continue;
        };
        let tree = trees.entry(number(oid.as_ref())).or_insert_with(|| Tree {
            columns: Vec::new(),
            key_columns: number(keys.as_ref()),
            rows: 0.0,
            table_rows: 0.0,
            fill: number(fill.as_ref()),
            deduplicates: shares.as_deref() == Some("t"),
        });
        // Values of these types can be equal but not identical, such as 1.0 and 1.00, so PostgreSQL doesn't deduplicate
        // them.
        tree.deduplicates &= lossy.as_deref() != Some("t");
        tree.columns.push(KeyColumn {
            length: number(length.as_ref()),
            alignment: number(alignment.as_ref()),
            width: number(width.as_ref()),
            null_fraction: number(nulls.as_ref()),
            distinct: number(distinct.as_ref()),
        });
    }
    trees
}

/// Parses a number from a query result. A missing number is 0.
pub(super) fn number<T: std::str::FromStr + Default>(text: Option<&String>) -> T {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Returns the new sizes of all files, and counts them in `applied`.
pub(super) fn decide(
    session: &mut AdminConnection,
    statistics: &Statistics,
    applied: &mut Applied,
) -> Result<Sizes, ScratchError> {
    let columns = key_columns("i.indrelid IN (SELECT oid FROM relation_match)");
    let mut trees = trees(&session.query(&columns).during("read the columns of indexes")?);
    let (mut tables, mut resizes) = (HashMap::<u32, Imported>::new(), Vec::new());
    for row in session.query(RELATIONS).during("read the sizes of relations")? {
        let [oid, Some(path), ord, table, method, rows, visible, present] = &row[..] else { continue };
        let oid = number(oid.as_ref());
        let matched = ord.as_ref().and_then(|ord| statistics.relations.get(ord.parse::<usize>().ok()?));
        if table.is_none() {
            let Some(matched) = matched else { continue };
            applied.tables += 1;
            applied.bytes += u64::from(matched.pages) * PAGE as u64;
            tables.insert(
                oid,
                Imported {
                    path: path.clone(),
                    pages: matched.pages,
                    relpages: matched.analyzed_pages.cast_signed(),
                    reltuples: number(rows.as_ref()),
                    relallvisible: number(visible.as_ref()),
                },
            );
            resizes.push(Resize { path: path.clone(), pages: matched.pages, contents: Contents::Zeros });
            continue;
        }
        let table = tables.get(&number(table.as_ref()));
        let (table_pages, table_rows) = table.map_or((0, 0.0), |table| (table.pages, table.rows()));
        let tree = trees.remove(&oid).map(|tree: Tree| Tree { rows: table_rows, table_rows, ..tree });
        if let Some(matched) = matched {
            applied.indexes += 1;
            applied.bytes += u64::from(matched.pages) * PAGE as u64;
        }
        let (pages, height) = match (matched, &tree) {
            (Some(matched), Some(tree)) => {
                let known = matched.height.filter(|height| *height <= HIGHEST);
                (matched.pages, known.unwrap_or_else(|| tree.height(matched.pages)))
            }
            (Some(matched), None) => (matched.pages, 0),
            (None, Some(tree)) => tree.size(),
            (None, None) => (number::<u32>(present.as_ref()).max(guess(method.as_deref(), table_pages)), 0),
        };
        let contents = match method.as_deref() {
            Some("btree") => Contents::Tree { height: Some(height).filter(|_| pages > 1) },
            Some("brin") => Contents::Ranges { table_pages },
            _ => Contents::Kept,
        };
        resizes.push(Resize { path: path.clone(), pages, contents });
    }
    Ok(Sizes { resizes, tables })
}

/// New sizes of all files.
#[derive(Debug)]
pub(super) struct Sizes {
    /// New size and contents of each relation.
    pub(super) resizes: Vec<Resize>,
    /// Tables with production's size, by OID.
    pub(super) tables: HashMap<u32, Imported>,
}

/// A table with production's size, and its numbers in `pg_class`.
#[derive(Debug, Clone)]
pub(super) struct Imported {
    /// Path of the first segment, relative to the data directory.
    pub(super) path: String,
    /// Page count.
    pub(super) pages: u32,
    /// `relpages`, an unsigned number that PostgreSQL prints as signed.
    pub(super) relpages: i32,
    /// `reltuples`.
    pub(super) reltuples: f64,
    /// `relallvisible`.
    pub(super) relallvisible: i32,
}

impl Imported {
    /// Returns the row count as the planner estimates it.
    pub(super) fn rows(&self) -> f64 {
        scaled(self.reltuples, self.pages, self.relpages.cast_unsigned())
    }
}

/// Guesses the size in pages of an index that only the template has and that isn't a B-tree.
pub(super) fn guess(method: Option<&str>, table_pages: u32) -> u32 {
    match method {
        Some("brin") => 3 + table_pages / 128 / 200,
        _ => table_pages / 4,
    }
}
