//! Holds the state shared by all leases on a server.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use server::literal;
use sys::lock;

use crate::admin::AdminPool;
use crate::backends::seats::Seats;
use crate::error::LeaseError;
use crate::isolation::Isolation;
use crate::names::whole;
use crate::options::LeaseOptions;
use crate::runtime::claims::Claims;
use crate::runtime::core::Core;
use crate::runtime::shared::SharedWatch;
use crate::runtime::shared_core::SharedCore;
use crate::runtime::template::Template;
use crate::table::{Closing, Event, Source};
use crate::wal::evidence::Evidence;

/// Number of databases allowed even if the budget is too small for them, because a server with room for fewer would be
/// useless.
pub(crate) const LEAST_CAPACITY: usize = 4;
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) options: LeaseOptions,
    pub(crate) admin: AdminPool,
    pub(crate) seats: Arc<Seats>,
    pub(crate) evidence: Evidence,
    /// Whether the server may JIT-compile queries. To do so, it loads a library into the backend that runs the query.
    pub(crate) jit: bool,
    /// Whether the server is configured to terminate idle sessions after a timeout.
    pub(crate) ends_idle: bool,
    pub(crate) templates: Mutex<Vec<Template>>,
    /// Prevents two threads from creating or removing a template simultaneously, because each must claim its name
    /// first.
    pub(crate) claims: Claims,
    /// Prevents two threads from preparing a database under the same name. While a database is in preparation, programs
    /// that list databases can see its name.
    pub(crate) preparing: Claims,
    pub(crate) core: Arc<SharedCore>,
    /// The state shared by all of the server's databases, such as roles. Don't read this field directly; call
    /// [`Self::shared`], which fills it on first use.
    pub(crate) shared: OnceLock<Mutex<SharedWatch>>,
    /// Prevents two threads from comparing the shared state simultaneously. A thread holds this lock from reading the
    /// state until it has compared the state with the last check.
    pub(crate) looking: Mutex<()>,
    /// Whether a client has ever requested a session.
    pub(crate) has_had_clients: AtomicBool,
    /// Wakes maintenance workers when there may be work for them.
    pub(crate) work: Condvar,
    /// Notifies paused copy operations that a client may be waiting for a copy.
    pub(crate) shortage: Condvar,
    /// Measures the processor load. While all processors are busy, pgfresh pauses copies.
    pub(crate) processors: Processors,
    /// Number of open sessions where clients create and drop databases with SQL.
    pub(crate) maintenance_sessions: AtomicUsize,
    pub(crate) workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Inner {
    /// Stops creating databases from this template or server and drops the ready ones. Leased databases remain until
    /// their leases end.
    pub(crate) fn remove_source(&self, source: &Source) {
        let mut core = self.lock();
        let actions = core.table.remove_source(source, Instant::now());
        core.act_on(actions, None);
        drop(core);
        self.work.notify_all();
    }

    pub(crate) fn stop_handing_out(&self, why: Closing) {
        self.raise(Event::Close(why), None);
        self.lock().closed = true;
        self.work.notify_all();
        self.shortage.notify_all();
    }

    /// Selects the template for a lease and returns the template's name: the template
    /// `asked` for, else the template with the lease's own name, else the default template.
    pub(crate) fn template_for(&self, lease: &str, asked: Option<&str>) -> Result<String, LeaseError> {
        let asked = asked.map(whole).transpose()?;
        let templates = lock(&self.templates);
        let found = match asked {
            Some(name) => called(&templates, name),
            None => called(&templates, lease).or(templates.first()),
        };
        let found = found.ok_or_else(|| unknown(&templates, asked.unwrap_or("default")))?;
        Ok(found.name.clone())
    }

    /// Returns the template with this name.
    pub(crate) fn template(&self, name: &str) -> Result<Template, LeaseError> {
        let templates = lock(&self.templates);
        called(&templates, name).cloned().ok_or_else(|| unknown(&templates, name))
    }

    /// Computes how many databases the budget allows, based on the size of the largest template, and updates the table.
    pub(crate) fn measure_capacity(&self) {
        let largest =
            lock(&self.templates).iter().map(|template| template.bytes).max().unwrap_or(0).max(1 << 20);
        let capacity = usize::try_from(self.options.budget / 2 / largest).unwrap_or(usize::MAX);
        self.lock().table.capacity = capacity.max(LEAST_CAPACITY);
    }

    /// Returns an error if a client has created a database with this name through SQL. Databases that belong to leases
    /// are fine.
    pub(crate) fn expect_free(&self, name: &str) -> Result<(), LeaseError> {
        if self.lock().table.database_named(name).is_some() {
            return Ok(());
        }
        let sql = format!("SELECT FROM pg_database WHERE datname = {}", literal(name));
        if self.admin.run("look for a database", &sql)?.is_empty() {
            return Ok(());
        }
        Err(LeaseError::Leased(name.to_owned()))
    }

    pub(crate) fn made_up(&self, isolation: Isolation) -> String {
        let serial = self.lock().next_serial();
        match isolation {
            Isolation::Clone => format!("fresh_{serial}"),
            Isolation::Rollback => format!("rollback_{serial}"),
            Isolation::Server => format!("fresh_server_{serial}"),
        }
    }

    /// Returns the state shared by all databases, as it was before the first client. A maintenance worker reads this
    /// state during startup, while early clients wait.
    pub(crate) fn shared(&self) -> MutexGuard<'_, SharedWatch> {
        lock(self.shared.get_or_init(|| {
            SharedWatch::begin(&self.admin, self.options.major, &self.options.data, || self.lock().closed)
                .into()
        }))
    }

    pub(crate) fn is_maintained(&self) -> bool {
        self.maintenance_sessions.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    /// Wakes a maintenance worker if the table has work. If a client found no ready database, also resumes paused
    /// copies.
    pub(crate) fn wake_worker(&self, mut core: MutexGuard<'_, Core>) {
        let (needed, short) = (core.needs_worker(), core.table.take_shortage());
        drop(core);
        if needed {
            self.work.notify_one();
        }
        if short {
            self.shortage.notify_all();
        }
    }

    /// Blocks a maintenance worker until there may be work, but at most until `until`.
    pub(crate) fn wait(&self, mut core: MutexGuard<'_, Core>, until: Instant) {
        core.idle_workers.push(until);
        let timeout = until.saturating_duration_since(Instant::now());
        let mut core = self.core.wait(&self.work, core, timeout);
        if let Some(at) = core.idle_workers.iter().position(|other| *other == until) {
            core.idle_workers.swap_remove(at);
        }
    }
}

/// How long a measurement of the processor load is valid.
const LOAD_COUNTS: Duration = Duration::from_millis(2);

/// Measures the processor load, so that background work can wait while clients need the processors.
#[derive(Debug, Default)]
pub(crate) struct Processors {
    /// Number of processors, counted on first use because counting reads files and most servers never need the number.
    count: OnceLock<usize>,
    /// When the load was last measured, and whether the processors were busy.
    seen: Mutex<Option<(Instant, bool)>>,
}

impl Processors {
    /// Returns true if the machine has more runnable tasks than processors, so that background work should wait for
    /// clients.
    pub(crate) fn are_busy(&self) -> bool {
        let mut seen = lock(&self.seen);
        match *seen {
            Some((at, busy)) if at.elapsed() < LOAD_COUNTS => busy,
            _ => {
                let count = || thread::available_parallelism().map_or(1, usize::from);
                let count = *self.count.get_or_init(count);
                let busy = sys::runnable_tasks().is_some_and(|tasks| tasks > count);
                *seen = Some((Instant::now(), busy));
                busy
            }
        }
    }
}

fn called<'a>(templates: &'a [Template], name: &str) -> Option<&'a Template> {
    templates.iter().find(|template| template.name == name)
}

fn unknown(templates: &[Template], name: &str) -> LeaseError {
    let known = templates.iter().map(|template| template.name.clone()).collect();
    LeaseError::UnknownTemplate { name: name.to_owned(), known }
}
