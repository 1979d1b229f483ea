//! Locks of a statement that PostgreSQL refuses in a transaction, or that fails, as other sessions see them.
//!
//! Such a statement may hold a lock for less than a millisecond. So a session for each table, the trap, first takes all
//! lock modes of it. The statement waits for them, and `pg_locks` names the mode that it wants. Then the trap releases only
//! the modes that conflict with this one, so that the statement waits again for each stronger mode.

use std::collections::{HashMap, HashSet};

use server::AdminConnection;

use super::ADMIN;
use super::catalog::{Catalogs, Relations};
use super::error::{During, LaboratoryError};
use super::facts::covers;
use super::questions::RelationState;
use crate::LockMode;

/// Maximum number of tables to hold. Each takes a session of the server.
const MOST: usize = 200;

/// A statement to observe, by its session.
pub(super) struct Target<'a> {
    pub(super) database: &'a str,
    pub(super) pid: u32,
    /// Relations that its transaction has locked before.
    pub(super) held: &'a HashMap<u32, RelationState>,
    /// Whether a trap opens once the statement can change the table. VACUUM does not truncate a table that another session
    /// uses.
    pub(super) opens_early: bool,
}

/// A session that holds a table.
#[derive(Debug)]
struct Trap {
    session: AdminConnection,
    pid: u32,
    /// Number of modes that it holds, from the weakest.
    modes: usize,
}

/// Observes the locks of one statement.
#[derive(Debug)]
pub(super) struct Bystander {
    database: String,
    pid: u32,
    traps: Vec<Trap>,
    opens_early: bool,
    /// Indexes. LOCK TABLE refuses them, so only their locks at the time of a wait are certain.
    indexes: HashSet<u32>,
    locks: HashMap<u32, HashSet<LockMode>>,
    /// Whether some locks cannot be seen, because a table has no trap or its own transaction keeps others from it.
    pub(super) is_incomplete: bool,
}

impl Bystander {
    /// Holds the tables with these object identifiers, before the session of `target` runs its statement.
    pub(super) fn new(
        catalogs: &mut Catalogs<'_>,
        target: &Target<'_>,
        tables: &[u32],
        relations: &Relations,
    ) -> Result<Self, LaboratoryError> {
        let mut bystander = Self {
            database: target.database.to_owned(),
            pid: target.pid,
            traps: Vec::new(),
            opens_early: target.opens_early,
            indexes: relations.iter().filter(|(_, one)| one.letter == 'i').map(|(oid, _)| *oid).collect(),
            locks: HashMap::new(),
            is_incomplete: tables.len() > MOST,
        };
        for oid in tables.iter().take(MOST) {
            let Some(relation) = relations.get(oid) else { continue };
            let held = target.held.get(oid).map_or(&[][..], |state| &state.modes);
            let modes = modes_beside(held);
            bystander.is_incomplete |= misses_locks(held, modes);
            if modes.is_empty() {
                continue;
            }
            let mut session = catalogs.open(target.database)?;
            let name =
                [&relation.name.schema, &relation.name.name].map(|part| server::identifier(part)).join(".");
            let lock = |(number, mode): (usize, &LockMode)| {
                format!("SAVEPOINT mode_{number}; {}; ", lock(&name, relation.letter, *mode))
            };
            let locks: String = modes.iter().enumerate().map(lock).collect();
            let sql = format!("BEGIN; {locks} SELECT pg_backend_pid()");
            // A transaction of another session may hold the table.
            let Ok(rows) = session.query(&sql) else {
                bystander.is_incomplete = true;
                continue;
            };
            let pid = rows.last().and_then(|row| row.first()?.as_ref()?.parse().ok()).unwrap_or(0);
            bystander.traps.push(Trap { session, pid, modes: modes.len() });
        }
        Ok(bystander)
    }

    /// Looks at the statement's locks, and opens the trap that it waits for.
    pub(super) fn look(&mut self, catalogs: &mut Catalogs<'_>) -> Result<(), LaboratoryError> {
        // The blockers come first: a session that waits for a trap has all its locks until the trap opens.
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
        // A statement that waits for no lock waits for the end of the trap's transaction.
        let is_last = |mode: LockMode| self.opens_early && mode >= LockMode::ShareUpdateExclusive;
        let wanted = wanted.filter(|mode| !is_last(*mode));
        for trap in self.traps.iter_mut().filter(|trap| blockers.contains(&trap.pid)) {
            trap.open_for(wanted)?;
        }
        Ok(())
    }

    /// Opens all traps. Returns the modes of the locks by relation.
    pub(super) fn finish(self) -> HashMap<u32, Vec<LockMode>> {
        self.locks.into_iter().map(|(oid, modes)| (oid, modes.into_iter().collect())).collect()
    }
}

/// Returns the modes that another session can take, from the weakest to the first that conflicts with one of `held`.
fn modes_beside(held: &[LockMode]) -> &'static [LockMode] {
    let is_taken = |mode: &LockMode| held.iter().any(|held| held.conflicts_with(*mode));
    let end = LockMode::ALL.iter().position(is_taken);
    &LockMode::ALL[..end.unwrap_or(LockMode::ALL.len())]
}

/// Returns true if a session with `held` can take a lock that matters and that waits for none of `modes`.
fn misses_locks(held: &[LockMode], modes: &[LockMode]) -> bool {
    let matters = |mode: &LockMode| {
        *mode >= LockMode::ShareUpdateExclusive && !held.iter().any(|held| covers(*held, *mode))
    };
    let waits = |mode: &LockMode| modes.iter().any(|other| other.conflicts_with(*mode));
    LockMode::ALL.iter().filter(|mode| matters(mode)).any(|mode| !waits(mode))
}

/// Returns SQL that locks a relation. LOCK TABLE refuses materialized views, so that other statements lock these, in some
/// modes.
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
    /// Gives up the modes that conflict with `wanted`, or all.
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
