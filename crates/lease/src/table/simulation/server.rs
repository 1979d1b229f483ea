//! Simulates a server with databases and sessions. Sessions find databases by name, which SQL may change at any moment.

use std::collections::BTreeMap;

use super::super::{DatabaseId, Outcome, Proof, Source, TaskKind};
use super::NAMES;
use super::random::Random;
use crate::isolation::Isolation;

/// Names given to databases by SQL, which also uses clients' names.
const OTHER_NAMES: [&str; 2] = ["y", "z"];

/// How many databases SQL may create before having to drop one. Each takes up a name requested by clients.
const MOST_OF_SQL: usize = 1;

/// Identifies a database in the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Oid {
    /// pgfresh created the database for the table.
    Made(DatabaseId),
    /// A database that pgfresh doesn't manage. SQL created it, or renamed one of pgfresh's databases.
    OfSql(u64),
}

/// A database in the server.
#[derive(Debug, Default, Clone)]
pub(super) struct Copy {
    /// Name of the database. `None` stands for one of pgfresh's own names.
    pub(super) name: Option<String>,
    /// The last name given by pgfresh. If the database has a different name now, it belongs to SQL.
    pub(super) given: Option<String>,
    /// Whether the database differs from its template.
    pub(super) dirty: bool,
    /// Whether a rollback would undo the differences, because their transaction is still open.
    pub(super) uncommitted: bool,
    /// Whether the database is in a leased server.
    is_apart: bool,
}

impl Copy {
    pub(super) fn is_of_sql(&self) -> bool {
        self.name != self.given
    }

    fn give_name(&mut self, name: Option<String>) {
        (self.name, self.given) = (name.clone(), name);
    }
}

/// The circumstances of a task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances {
    /// Whether everything goes well.
    pub(super) is_lucky: bool,
    /// Whether the lease is in rollback isolation.
    pub(super) is_rolled_back: bool,
    /// Whether the next lease can reuse this lease's session.
    pub(super) keeps_session: bool,
}

/// Checks that protect pgfresh when SQL has given a name to another database. Tests disable them to see the simulation
/// fail.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checks {
    /// Whether pgfresh asks for the oid of a session's database before using the session.
    pub(super) sessions: bool,
    /// Whether statements change a database only if it still has a name given by pgfresh.
    pub(super) statements: bool,
}

#[derive(Debug)]
pub(super) struct FakeServer {
    pub(super) databases: BTreeMap<Oid, Copy>,
    /// Idle backends, each with two databases: the table's database whose next client the backend waits for,
    /// and the database that the backend is really connected to. These differ after SQL has renamed databases.
    pub(super) waiting: Vec<(DatabaseId, Oid)>,
    checks: Checks,
    last: u64,
}

impl FakeServer {
    pub(super) fn new(checks: Checks) -> Self {
        Self { databases: BTreeMap::new(), waiting: Vec::new(), checks, last: 0 }
    }

    pub(super) fn copy(&self, id: DatabaseId) -> Option<&Copy> {
        self.databases.get(&Oid::Made(id))
    }

    pub(super) fn named(&self, name: &str) -> Option<Oid> {
        let has = |(_, copy): &(&Oid, &Copy)| !copy.is_apart && copy.name.as_deref() == Some(name);
        self.databases.iter().find(has).map(|(oid, _)| *oid)
    }

    /// Starts a session for a lease, in an idle backend or a new one. Returns the session's database.
    pub(super) fn enter(&mut self, id: DatabaseId, name: &str, isolation: Isolation) -> Option<Oid> {
        let made = Oid::Made(id);
        if isolation != Isolation::Clone {
            return self.databases.contains_key(&made).then_some(made);
        }
        let has_name = self.copy(id).is_some_and(|copy| copy.name.as_deref() == Some(name));
        if let Some(at) = self.waiting.iter().position(|(of, _)| *of == id && has_name) {
            return Some(self.waiting.swap_remove(at).1);
        }
        self.start(id, Some(name))
    }

    /// Starts a session that must be in one of the table's databases, by name. `None` stands for the name that pgfresh
    /// itself uses.
    fn start(&self, id: DatabaseId, name: Option<&str>) -> Option<Oid> {
        let found = match name {
            Some(name) => self.named(name)?,
            None => self.copy(id).filter(|copy| copy.name.is_none()).map(|_| Oid::Made(id))?,
        };
        (!self.checks.sessions || found == Oid::Made(id)).then_some(found)
    }

    /// Hands a database forgotten by pgfresh over to SQL.
    pub(super) fn forget(&mut self, id: DatabaseId) {
        self.waiting.retain(|(of, _)| *of != id);
        if let Some(copy) = self.databases.remove(&Oid::Made(id)) {
            assert!(copy.is_of_sql(), "{id:?} was forgotten in the server: {copy:?}");
            self.insert_of_sql(Copy { given: None, ..copy });
        }
    }

    fn insert_of_sql(&mut self, copy: Copy) {
        self.last += 1;
        self.databases.insert(Oid::OfSql(self.last), copy);
    }

    /// Simulates a user's SQL on a database without sessions, which may be one of pgfresh's.
    pub(super) fn sql(&mut self, random: &mut Random, is_in_use: impl Fn(Oid) -> bool) {
        let of_sql: Vec<_> =
            self.databases.keys().filter(|oid| matches!(oid, Oid::OfSql(_))).copied().collect();
        if of_sql.len() > MOST_OF_SQL {
            self.databases.remove(&random.pick(&of_sql));
            return;
        }
        let free = |(oid, copy): (&Oid, &Copy)| (!copy.is_apart && !is_in_use(*oid)).then_some(*oid);
        let all: Vec<_> = self.databases.iter().filter_map(free).collect();
        let name = random.pick(&[&NAMES[..], &OTHER_NAMES].concat()).to_owned();
        if all.is_empty() {
            return self.insert_of_sql(Copy { name: Some(name), dirty: true, ..Copy::default() });
        }
        let (one, other) = (random.pick(&all), random.pick(&all));
        let is_taken = self.named(&name).is_some();
        // Before a client does any of this, pgfresh closes the idle backends.
        self.waiting.retain(|(_, inside)| *inside != one && *inside != other);
        match random.below(6) {
            0 | 1 if !is_taken => self.rename(one, Some(name)),
            2 => {
                let [a, b] = [one, other].map(|oid| self.databases[&oid].name.clone());
                self.rename(one, b);
                self.rename(other, a);
            }
            3 if !is_taken => {
                let copy = self.databases[&one].clone();
                self.insert_of_sql(Copy { name: Some(name), given: None, ..copy });
            }
            4 => {
                // Another database receives the dropped one's name.
                let gone = self.databases.remove(&one);
                let name = gone.and_then(|copy| copy.name).filter(|_| random.one_in(2));
                if name.is_some() {
                    self.insert_of_sql(Copy { name, dirty: true, ..Copy::default() });
                }
            }
            _ => {}
        }
    }

    fn rename(&mut self, oid: Oid, name: Option<String>) {
        if let Some(copy) = self.databases.get_mut(&oid) {
            copy.name = name;
        }
    }

    /// Runs a task on one of the table's databases.
    pub(super) fn run(&mut self, id: DatabaseId, kind: &TaskKind, found: Circumstances) -> Outcome {
        if let TaskKind::Create(source) = kind {
            let is_apart = matches!(source, Source::Server(_));
            self.databases.insert(Oid::Made(id), Copy { is_apart, ..Copy::default() });
            return Outcome::Fresh(Proof::new());
        }
        // Each statement specifies which names the database may have now.
        let is_changed = |copy: &Copy| !copy.is_of_sql() || !self.checks.statements;
        let is_there = self.copy(id).is_some_and(is_changed);
        if *kind == TaskKind::Drop {
            let dropped = if is_there { self.databases.remove(&Oid::Made(id)) } else { None };
            assert!(
                !dropped.as_ref().is_some_and(Copy::is_of_sql),
                "{id:?} is SQL's, and dropped: {dropped:?}"
            );
            return Outcome::Done;
        }
        if let TaskKind::Name { to, .. } | TaskKind::Keep { to } = kind
            && is_there
            && self
                .databases
                .iter()
                .any(|(oid, copy)| *oid != Oid::Made(id) && copy.name.as_ref() == Some(to))
        {
            return Outcome::NameTaken;
        }
        if !is_there {
            return if matches!(kind, TaskKind::Reset { .. }) {
                Outcome::Doubt("gone")
            } else {
                Outcome::DroppedOrRenamed
            };
        }
        match kind {
            TaskKind::Name { to, isolation, .. } => {
                self.give_name(id, Some(to));
                // A client may have changed settings after the session started.
                let is_unfit = *isolation == Isolation::Rollback && !found.is_lucky;
                if is_unfit { Outcome::Stale } else { Outcome::Done }
            }
            TaskKind::Keep { to } => {
                self.give_name(id, Some(to));
                Outcome::Done
            }
            TaskKind::Unname => {
                self.give_name(id, None);
                Outcome::Done
            }
            TaskKind::Reset { .. } if !found.is_lucky => Outcome::Doubt("chance"),
            TaskKind::Reset { .. } => self.reset(id, found),
            _ => Outcome::Done,
        }
    }

    fn give_name(&mut self, id: DatabaseId, name: Option<&String>) {
        if let Some(copy) = self.databases.get_mut(&Oid::Made(id)) {
            copy.give_name(name.cloned());
            copy.uncommitted &= copy.name.is_some();
        }
    }

    /// Resets the database that this session is really in. The log shows only changes to the database with the expected
    /// oid.
    fn reset(&mut self, id: DatabaseId, found: Circumstances) -> Outcome {
        let waits = self.waiting.iter().find(|(of, _)| *of == id).map(|(_, inside)| *inside);
        let name = self.copy(id).and_then(|copy| copy.name.clone());
        let is_named = name.is_some();
        let inside = if found.is_rolled_back {
            Some(Oid::Made(id))
        } else {
            waits.or_else(|| self.start(id, name.as_deref()))
        };
        let Some(copy) = inside.and_then(|oid| self.databases.get_mut(&oid)) else {
            return Outcome::Doubt("gone");
        };
        assert!(!copy.is_of_sql(), "the reset of {id:?} empties what is SQL's: {copy:?}");
        (copy.dirty, copy.uncommitted) = (false, false);
        if is_named && found.is_rolled_back && !found.keeps_session {
            return Outcome::SessionSpent;
        }
        Outcome::Fresh(Proof::new())
    }
}
