//! Computes digests of a database's complete contents, without using the log. With `paranoid` enabled, pgfresh verifies
//! each reset by comparing digests.

use std::collections::BTreeMap;

use serde::Serialize;
use server::{AdminConnection, SessionError, literal};

use crate::admin::union;

/// A difference between a recycled database and its template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Name of the last lease that used the database.
    pub database: String,
    /// The first relation found to differ.
    pub relation: String,
}

/// Digests of all tables, materialized views and sequences, including the system's own, by relation name.
///
/// The digest of `pg_class` covers the planner's columns but not the file numbers and ages. For sequences, `log_cnt` is
/// excluded. Schemas for temporary tables are excluded, too, because they persist once created.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Digest(BTreeMap<String, String>);

/// Selects all relations that can hold rows and aren't shared between databases.
const RELATIONS: &str = "SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname), c.relkind \
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'm', 'S') AND NOT c.relisshared";

/// An expression that turns a whole row into text. This isn't a cast, because the
/// server would look up a cast in `pg_cast`, where clients can add their own casts.
pub(crate) const ROW: &str = "pg_catalog.textin(pg_catalog.record_out(t))";

/// Returns a query for a relation's name and a digest of its rows. `row` is an expression that turns a row into text.
pub(crate) fn digest_of(name: &str, row: &str) -> String {
    format!(
        "SELECT {}, pg_catalog.md5(pg_catalog.string_agg({row}, E'\\n' ORDER BY {row} COLLATE \"C\")) FROM {}",
        literal(name),
        rows_of(name)
    )
}

/// Returns a FROM clause for the rows covered by a relation's digest. Schemas for temporary tables are excluded,
/// because they persist once created.
pub(crate) fn rows_of(name: &str) -> String {
    let condition =
        if name == "pg_catalog.pg_namespace" { " WHERE nspname !~ '^pg_(toast_)?temp_'" } else { "" };
    format!("ONLY {name} t{condition}")
}

impl Digest {
    /// Computes the digests of all relations, which takes milliseconds in a small database and much longer in a large
    /// one.
    ///
    /// # Errors
    /// Returns an error if the session fails or a query is refused.
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

    /// Returns the first relation in which the two databases differ.
    #[must_use]
    pub fn difference<'a>(&'a self, other: &'a Self) -> Option<&'a str> {
        let missing = other.0.keys().find(|name| !self.0.contains_key(*name));
        let changed = self.0.iter().find(|(name, digest)| other.0.get(*name) != Some(digest));
        changed.map(|(name, _)| name).or(missing).map(String::as_str)
    }
}
