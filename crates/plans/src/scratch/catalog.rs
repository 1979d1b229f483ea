//! Reads the tables of the scratch copy, for the search for indexes.

use std::collections::BTreeMap;

use super::Scratch;
use super::sizes::number;
use crate::{Catalog, CatalogColumn, CatalogIndex, CatalogTable, ExplainError, ForeignKey, RelationKind};

/// Selects the settings that affect whether a plan counts as expensive.
const SETTINGS: &str = "
SELECT name, current_setting(name), current_setting('server_version_num') FROM pg_catalog.pg_settings
WHERE name IN ('work_mem', 'hash_mem_multiplier', 'random_page_cost', 'seq_page_cost', 'effective_cache_size')";

/// Selects user tables. For partitions, includes the partitioned table.
const TABLES: &str = "
SELECT c.oid, n.nspname, c.relname, c.relkind, pn.nspname, p.relname,
       CASE WHEN c.relkind = 'p' THEN 0 ELSE pg_catalog.pg_relation_size(c.oid) / 8192 END,
       c.reltuples, c.relpages
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     LEFT JOIN pg_catalog.pg_inherits h ON h.inhrelid = c.oid AND c.relispartition
     LEFT JOIN pg_catalog.pg_class p ON p.oid = h.inhparent
     LEFT JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
WHERE c.relkind IN ('r', 'p', 'm') AND c.relpersistence <> 't'
      AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
ORDER BY n.nspname, c.relname";

const COLUMNS: &str = "
SELECT a.attrelid, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), s.stadistinct, s.stanullfrac
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
     JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     LEFT JOIN pg_catalog.pg_statistic s ON s.starelid = a.attrelid AND s.staattnum = a.attnum
          AND s.stainherit = (c.relkind = 'p')
WHERE c.relkind IN ('r', 'p', 'm') AND a.attnum > 0 AND NOT a.attisdropped
      AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
ORDER BY a.attrelid, a.attnum";

const INDEXES: &str = "
SELECT i.indrelid, n.nspname, c.relname, pg_catalog.pg_get_indexdef(c.oid), pn.nspname, p.relname, i.indisunique,
       i.indisreplident OR EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conindid = c.oid AND k.contype IN ('p', 'u', 'x')),
       CASE WHEN c.relkind = 'I' THEN 0 ELSE pg_catalog.pg_relation_size(c.oid) / 8192 END, c.reltuples
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
     JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     LEFT JOIN pg_catalog.pg_inherits h ON h.inhrelid = c.oid
     LEFT JOIN pg_catalog.pg_class p ON p.oid = h.inhparent
     LEFT JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
WHERE i.indisvalid AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
ORDER BY i.indrelid, n.nspname, c.relname";

/// Selects foreign keys, with a row for each pair of columns. Omits the copies of a constraint that partitions inherit.
const FOREIGN_KEYS: &str = "
SELECT k.conrelid, k.conname, a.attname, n.nspname, r.relname, b.attname
FROM pg_catalog.pg_constraint k
     CROSS JOIN LATERAL ROWS FROM (pg_catalog.unnest(k.conkey), pg_catalog.unnest(k.confkey)) WITH ORDINALITY u(own, other, position)
     JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.own
     JOIN pg_catalog.pg_attribute b ON b.attrelid = k.confrelid AND b.attnum = u.other
     JOIN pg_catalog.pg_class r ON r.oid = k.confrelid JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
WHERE k.contype = 'f' AND k.conparentid = 0
ORDER BY k.conrelid, k.conname, k.oid, u.position";

type Row = Vec<Option<String>>;

impl Scratch {
    /// Reads the tables. See [`crate::Planner::catalog`].
    pub(super) fn read_catalog(&mut self) -> Result<Catalog, ExplainError> {
        let mut catalog = Catalog::default();
        for row in self.session.query(&self.server, SETTINGS)? {
            catalog.server_version = number(row[2].as_ref());
            catalog.settings.insert(text(&row, 0), text(&row, 1));
        }
        let mut tables: BTreeMap<u32, CatalogTable> = BTreeMap::new();
        let mut order = Vec::new();
        for row in self.session.query(&self.server, TABLES)? {
            order.push(number::<u32>(row[0].as_ref()));
            tables.insert(number(row[0].as_ref()), table(&row));
        }
        for row in self.session.query(&self.server, COLUMNS)? {
            let Some(table) = tables.get_mut(&number(row[0].as_ref())) else { continue };
            table.columns.push(CatalogColumn {
                name: text(&row, 1),
                type_name: text(&row, 2),
                distinct: row[3].as_ref().and_then(|distinct| distinct.parse().ok()),
                null_fraction: number(row[4].as_ref()),
            });
        }
        for row in self.session.query(&self.server, INDEXES)? {
            let Some(table) = tables.get_mut(&number(row[0].as_ref())) else { continue };
            table.indexes.push(CatalogIndex {
                schema: text(&row, 1),
                name: text(&row, 2),
                definition: text(&row, 3),
                parent: pair(&row, 4),
                unique: row[6].as_deref() == Some("t"),
                constraint: row[7].as_deref() == Some("t"),
                pages: number(row[8].as_ref()),
                rows: number(row[9].as_ref()),
            });
        }
        for row in self.session.query(&self.server, FOREIGN_KEYS)? {
            let Some(table) = tables.get_mut(&number(row[0].as_ref())) else { continue };
            add_foreign_key(&mut table.foreign_keys, &row);
        }
        catalog.tables = order.iter().filter_map(|oid| tables.remove(oid)).collect();
        Ok(catalog)
    }
}

fn table(row: &Row) -> CatalogTable {
    let (pages, rows, analyzed) =
        (number::<u64>(row[6].as_ref()), number::<f64>(row[7].as_ref()), row[8].as_ref());
    // `relpages` is unsigned, but PostgreSQL prints it as signed.
    let analyzed = number::<i64>(analyzed).rem_euclid(1 << 32);
    let kind = match row[3].as_deref() {
        Some("p") => RelationKind::PartitionedTable,
        Some("m") => RelationKind::MaterializedView,
        _ => RelationKind::Table,
    };
    #[allow(clippy::cast_precision_loss)]
    let scaled = if analyzed > 0 && pages > 0 && rows > 0.0 {
        (rows / analyzed as f64 * pages as f64).round()
    } else {
        rows
    };
    CatalogTable {
        schema: text(row, 1),
        name: text(row, 2),
        kind,
        parent: pair(row, 4),
        pages,
        rows: scaled,
        columns: Vec::new(),
        indexes: Vec::new(),
        foreign_keys: Vec::new(),
    }
}

/// Adds a pair of columns to the last foreign key if its name matches. Otherwise adds a new foreign key.
fn add_foreign_key(keys: &mut Vec<ForeignKey>, row: &Row) {
    let (name, column, other) = (text(row, 1), text(row, 2), text(row, 5));
    match keys.last_mut() {
        Some(last) if last.name == name => {
            last.columns.push(column);
            last.referenced_columns.push(other);
        }
        _ => keys.push(ForeignKey {
            name,
            columns: vec![column],
            references: (text(row, 3), text(row, 4)),
            referenced_columns: vec![other],
        }),
    }
}

fn text(row: &Row, column: usize) -> String {
    row[column].clone().unwrap_or_default()
}

fn pair(row: &Row, column: usize) -> Option<(String, String)> {
    Some((row[column].clone()?, row[column + 1].clone()?))
}
