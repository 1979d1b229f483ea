//! Reports the status of all leases, for users and programs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use sys::lock;

use crate::isolation::Isolation;
use crate::reset::digest::Difference;
use crate::runtime::leases::Leases;
use crate::runtime::shared::SharedStateChange;
use crate::table::Source;
use crate::table::linger::LingerUse;

/// Timeout for the final check. A suspended server doesn't respond, and pgfresh is about to stop the server anyway.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// How often [`Leases::settle`] checks whether enough databases are ready. Only benchmarks need this.
const SETTLE_INTERVAL: Duration = Duration::from_millis(5);

/// Current leases and ready databases, plus counts since startup.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Number of ready databases, by template.
    pub ready: Vec<(String, usize)>,
    /// Leases, by name.
    pub leases: Vec<LeaseStatus>,
    /// Number of databases created since startup and the total time spent creating them.
    pub created: (u64, Duration),
    /// Number of sessions served by an idle backend.
    pub warm: u64,
    /// Number of sessions that had to wait for a new backend.
    pub cold: u64,
    /// Number of databases recycled and the total time spent recycling them.
    pub recycled: (u64, Duration),
    /// Number of databases that pgfresh dropped because it couldn't recycle them, by reason.
    pub dropped: Vec<(&'static str, u64)>,
    /// Differences between recycled databases and their templates. Any difference is a bug in pgfresh.
    pub differences: Vec<Difference>,
    /// Changes to the state that all databases share.
    pub leaks: Vec<SharedStateChange>,
    /// Number of background tasks that failed, by purpose.
    pub errors: Vec<(&'static str, u64)>,
}

/// The status of one lease.
#[derive(Debug, Clone)]
pub struct LeaseStatus {
    /// Name of the leased database.
    pub database: String,
    /// Name of its template.
    pub template: String,
    /// Isolation of the lease.
    pub isolation: Isolation,
    /// Number of open sessions.
    pub sessions: usize,
    /// When the lease received its database.
    pub since: Instant,
    /// Time from `since` to this status.
    pub age: Duration,
}

impl Leases {
    /// Waits until pgfresh has as many ready databases as it keeps in reserve, or until `timeout` has passed.
    pub fn settle(&self, timeout: Duration) {
        let begun = Instant::now();
        while !self.0.lock().table.is_supplied() && begun.elapsed() < timeout {
            thread::sleep(SETTLE_INTERVAL);
        }
    }

    /// Returns the current status.
    #[must_use]
    pub fn status(&self) -> Status {
        let templates: Vec<_> =
            lock(&self.0.templates).iter().map(|template| template.name.clone()).collect();
        // If pgfresh hasn't started watching the shared state, it can't have found any changes.
        let leaks = self.0.shared.get().map(|watch| lock(watch).found()).unwrap_or_default();
        let core = self.0.lock();
        let ready = |name: &String| core.table.ready(&Source::Template(name.clone()));
        let now = Instant::now();
        let leases = core.table.leases().into_iter().map(|lease| LeaseStatus {
            since: lease.since.unwrap_or(now),
            database: lease.name,
            isolation: lease.terms.isolation,
            template: lease.terms.template,
            sessions: lease.sessions,
            age: lease.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
        });
        let (counters, table) = (&core.counters, &core.table);
        let mut errors: Vec<_> = counters.errors.iter().map(|(verb, count)| (*verb, *count)).collect();
        errors.sort_unstable();
        Status {
            ready: templates.iter().map(|name| (name.clone(), ready(name))).collect(),
            leases: leases.collect(),
            created: counters.created,
            warm: counters.warm,
            cold: counters.cold,
            recycled: counters.recycled,
            dropped: table.dropped.iter().map(|(reason, count)| (*reason, *count)).collect(),
            differences: counters.differences.clone(),
            leaks,
            errors,
        }
    }

    /// Returns true if any client has requested a session so far.
    #[must_use]
    pub fn has_had_clients(&self) -> bool {
        self.0.has_had_clients.load(Ordering::Relaxed)
    }

    /// Returns how often clients returned to a database after its last session had closed.
    #[must_use]
    pub fn linger_use(&self) -> LingerUse {
        self.0.lock().table.linger_watch.seen
    }

    /// Performs a final check of the state that all databases share and returns the status. The
    /// check is skipped if there have been no clients and abandoned if the server doesn't respond.
    #[must_use]
    pub fn final_status(&self) -> Status {
        if !self.has_had_clients() {
            return self.status();
        }
        let (sender, looked) = mpsc::channel();
        let inner = Arc::clone(&self.0);
        let look = move || {
            if let Err(error) = inner.evidence.catch_up(&inner.admin) {
                inner.report("read the log", &error.to_string());
            }
            inner.look_at_shared_state();
            sender.send(())
        };
        if thread::Builder::new().spawn(look).is_err() || looked.recv_timeout(LAST_LOOK).is_err() {
            tracing::warn!(
                "the server does not respond, so the state that all databases share was not checked"
            );
        }
        self.status()
    }
}
