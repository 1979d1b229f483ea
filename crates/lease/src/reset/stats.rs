//! Reads the state of a database outside its files: its sessions, its attributes and the end of the log.

use std::collections::BTreeSet;

use server::{Rows, literal};

use crate::address::DatabaseAddress;
use crate::admin::{AdminPool, Prepared};
use crate::error::LeaseError;
use crate::lsn::Lsn;

/// Columns about the database with oid $1, written for speed: `shobj_description()` would plan a query on each call,
/// and aggregates are slower than arrays.
///
/// The query reads the whole `pg_database` row, because the columns differ between major versions and reading six of
/// them by name would save only a microsecond. Columns that differ in each copy or that VACUUM changes are overwritten
/// with constants. The number of backends includes exiting ones until they can no longer write to the log. Source:
/// `src/backend/utils/activity/backend_status.c`.
macro_rules! columns {
    () => {
        "pg_stat_get_db_numbackends($1), \
         EXISTS (SELECT FROM pg_prepared_xact() p WHERE p.dbid = $1), \
         concat_ws('|', jsonb_populate_record(pg_database, \
           '{\"oid\": 0, \"datname\": \"\", \"datfrozenxid\": \"0\", \"datminmxid\": \"0\"}'), \
         ARRAY(SELECT setrole || '=' || setconfig::text FROM pg_db_role_setting WHERE setdatabase = $1), \
         (SELECT description FROM pg_shdescription WHERE objoid = $1 AND classoid = 'pg_database'::regclass), \
         ARRAY(SELECT provider || '=' || label FROM pg_shseclabel \
          WHERE objoid = $1 AND classoid = 'pg_database'::regclass), \
         ARRAY(SELECT subname FROM pg_subscription WHERE subdbid = $1), \
         ARRAY(SELECT slot_name FROM pg_get_replication_slots() WHERE datoid = $1))"
    };
}

const STATS: Prepared = Prepared {
    name: "stats",
    types: &["oid", "name"],
    sql: concat!("SELECT ", columns!(), " FROM pg_database WHERE oid = $1 AND datname = $2"),
};
/// Query for [`DatabaseStats`] that also renames the database, like [`rename`](crate::runtime::template::rename).
pub(crate) const STATS_RENAMED: Prepared = Prepared {
    name: "stats_renamed",
    types: &["oid", "name", "name[]"],
    sql: concat!(
        "UPDATE pg_database SET datname = $2 WHERE oid = $1 AND datname = ANY ($3) RETURNING ",
        columns!()
    ),
};

/// A database's state, read by a single query.
#[derive(Debug, Default)]
pub(crate) struct DatabaseStats {
    /// Number of sessions in the database.
    pub(crate) sessions: usize,
    /// Whether the database has prepared transactions.
    pub(crate) prepared: bool,
    /// The database's `pg_database` row and its entries in other shared catalogs, as one text.
    pub(crate) attributes: String,
    /// The end of the log after the query. All changes made in the database before the query precede this position.
    pub(crate) mark: Lsn,
}

impl DatabaseStats {
    /// Reads the statistics of a database.
    ///
    /// # Errors
    /// Returns [`LeaseError::NotLeased`] if SQL has dropped or renamed the database.
    pub(crate) fn read(database: &DatabaseAddress, admin: &AdminPool) -> Result<Self, LeaseError> {
        let DatabaseAddress { oid, name } = database;
        let arguments = [&*oid.to_string(), &literal(name)];
        let read = admin.execute_and_mark("look at a database", &STATS, &arguments)?;
        Self::in_rows(read).ok_or_else(|| LeaseError::NotLeased(name.clone()))
    }

    /// Renames a database and reads its statistics in one statement, because the end of a lease needs both. `names`
    /// lists the names that the database may have.
    ///
    /// # Errors
    /// Returns [`LeaseError::NotLeased`] if SQL has dropped or renamed the database. Returns an error with SQLSTATE
    /// 23505 if another database has the name.
    pub(crate) fn rename_and_read(
        to: &DatabaseAddress,
        names: &mut BTreeSet<String>,
        admin: &AdminPool,
    ) -> Result<Self, LeaseError> {
        let read = admin.rename_and_mark("look at a database", &STATS_RENAMED, to, names)?;
        Self::in_rows(read).ok_or_else(|| LeaseError::NotLeased(to.name.clone()))
    }

    /// Returns the statistics in the first of `rows`, or `None` without rows.
    fn in_rows((rows, mark): (Rows, Lsn)) -> Option<Self> {
        let row = rows.into_iter().next()?;
        let mut columns = row.into_iter();
        let mut next = || columns.next().flatten();
        Some(Self {
            sessions: next().and_then(|count| count.parse().ok()).unwrap_or(usize::MAX),
            prepared: next().as_deref() != Some("f"),
            attributes: next().unwrap_or_default(),
            mark,
        })
    }
}
