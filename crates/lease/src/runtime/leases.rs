//! Implements the public interface of this crate. All operations refer to leases
//! by name. [`Leases::connect`], which opens sessions, is in the `session` module.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::Instant;

use server::AdminConnection;
use sys::lock;

use crate::admin::AdminPool;
use crate::backends::backend::{IDLE_TIMEOUT, params_id};
use crate::backends::client::ClientLink;
use crate::backends::expected::ExpectedParams;
use crate::backends::seats::{Seats, Shares};
use crate::error::LeaseError;
use crate::isolation::Isolation;
use crate::names::{
    ALWAYS, check_name, cut, name_of_kept, preparing_prefix, ready_prefix, replica_copy, whole,
};
use crate::options::{LeaseOptions, TemplateDatabase};
use crate::runtime::claims::Claims;
use crate::runtime::core::Core;
use crate::runtime::drop::{drop_database, drop_named, dropped_prefix};
use crate::runtime::inner::{Inner, LEAST_CAPACITY, Processors};
use crate::runtime::leased_server::ServerAction;
use crate::runtime::maintenance;
use crate::runtime::shared_core::SharedCore;
use crate::runtime::template::{Template, database_of, discard_statistics};
use crate::table::work::WORKERS;
use crate::table::{Answer, Closing, Event, Source, Terms, Want};
use crate::wal::evidence::Evidence;

/// All leases of one server. Clones share these leases.
#[derive(Debug, Clone)]
pub struct Leases(pub(crate) Arc<Inner>);

/// Guards a session where a client creates and drops databases with SQL. While any guard exists, pgfresh
/// doesn't keep idle backends in leased databases, because these backends would block the statements.
#[derive(Debug)]
pub struct MaintenanceGuard(Arc<Inner>);

impl Drop for MaintenanceGuard {
    fn drop(&mut self) {
        self.0.maintenance_sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Leases {
    /// Puts the templates of a server into service and starts preparing copies. `session` is the caller's superuser
    /// session in the database `postgres`, if there is one, which becomes pgfresh's first connection.
    ///
    /// # Errors
    /// Returns an error if the server refuses a session or a query,
    /// or if the server doesn't contain one of the templates.
    pub fn open(options: LeaseOptions, session: Option<AdminConnection>) -> Result<Self, LeaseError> {
        let core = Arc::new(SharedCore::new(Core::new(LEAST_CAPACITY)));
        let admin = AdminPool::new(options.directory.clone(), options.major, Arc::<SharedCore>::clone(&core));
        if let Some(session) = session {
            admin.adopt(session)?;
        }
        let ServerFacts { jit, ends_idle, sessions, prepares } = look_around(&admin)?;
        let shares = Shares::of(sessions);
        let most_at_work = admin.bound(shares.at_work);
        let expected = ExpectedParams::recall(options.entry.as_ref(), &admin)?;
        {
            let mut core = core.lock();
            // Limit idle backends and pgfresh's own sessions together to half of all sessions.
            core.most_idle = (sessions / 2).saturating_sub(most_at_work);
            core.expected = expected;
            core.table.rules.clone_from(&options.names);
            core.table.exchanges = !prepares;
            core.table.linger_watch.default = options.linger;
        }
        let mut templates = Vec::new();
        for template in &options.templates {
            if options.entry.is_none() {
                discard_statistics(&template.database, &admin)?;
            }
            templates.push(Template::take(template, options.entry.clone(), &options.data, &admin)?);
            let table = &mut core.lock().table;
            table.add_source(Source::Template(template.name.clone()), templates.len() == 1);
            if options.provisioner.is_some() {
                table.add_source(Source::Server(template.name.clone()), false);
            }
        }
        // Renaming a template terminated any autovacuum worker in it, so no worker can change the template between two
        // copies.
        let evidence = Evidence::open(options.data.clone(), &admin)?;
        let inner = Arc::new(Inner {
            options,
            admin,
            seats: Seats::new(shares.clients),
            evidence,
            jit,
            ends_idle,
            templates: Mutex::new(templates),
            claims: Claims::default(),
            preparing: Claims::default(),
            core,
            shared: OnceLock::new(),
            looking: Mutex::default(),
            has_had_clients: AtomicBool::new(false),
            work: Condvar::new(),
            shortage: Condvar::new(),
            processors: Processors::default(),
            maintenance_sessions: AtomicUsize::new(0),
            workers: Mutex::default(),
        });
        inner.measure_capacity();
        let leases = Self(inner);
        leases.start_workers().inspect_err(|_| leases.close()).map_err(LeaseError::Threads)?;
        Ok(leases)
    }

    fn start_workers(&self) -> io::Result<()> {
        self.0.recall_stock();
        for number in 0..WORKERS {
            let worker = Arc::clone(&self.0);
            let work = move || {
                // Leave this to the last worker, because the first one makes the first copy in the open session.
                if number == WORKERS - 1 {
                    drop(worker.shared());
                    worker.practise();
                }
                maintenance::work(&worker);
            };
            lock(&self.0.workers).push(thread::Builder::new().spawn(work)?);
        }
        Ok(())
    }

    /// Begins a lease without a session, which lasts until a client releases it. If `name` is `None`, a name is
    /// generated. Returns the lease's name and the template's.
    ///
    /// # Errors
    /// Returns [`LeaseError::Excluded`] if the rules exclude the name, and [`LeaseError::Leased`] if the name already
    /// has a lease or SQL has created a database with that name.
    pub fn lease(
        &self,
        isolation: Isolation,
        name: Option<&str>,
        template: Option<&str>,
    ) -> Result<(String, String), LeaseError> {
        if let Some(name) = name.map(cut)
            && !self.0.options.names.allow(name)
        {
            return Err(LeaseError::Excluded(name.to_owned()));
        }
        loop {
            let made_up = || self.0.made_up(isolation);
            let leased =
                self.lease_as(isolation, name.map_or_else(made_up, |name| cut(name).to_owned()), template);
            // SQL or another client may already use the generated name. If so, try the next one.
            if name.is_some() || !matches!(leased, Err(LeaseError::Leased(_))) {
                return leased;
            }
        }
    }

    fn lease_as(
        &self,
        isolation: Isolation,
        name: String,
        template: Option<&str>,
    ) -> Result<(String, String), LeaseError> {
        let inner = &self.0;
        check_name(&name)?;
        let template = inner.template_for(&name, template)?;
        if isolation != Isolation::Clone {
            inner.expect_free(&name)?;
        }
        let params = inner.lock().expected.latest().map(params_id);
        let terms =
            Terms { template: template.clone(), isolation, linger: inner.options.linger, retained: true };
        match inner.ask(&name, Want::Lease { params, terms }, None)? {
            Answer::Elsewhere => Err(LeaseError::Leased(name)),
            _ => Ok((name, template)),
        }
    }

    /// Sets the function that recognizes names generated by pgfresh. A
    /// connection to a generated name can join the lease but never begins one.
    pub fn issue(&self, is_issued: fn(&str) -> bool) {
        self.0.lock().table.is_issued = Some(is_issued);
    }

    /// Notifies pgfresh that a replication session is starting, which may send the log to a standby or a backup. From
    /// now on, the server itself makes all copies, so that the log contains them.
    pub fn begin_replication(&self) {
        self.0.evidence.log_is_replayed();
    }

    /// Ends a lease by closing its sessions and removing its name from the database.
    ///
    /// # Errors
    /// Returns [`LeaseError::NotLeased`] if no lease has this name, and [`LeaseError::Timeout`] if a reset or copy of
    /// its database takes too long.
    pub fn release(&self, name: &str) -> Result<(), LeaseError> {
        self.0.ask(cut(whole(name)?), Want::Release, None)?;
        self.release_replica_copy(cut(name));
        Ok(())
    }

    /// Resets a leased database to its template's state. If `close` is true, the database's sessions are terminated
    /// first; otherwise, open sessions are an error.
    ///
    /// # Errors
    /// Returns [`LeaseError::InUse`] if sessions are open and `close` is false, and [`LeaseError::NotLeased`] if no
    /// lease has this name.
    pub fn reset(&self, name: &str, close: bool) -> Result<(), LeaseError> {
        let name = cut(whole(name)?);
        self.0.ask(name, Want::Reset { close }, None)?;
        self.reset_replica_copy(name, close);
        Ok(())
    }

    /// Keeps a leased database with its current contents until the server stops. The database's sessions are closed,
    /// and it gets a new name that contains the name of the `test`, so that its old name is free again. Returns the new
    /// name.
    ///
    /// pgfresh can't keep the database of a lease in rollback isolation or of a lease with its own server. In these
    /// cases, it only releases the lease and returns `None`.
    ///
    /// # Errors
    /// Returns [`LeaseError::NotLeased`] if no lease has this name.
    pub fn keep(&self, name: &str, test: Option<&str>) -> Result<Option<String>, LeaseError> {
        let name = cut(whole(name)?);
        let to = loop {
            let serial = self.0.lock().next_serial();
            let to = name_of_kept(name, test, serial);
            // An earlier server on the same data may have kept databases under these names.
            match self.0.expect_free(&to) {
                Err(LeaseError::Leased(_)) => {}
                free => break free.map(|()| to)?,
            }
        };
        match self.0.ask(name, Want::Keep { to: to.clone() }, None) {
            Err(LeaseError::NotCopied { .. }) => self.release(name).map(|()| None),
            kept => {
                self.release_replica_copy(name);
                kept.map(|_| Some(to))
            }
        }
    }

    /// Terminates the sessions in a database kept by an earlier server on the
    /// same data, then drops the database, which doesn't belong to a lease.
    ///
    /// # Errors
    /// Returns an error if the name isn't valid, or the server can't drop the database.
    pub fn drop_inherited(&self, name: &str) -> Result<(), LeaseError> {
        drop_named(whole(name)?, &self.0.admin)
    }

    /// Puts a template into service that an earlier server created in the same data directory.
    ///
    /// # Errors
    /// Returns [`LeaseError::UnknownTemplate`] if the template no longer exists.
    pub fn take_again(&self, name: &str) -> Result<(), LeaseError> {
        let inner = &self.0;
        let _claim = inner.claims.claim(name);
        if inner.template(whole(name)?).is_ok() {
            return Ok(());
        }
        let template = TemplateDatabase { name: name.to_owned(), database: database_of(name) };
        let taken = Template::take(&template, None, &inner.options.data, &inner.admin)?;
        lock(&inner.templates).push(taken);
        inner.measure_capacity();
        inner.lock().table.add_source(Source::Template(name.to_owned()), false);
        Ok(())
    }

    /// Makes a template from a leased database's current state. Leases can use the template, whose name must be new,
    /// immediately. If `close` is true, the database's sessions are terminated first; otherwise, open sessions are an
    /// error, because the server can't copy a database in use.
    ///
    /// # Errors
    /// Returns [`LeaseError::TemplateExists`] if a template has this name, [`LeaseError::InUse`] if sessions are open
    /// and `close` is false, and [`LeaseError::NotCopied`] if the isolation of the lease rules copies out.
    pub fn snapshot(&self, name: &str, template: &str, close: bool) -> Result<(), LeaseError> {
        // The name must be valid in pgfresh.toml, because a user may add the template there later.
        ::template::check_name(template)?;
        // Run snapshots with the same name in sequence. A later one gets past this point only if the earlier one
        // failed.
        let _claim = self.0.claims.claim(template);
        if self.0.template(template).is_ok() {
            return Err(LeaseError::TemplateExists(template.to_owned()));
        }
        self.0.ask(cut(whole(name)?), Want::Copy { to: template.to_owned(), close }, None).map(drop)
    }

    /// Removes a template. pgfresh stops copying it, but leased copies aren't affected.
    ///
    /// # Errors
    /// Returns [`LeaseError::UnknownTemplate`] if no template has this name.
    pub fn remove_template(&self, name: &str) -> Result<(), LeaseError> {
        let inner = &self.0;
        let _claim = inner.claims.claim(name);
        let template = inner.template(name)?;
        lock(&inner.templates).retain(|template| template.name != name);
        inner.remove_source(&Source::Template(name.to_owned()));
        inner.measure_capacity();
        let sql = format!("UPDATE pg_database SET datistemplate = false WHERE oid = {}", template.oid);
        inner.admin.run("open a template", &sql)?;
        drop_database(template.oid, &BTreeSet::from([template.database]), &inner.admin)
    }

    /// Restarts, stops or crashes a lease's server, changes the lag of its replica, or promotes the replica.
    ///
    /// # Errors
    /// Returns [`LeaseError::NoServer`] if the lease doesn't have its own server.
    pub fn act(&self, name: &str, action: ServerAction) -> Result<(), LeaseError> {
        let inner = &self.0;
        let Answer::Done(Some(id)) = inner.ask(cut(whole(name)?), Want::Server, None)? else {
            return Err(LeaseError::NoServer(name.to_owned()));
        };
        inner.act(id, action)
    }

    /// Makes every lease with this name last until a client releases it, even without sessions.
    pub fn retain(&self, name: &str) {
        self.0.lock().table.retained.insert(cut(name).to_owned());
    }

    /// Returns the isolation of the lease with this name, or `None` if the name isn't leased.
    #[must_use]
    pub fn isolation(&self, name: &str) -> Option<Isolation> {
        self.0.lock().table.isolation(cut(name))
    }

    /// Returns the template of the lease with this name, or `None` if the name isn't leased.
    #[must_use]
    pub fn template(&self, name: &str) -> Option<String> {
        self.0.lock().table.lease(cut(name)).map(|lease| lease.terms.template)
    }

    /// Returns true if [`Leases::keep`] gave this name to a database that still exists.
    #[must_use]
    pub fn is_kept(&self, name: &str) -> bool {
        self.0.lock().table.is_kept(cut(name))
    }

    /// Returns when the lease with this name received its database, along with the lease's number of
    /// sessions. Returns `None` if the name isn't leased or the lease doesn't have a database yet.
    #[must_use]
    pub fn leased(&self, name: &str) -> Option<(Instant, usize)> {
        let lease = self.0.lock().table.lease(cut(name))?;
        Some((lease.since?, lease.sessions))
    }

    /// Returns the links to the clients of the lease's open sessions, and to those whose sessions are about to begin.
    /// The sessions of a copy that stands in for the lease's replica count, too.
    #[must_use]
    pub fn client_links(&self, name: &str) -> Vec<Arc<dyn ClientLink>> {
        let copy = self.have_replicas().then(|| replica_copy(cut(name)));
        let core = self.0.lock();
        let names = [Some(cut(name)), copy.as_deref()].into_iter().flatten();
        let ids = names.filter_map(|name| core.table.database_named(name));
        ids.flat_map(|id| core.pool.clients(id)).filter_map(|client| client.link()).collect()
    }

    /// Registers a session where a client creates and drops databases with SQL, until the returned guard is dropped.
    #[must_use]
    pub fn maintenance_session(&self) -> MaintenanceGuard {
        self.0.maintenance_sessions.fetch_add(1, Ordering::Relaxed);
        MaintenanceGuard(Arc::clone(&self.0))
    }

    /// Returns true if any [`MaintenanceGuard`] exists.
    #[must_use]
    pub fn has_maintenance_sessions(&self) -> bool {
        self.0.is_maintained()
    }

    /// Closes all idle backends in leased databases. Call this before a client drops a database with SQL, because the
    /// server doesn't drop databases that have sessions.
    pub fn vacate(&self) {
        let mut core = self.0.lock();
        core.close_waiting_in_leases();
        drop(core);
        self.0.raise(Event::Vacate, None);
    }

    /// Returns the server's major version.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.0.options.major
    }

    /// Returns true if pgfresh can reset databases, which requires that it supports the format of
    /// the server's write-ahead log. Otherwise, each used database is replaced with a new copy.
    #[must_use]
    pub fn can_reset(&self) -> bool {
        self.0.evidence.has_known_format()
    }

    /// Returns the isolation of leases whose clients don't request a specific one.
    #[must_use]
    pub fn default_isolation(&self) -> Isolation {
        self.0.options.isolation
    }

    /// Returns true if initdb created a database with this name. Such databases are never leased.
    #[must_use]
    pub fn is_always_there(name: &str) -> bool {
        ALWAYS.contains(&name)
    }

    /// Stops handing out databases and waits for running tasks.
    /// Afterwards, the caller may use the server for other purposes.
    pub fn close(&self) {
        self.abandon();
        for worker in lock(&self.0.workers).drain(..) {
            if worker.join().is_err() {
                tracing::error!("a maintenance worker has panicked");
            }
        }
        self.0.admin.close();
        self.0.lock().pool.clear();
    }

    /// Stops handing out databases and refuses all waiting requests, because pgfresh is shutting down. Open sessions
    /// are unaffected.
    pub fn stop_handing_out(&self) {
        let is_open = !self.0.lock().closed;
        if is_open && self.0.has_had_clients.load(Ordering::Relaxed) {
            self.0.note_stock();
        }
        self.0.stop_handing_out(Closing::ShuttingDown);
    }

    /// Stops handing out databases and refuses all waiting requests, because the server has exited.
    pub fn server_gone(&self) {
        self.0.stop_handing_out(Closing::ServerGone);
    }

    /// Calls `call` once if a panic leaves the lease table in an unknown state. From then on, pgfresh refuses all
    /// requests, and the caller must stop the service. `call` must not block.
    pub fn when_failed(&self, call: impl FnOnce() + Send + 'static) {
        self.0.lock().when_failed(call);
    }

    /// Returns true if a panic has left the lease table in an unknown state. If so, pgfresh refuses all requests.
    #[must_use]
    pub fn have_failed(&self) -> bool {
        self.0.lock().has_failed
    }

    /// In tests, makes the table panic after `actions` more actions.
    #[cfg(debug_assertions)]
    pub fn plant_panic(&self, actions: usize) {
        self.0.lock().table.plant_panic(actions);
    }

    /// Stops handing out databases without waiting for running tasks, because the caller is about to stop the server.
    pub fn abandon(&self) {
        self.stop_handing_out();
        let mut core = self.0.lock();
        let servers = core.pool.take_servers();
        core.pool.close_waiting();
        drop(core);
        // Stopping a server takes a while, so stop all servers in parallel.
        thread::scope(|scope| {
            for server in servers {
                scope.spawn(move || drop(server));
            }
        });
    }
}

/// Server settings that affect leases.
struct ServerFacts {
    /// Whether the server may JIT-compile queries by default.
    jit: bool,
    /// Whether the server terminates idle sessions by default.
    ends_idle: bool,
    /// Maximum number of sessions.
    sessions: usize,
    /// Whether clients can prepare transactions. Prepared transactions share one namespace across all databases, and
    /// the next test may reuse the names. Therefore a reset must roll these transactions back before it is answered.
    prepares: bool,
}

/// Reads the server's settings and cleans up after an earlier pgfresh on the same data. Databases that were ready, in
/// preparation or about to be dropped are dropped now, because pgfresh will reuse their names.
fn look_around(admin: &AdminPool) -> Result<ServerFacts, LeaseError> {
    // pgfresh's own sessions override the timeout for idle sessions, so read it from the configuration files. Stamps
    // contain the timeouts set for roles and databases.
    let sql = format!(
        "SELECT current_setting('jit'), current_setting('max_connections'), datname, coalesce(( \
           SELECT setting FROM pg_file_settings WHERE name = '{IDLE_TIMEOUT}' AND applied), '0'), \
         current_setting('max_prepared_transactions') \
         FROM (VALUES (1)) AS one LEFT JOIN pg_database \
         ON starts_with(datname, '{}') OR starts_with(datname, '{}') OR starts_with(datname, '{}')",
        ready_prefix(),
        preparing_prefix(),
        dropped_prefix()
    );
    let rows = admin.run("look for databases", &sql)?;
    for row in &rows {
        if let Some(name) = row.get(2).and_then(Option::as_deref) {
            drop_named(name, admin)?;
        }
    }
    let fact = |column: usize| rows.first().and_then(|row| row.get(column)?.as_deref());
    Ok(ServerFacts {
        jit: fact(0) == Some("on"),
        ends_idle: fact(3).is_some_and(|timeout| timeout != "0"),
        sessions: fact(1).and_then(|count| count.parse().ok()).unwrap_or(usize::MAX),
        prepares: fact(4) != Some("0"),
    })
}
