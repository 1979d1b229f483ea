//! What there is, for people and programs to look at.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use sys::lock;

use crate::leases::Leases;
use crate::table::Source;
use crate::{Difference, Isolation, SharedStateChange};

/// How long a last look may take. A server whose processes are stopped does not answer, and is to be ended all the same.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// How often it is looked whether all databases are ready: only measurements wait for that.
const SETTLE_INTERVAL: Duration = Duration::from_millis(5);

/// What there is, and what happened since the start.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Ready databases, by template.
    pub ready: Vec<(String, usize)>,
    /// Leases, by name.
    pub leases: Vec<LeaseStatus>,
    /// Databases made since the start, and the time that took: count and sum.
    pub created: (u64, Duration),
    /// Sessions that got a backend that waited.
    pub warm: u64,
    /// Sessions that had to wait for a new one.
    pub cold: u64,
    /// Databases recycled, and the time that took: count and sum.
    pub recycled: (u64, Duration),
    /// Databases dropped instead, by reason.
    pub dropped: Vec<(&'static str, u64)>,
    /// What comparing found: recycled databases that were not fresh. None, unless pgfresh has a fault.
    pub differences: Vec<Difference>,
    /// Changes of what all databases share.
    pub leaks: Vec<SharedStateChange>,
    /// Tasks of the background that failed, by what was tried.
    pub errors: Vec<(&'static str, u64)>,
}

/// One lease.
#[derive(Debug, Clone)]
pub struct LeaseStatus {
    /// The database.
    pub database: String,
    /// What it is a copy of.
    pub template: String,
    /// How it is isolated.
    pub isolation: Isolation,
    /// Open sessions.
    pub sessions: usize,
    /// When it was handed out.
    pub since: Instant,
    /// How long ago that was when this was looked at.
    pub age: Duration,
}

impl Leases {
    /// Waits until as many databases are ready as should be without clients, for `patience` at most.
    pub fn settle(&self, patience: Duration) {
        let begun = Instant::now();
        while !self.0.lock().table.is_supplied() && begun.elapsed() < patience {
            thread::sleep(SETTLE_INTERVAL);
        }
    }

    /// What there is now.
    #[must_use]
    pub fn status(&self) -> Status {
        let templates: Vec<_> =
            lock(&self.0.templates).iter().map(|template| template.name.clone()).collect();
        // What is still being read for the first time has found nothing.
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

    /// Whether a client has asked for a session.
    #[must_use]
    pub fn has_had_clients(&self) -> bool {
        self.0.has_had_clients.load(Ordering::Relaxed)
    }

    /// The same, with a last look at what all databases share, if a client may have changed it and the server answers.
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
            tracing::warn!("the server does not answer: what all databases share was not looked at");
        }
        self.status()
    }
}
