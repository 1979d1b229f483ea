//! Lists the relations whose rows a comparison reads: tables, partitioned tables, materialized views and large
//! objects. Also determines the columns that pair the rows of the two sides.
//!
//! A partitioned table counts as a single relation, which pgfresh reads through the root. A row that moved to another
//! partition is therefore an updated row. With old-style inheritance, each table is read separately. Temporary tables
//! and the rows of foreign tables are ignored.

use std::collections::{BTreeMap, HashMap};

use server::identifier;

use crate::DiffError;
use crate::row_texts::texts;
use crate::session::Reader;

/// Query for relations. `pg_relation_size` and `pg_partition_tree` would wait for locks, so the query returns the size
/// of each relation's first file instead. Relations with an oid below 16384 come from initdb. Source:
/// `FirstNormalObjectId` in `src/include/access/transam.h`.
const RELATIONS: &str = "WITH RECURSIVE tree (root, oid) AS ( \
      SELECT oid, oid FROM pg_class WHERE relkind = 'p' AND NOT relispartition \
      UNION ALL SELECT t.root, i.inhrelid FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid \
    ), partitions AS ( \
      SELECT t.root, bool_or(c.relkind = 'f') AS are_foreign, \
        sum((pg_stat_file(pg_relation_filepath(c.oid), true)).size) AS size \
      FROM tree t JOIN pg_class c ON c.oid = t.oid GROUP BY t.root \
    ) SELECT c.oid, quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relkind, c.relispopulated, \
      p.are_foreign, coalesce(p.size, (pg_stat_file(pg_relation_filepath(c.oid), true)).size) \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN partitions p ON p.root = c.oid \
    WHERE c.relkind IN ('r', 'p', 'm') AND NOT c.relispartition AND c.relpersistence <> 't' AND c.oid >= 16384 \
    OR c.oid = 'pg_largeobject'::regclass";

const COLUMNS: &str = "SELECT a.attrelid, a.attname, a.atttypid = 'bytea'::regtype \
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
    WHERE c.relkind IN ('r', 'p', 'm') AND (c.oid >= 16384 OR c.oid = 'pg_largeobject'::regclass) \
    AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum";

/// Query for primary key columns in order, without included columns. Before version 14, PostgreSQL's own catalogs
/// don't have primary keys.
const KEYS: &str = "SELECT i.indrelid, a.attname, CASE \
      WHEN a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'oid'::regtype) THEN 'n' \
      WHEN a.atttypid = 'uuid'::regtype THEN 't' ELSE 'b' END \
    FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k(number, at) \
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number \
    WHERE i.indisvalid AND k.at <= i.indnkeyatts AND (i.indisprimary AND i.indrelid >= 16384 \
      OR i.indisunique AND i.indrelid = 'pg_largeobject'::regclass) ORDER BY i.indrelid, k.at";

/// A relation with comparable rows.
#[derive(Debug, Clone)]
pub(crate) struct Relation {
    /// The relation in a `FROM` clause, without the tables that inherit from it.
    pub(crate) source: String,
    /// True if the relation has readable rows. A materialized view doesn't have any until PostgreSQL first fills it.
    pub(crate) is_populated: bool,
    /// True if some of the relation's rows are on other servers.
    pub(crate) is_foreign: bool,
    /// Total size of the relation's file or of its partitions' files, in bytes.
    pub(crate) bytes: u64,
    pub(crate) columns: Vec<TableColumn>,
    pub(crate) key: Vec<KeyColumn>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableColumn {
    pub(crate) name: String,
    pub(crate) is_bytea: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyColumn {
    pub(crate) name: String,
    pub(crate) order: KeyOrder,
}

/// A key column's order in SQL. The merge can reproduce each of these orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    /// Numeric order, which is also the order of the index.
    Number,
    /// Text order, which is also the order of the index.
    Text,
    /// Byte order of the text, for all types and collations that the other two variants don't cover.
    Bytes,
}

impl KeyColumn {
    /// Returns the SQL expression for the select list and for ORDER BY.
    pub(crate) fn expression(&self) -> String {
        let column = format!("t.{}", identifier(&self.name));
        match self.order {
            KeyOrder::Number | KeyOrder::Text => column,
            KeyOrder::Bytes => format!("convert_to({column}::text, getdatabaseencoding())"),
        }
    }
}

/// Reads all of a database's relations, keyed by name.
pub(crate) fn relations(reader: &mut Reader) -> Result<BTreeMap<String, Relation>, DiffError> {
    let mut columns: HashMap<String, Vec<TableColumn>> = HashMap::new();
    for row in reader.query(COLUMNS)? {
        let mut next = texts(row);
        columns.entry(next()).or_default().push(TableColumn { name: next(), is_bytea: next() == "t" });
    }
    let mut keys: HashMap<String, Vec<KeyColumn>> = HashMap::new();
    for row in reader.query(KEYS)? {
        let mut next = texts(row);
        let (oid, name) = (next(), next());
        let order = match next().as_str() {
            "n" => KeyOrder::Number,
            "t" => KeyOrder::Text,
            _ => KeyOrder::Bytes,
        };
        keys.entry(oid).or_default().push(KeyColumn { name, order });
    }
    let mut found = BTreeMap::new();
    for row in reader.query(RELATIONS)? {
        let mut next = texts(row);
        let (oid, name, kind) = (next(), next(), next());
        let relation = Relation {
            source: if kind == "r" { format!("ONLY {name}") } else { name.clone() },
            is_populated: next() == "t",
            is_foreign: next() == "t",
            bytes: next().parse().unwrap_or(0),
            columns: columns.remove(&oid).unwrap_or_default(),
            key: keys.remove(&oid).unwrap_or_default(),
        };
        found.insert(name, relation);
    }
    Ok(found)
}

/// The columns that pair and compare the rows of two tables.
#[derive(Debug)]
pub(crate) struct Matching {
    /// Columns that exist in both tables, in the order of the database's table.
    pub(crate) columns: Vec<TableColumn>,
    /// Key columns that pair the rows of the two tables. Empty if pgfresh compares whole rows.
    pub(crate) key: Vec<KeyColumn>,
}

impl Matching {
    /// Returns SQL for a row of the table `t` as text. A cast would be shorter, but users can define their own casts.
    pub(crate) fn row(&self) -> String {
        let columns: Vec<_> =
            self.columns.iter().map(|column| format!("t.{}", identifier(&column.name))).collect();
        format!("textin(record_out(ROW({})))", columns.join(", "))
    }

    /// Determines the columns for a table that may exist on only one side.
    pub(crate) fn of(template: Option<&Relation>, database: Option<&Relation>) -> Self {
        let (old, new) = match (template, database) {
            (Some(old), Some(new)) => (old, new),
            (Some(one), None) | (None, Some(one)) => {
                return Self { columns: one.columns.clone(), key: one.key.clone() };
            }
            (None, None) => return Self { columns: Vec::new(), key: Vec::new() },
        };
        let is_in_old = |column: &&TableColumn| old.columns.iter().any(|other| other.name == column.name);
        let columns = new.columns.iter().filter(is_in_old).cloned().collect();
        // If the key itself changed, it can't pair the rows.
        let key = if old.key == new.key { new.key.clone() } else { Vec::new() };
        Self { columns, key }
    }
}
