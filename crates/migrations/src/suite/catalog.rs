//! Reads the catalogs of a database: relations, partitions, indexes, foreign keys, triggers and functions.

use std::collections::{BTreeSet, HashMap, HashSet};

use plans::RelationName;
use server::{AdminConnection, Rows, SessionError};

/// Lists the users' relations (tables, views, indexes and sequences) with the partitioned table of each partition and
/// the table of each index.
const RELATIONS: &str = "SELECT c.oid, n.nspname, c.relname, c.relkind, \
     (SELECT inhparent FROM pg_catalog.pg_inherits WHERE inhrelid = c.oid AND c.relispartition LIMIT 1), i.indrelid \
     FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid \
     WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'i', 'I', 'S') AND c.relpersistence <> 't' \
     ORDER BY c.oid";
/// SQL that returns the names of the columns in an array, one per line. If any of them is generated, returns all
/// columns.
macro_rules! names_of {
    ($relation:literal, $numbers:literal) => {
        concat!(
            "pg_catalog.array_to_string(ARRAY(SELECT a.attname FROM pg_catalog.pg_attribute a WHERE a.attrelid = ",
            $relation,
            " AND a.attnum > 0 AND (a.attnum = ANY (",
            $numbers,
            ") OR EXISTS (SELECT FROM pg_catalog.pg_attribute g WHERE g.attrelid = a.attrelid AND g.attnum = ANY (",
            $numbers,
            ") AND g.attgenerated <> ''))), E'\\n')"
        )
    };
}
const FOREIGN_KEYS: &str = concat!(
    "SELECT conname, conrelid, confrelid, confupdtype, confdeltype, ",
    names_of!("conrelid", "conkey"),
    ", ",
    names_of!("confrelid", "confkey"),
    ", EXISTS (SELECT FROM pg_catalog.pg_constraint p WHERE p.oid = c.conparentid AND p.conrelid = c.conrelid)",
    " FROM pg_catalog.pg_constraint c WHERE contype = 'f' ORDER BY conname, oid"
);
/// Lists the users' enabled triggers whose functions may contain SQL.
const TRIGGERS: &str = concat!(
    "SELECT t.tgname, t.tgrelid, t.tgtype, ",
    names_of!("t.tgrelid", "t.tgattr"),
    " FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid \
     JOIN pg_catalog.pg_language l ON l.oid = p.prolang \
     WHERE NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND l.lanname NOT IN ('internal', 'c') \
     ORDER BY t.tgname, t.oid"
);
const FUNCTIONS: &str = "SELECT DISTINCT p.proname FROM pg_catalog.pg_proc p \
     JOIN pg_catalog.pg_language l ON l.oid = p.prolang WHERE p.oid >= 16384 AND l.lanname NOT IN ('internal', 'c')";
/// Lists the NOT NULL columns of tables that don't have a BEFORE INSERT trigger for each row, which might fill the
/// columns.
const NOT_NULL: &str = "SELECT a.attrelid, a.attnum, a.attname FROM pg_catalog.pg_attribute a \
     JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
     WHERE a.attnotnull AND a.attnum > 0 AND NOT a.attisdropped AND c.oid >= 16384 AND c.relkind IN ('r', 'p') \
     AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND t.tgenabled IN ('O', 'A') \
     AND t.tgtype & 7 = 7)";

/// Bits of `pg_trigger.tgtype`.
const ON_INSERT: i32 = 4;
const ON_DELETE: i32 = 8;
const ON_UPDATE: i32 = 16;

/// The relations of a database and their dependencies. Numbers are object identifiers.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    relations: HashMap<u32, Relation>,
    by_name: HashMap<RelationName, u32>,
    partitions: HashMap<u32, Vec<u32>>,
    indexes: HashMap<u32, Vec<u32>>,
    pub(super) foreign_keys: Vec<ForeignKey>,
    triggers: Vec<Trigger>,
    functions: HashSet<String>,
}

#[derive(Debug)]
struct Relation {
    name: RelationName,
    /// `pg_class.relkind`.
    kind: String,
    /// Partitioned table that the relation is a partition of. `None` if it isn't a partition.
    parent: Option<u32>,
}

/// A foreign key. PostgreSQL stores a separate foreign key for each partition of either table.
#[derive(Debug)]
pub(super) struct ForeignKey {
    pub(super) name: String,
    pub(super) table: u32,
    pub(super) referenced: u32,
    /// `confupdtype` and `confdeltype`: `a` NO ACTION, `r` RESTRICT, `c` CASCADE, `n` SET NULL, `d` SET DEFAULT.
    pub(super) on_update: String,
    pub(super) on_delete: String,
    pub(super) columns: BTreeSet<String>,
    pub(super) referenced_columns: BTreeSet<String>,
    /// Whether this foreign key refers to a single partition, in addition to the foreign key that refers to the whole
    /// partitioned table.
    pub(super) is_of_partition: bool,
}

#[derive(Debug)]
struct Trigger {
    name: String,
    table: u32,
    events: i32,
    /// Columns of an UPDATE OF trigger. Empty if the trigger fires for all columns.
    columns: BTreeSet<String>,
}

/// Columns that an UPDATE sets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Columns {
    /// Possibly any column, because the statement's text doesn't tell which.
    Any,
    /// Only these columns.
    Only(BTreeSet<String>),
}

impl Columns {
    pub(super) fn touch(&self, others: &BTreeSet<String>) -> bool {
        match self {
            Self::Any => true,
            Self::Only(names) => !names.is_disjoint(others),
        }
    }
}

/// A change of rows in a table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Change {
    Insert,
    Update(Columns),
    Delete,
}

impl Catalog {
    /// Reads the catalogs of the session's database.
    pub(super) fn read(connection: &mut AdminConnection) -> Result<Self, SessionError> {
        let mut catalog = Self::default();
        for row in connection.query(RELATIONS)? {
            catalog.add_relation(row);
        }
        catalog.foreign_keys =
            connection.query(FOREIGN_KEYS)?.into_iter().filter_map(ForeignKey::of).collect();
        catalog.triggers = connection.query(TRIGGERS)?.into_iter().filter_map(Trigger::of).collect();
        catalog.functions = connection.query(FUNCTIONS)?.into_iter().flatten().flatten().collect();
        Ok(catalog)
    }

    fn add_relation(&mut self, row: Vec<Option<String>>) -> Option<()> {
        let [oid, schema, name, kind, parent, table] = <[_; 6]>::try_from(row).ok()?;
        let oid = number(oid)?;
        let name = RelationName { schema: schema?, name: name? };
        let (parent, kind) = (number(parent), kind?);
        if let Some(table) = number(table) {
            self.indexes.entry(table).or_default().push(oid);
        } else if let Some(parent) = parent {
            self.partitions.entry(parent).or_default().push(oid);
        }
        self.by_name.insert(name.clone(), oid);
        self.relations.insert(oid, Relation { name, kind, parent });
        Some(())
    }

    /// Returns a relation's name. `None` for temporary and unknown relations.
    pub(super) fn name(&self, oid: u32) -> Option<&RelationName> {
        self.relations.get(&oid).map(|relation| &relation.name)
    }

    /// Returns the object identifier of the relation named `name`.
    pub(super) fn number(&self, name: &RelationName) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Returns true if the relation is a partitioned table.
    pub(super) fn is_partitioned(&self, oid: u32) -> bool {
        self.has_kind(oid, "p")
    }

    /// Returns true if the relation is a view.
    pub(super) fn is_view(&self, oid: u32) -> bool {
        self.has_kind(oid, "v")
    }

    fn has_kind(&self, oid: u32, kind: &str) -> bool {
        self.relations.get(&oid).is_some_and(|relation| relation.kind == kind)
    }

    /// Returns a table's partitions at all levels.
    pub(super) fn partitions(&self, oid: u32) -> Vec<u32> {
        let mut all = self.partitions.get(&oid).cloned().unwrap_or_default();
        let mut at = 0;
        while let Some(partition) = all.get(at) {
            all.extend(self.partitions.get(partition).cloned().unwrap_or_default());
            at += 1;
        }
        all
    }

    /// Returns the partitioned tables above a partition, starting with the nearest.
    pub(super) fn ancestors(&self, oid: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(self.parent(oid), |oid| self.parent(*oid))
    }

    fn parent(&self, oid: u32) -> Option<u32> {
        self.relations.get(&oid)?.parent
    }

    pub(super) fn indexes(&self, oid: u32) -> &[u32] {
        self.indexes.get(&oid).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the names of the triggers that fire when this table changes.
    pub(super) fn triggers(&self, oid: u32, change: &Change) -> impl Iterator<Item = &str> {
        let matches = move |trigger: &&Trigger| {
            let Trigger { table, events, columns, .. } = trigger;
            *table == oid
                && match change {
                    Change::Insert => events & ON_INSERT != 0,
                    Change::Delete => events & ON_DELETE != 0,
                    Change::Update(set) => {
                        events & ON_UPDATE != 0 && (columns.is_empty() || set.touch(columns))
                    }
                }
        };
        self.triggers.iter().filter(matches).map(|trigger| trigger.name.as_str())
    }

    /// Returns true if a user created a function with this name in a language that can contain SQL.
    pub(super) fn has_function(&self, name: &str) -> bool {
        self.functions.contains(name)
    }
}

/// Names of NOT NULL columns, keyed by the object identifier of their table and their position, starting at 1.
pub(super) type NotNullColumns = HashMap<(u32, usize), String>;

/// Reads the NOT NULL columns of the session's database.
pub(super) fn not_null_columns(connection: &mut AdminConnection) -> Result<NotNullColumns, SessionError> {
    let rows: Rows = connection.query(NOT_NULL)?;
    let column = |row: Vec<Option<String>>| {
        let [table, position, name] = <[_; 3]>::try_from(row).ok()?;
        Some(((number(table)?, position?.parse().ok()?), name?))
    };
    Ok(rows.into_iter().filter_map(column).collect())
}

impl ForeignKey {
    fn of(row: Vec<Option<String>>) -> Option<Self> {
        let [name, table, referenced, on_update, on_delete, columns, referenced_columns, is_of_partition] =
            <[_; 8]>::try_from(row).ok()?;
        Some(Self {
            name: name?,
            table: number(table)?,
            referenced: number(referenced)?,
            on_update: on_update?,
            on_delete: on_delete?,
            columns: lines(columns),
            referenced_columns: lines(referenced_columns),
            is_of_partition: is_of_partition? == "t",
        })
    }
}

impl Trigger {
    fn of(row: Vec<Option<String>>) -> Option<Self> {
        let [name, table, events, columns] = <[_; 4]>::try_from(row).ok()?;
        Some(Self {
            name: name?,
            table: number(table)?,
            events: events?.parse().ok()?,
            columns: lines(columns),
        })
    }
}

fn number(value: Option<String>) -> Option<u32> {
    value?.parse().ok()
}

fn lines(value: Option<String>) -> BTreeSet<String> {
    value.unwrap_or_default().lines().map(str::to_owned).collect()
}
