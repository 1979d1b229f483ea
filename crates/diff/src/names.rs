//! Translates oids into object names, because the same object can have different oids in two databases.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::DiffError;
use crate::catalogs::Catalog;
use crate::row_texts::texts;
use crate::session::Reader;

/// The first oid that initdb doesn't assign. Source: `FirstNormalObjectId` in `src/include/access/transam.h`.
pub(crate) const FIRST_USER_OID: u32 = 16384;

/// Kind of the database itself. Its name is omitted, because the template's copy has a different name.
pub(crate) const THIS_DATABASE: &str = "this database";

/// An object's kind and name, in the form familiar to users.
pub(crate) type ObjectKey = (String, String);

/// Names of one database's objects.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Objects, by the oid of their class and their own oid.
    objects: HashMap<(u32, u32), ObjectKey>,
    keys: HashSet<ObjectKey>,
    /// Names by oid alone. If objects in two catalogs have the same oid, contains both names.
    by_oid: HashMap<u32, BTreeSet<String>>,
    /// Oids of temporary schemas, and of the tables and types in them.
    temporary: HashSet<u32>,
    /// For each table, the oids of its parents (the tables it inherits from).
    parents: HashMap<u32, Vec<u32>>,
}

impl Names {
    /// Reads the names of all roles and tablespaces, and of all objects that don't come from initdb.
    pub(crate) fn read(reader: &mut Reader, catalogs: &[Catalog]) -> Result<Self, DiffError> {
        let mut names = Self::default();
        names.add(reader, catalogs, &format!(">= {FIRST_USER_OID}"))?;
        let temporary = "SELECT oid FROM pg_namespace WHERE nspname ~ '^pg_(toast_)?temp_' \
            UNION ALL SELECT oid FROM pg_class WHERE relpersistence = 't' \
            UNION ALL SELECT t.oid FROM pg_type t JOIN pg_namespace n ON n.oid = typnamespace WHERE nspname ~ '^pg_(toast_)?temp_'";
        names.temporary = reader.query(temporary)?.into_iter().map(|row| parse_oid(&texts(row)())).collect();
        for row in reader.query("SELECT inhrelid, inhparent FROM pg_inherits")? {
            let mut next = texts(row);
            names.parents.entry(parse_oid(&next())).or_default().push(parse_oid(&next()));
        }
        Ok(names)
    }

    /// Adds the names of the built-in objects (those created by initdb) with these oids.
    pub(crate) fn add_built_in(
        &mut self,
        reader: &mut Reader,
        catalogs: &[Catalog],
        oids: &BTreeSet<u32>,
    ) -> Result<(), DiffError> {
        let oids: Vec<_> = oids.iter().map(ToString::to_string).collect();
        self.add(reader, catalogs, &format!("= ANY ('{{{}}}'::oid[])", oids.join(",")))
    }

    fn add(&mut self, reader: &mut Reader, catalogs: &[Catalog], condition: &str) -> Result<(), DiffError> {
        // Enum labels aren't objects. The database itself has a special kind, [`THIS_DATABASE`].
        let is_class = |name: &&str| {
            !matches!(*name, "pg_enum" | "pg_database" | "pg_largeobject_metadata" | "pg_rewrite")
        };
        let with_oid = catalogs.iter().filter(|catalog| catalog.has_oid).map(|catalog| &*catalog.name);
        let mut all: Vec<_> = with_oid
            .filter(is_class)
            .map(|name| format!("SELECT '{name}'::regclass AS class, oid, '{name}'::regclass AS named_class, oid AS named FROM {name} WHERE oid {condition}"))
            .collect();
        // To users, a view and its rule are one object.
        all.push(format!(
            "SELECT 'pg_rewrite'::regclass, oid, CASE rulename WHEN '_RETURN' THEN 'pg_class'::regclass ELSE 'pg_rewrite'::regclass END, \
             CASE rulename WHEN '_RETURN' THEN ev_class ELSE oid END FROM pg_rewrite WHERE oid {condition}"
        ));
        all.push(format!("SELECT 'pg_largeobject'::regclass, oid, 'pg_largeobject'::regclass, oid FROM pg_largeobject_metadata WHERE oid {condition}"));
        for shared in ["pg_authid", "pg_tablespace"] {
            all.push(format!("SELECT '{shared}'::regclass, oid, '{shared}'::regclass, oid FROM {shared}"));
        }
        let sql = format!(
            "SELECT o.class::oid, o.oid, i.type, i.identity, \
               CASE i.type WHEN 'toast table' THEN \
                 (SELECT (pg_identify_object('pg_class'::regclass, c.oid, 0)).identity FROM pg_class c WHERE c.reltoastrelid = o.oid) END \
             FROM ({}) o CROSS JOIN LATERAL pg_identify_object(o.named_class, o.named, 0) i",
            all.join(" UNION ALL ")
        );
        for row in reader.query(&sql)? {
            let mut next = texts(row);
            let (class, oid, kind, name, main) =
                (parse_oid(&next()), parse_oid(&next()), next(), next(), next());
            let key = match &*kind {
                "toast table" => ("TOAST table of".to_owned(), main),
                "table constraint" | "domain constraint" => ("constraint".to_owned(), name),
                "composite type" => ("type".to_owned(), name),
                _ => (kind, name),
            };
            let text =
                if key.0.starts_with("TOAST") { format!("TOAST table of {}", key.1) } else { key.1.clone() };
            self.by_oid.entry(oid).or_default().insert(text);
            self.keys.insert(key.clone());
            self.objects.insert((class, oid), key);
        }
        Ok(())
    }

    /// Returns the oids whose names differ between the two databases. Either the object was renamed, or the other
    /// database uses the oid for a different object.
    pub(crate) fn renamed(&self, other: &Self) -> BTreeSet<u32> {
        let differs = |(oids, key): &(&(u32, u32), &ObjectKey)| {
            other.objects.get(oids).is_some_and(|other| other != *key)
        };
        self.objects.iter().filter(differs).map(|((_, oid), _)| *oid).collect()
    }

    pub(crate) fn object(&self, class: u32, oid: u32) -> Option<&ObjectKey> {
        self.objects.get(&(class, oid))
    }

    /// Returns true if an object with this kind and name exists, but always false for columns.
    pub(crate) fn has(&self, key: &ObjectKey) -> bool {
        key.0 == THIS_DATABASE || self.keys.contains(key)
    }

    pub(crate) fn is_temporary(&self, oid: u32) -> bool {
        self.temporary.contains(&oid)
    }

    /// Returns the tables that `table` inherits from.
    pub(crate) fn parents(&self, table: u32) -> &[u32] {
        self.parents.get(&table).map_or(&[], Vec::as_slice)
    }

    /// Replaces all oids in `text`, which contains only oids and separators, with names.
    pub(crate) fn replace_oids(&self, text: &str) -> String {
        let mut found = String::new();
        let mut rest = text;
        while let Some(begin) = rest.find(|sign: char| sign.is_ascii_digit()) {
            let length =
                rest[begin..].find(|sign: char| !sign.is_ascii_digit()).unwrap_or(rest.len() - begin);
            let (oid, end) = (&rest[begin..begin + length], begin + length);
            found += &rest[..begin];
            match self.by_oid.get(&parse_oid(oid)) {
                Some(names) => found += &names.iter().map(String::as_str).collect::<Vec<_>>().join(" or "),
                None if oid == "0" => found += "none",
                None => found += oid,
            }
            rest = &rest[end..];
        }
        found + rest
    }
}

/// Parses an oid, or returns 0 if the text isn't a number.
pub(crate) fn parse_oid(text: &str) -> u32 {
    text.parse().unwrap_or(0)
}

/// Returns all oids in a text that contains only oids and separators.
pub(crate) fn parse_oids(text: &str) -> impl Iterator<Item = u32> {
    text.split(|sign: char| !sign.is_ascii_digit()).filter(|part| !part.is_empty()).map(parse_oid)
}
