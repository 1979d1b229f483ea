//! A database as the whole server sees it: who is in it, what is on record of it, and how much was changed in it.
//!
//! A clerk reads this in one statement, from outside.

use crate::LeaseError;
use crate::sql::{Clerks, Prepared};

/// A backend counts until it has delivered its statistics. Source: `src/backend/utils/activity/backend_status.c`.
const REST: Prepared = Prepared {
    name: "rest",
    types: &["oid"],
    sql: "SELECT pg_stat_get_db_numbackends($1), \
          EXISTS (SELECT FROM pg_prepared_xact() p WHERE p.dbid = $1), \
          pg_stat_get_db_stat_reset_time($1), \
          pg_stat_get_db_tuples_inserted($1) + pg_stat_get_db_tuples_updated($1) \
          + pg_stat_get_db_tuples_deleted($1), \
          concat_ws('|', datdba, datacl, datconnlimit, datistemplate, datallowconn, dattablespace, \
          (SELECT string_agg(setrole || '=' || setconfig::text, ',' ORDER BY setrole) \
           FROM pg_db_role_setting WHERE setdatabase = $1), \
          shobj_description($1, 'pg_database'), \
          (SELECT count(*) FROM pg_shseclabel WHERE objoid = $1 AND classoid = 'pg_database'::regclass)) \
          FROM pg_database WHERE oid = $1",
};

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// Sessions in it.
    pub(crate) sessions: usize,
    /// Whether it has prepared transactions.
    pub(crate) prepared: bool,
    /// When somebody set its statistics to zero. We never do.
    pub(crate) reset: Option<String>,
    /// Rows inserted, updated and deleted, in all its relations, catalogs among them.
    pub(crate) changed: i64,
    /// What CREATE DATABASE forgets, and owner, as one text.
    pub(crate) attributes: String,
}

impl Rest {
    /// Reads it of the database with that oid.
    pub(crate) fn read(oid: u32, clerks: &Clerks) -> Result<Self, LeaseError> {
        let rows = clerks.execute("look at a database", &REST, &[&oid.to_string()])?;
        let mut columns = rows.into_iter().next().unwrap_or_default().into_iter();
        let mut next = || columns.next().flatten();
        Ok(Self {
            sessions: next().and_then(|count| count.parse().ok()).unwrap_or(usize::MAX),
            prepared: next().as_deref() != Some("f"),
            reset: next(),
            changed: next().and_then(|sum| sum.parse().ok()).unwrap_or(-1),
            attributes: next().unwrap_or_default(),
        })
    }
}
