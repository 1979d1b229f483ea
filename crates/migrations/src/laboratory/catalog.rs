//! Reads the catalogs through the laboratory's own sessions, which see only committed changes.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use plans::{RelationKind, RelationName};
use server::{AdminConnection, Major, Rows, Server, admin_params};

use super::error::{During, LaboratoryError};
use super::questions::{Counters, HAS_FUNCTIONS, create_functions};
use super::{ADMIN, TIMEOUT};

/// Maximum wait for a catalog table that a statement has locked.
const SETTINGS: [(&str, &str); 1] = [("lock_timeout", "10s")];

/// A relation as other sessions see it: without uncommitted changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommittedRelation {
    pub(super) name: RelationName,
    pub(super) kind: RelationKind,
    /// The letter in `pg_class.relkind`, such as `r` for a table.
    pub(super) letter: char,
    /// The index's table. `None` if the relation isn't an index.
    pub(super) table: Option<RelationName>,
    /// Number of the relation's file. `None` if the relation has no files.
    pub(super) file: Option<u32>,
    /// Size of the relation's main file in bytes.
    pub(super) bytes: u64,
    /// Scan counters that sessions have reported so far.
    pub(super) counters: Counters,
}

/// Numbers of transactions and of their parts, which savepoints and EXCEPTION clauses begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) committed: u64,
    pub(super) rolled_back: u64,
}

/// Relations, keyed by object identifier.
pub(super) type Relations = HashMap<u32, CommittedRelation>;

/// The laboratory's own sessions, at most one in each database. A session opens when it is first needed.
#[derive(Debug)]
pub(super) struct Catalogs<'a> {
    server: &'a Server,
    major: u32,
    sessions: HashMap<String, AdminConnection>,
}

impl<'a> Catalogs<'a> {
    pub(super) fn new(server: &'a Server, major: u32) -> Self {
        Self { server, major, sessions: HashMap::new() }
    }

    /// Closes all sessions, so that a statement can drop or copy a database.
    pub(super) fn close(&mut self) {
        for (_, session) in self.sessions.drain() {
            // The server ends the session even if closing it fails.
            drop(session.close());
        }
    }

    /// Runs SQL in a database. A migration may end all other sessions, so a failed query runs a second time in a new
    /// session.
    pub(super) fn query(&mut self, database: &str, sql: &str) -> Result<Rows, LaboratoryError> {
        let result = self.session(database)?.query(sql);
        match result {
            Err(error) if error.is_fatal() => {
                self.sessions.remove(database);
                self.session(database)?.query(sql)
            }
            result => result,
        }
        .during("read the catalogs")
    }

    fn session(&mut self, database: &str) -> Result<&mut AdminConnection, LaboratoryError> {
        match self.sessions.entry(database.to_owned()) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(missing) => Ok(missing.insert(open(self.server, self.major, database)?)),
        }
    }

    /// Creates the functions of the questions in a database, if it lacks them. Returns true if it has them.
    pub(super) fn create_functions(&mut self, database: &str) -> bool {
        let has_them =
            |rows: Rows| rows.first().is_some_and(|row| row.first() == Some(&Some("t".to_owned())));
        if self.query(database, HAS_FUNCTIONS).is_ok_and(has_them) {
            return true;
        }
        let is_created = self.query(database, &create_functions()).is_ok();
        if !is_created {
            // Without a ROLLBACK, the session's transaction would stay in its failed state.
            self.sessions.remove(database);
        }
        is_created
    }

    /// Returns the number of the server's next transaction.
    pub(super) fn next_transaction(&mut self) -> Result<u64, LaboratoryError> {
        // The snapshot ends before transactions that still run. Each of these locks its own number.
        let rows = self.query(
            ADMIN,
            "SELECT greatest(pg_snapshot_xmax(pg_current_snapshot())::text::bigint, \
             (SELECT max(transactionid::text::bigint) + 1 FROM pg_locks WHERE locktype = 'transactionid'))",
        )?;
        Ok(rows.first().and_then(|row| row.first()?.as_ref()?.parse().ok()).unwrap_or(0))
    }

    /// Counts the transactions, and the parts of transactions, that committed or were rolled back after
    /// [`Self::next_transaction`] returned `first`. Leaves out those that changed nothing.
    pub(super) fn ended_since(&mut self, first: u64) -> Result<Ended, LaboratoryError> {
        let next = self.next_transaction()?;
        let sql = format!(
            "SELECT count(*) FILTER (WHERE status = 'committed'), count(*) FILTER (WHERE status = 'aborted') \
             FROM (SELECT pg_xact_status(number::text::xid8) AS status \
             FROM generate_series({first}::bigint, {next}::bigint - 1) number) ended"
        );
        let rows = if next > first { self.query(ADMIN, &sql)? } else { Rows::new() };
        let count = |column: usize| rows.first()?.get(column)?.as_ref()?.parse().ok();
        Ok(Ended { committed: count(0).unwrap_or(0), rolled_back: count(1).unwrap_or(0) })
    }

    /// Opens an additional session, which the caller owns.
    pub(super) fn open(&self, database: &str) -> Result<AdminConnection, LaboratoryError> {
        open(self.server, self.major, database)
    }

    /// Returns the relations with these object identifiers. Leaves out relations that aren't committed.
    pub(super) fn committed(&mut self, database: &str, oids: &[u32]) -> Result<Relations, LaboratoryError> {
        if oids.is_empty() {
            return Ok(Relations::new());
        }
        let list: Vec<_> = oids.iter().map(ToString::to_string).collect();
        self.relations(database, &format!("c.oid IN ({})", list.join(",")))
    }

    /// Returns all relations in the database, with up-to-date counters.
    pub(super) fn all(&mut self, database: &str) -> Result<Relations, LaboratoryError> {
        self.query(database, "SELECT pg_stat_clear_snapshot()")?;
        self.relations(database, "c.oid >= 16384")
    }

    /// Reads relations without locking them, because the migration may hold ACCESS EXCLUSIVE.
    fn relations(&mut self, database: &str, condition: &str) -> Result<Relations, LaboratoryError> {
        let sql = format!(
            "SELECT c.oid, n.nspname, c.relname, c.relkind, pg_relation_filenode(c.oid), \
             CASE WHEN c.relkind IN ('r', 'm', 'i') THEN \
             (SELECT size FROM pg_stat_file(pg_relation_filepath(c.oid), true)) END, \
             pg_stat_get_numscans(c.oid), pg_stat_get_tuples_returned(c.oid), tn.nspname, t.relname, \
             pg_stat_get_tuples_updated(c.oid) + pg_stat_get_tuples_deleted(c.oid) \
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             LEFT JOIN pg_index x ON x.indexrelid = c.oid LEFT JOIN pg_class t ON t.oid = x.indrelid \
             LEFT JOIN pg_namespace tn ON tn.oid = t.relnamespace \
             WHERE {condition} AND c.relkind <> 't' AND n.nspname <> 'pg_toast' AND c.relpersistence <> 't'"
        );
        Ok(self.query(database, &sql)?.into_iter().filter_map(|row| relation(&row)).collect())
    }

    /// Returns the pids of the sessions that session `pid` waits for.
    pub(super) fn blockers(&mut self, pid: u32) -> Result<HashSet<u32>, LaboratoryError> {
        let rows = self.query(ADMIN, &format!("SELECT unnest(pg_blocking_pids({pid}))"))?;
        Ok(rows.into_iter().filter_map(|row| row.first()?.as_ref()?.parse().ok()).collect())
    }

    /// Returns the tables that a statement may lock if it names the relations in `named`. These are the tables of named
    /// indexes, the partitions of named tables, and all tables that foreign keys connect to them.
    pub(super) fn tables_near(&mut self, database: &str, named: &[u32]) -> Result<Vec<u32>, LaboratoryError> {
        if named.is_empty() {
            return Ok(Vec::new());
        }
        let list: Vec<_> = named.iter().map(ToString::to_string).collect();
        let sql = format!(
            "WITH RECURSIVE tree AS (SELECT coalesce(x.indrelid, c.oid) AS oid FROM pg_class c \
             LEFT JOIN pg_index x ON x.indexrelid = c.oid WHERE c.oid IN ({}) \
             UNION SELECT i.inhrelid FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid), \
             near AS (SELECT oid FROM tree UNION SELECT k.confrelid FROM pg_constraint k JOIN tree t \
             ON t.oid = k.conrelid WHERE k.contype = 'f' UNION SELECT k.conrelid FROM pg_constraint k \
             JOIN tree t ON t.oid = k.confrelid WHERE k.contype = 'f') \
             SELECT c.oid FROM near JOIN pg_class c ON c.oid = near.oid \
             WHERE c.relkind IN ('r', 'p', 'm') AND c.oid >= 16384 ORDER BY c.oid",
            list.join(",")
        );
        let rows = self.query(database, &sql)?;
        Ok(rows.into_iter().filter_map(|row| row.first()?.as_ref()?.parse().ok()).collect())
    }

    /// Returns true if sessions of this major version can report their counters immediately.
    pub(super) fn can_force_counters(&self) -> bool {
        Major(self.major).has_forced_counters()
    }

    /// Returns the directory that contains the server's Unix socket.
    pub(super) fn socket_directory(&self) -> PathBuf {
        self.server.run().socket_directory()
    }

    /// Cancels a session's current statement. If `ends_session` is true, ends the session instead.
    pub(super) fn interrupt(&mut self, pid: u32, ends_session: bool) -> Result<(), LaboratoryError> {
        let verb = if ends_session { "terminate" } else { "cancel" };
        self.query(ADMIN, &format!("SELECT pg_{verb}_backend({pid})"))?;
        Ok(())
    }
}

fn open(server: &Server, major: u32, database: &str) -> Result<AdminConnection, LaboratoryError> {
    let folder = server.run().socket_directory();
    AdminConnection::open_with(&folder, &admin_params(major, &SETTINGS), database, TIMEOUT).during("connect")
}

fn relation(row: &[Option<String>]) -> Option<(u32, CommittedRelation)> {
    let text = |column: usize| row.get(column).and_then(Option::as_deref);
    let name = |column: usize| {
        Some(RelationName { schema: text(column)?.to_owned(), name: text(column + 1)?.to_owned() })
    };
    let number = |column: usize| text(column).and_then(|text| text.parse().ok()).unwrap_or(0);
    let letter = text(3)?.chars().next()?;
    let relation = CommittedRelation {
        name: name(1)?,
        kind: kind(letter),
        letter,
        table: name(8),
        file: text(4).and_then(|file| file.parse().ok()),
        bytes: number(5),
        counters: Counters { scans: number(6), rows: number(7), changed: number(10) },
    };
    Some((text(0)?.parse().ok()?, relation))
}

/// Returns the kind for a letter in `pg_class.relkind`. Views, sequences and composite types share a kind.
pub(super) fn kind(letter: char) -> RelationKind {
    match letter {
        'r' => RelationKind::Table,
        'p' => RelationKind::PartitionedTable,
        'm' => RelationKind::MaterializedView,
        'f' => RelationKind::ForeignTable,
        'i' => RelationKind::Index,
        'I' => RelationKind::PartitionedIndex,
        _ => RelationKind::Unknown,
    }
}
