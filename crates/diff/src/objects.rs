//! Compares definitions. For each object, the comparison covers everything that the two databases' catalogs
//! contain about it.

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog_rows::{self, Side};
use crate::catalogs::catalogs;
use crate::entries::{Entries, Entry, PropertyKey, entries};
use crate::names::{Names, ObjectKey};
use crate::relations::TableColumn;
use crate::row_texts::texts;
use crate::row_values::{self, Cell};
use crate::session::{ReadError, Reader};
use contract::{FieldChange, ObjectChange, ObjectChangeKind};

const DEFINITIONS: &str = include_str!("objects.sql");
/// Maximum length of a definition in a result, in characters.
const MAX_DEFINITION_LENGTH: usize = 400;

/// Catalog columns that are visible in an object's definition. If the definitions differ, the result doesn't list
/// these columns as well. An entry without a column stands for a whole catalog.
const COLUMNS_IN_DEFINITIONS: &[&str] = &[
    "pg_attrdef",
    "pg_attribute.attcollation",
    "pg_attribute.attgenerated",
    "pg_attribute.atthasdef",
    "pg_attribute.attidentity",
    "pg_attribute.attndims",
    "pg_attribute.attnotnull",
    "pg_attribute.attstorage",
    "pg_attribute.atttypid",
    "pg_attribute.atttypmod",
    "pg_class.relforcerowsecurity",
    "pg_class.relispartition",
    "pg_class.relispopulated",
    "pg_class.relpartbound",
    "pg_class.relpersistence",
    "pg_class.relrowsecurity",
    "pg_class.reloptions",
    "pg_constraint",
    "pg_enum",
    "pg_extension.extnamespace",
    "pg_extension.extversion",
    "pg_index.indclass",
    "pg_index.indcollation",
    "pg_index.indexprs",
    "pg_index.indisunique",
    "pg_index.indisvalid",
    "pg_index.indkey",
    "pg_index.indnatts",
    "pg_index.indnkeyatts",
    "pg_index.indnullsnotdistinct",
    "pg_index.indoption",
    "pg_index.indpred",
    "pg_inherits",
    "pg_partitioned_table",
    "pg_policy",
    "pg_range",
    "pg_rewrite",
    "pg_sequence",
    "pg_trigger",
    "pg_type.typbasetype",
    "pg_type.typcollation",
    "pg_type.typdefault",
    "pg_type.typdefaultbin",
    "pg_type.typnotnull",
    "pg_type.typtypmod",
];

/// Returns the definitions that differ or that only one of the databases has, either all or those of `tables`. Omits
/// the parts of created and dropped objects.
pub(crate) fn changes(
    template: &mut Reader,
    database: &mut Reader,
    tables: Option<&BTreeSet<&String>>,
) -> Result<Vec<ObjectChange>, ReadError> {
    let catalogs = catalogs(database)?;
    let Some([old, new]) = catalog_rows::differing(&catalogs, [&mut *template, &mut *database])? else {
        return Ok(Vec::new());
    };
    let read = |reader: &mut Reader, side| Described::read(side, reader);
    let (old, new) = catalog_rows::both([template, database], read, [&old, &new])?;
    let sides = Sides { old, new };
    let keys: BTreeSet<_> = sides.old.entries.keys().chain(sides.new.entries.keys()).collect();
    let is_wanted = |key: &&&ObjectKey| {
        tables.is_none_or(|tables| tables.iter().any(|table| sides.belongs_to(key, table)))
    };
    Ok(keys.iter().filter(is_wanted).filter_map(|key| sides.change_of(key)).collect())
}

/// One database's objects, with their names.
struct Described<'a> {
    entries: Entries,
    names: &'a Names,
}

impl<'a> Described<'a> {
    /// Groups the rows by object and reads the objects' definitions.
    fn read(side: &'a Side<'_>, reader: &mut Reader) -> Result<Self, ReadError> {
        let mut entries = entries(side);
        for row in reader.try_query_in_savepoint(DEFINITIONS)? {
            let mut next = texts(row);
            let entry = entries.entry((next(), next())).or_default();
            entry.exists = true;
            entry.definition = Some(next());
        }
        Ok(Self { entries, names: &side.names })
    }

    fn has(&self, key: &ObjectKey) -> bool {
        self.names.has(key) || self.entries.get(key).is_some_and(|entry| entry.exists)
    }

    fn definition(&self, key: &ObjectKey) -> Option<&str> {
        self.entries.get(key)?.definition.as_deref()
    }
}

/// The objects of both databases.
struct Sides<'a> {
    old: Described<'a>,
    new: Described<'a>,
}

/// A property that differs between the databases: its key, then its values in the template and in the database.
type Difference = (PropertyKey, Option<String>, Option<String>);

impl Sides<'_> {
    /// Returns the change to an object. Returns `None` if the object is unchanged or if another object's change
    /// implies this change.
    fn change_of(&self, key: &ObjectKey) -> Option<ObjectChange> {
        let (old, new) = (self.old.definition(key), self.new.definition(key));
        let definition_differs = old != new;
        let (change, columns) = match (self.old.has(key), self.new.has(key)) {
            (true, false) | (false, true) if self.is_implied_by_other(key) => return None,
            (true, false) => (ObjectChangeKind::Dropped, Vec::new()),
            (false, true) => (ObjectChangeKind::Created, Vec::new()),
            _ => (ObjectChangeKind::Changed, self.columns(key, definition_differs)),
        };
        if change == ObjectChangeKind::Changed && !definition_differs && columns.is_empty() {
            return None;
        }
        let [old, new] = if definition_differs {
            [shorten_definition(old), shorten_definition(new)]
        } else {
            [None, None]
        };
        let (kind, name) = key.clone();
        Some(ObjectChange { kind, name, change, old, new, columns })
    }

    /// Returns true if the object is the table itself or a part of it, for example an index or a trigger.
    fn belongs_to(&self, key: &ObjectKey, table: &str) -> bool {
        let (_, name) = key;
        let names_table =
            name.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                || name.strip_suffix(table).is_some_and(|rest| rest.ends_with(" on "));
        names_table
            || [&self.old, &self.new].into_iter().filter_map(|side| side.entries.get(key)).any(|entry| {
                // If the index depends on the same table on both sides, the dependency isn't among the read rows.
                let is_index = entry.definition.as_ref().is_some_and(|definition| {
                    key.0 == "index" && definition.contains(&format!(" ON {table} "))
                });
                is_index || entry.parents.iter().any(|(_, parent)| parent == table)
            })
    }

    /// Returns true if another object's change implies this object's change. This applies to parts of objects, and to
    /// objects that are created or dropped together with another object.
    fn is_implied_by_other(&self, key: &ObjectKey) -> bool {
        let is_alone = |key: &ObjectKey| self.old.has(key) != self.new.has(key);
        let tells_nothing = |entry: &Entry| {
            entry.is_part || entry.parents.iter().any(|parent| parent != key && is_alone(parent))
        };
        let entries = [&self.old, &self.new].into_iter().filter_map(|side| side.entries.get(key));
        key.1.starts_with("pg_toast.") || entries.into_iter().any(tells_nothing)
    }

    /// Returns the object's properties that differ between the two sides, except for the properties shown in its
    /// definition. For a partition's column, also excludes differences that the root's column has as well.
    fn columns(&self, key: &ObjectKey, definition_differs: bool) -> Vec<FieldChange> {
        let parents = self.new.entries.get(key).map_or(&[][..], |entry| &entry.inherited_from);
        let inherited: Vec<_> = parents.iter().flat_map(|parent| self.differences(parent)).collect();
        let own = self.differences(key).into_iter().filter(|difference| !inherited.contains(difference));
        own.filter(|(name, ..)| !definition_differs || !is_in_definition(name)).map(column).collect()
    }

    fn differences(&self, key: &ObjectKey) -> Vec<Difference> {
        let [old, new] =
            [&self.old, &self.new].map(|side| side.entries.get(key).map(|entry| &entry.properties));
        let names: BTreeSet<_> = [old, new].into_iter().flatten().flat_map(BTreeMap::keys).collect();
        let pair = |name: &PropertyKey| {
            let [old, new] = [old, new].map(|properties| properties?.get(name)?.clone());
            (old != new).then(|| (name.clone(), old, new))
        };
        names.into_iter().filter_map(pair).collect()
    }
}

fn is_in_definition((catalog, _, column): &PropertyKey) -> bool {
    COLUMNS_IN_DEFINITIONS.contains(&&**catalog)
        || COLUMNS_IN_DEFINITIONS.contains(&&*format!("{catalog}.{column}"))
}

/// Formats a property as a column, shortening its values to the differing part.
fn column((name, old, new): Difference) -> FieldChange {
    let column = TableColumn { name: name.2, is_bytea: false };
    let [before, after] = [old, new].map(|value| Cell::of(value.as_deref()));
    let mut changed = row_values::changes(&[column], &[before], &[after]);
    changed.swap_remove(0)
}

fn shorten_definition(definition: Option<&str>) -> Option<String> {
    definition
        .filter(|text| !text.is_empty() && text.chars().count() <= MAX_DEFINITION_LENGTH)
        .map(str::to_owned)
}
