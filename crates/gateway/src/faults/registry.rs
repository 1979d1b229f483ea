//! Stores the faults of all leases in a gateway.
//!
//! Clients request faults for a lease by its name. A fault ends when its lease ends or is reset. The registry doesn't
//! learn of every end, so it detects a new lease by comparing start times.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use contract::{FaultDescription, FaultList};
use lease::{Isolation, LeaseError, Leases, cut};
use sys::lock;

use super::fault::{Fault, FaultEffect};
use super::lease_faults::LeaseFaults;
use crate::stream::SocketLink;

/// Number of leases above which the registry removes those that have ended.
const REMOVE_THRESHOLD: usize = 512;
/// How long a new fault waits until the open sessions obey it. A session that is still running a statement obeys
/// afterwards.
const OBEY_TIMEOUT: Duration = Duration::from_secs(5);

/// A fault that a test requested but that never fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfiredFault {
    /// Name of the test's database.
    pub database: String,
    /// Description of the fault.
    pub fault: String,
}

/// A planned fault whose lease has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFault {
    /// Number of the lease.
    pub lease: u64,
    /// Name of the lease's database.
    pub database: String,
    /// The fault, and how often it has fired.
    pub fault: FaultDescription,
    /// When the fault first fired. `None` if it has never fired.
    pub since: Option<Instant>,
}

/// The faults of all leases.
#[derive(Debug, Default)]
pub struct Faults {
    /// Whether any fault has been requested or planned.
    in_use: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Leases by database name. Some may have ended.
    leases: HashMap<String, KnownLease>,
    /// Faults planned for future leases, by lease number.
    planned: BTreeMap<u64, Vec<Fault>>,
    /// Planned faults whose leases have begun.
    placed: Vec<PlacedFault>,
    /// Whether any fault has been planned, which makes the registry count leases.
    counts: bool,
    /// Number of leases that have begun since the first plan.
    begun: u64,
    unfired: Vec<UnfiredFault>,
    remove_at: usize,
}

/// A lease and its faults.
#[derive(Debug)]
struct KnownLease {
    /// When the lease got its database. `None` before that: in rollback isolation, a lease gets its database at its
    /// first session.
    since: Option<Instant>,
    faults: Arc<LeaseFaults>,
    /// Whether the lease can have faults, so that its sessions must obey. The registry only counts the other leases.
    is_faulty: bool,
}

#[derive(Debug)]
struct PlacedFault {
    lease: u64,
    database: String,
    faults: Arc<LeaseFaults>,
    number: u64,
}

impl Faults {
    /// Adds a fault to the lease `name` and returns its description. Blocks until the lease's open sessions obey the
    /// fault.
    ///
    /// # Errors
    ///
    /// Returns [`LeaseError::NoFaults`] if no lease has this name. Returns [`LeaseError::Writable`] for a failover that
    /// would make the lease read-only although its isolation doesn't allow this.
    pub fn add(&self, name: &str, fault: Fault, leases: &Leases) -> Result<FaultDescription, LeaseError> {
        let is_read_only = matches!(fault.effect, FaultEffect::Failover { read_only: Some(_), .. });
        if is_read_only && leases.isolation(name) == Some(Isolation::Rollback) {
            return Err(LeaseError::Writable(name.to_owned()));
        }
        let (waiting, obeyed) = mpsc::channel();
        let faults = self.order(name, &waiting, leases)?;
        drop(waiting);
        // The sessions already have their orders, so a failover ends them. Sessions that start from now on see the
        // fault.
        let number = faults.add(fault);
        // Sessions don't send anything. The channel closes once the last session obeys.
        if obeyed.recv_timeout(OBEY_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            tracing::debug!(database = name, "a session is busy, so it obeys a fault later");
        }
        let (fault, _) = faults.describe(number).ok_or_else(|| LeaseError::NoFaults(name.to_owned()))?;
        Ok(fault)
    }

    /// Orders all open sessions of the lease `name` to obey its faults, even if there are none yet. Returns these
    /// faults. Each session drops a clone of `waiting` once it obeys.
    ///
    /// # Errors
    ///
    /// Returns [`LeaseError::NoFaults`] if no lease has this name.
    pub(crate) fn order(
        &self,
        name: &str,
        waiting: &mpsc::Sender<()>,
        leases: &Leases,
    ) -> Result<Arc<LeaseFaults>, LeaseError> {
        let faults = self.of_lease(name, leases)?;
        for link in leases.client_links(name) {
            if let Ok(link) = (link as Arc<dyn Any + Send + Sync>).downcast::<SocketLink>() {
                link.notices.order(&faults, Some(waiting.clone()), None);
            }
        }
        Ok(faults)
    }

    fn of_lease(&self, name: &str, leases: &Leases) -> Result<Arc<LeaseFaults>, LeaseError> {
        self.in_use.store(true, Ordering::SeqCst);
        let since = start_of(name, leases).map_err(|_| LeaseError::NoFaults(name.to_owned()))?;
        let mut state = lock(&self.state);
        state.remove_ended(leases);
        let lease = state.lease(name, since);
        lease.is_faulty = true;
        Ok(Arc::clone(&lease.faults))
    }

    /// Returns the effect that replaces a new session in the database `name`, before the session joins a lease.
    pub(crate) fn admit(&self, name: &str, leases: &Leases) -> Option<(FaultEffect, Arc<LeaseFaults>)> {
        if !self.in_use.load(Ordering::SeqCst) {
            return None;
        }
        let faults = self.current(name, leases)?;
        Some((faults.admit()?, faults))
    }

    /// Returns true while the lease `name` still has these `faults`.
    pub(crate) fn is_current(&self, name: &str, faults: &Arc<LeaseFaults>, leases: &Leases) -> bool {
        self.current(name, leases).is_some_and(|current| Arc::ptr_eq(&current, faults))
    }

    fn current(&self, name: &str, leases: &Leases) -> Option<Arc<LeaseFaults>> {
        let since = start_of(name, leases).ok()?;
        let state = lock(&self.state);
        let lease = state.leases.get(cut(name)).filter(|lease| !lease.is_over(since))?;
        Some(Arc::clone(&lease.faults))
    }

    /// Returns the faults of the lease `name`.
    ///
    /// # Errors
    /// Returns [`LeaseError::NotLeased`] if no lease has this name.
    pub fn list(&self, name: &str, leases: &Leases) -> Result<FaultList, LeaseError> {
        start_of(name, leases)?;
        Ok(self.current(name, leases).map_or_else(FaultList::default, |faults| faults.list()))
    }

    /// Ends the faults of the lease `name`, because the lease ends or is reset. Returns descriptions of the faults that
    /// never fired. `is_reported` means that the caller reports them to the client.
    pub fn test_ended(&self, name: &str, is_reported: bool) -> Vec<String> {
        let mut state = lock(&self.state);
        let Some(lease) = state.leases.remove(cut(name)) else { return Vec::new() };
        let unfired = lease.faults.unfired();
        if !is_reported {
            state.report(name, &lease);
        }
        unfired
    }

    /// Ends all faults. Returns those that never fired and weren't reported to their clients.
    #[must_use]
    pub fn finish(&self) -> Vec<UnfiredFault> {
        let mut state = lock(&self.state);
        let mut rest: Vec<_> = std::mem::take(&mut state.leases).into_iter().collect();
        rest.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (name, lease) in rest {
            state.report(&name, &lease);
        }
        std::mem::take(&mut state.unfired)
    }

    /// Plans a fault for a future lease. `lease` is the lease's number, counted from 1 since the first call, in the
    /// order of the leases' first sessions. A reset lease counts as a new one.
    pub fn plan(&self, lease: u64, fault: Fault) {
        let mut state = lock(&self.state);
        state.counts = true;
        state.planned.entry(lease).or_default().push(fault);
        self.in_use.store(true, Ordering::SeqCst);
    }

    /// Returns the planned faults whose leases have begun.
    #[must_use]
    pub fn planned(&self) -> Vec<PlannedFault> {
        let described = |placed: &PlacedFault| {
            let (fault, since) = placed.faults.describe(placed.number)?;
            let (lease, database) = (placed.lease, placed.database.clone());
            Some(PlannedFault { lease, database, fault, since })
        };
        lock(&self.state).placed.iter().filter_map(described).collect()
    }

    /// Returns the faults for a new session in the lease `name`, or `None` if the lease has none. `reset` means that
    /// the session requested a reset of the lease.
    pub(crate) fn for_session(&self, name: &str, reset: bool, leases: &Leases) -> Option<Arc<LeaseFaults>> {
        if !self.in_use.load(Ordering::SeqCst) {
            return None;
        }
        let (since, _) = leases.leased(name)?;
        let mut state = lock(&self.state);
        state.remove_ended(leases);
        let known = state.leases.get(cut(name)).is_some_and(|lease| lease.since == Some(since));
        if reset && let Some(before) = state.leases.remove(cut(name)) {
            state.report(name, &before);
        }
        if state.counts && (reset || !known) {
            state.start(name, since);
        }
        if !state.leases.contains_key(cut(name)) {
            return None;
        }
        let lease = state.lease(name, Some(since));
        lease.is_faulty.then(|| Arc::clone(&lease.faults))
    }
}

impl State {
    /// Returns the lease `name` that got its database at `since`. `None` means that the lease has no database yet.
    fn lease(&mut self, name: &str, since: Option<Instant>) -> &mut KnownLease {
        let ended = self.leases.get(cut(name)).is_some_and(|lease| lease.is_over(since));
        if ended && let Some(before) = self.leases.remove(cut(name)) {
            self.report(name, &before);
        }
        let new = || KnownLease { since, faults: Arc::default(), is_faulty: false };
        let lease = self.leases.entry(cut(name).to_owned()).or_insert_with(new);
        lease.since = lease.since.or(since);
        lease
    }

    /// Counts a new lease and adds the faults planned for it.
    fn start(&mut self, name: &str, since: Instant) {
        self.begun += 1;
        let planned = self.planned.remove(&self.begun).unwrap_or_default();
        let lease = self.lease(name, Some(since));
        lease.is_faulty |= !planned.is_empty();
        let faults = Arc::clone(&lease.faults);
        for fault in planned {
            let number = faults.add_planned(fault);
            let (lease, database) = (self.begun, cut(name).to_owned());
            self.placed.push(PlacedFault { lease, database, faults: Arc::clone(&faults), number });
        }
    }

    /// Records the faults of an ended lease that never fired.
    fn report(&mut self, name: &str, lease: &KnownLease) {
        let unfired = |fault| UnfiredFault { database: cut(name).to_owned(), fault };
        self.unfired.extend(lease.faults.unfired().into_iter().map(unfired));
    }

    /// Removes ended leases if there are many leases.
    fn remove_ended(&mut self, leases: &Leases) {
        if self.leases.len() < self.remove_at.max(REMOVE_THRESHOLD) {
            return;
        }
        let is_over = |name: &str, lease: &KnownLease| {
            start_of(name, leases).map_or(true, |since| lease.is_over(since))
        };
        let over: Vec<_> = self.leases.extract_if(|name, lease| is_over(name, lease)).collect();
        for (name, lease) in over {
            self.report(&name, &lease);
        }
        self.remove_at = 2 * self.leases.len();
    }
}

impl KnownLease {
    /// Returns true if this lease has ended and another lease of its name got its database at `since`.
    fn is_over(&self, since: Option<Instant>) -> bool {
        self.since.is_some() && since.is_some() && self.since != since
    }
}

/// Returns when the lease `name` got its database, or `None` if it doesn't have one yet.
fn start_of(name: &str, leases: &Leases) -> Result<Option<Instant>, LeaseError> {
    match leases.leased(name) {
        Some((since, _)) => Ok(Some(since)),
        None if leases.isolation(name).is_some() => Ok(None),
        None => Err(LeaseError::NotLeased(name.to_owned())),
    }
}
