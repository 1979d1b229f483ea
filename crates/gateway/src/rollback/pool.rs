//! The leases in rollback isolation, and the stages that wait for the next one. Blocking.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lease::{Connected, LeaseError, Databases, LeaseStatus, Request, Status};

use super::stage::{Opened, Stage};
use super::transaction::LeaseTransaction;
use crate::wire::Refusal;

/// How long a session waits for the one before it: its client may be gone already, and we have not heard of it yet.
const BUSY: Duration = Duration::from_secs(1);
/// How long a session waits for one that is known to be leaving.
const LEAVING: Duration = Duration::from_secs(15);

/// All of them.
#[derive(Debug)]
pub(crate) struct Pool {
    databases: Databases,
    /// How long a lease outlives its last session, if not told otherwise.
    linger: Duration,
    shared: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    leases: HashMap<String, Slot>,
    #[allow(clippy::vec_box, reason = "they move between here and the leases")]
    idle: Vec<Box<Stage>>,
    serial: u64,
}

#[derive(Debug)]
struct Slot {
    phase: Phase,
    linger: Duration,
    /// Whether it goes on until it is released.
    lasting: bool,
    template: Option<String>,
    since: Instant,
    /// Sessions it has had: whoever wants to end it later makes sure that there was no other.
    sessions: u64,
}

#[derive(Debug)]
enum Phase {
    /// There is no stage yet.
    Reserved,
    /// A session is in it.
    Open,
    /// A session is on its way out of it, or it is ended.
    Leaving,
    /// It waits for the next session.
    Waiting(Box<Stage>),
}

/// What a session gets.
pub(crate) enum Entered {
    Lease(Lease),
    /// A database that was made by SQL, which is nobody's lease in any isolation.
    Plain(Connected),
}

/// One session's hold of a lease. Dropped without [`Self::leave`], the lease is over.
#[derive(Debug)]
pub(crate) struct Lease {
    pool: Arc<Pool>,
    name: String,
    stage: Option<Box<Stage>>,
    /// Whether nobody else can have it.
    held: bool,
}

/// A lease that waits for its next session, for some time.
#[derive(Debug)]
pub(crate) struct Lingering {
    pool: Arc<Pool>,
    name: String,
    sessions: u64,
    pub(crate) time: Duration,
}

impl Pool {
    pub(crate) fn new(databases: Databases, linger: Duration) -> Self {
        Self { databases, linger, shared: Mutex::default(), changed: Condvar::new() }
    }

    /// Whether there is a lease of that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.lock().leases.contains_key(name)
    }

    /// Begins a lease without a session; a name is made up where none is given. It lasts until it is released.
    pub(crate) fn reserve(
        &self,
        name: Option<&str>,
        template: Option<&str>,
    ) -> Result<String, LeaseError> {
        let name = name.map_or_else(|| self.made_up(), str::to_owned);
        self.clear(&name);
        self.databases.expect_free(&name)?;
        let mut shared = self.lock();
        if shared.leases.contains_key(&name) {
            return Err(LeaseError::Leased(name));
        }
        let template = template.map(str::to_owned);
        shared.leases.insert(name.clone(), Slot::new(Phase::Reserved, template, self.linger, true));
        Ok(name)
    }

    /// Leases a database of its own instead.
    pub(crate) fn lease_clone(
        &self,
        name: Option<&str>,
        template: Option<&str>,
    ) -> Result<String, LeaseError> {
        if let Some(name) = name {
            if self.has(name) {
                return Err(LeaseError::Leased(name.to_owned()));
            }
            self.clear(name);
        }
        self.databases.lease(name, template)
    }

    fn made_up(&self) -> String {
        let mut shared = self.lock();
        shared.serial += 1;
        format!("rollback_{}", shared.serial)
    }

    /// Gives a session the lease of that name, or a new one.
    ///
    /// # Errors
    /// The ErrorResponse that says why: somebody else is in it, or it has a session of another kind.
    pub(crate) fn enter(self: &Arc<Self>, request: &Request<'_>) -> Result<Entered, Vec<u8>> {
        let name = request.database;
        let mut shared = self.lock_when_free(name)?;
        let slot = shared.leases.entry(name.to_owned()).or_insert_with(|| {
            let linger = request.linger.unwrap_or(self.linger);
            Slot::new(Phase::Reserved, request.template.map(str::to_owned), linger, false)
        });
        if let Phase::Waiting(stage) = &slot.phase
            && stage.kind != *request.kind
            && !request.reset
        {
            return Err(other_kind(name).to_bytes());
        }
        slot.sessions += 1;
        let template = slot.template.clone();
        let before = std::mem::replace(&mut slot.phase, Phase::Open);
        drop(shared);
        let mut lease = Lease { pool: Arc::clone(self), name: name.to_owned(), stage: None, held: true };
        if let Phase::Waiting(stage) = before {
            if request.reset {
                self.retire(stage, true);
            } else if stage.is_alive() {
                lease.stage = Some(stage);
                return Ok(Entered::Lease(lease));
            }
        }
        match self.furnish(&Request { template: template.as_deref(), ..request.clone() }) {
            Ok(Opened::Stage(stage)) => {
                lease.stage = Some(stage);
                Ok(Entered::Lease(lease))
            }
            Ok(Opened::Plain(connected)) => Ok(Entered::Plain(connected)),
            Err(LeaseError::Leased(_)) => Err(elsewhere(name, "clone").to_bytes()),
            Err(error) => Err(Refusal::words(error)),
        }
    }

    /// Waits, with a bound, until nobody is in the lease of that name.
    fn lock_when_free(&self, name: &str) -> Result<MutexGuard<'_, State>, Vec<u8>> {
        let begun = Instant::now();
        let mut shared = self.lock();
        loop {
            let patience = match shared.leases.get(name).map(|slot| &slot.phase) {
                None | Some(Phase::Reserved | Phase::Waiting(_)) => return Ok(shared),
                Some(Phase::Open) => BUSY,
                Some(Phase::Leaving) => LEAVING,
            };
            let Some(left) = patience.checked_sub(begun.elapsed()) else { return Err(busy(name).to_bytes()) };
            shared = self.changed.wait_timeout(shared, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Finds a stage for a new lease, or opens one.
    fn furnish(&self, request: &Request<'_>) -> Result<Opened, LeaseError> {
        let name = request.database;
        let waiting = {
            let mut shared = self.lock();
            let fits = |stage: &Stage| {
                stage.kind == *request.kind
                    && stage.template.as_deref() == request.template
                    && stage.is_alive()
            };
            let called = shared.idle.iter().position(|stage| stage.name == name && fits(stage));
            let at = called.or_else(|| shared.idle.iter().position(|stage| fits(stage)));
            at.map(|at| shared.idle.remove(at))
        };
        if waiting.as_ref().is_none_or(|stage| stage.name != name) {
            self.clear(name);
        }
        if let Some(mut stage) = waiting {
            match stage.pass_on(name) {
                Ok(true) => return Ok(Opened::Stage(stage)),
                // By a lease in another isolation, or by SQL.
                Err(LeaseError::Leased(_)) => self.lock().idle.push(stage),
                Ok(false) | Err(_) => self.close(stage),
            }
        }
        match Stage::open(&self.databases, request) {
            Err(LeaseError::Full { .. }) => {
                self.vacate();
                Stage::open(&self.databases, request)
            }
            other => other,
        }
    }

    /// Closes what waits under that name for another lease: somebody else wants the name.
    pub(crate) fn clear(&self, name: &str) {
        let closed: Vec<_> = self.lock().idle.extract_if(.., |stage| stage.name == name).collect();
        for stage in closed {
            self.close(stage);
        }
    }

    /// Closes a stage, and waits until its database has left its name.
    fn close(&self, stage: Box<Stage>) {
        let name = stage.name.clone();
        drop(stage);
        // It has begun to end; now it has ended.
        let _ = self.databases.release(&name);
    }

    /// Closes all stages that no lease has.
    pub(crate) fn vacate(&self) {
        let closed = std::mem::take(&mut self.lock().idle);
        drop(closed);
    }

    /// Ends the lease of that name, in whatever isolation, with its sessions.
    pub(crate) fn release(&self, name: &str) -> Result<(), LeaseError> {
        self.clear(name);
        if self.end(name, true, true)? { Ok(()) } else { self.databases.release(name) }
    }

    /// Returns the lease of that name, in whatever isolation, to the state of its template. Its sessions are closed if
    /// `close`, else they are an error.
    pub(crate) fn reset(&self, name: &str, close: bool) -> Result<(), LeaseError> {
        self.clear(name);
        if self.end(name, false, close)? { Ok(()) } else { self.databases.reset(name, close) }
    }

    /// Makes a template of the lease of that name.
    ///
    /// # Errors
    /// One in rollback isolation cannot be copied: nobody sees what is in its transaction.
    pub(crate) fn snapshot(&self, name: &str, template: &str, close: bool) -> Result<(), LeaseError> {
        if self.has(name) {
            return Err(LeaseError::Uncommitted(name.to_owned()));
        }
        self.clear(name);
        self.databases.snapshot(name, template, close)
    }

    /// Ends a lease of ours, or begins it anew; false if there is none of that name.
    fn end(&self, name: &str, for_good: bool, close: bool) -> Result<bool, LeaseError> {
        let mut shared = self.lock();
        let Some(slot) = shared.leases.get_mut(name) else { return Ok(false) };
        match std::mem::replace(&mut slot.phase, Phase::Leaving) {
            Phase::Waiting(stage) => {
                drop(shared);
                self.retire(stage, true);
                shared = self.lock();
            }
            Phase::Reserved => {}
            phase if !close => {
                slot.phase = phase;
                return Err(LeaseError::InUse { name: name.to_owned(), sessions: 1 });
            }
            phase => {
                slot.phase = phase;
                slot.lasting &= !for_good;
                drop(shared);
                // Ends the session from the other side; what holds the lease lets go of it then.
                match self.databases.release(name) {
                    Ok(()) | Err(LeaseError::NotLeased(_)) => {}
                    Err(error) => return Err(error),
                }
                return Ok(true);
            }
        }
        if for_good || !shared.leases.get(name).is_some_and(|slot| slot.lasting) {
            shared.leases.remove(name);
        } else if let Some(slot) = shared.leases.get_mut(name) {
            slot.phase = Phase::Reserved;
        }
        drop(shared);
        self.changed.notify_all();
        Ok(true)
    }

    /// Ends the lease that a stage was for, and keeps it for another if `keep` and if all is well.
    fn retire(&self, mut stage: Box<Stage>, keep: bool) {
        if keep && stage.end_lease().is_ok() {
            self.lock().idle.push(stage);
        }
    }

    /// Puts right what the databases say of themselves: those that wait for a lease have none, and a lease that waits for
    /// a session has none.
    pub(crate) fn correct(&self, status: &mut Status) {
        let shared = self.lock();
        let is_idle = |name: &str| shared.idle.iter().any(|stage| stage.name == name);
        status
            .leases
            .retain(|lease| shared.leases.contains_key(&lease.database) || !is_idle(&lease.database));
        for (name, slot) in &shared.leases {
            let (sessions, age) = (usize::from(matches!(slot.phase, Phase::Open)), slot.since.elapsed());
            if let Some(lease) = status.leases.iter_mut().find(|lease| lease.database == *name) {
                (lease.sessions, lease.age) = (sessions, age);
                continue;
            }
            let template = slot.template.clone().or_else(|| Some(status.ready.first()?.0.clone()));
            let (database, template) = (name.clone(), template.unwrap_or_default());
            status.leases.push(LeaseStatus { database, template, sessions, age });
        }
        status.leases.sort_by(|one, other| one.database.cmp(&other.database));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn new(phase: Phase, template: Option<String>, linger: Duration, lasting: bool) -> Self {
        Self { phase, linger, lasting, template, since: Instant::now(), sessions: 0 }
    }
}

impl Lease {
    /// The session and its greeting, for a client, and the transaction that it goes on in.
    pub(crate) fn lend(&mut self) -> Option<(UnixStream, Vec<u8>, LeaseTransaction)> {
        let stage = self.stage.as_mut()?;
        let stream = stage.lend().ok()?;
        Some((stream, stage.greeting.clone(), stage.thread.clone()))
    }

    /// The client has gone; the session is on its way back.
    pub(crate) fn leaving(&self) {
        self.set_phase(Phase::Leaving);
    }

    /// Takes the session back. `saved`: a transaction of the client's is still open. `keep`: its stage may serve another
    /// lease. Returns the lease if it waits for another session for some time.
    pub(crate) fn leave(
        mut self,
        stream: UnixStream,
        thread: LeaseTransaction,
        saved: bool,
        keep: bool,
    ) -> Option<Lingering> {
        let mut stage = self.stage.take()?;
        stage.take_back(stream, thread);
        let (linger, lasting, sessions) = {
            let shared = self.pool.lock();
            let slot = shared.leases.get(&self.name)?;
            (slot.linger, slot.lasting, slot.sessions)
        };
        if linger.is_zero() && !lasting {
            self.pool.retire(stage, keep);
            return None;
        }
        stage.forget_session(saved).ok()?;
        // From here on it may be somebody else's.
        self.held = false;
        self.set_phase(Phase::Waiting(stage));
        let (pool, name) = (Arc::clone(&self.pool), self.name.clone());
        (!lasting).then_some(Lingering { pool, name, sessions, time: linger })
    }

    fn set_phase(&self, phase: Phase) {
        if let Some(slot) = self.pool.lock().leases.get_mut(&self.name) {
            slot.phase = phase;
        }
        self.pool.changed.notify_all();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.stage.take());
        if !self.held {
            return;
        }
        let mut shared = self.pool.lock();
        if let Some(slot) = shared.leases.get_mut(&self.name) {
            if slot.lasting {
                slot.phase = Phase::Reserved;
            } else {
                shared.leases.remove(&self.name);
            }
        }
        drop(shared);
        self.pool.changed.notify_all();
    }
}

impl Lingering {
    /// Ends the lease, unless it has had another session.
    pub(crate) fn end(self, keep: bool) {
        let Self { pool, name, sessions, .. } = self;
        let mut shared = pool.lock();
        let Some(slot) = shared.leases.get_mut(&name) else { return };
        if slot.sessions != sessions || !matches!(slot.phase, Phase::Waiting(_)) {
            return;
        }
        let Phase::Waiting(stage) = std::mem::replace(&mut slot.phase, Phase::Leaving) else { return };
        drop(shared);
        pool.retire(stage, keep);
        pool.lock().leases.remove(&name);
        pool.changed.notify_all();
    }
}

fn busy(name: &str) -> Refusal {
    Refusal::new("55006", format!("database \"{name}\" has a session already"))
        .detail("In rollback isolation all sessions of a lease share one transaction, one after another.")
        .hint(
            "Close the other one first, or use isolation \"clone\" for tests with several sessions at once.",
        )
}

fn other_kind(name: &str) -> Refusal {
    Refusal::new("55006", format!("database \"{name}\" has a session with other start-up parameters"))
        .detail("In rollback isolation a lease has one session of the server's, with one user and set of parameters.")
        .hint("Connect as before, or use isolation \"clone\".")
}

/// The name is leased in another isolation.
pub(crate) fn elsewhere(name: &str, isolation: &str) -> Refusal {
    Refusal::new("55006", format!("database \"{name}\" is leased in isolation \"{isolation}\""))
        .hint("Release it first, or choose another name.")
}
