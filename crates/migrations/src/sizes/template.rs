//! Reads the template's columns, indexes and partitions, so that pgfresh can estimate row sizes.

use std::collections::BTreeMap;

use plans::RelationName;
use server::{AdminConnection, Rows, SessionError};

/// SQL that returns the width of a value. The planner assumes this width for a column without statistics. Source:
/// `get_typavgwidth` in `lsyscache.c`.
macro_rules! width {
    ($attribute:literal, $statistics:literal) => {
        concat!(
            "coalesce(nullif(",
            $statistics,
            ".stawidth, 0), CASE WHEN ",
            $attribute,
            ".attlen > 0 THEN ",
            $attribute,
            ".attlen \
             WHEN ",
            $attribute,
            ".atttypid IN (1042, 1043) AND ",
            $attribute,
            ".atttypmod BETWEEN 5 AND 36 THEN ",
            $attribute,
            ".atttypmod - 4 \
             WHEN ",
            $attribute,
            ".atttypid IN (1042, 1043) AND ",
            $attribute,
            ".atttypmod > 36 \
             THEN 32 + (least(",
            $attribute,
            ".atttypmod - 4, 1000) - 32) / 2 ELSE 32 END)"
        )
    };
}

/// Lists the columns of all user tables.
const COLUMNS: &str = concat!(
    "SELECT n.nspname, c.relname, a.attname, ",
    width!("a", "s"),
    " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
     LEFT JOIN pg_catalog.pg_statistic s ON s.starelid = c.oid AND s.staattnum = a.attnum AND NOT s.stainherit \
     WHERE c.relkind IN ('r', 'p', 'm') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' \
     ORDER BY c.oid, a.attnum"
);

/// Lists the columns of all user indexes. The name is empty for an expression.
const INDEXES: &str = concat!(
    "SELECT n.nspname, c.relname, t.relname, m.amname, coalesce(a.attname, ''), ",
    width!("x", "s"),
    " FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid \
     JOIN pg_catalog.pg_class t ON t.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace \
     JOIN pg_catalog.pg_am m ON m.oid = c.relam \
     CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::pg_catalog.int2[]) WITH ORDINALITY k(number, position) \
     JOIN pg_catalog.pg_attribute x ON x.attrelid = i.indexrelid AND x.attnum = k.position \
     LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number AND k.number > 0 \
     LEFT JOIN pg_catalog.pg_statistic s ON s.starelid = i.indrelid AND s.staattnum = k.number AND NOT s.stainherit \
     WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' ORDER BY c.oid, k.position"
);

/// Lists the leaf partitions of all partitioned tables, once for each table above them.
const LEAVES: &str = "\
    SELECT pn.nspname, p.relname, ln.nspname, l.relname FROM pg_catalog.pg_class p \
    JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace \
    CROSS JOIN LATERAL pg_catalog.pg_partition_tree(p.oid) t JOIN pg_catalog.pg_class l ON l.oid = t.relid \
    JOIN pg_catalog.pg_namespace ln ON ln.oid = l.relnamespace \
    WHERE p.relkind = 'p' AND t.isleaf AND l.relkind = 'r' ORDER BY 1, 2, 3, 4";

/// A template's tables. They are the basis for estimates of sizes that the statistics don't contain.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TemplateTables {
    /// Average widths of the columns of each table, in bytes.
    pub(super) columns: BTreeMap<RelationName, BTreeMap<String, f64>>,
    /// Indexes, keyed by name.
    pub(super) indexes: BTreeMap<RelationName, TemplateIndex>,
    /// Leaf partitions, keyed by partitioned table. Only leaves store rows.
    pub(super) leaves: BTreeMap<RelationName, Vec<RelationName>>,
}

/// An index of the template.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TemplateIndex {
    pub(super) table: String,
    /// Access method, such as `btree`.
    pub(super) method: String,
    /// Columns, with the widths of their values. The name is empty for an expression.
    pub(super) columns: Vec<(String, f64)>,
}

impl TemplateTables {
    /// Reads the catalogs of a database that is a copy of the template.
    ///
    /// # Errors
    ///
    /// Returns an error if the session fails.
    pub fn read(session: &mut AdminConnection) -> Result<Self, SessionError> {
        let mut tables = Self::default();
        for row in session.query(COLUMNS)? {
            let [Some(schema), Some(table), Some(column), width] = &row[..] else { continue };
            let table = tables.columns.entry(relation(schema, table)).or_default();
            table.insert(column.clone(), number(width.as_ref()));
        }
        tables.add_indexes(&session.query(INDEXES)?);
        for row in session.query(LEAVES)? {
            let [Some(schema), Some(table), Some(leaf_schema), Some(leaf)] = &row[..] else { continue };
            let leaves = tables.leaves.entry(relation(schema, table)).or_default();
            leaves.push(relation(leaf_schema, leaf));
        }
        Ok(tables)
    }

    fn add_indexes(&mut self, rows: &Rows) {
        for row in rows {
            let [Some(schema), Some(name), Some(table), Some(method), Some(column), width] = &row[..] else {
                continue;
            };
            let index = self.indexes.entry(relation(schema, name)).or_default();
            (index.table, index.method) = (table.clone(), method.clone());
            index.columns.push((column.clone(), number(width.as_ref())));
        }
    }
}

fn relation(schema: &str, name: &str) -> RelationName {
    RelationName { schema: schema.to_owned(), name: name.to_owned() }
}

/// Parses a number from a result. Returns 0 if it is missing.
fn number(text: Option<&String>) -> f64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}
