//! Definitions: of tables, columns, views, indexes and all else that a database's own catalogs hold.

use std::collections::{BTreeMap, BTreeSet};

use crate::session::{ReadError, Reader};
use crate::sql::texts;
use crate::{ObjectChange, What};

const OBJECTS: &str = include_str!("objects.sql");
/// Other catalogs, of which is told what was created, dropped or changed, and not how.
const OTHERS: &str = "pg_am pg_cast pg_collation pg_conversion pg_default_acl pg_event_trigger pg_foreign_data_wrapper \
    pg_foreign_server pg_language pg_opclass pg_operator pg_opfamily pg_publication pg_publication_rel pg_statistic_ext \
    pg_transform pg_ts_config pg_ts_dict pg_user_mapping";
/// The longest definition that is handed out, in characters.
const LONGEST: usize = 400;

/// What one database has of something.
#[derive(Debug, PartialEq, Eq)]
struct Object {
    /// The table that it goes with.
    parent: String,
    definition: String,
    /// Whether people read that.
    is_text: bool,
}

impl Object {
    fn shown(&self) -> Option<String> {
        let is_short = self.definition.chars().count() <= LONGEST;
        (self.is_text && is_short && !self.definition.is_empty()).then(|| self.definition.clone())
    }
}

/// Definitions that only one database has, or that differ. Those that belong to a created or dropped table are left out.
pub(crate) fn changes(template: &mut Reader, database: &mut Reader) -> Result<Vec<ObjectChange>, ReadError> {
    let (old, new) = (objects(template)?, objects(database)?);
    let tables = |objects: &Objects| -> BTreeSet<String> {
        let is_relation =
            |kind: &str| matches!(kind, "table" | "foreign table" | "materialized view" | "view" | "type");
        objects.keys().filter(|(kind, _)| is_relation(kind)).map(|(_, name)| name.clone()).collect()
    };
    let (old_tables, new_tables) = (tables(&old), tables(&new));
    let goes_along = |object: &Object| {
        !object.parent.is_empty()
            && old_tables.contains(&object.parent) != new_tables.contains(&object.parent)
    };
    let mut found = Vec::new();
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    for key in keys {
        let (old, new) = (old.get(key), new.get(key));
        let change = match (old, new) {
            (Some(old), Some(new)) if old.definition == new.definition => continue,
            (Some(_), Some(_)) => What::Changed,
            (None, _) => What::Created,
            (_, None) => What::Dropped,
        };
        if change != What::Changed && old.or(new).is_some_and(goes_along) {
            continue;
        }
        let (kind, name) = key.clone();
        let [old, new] = [old, new].map(|object| object.and_then(Object::shown));
        found.push(ObjectChange { kind, name, change, old, new });
    }
    Ok(found)
}

/// By kind and name.
type Objects = BTreeMap<(String, String), Object>;

fn objects(reader: &mut Reader) -> Result<Objects, ReadError> {
    let other = |name| {
        format!(
            "UNION ALL SELECT i.type, i.identity, NULL, (to_jsonb(o) - 'oid')::text, false \
             FROM {name} o CROSS JOIN LATERAL pg_identify_object('{name}'::regclass, o.oid, 0) i WHERE o.oid >= 16384 \
             AND ('{name}'::regclass, o.oid) NOT IN (SELECT classid, objid FROM extension_member)\n"
        )
    };
    let others: String = OTHERS.split(' ').map(other).collect();
    let mut found = Objects::new();
    for row in reader.try_apart(&OBJECTS.replace("{others}", &others))? {
        let mut next = texts(row);
        let key = (next(), next());
        let object = Object { parent: next(), definition: next(), is_text: next() == "t" };
        found.insert(key, object);
    }
    Ok(found)
}
