//! Observes, from other sessions, the locks of a statement that can't report them itself: because PostgreSQL refuses
//! the statement in a transaction, or because the statement fails or rolls a part of its work back.
//!
//! Such a statement may hold a lock for less than a millisecond. So the laboratory opens a session for each table,
//! called a trap, that takes the table's lock modes before the statement runs. The statement then waits for the trap,
//! and `pg_locks` shows the requested mode. The trap now releases only the modes that conflict with the requested one,
//! so that the statement waits again when it requests a stronger mode.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use server::AdminConnection;

use super::ADMIN;
use super::answer::Answer;
use super::catalog::{Catalogs, Relations};
use super::error::{During, LaboratoryError};
use super::facts::covers;
use super::progress::{Progress, Statement};
use super::questions::RelationState;
use super::repetition::{Repetition, shortened};
use super::requests::Request;
use super::session::{Exchange, RepeatedSession};
use crate::LockMode;

/// Maximum number of tables with traps. Each trap takes up one of the server's sessions.
const MOST: usize = 200;

/// Where to set traps for a statement.
pub(super) struct Traps<'a> {
    /// Relations that the statement's transaction has already locked.
    pub(super) held: &'a HashMap<u32, RelationState>,
    /// Object identifiers of the tables.
    pub(super) tables: &'a [u32],
    pub(super) relations: &'a Relations,
    /// Whether a trap opens completely when the statement requests a mode that lets it change the table. VACUUM doesn't
    /// truncate a table that another session uses.
    pub(super) opens_early: bool,
    /// Why the session can't report the locks, as a relative clause.
    pub(super) why: &'static str,
}

/// A session that holds locks on one table, so that the observed statement has to wait for them.
#[derive(Debug)]
struct Trap {
    session: AdminConnection,
    pid: u32,
    /// Number of lock modes that the session still holds, starting from the weakest mode.
    modes: usize,
}

/// Observes the locks of one statement.
#[derive(Debug)]
struct Bystander {
    database: String,
    pid: u32,
    traps: Vec<Trap>,
    opens_early: bool,
    /// Object identifiers of indexes. LOCK TABLE refuses indexes, so a lock on an index is certain only while the
    /// statement waits for a trap.
    indexes: HashSet<u32>,
    locks: HashMap<u32, HashSet<LockMode>>,
    /// Whether some locks can't be observed, because a table has no trap, or because the statement's own transaction
    /// prevents the trap from taking the necessary modes.
    is_incomplete: bool,
}

impl Repetition<'_> {
    /// Runs a statement while traps observe its locks. Returns the answer, and the lock modes for each relation. The
    /// session's `lock_timeout` must be off.
    pub(super) fn exchange_beside(
        &mut self,
        open: &mut RepeatedSession,
        statement: &Statement,
        parts: &mut Request,
        progress: &Progress<'_>,
        traps: &Traps<'_>,
    ) -> Result<(Answer, HashMap<u32, Vec<LockMode>>), LaboratoryError> {
        let mut bystander = Bystander::new(&mut self.catalogs, progress.database, open.pid, traps)?;
        let exchange = Exchange { tick: Duration::from_millis(1), ..Self::exchange_of(statement) };
        let mut watch = self.watch(open.pid, progress.limit());
        let catalogs = &mut self.catalogs;
        let answer = open.exchange(&exchange, &mut parts.copies, &mut |elapsed| {
            bystander.look(catalogs)?;
            watch.tick(elapsed, catalogs)
        })?;
        if bystander.is_incomplete {
            let (statement, why) = (shortened(&statement.sql), traps.why);
            self.records.note(format!("some locks of \"{statement}\", {why}"));
        }
        Ok((answer, bystander.finish()))
    }
}

impl Bystander {
    /// Sets a trap for each table. Call this before the session with the backend `pid` runs its statement.
    fn new(
        catalogs: &mut Catalogs<'_>,
        database: &str,
        pid: u32,
        Traps { held, tables, relations, opens_early, .. }: &Traps<'_>,
    ) -> Result<Self, LaboratoryError> {
        let mut bystander = Self {
            database: database.to_owned(),
            pid,
            traps: Vec::new(),
            opens_early: *opens_early,
            indexes: relations.iter().filter(|(_, one)| one.letter == 'i').map(|(oid, _)| *oid).collect(),
            locks: HashMap::new(),
            is_incomplete: tables.len() > MOST,
        };
        for oid in tables.iter().take(MOST) {
            let Some(relation) = relations.get(oid) else { continue };
            let held = held.get(oid).map_or(&[][..], |state| &state.modes);
            let modes = modes_beside(held);
            bystander.is_incomplete |= misses_locks(held, modes);
            if modes.is_empty() {
                continue;
            }
            let mut session = catalogs.open(database)?;
            let name =
                [&relation.name.schema, &relation.name.name].map(|part| server::identifier(part)).join(".");
            let lock = |(number, mode): (usize, &LockMode)| {
                format!("SAVEPOINT mode_{number}; {}; ", lock(&name, relation.letter, *mode))
            };
            let locks: String = modes.iter().enumerate().map(lock).collect();
            let sql = format!("BEGIN; {locks} SELECT pg_backend_pid()");
            // The lock request may fail, because another session's transaction may hold a lock on the table.
            let Ok(rows) = session.query(&sql) else {
                bystander.is_incomplete = true;
                continue;
            };
            let pid = rows.last().and_then(|row| row.first()?.as_ref()?.parse().ok()).unwrap_or(0);
            bystander.traps.push(Trap { session, pid, modes: modes.len() });
        }
        Ok(bystander)
    }

    /// Records the statement's current locks, and opens the trap that the statement waits for.
    fn look(&mut self, catalogs: &mut Catalogs<'_>) -> Result<(), LaboratoryError> {
        // The blockers come first in the result: if they include a trap, then the locks read after them are still held.
        let sql = format!(
            "SELECT NULL, unnest(pg_blocking_pids({pid}))::text UNION ALL \
             SELECT relation::text, mode || CASE WHEN granted THEN '' ELSE '?' END FROM pg_locks WHERE pid = {pid} AND locktype = 'relation' \
             AND database = (SELECT oid FROM pg_database WHERE datname = {name})",
            pid = self.pid,
            name = server::literal(&self.database)
        );
        let (mut blockers, mut wanted, mut seen) = (HashSet::new(), None, Vec::new());
        for row in catalogs.query(ADMIN, &sql)? {
            let [relation, value] = &row[..] else { continue };
            match (relation.as_ref().and_then(|oid| oid.parse().ok()), value) {
                (Some(oid), Some(mode)) => {
                    let mode = LockMode::from_catalog(mode.trim_end_matches('?'));
                    if value.as_ref().is_some_and(|value| value.ends_with('?')) {
                        wanted = mode;
                    }
                    seen.push((oid, mode));
                }
                (None, Some(pid)) => {
                    blockers.extend(pid.parse::<u32>());
                }
                _ => {}
            }
        }
        let is_waiting = self.traps.iter().any(|trap| blockers.contains(&trap.pid));
        for (oid, mode) in seen {
            if is_waiting || !self.indexes.contains(&oid) {
                self.locks.entry(oid).or_default().extend(mode);
            }
        }
        // If the statement doesn't wait for a lock, it waits for the end of the trap's transaction. `wanted` is then
        // `None`, so that the trap opens completely.
        let is_last = |mode: LockMode| self.opens_early && mode >= LockMode::ShareUpdateExclusive;
        let wanted = wanted.filter(|mode| !is_last(*mode));
        for trap in self.traps.iter_mut().filter(|trap| blockers.contains(&trap.pid)) {
            trap.open_for(wanted)?;
        }
        Ok(())
    }

    /// Removes all traps. Returns the observed lock modes for each relation.
    fn finish(self) -> HashMap<u32, Vec<LockMode>> {
        self.locks.into_iter().map(|(oid, modes)| (oid, modes.into_iter().collect())).collect()
    }
}

/// Returns the modes that another session can take beside `held`: all modes weaker than the first one that conflicts
/// with `held`.
fn modes_beside(held: &[LockMode]) -> &'static [LockMode] {
    let is_taken = |mode: &LockMode| held.iter().any(|held| held.conflicts_with(*mode));
    let end = LockMode::ALL.iter().position(is_taken);
    &LockMode::ALL[..end.unwrap_or(LockMode::ALL.len())]
}

/// Returns true if a session that holds `held` can take a relevant lock that conflicts with none of `modes`, so that a
/// trap with `modes` would miss the lock.
fn misses_locks(held: &[LockMode], modes: &[LockMode]) -> bool {
    let matters = |mode: &LockMode| {
        *mode >= LockMode::ShareUpdateExclusive && !held.iter().any(|held| covers(*held, *mode))
    };
    let waits = |mode: &LockMode| modes.iter().any(|other| other.conflicts_with(*mode));
    LockMode::ALL.iter().filter(|mode| matters(mode)).any(|mode| !waits(mode))
}

/// Returns SQL that locks a relation. LOCK TABLE refuses materialized views, so other statements lock these. The SQL is
/// empty for modes that no statement takes alone.
fn lock(name: &str, letter: char, mode: LockMode) -> String {
    match (letter, mode) {
        ('m', LockMode::AccessShare) => format!("SELECT FROM {name} LIMIT 0"),
        ('m', LockMode::ShareUpdateExclusive) => format!("COMMENT ON MATERIALIZED VIEW {name} IS ''"),
        ('m', LockMode::AccessExclusive) => format!("ALTER MATERIALIZED VIEW {name} OWNER TO CURRENT_USER"),
        ('m', _) => String::new(),
        _ => format!("LOCK TABLE ONLY {name} IN {mode} MODE"),
    }
}

impl Trap {
    /// Releases the modes that conflict with `wanted`. Releases all modes if `wanted` is `None`.
    fn open_for(&mut self, wanted: Option<LockMode>) -> Result<(), LaboratoryError> {
        let harmless = |wanted: LockMode| {
            LockMode::ALL.into_iter().take_while(|mode| !mode.conflicts_with(wanted)).count()
        };
        let modes = wanted.map_or(0, harmless);
        if modes < self.modes {
            let sql = if modes == 0 { "ROLLBACK".to_owned() } else { format!("ROLLBACK TO mode_{modes}") };
            self.session.query(&sql).during("release a table")?;
            self.modes = modes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_locks_leave_weaker_modes_to_others() {
        use LockMode::{AccessExclusive, AccessShare, RowExclusive, Share};
        for (held, number, misses) in [
            (&[][..], 8, false),
            (&[AccessShare], 7, false),
            (&[RowExclusive], 4, false),
            (&[Share], 2, true),
            (&[AccessExclusive], 0, false),
        ] {
            let modes = modes_beside(held);
            assert_eq!((modes.len(), misses_locks(held, modes)), (number, misses), "{held:?}");
        }
    }
}
