//! A digest of all that a database holds, independent of what the log says.

use std::collections::BTreeMap;

use serde::Serialize;
use server::{AdminConnection, SessionError, literal};

use crate::admin::union;

/// A recycled database that was not what its template is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The database as its last holder knew it.
    pub database: String,
    /// The first relation that differed.
    pub relation: String,
}

/// Digests by relation: every table, materialised view and sequence, the system's own included.
///
/// Left out are file numbers and ages in `pg_class`, schemas of temporary tables, which stay once they were made, and how many
/// values of a sequence are written ahead. What the planner is told is not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Digest(BTreeMap<String, String>);

/// All relations of one database with rows of its own.
const RELATIONS: &str = "SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname), c.relkind \
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'm', 'S') AND NOT c.relisshared";

/// A whole row as text. A cast would be looked up in `pg_cast`, where a client can put one of its own.
pub(crate) const ROW: &str = "pg_catalog.textin(pg_catalog.record_out(t))";

/// A query for a relation's name and a digest of its rows, of each of which the text `row` counts.
pub(crate) fn digest_of(name: &str, row: &str) -> String {
    format!(
        "SELECT {}, pg_catalog.md5(pg_catalog.string_agg({row}, E'\\n' ORDER BY {row} COLLATE \"C\")) FROM {}",
        literal(name),
        rows_of(name)
    )
}

/// The rows of a relation that count. Schemas of temporary tables are made once, and stay.
pub(crate) fn rows_of(name: &str) -> String {
    let condition =
        if name == "pg_catalog.pg_namespace" { " WHERE nspname !~ '^pg_(toast_)?temp_'" } else { "" };
    format!("ONLY {name} t{condition}")
}

impl Digest {
    /// Reads everything: milliseconds for a small database, as long as it takes for a large one.
    pub fn read(session: &mut AdminConnection) -> Result<Self, SessionError> {
        let mut sql = Vec::new();
        for row in session.query(RELATIONS)? {
            let mut columns = row.into_iter().map(Option::unwrap_or_default);
            let (name, kind) = (columns.next().unwrap_or_default(), columns.next().unwrap_or_default());
            let row = match (name.as_str(), kind.as_str()) {
                ("pg_catalog.pg_class", _) => {
                    "pg_catalog.textin(pg_catalog.jsonb_out(pg_catalog.to_jsonb(t) \
                     - '{relfilenode,relfrozenxid,relminmxid}'::pg_catalog.text[]))"
                }
                (_, "S") => "pg_catalog.textin(pg_catalog.record_out((last_value, is_called)))",
                _ => ROW,
            };
            sql.push(digest_of(&name, row));
        }
        let rows = union(session, &sql)?;
        let value = |column: Option<String>| column.unwrap_or_default();
        Ok(Self(rows.into_iter().map(|mut row| (value(row[0].take()), value(row[1].take()))).collect()))
    }

    /// The first relation in which two databases differ.
    #[must_use]
    pub fn difference<'a>(&'a self, other: &'a Self) -> Option<&'a str> {
        let missing = other.0.keys().find(|name| !self.0.contains_key(*name));
        let changed = self.0.iter().find(|(name, digest)| other.0.get(*name) != Some(digest));
        changed.map(|(name, _)| name).or(missing).map(String::as_str)
    }
}
