//! The public interface of this crate. All operations on leases refer to them by name. The module `session` has
//! [`Leases::connect`], which opens sessions.

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
use crate::backends::expected::ExpectedParams;
use crate::backends::seats::{Seats, Shares};
use crate::error::LeaseError;
use crate::isolation::Isolation;
use crate::names::{ALWAYS, check_name, cut, name_of_kept, preparing_prefix, ready_prefix, whole};
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

/// All leases of one server. Clones of this value share the same leases.
#[derive(Debug, Clone)]
pub struct Leases(pub(crate) Arc<Inner>);

/// Guards a session in which clients create and drop databases with SQL. While it exists, pgfresh keeps no idle backends in
/// leased databases, because they would block such statements.
#[derive(Debug)]
pub struct MaintenanceGuard(Arc<Inner>);

impl Drop for MaintenanceGuard {
    fn drop(&mut self) {
        self.0.maintenance_sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Leases {
    /// Takes the templates of a server into service, and starts to prepare copies. `session` is a superuser session in the
    /// database `postgres`, if the caller has one. pgfresh takes it over as its first connection.
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
            // Idle backends and pgfresh's own sessions together use at most half of all sessions.
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
        // Renaming a template ended any autovacuum worker in it. So no worker can change the template between two copies.
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
                // The last worker does this. The first worker uses the open session to make the first copy.
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

    /// Begins a lease without a session. It lasts until a client releases it. If `name` is `None`, makes up a name. Returns the
    /// names of the lease and of its template.
    ///
    /// # Errors
    /// Returns [`LeaseError::Excluded`] if the rules exclude the name. Returns [`LeaseError::Leased`] if the name already has a
    /// lease, or if SQL has created a database with that name.
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
            // SQL or another client may already use the made-up name. Try the next one.
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

    /// Sets the function that recognizes the names that pgfresh makes up for leases. A connection to such a name can join the
    /// lease, but never begins one.
    pub fn issue(&self, is_issued: fn(&str) -> bool) {
        self.0.lock().table.is_issued = Some(is_issued);
    }

    /// Tells pgfresh that a replication session is starting, which may send the log to a standby or a backup. From now on, the
    /// server itself makes all copies, so that the log contains them.
    pub fn begin_replication(&self) {
        self.0.evidence.log_is_replayed();
    }

    /// Ends a lease: closes its sessions and takes the name away from its database.
    pub fn release(&self, name: &str) -> Result<(), LeaseError> {
        self.0.ask(cut(whole(name)?), Want::Release, None).map(drop)
    }

    /// Resets a leased database to the state of its template. If `close` is set, ends its sessions first. Otherwise, returns an
    /// error if it has open sessions.
    pub fn reset(&self, name: &str, close: bool) -> Result<(), LeaseError> {
        self.0.ask(cut(whole(name)?), Want::Reset { close }, None).map(drop)
    }

    /// Keeps a leased database for as long as the server lasts, with its current contents. Closes its sessions, and renames it so
    /// that its old name is free again. The new name contains the name of the `test`. Returns the new name.
    ///
    /// pgfresh can't keep the database of a lease in rollback isolation or of a lease with its own server. It then only releases
    /// the lease and returns `None`.
    pub fn keep(&self, name: &str, test: Option<&str>) -> Result<Option<String>, LeaseError> {
        let name = cut(whole(name)?);
        let to = loop {
            let serial = self.0.lock().next_serial();
            let to = name_of_kept(name, test, serial);
            // An earlier server on the same data may have kept databases under such names.
            match self.0.expect_free(&to) {
                Err(LeaseError::Leased(_)) => {}
                free => break free.map(|()| to)?,
            }
        };
        match self.0.ask(name, Want::Keep { to: to.clone() }, None) {
            Err(LeaseError::NotCopied { .. }) => self.release(name).map(|()| None),
            kept => kept.map(|_| Some(to)),
        }
    }

    /// Drops a database that an earlier server on the same data kept. Ends its sessions first. Such a database belongs to no
    /// lease.
    pub fn drop_inherited(&self, name: &str) -> Result<(), LeaseError> {
        drop_named(whole(name)?, &self.0.admin)
    }

    /// Takes a template into service that an earlier server on the same data had made.
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

    /// Makes a template from a leased database in its current state. Leases can use the template immediately. `template` must be
    /// a new name. If `close` is set, ends the database's sessions first. Otherwise, returns an error if it has open sessions,
    /// because the server can't copy a database that is in use.
    pub fn snapshot(&self, name: &str, template: &str, close: bool) -> Result<(), LeaseError> {
        // A user may add the template to pgfresh.toml later, so the name must follow the rules of that file.
        ::template::check_name(template)?;
        // If several snapshots have the same name, let them run one after another. A later one gets past this point only if the
        // earlier one failed.
        let _claim = self.0.claims.claim(template);
        if self.0.template(template).is_ok() {
            return Err(LeaseError::TemplateExists(template.to_owned()));
        }
        self.0.ask(cut(whole(name)?), Want::Copy { to: template.to_owned(), close }, None).map(drop)
    }

    /// Removes a template. pgfresh makes no further copies of it, but leased copies are not affected.
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

    /// Restarts, stops or crashes the server of a lease.
    pub fn act(&self, name: &str, action: ServerAction) -> Result<(), LeaseError> {
        let inner = &self.0;
        let Answer::Done(Some(id)) = inner.ask(cut(whole(name)?), Want::Server, None)? else {
            return Err(LeaseError::NoServer(name.to_owned()));
        };
        inner.act(id, action)
    }

    /// Makes every lease with this name last until a client releases it, even while it has no sessions.
    pub fn retain(&self, name: &str) {
        self.0.lock().table.retained.insert(cut(name).to_owned());
    }

    /// Returns the isolation of the lease with this name. Returns `None` if there is no such lease.
    #[must_use]
    pub fn isolation(&self, name: &str) -> Option<Isolation> {
        self.0.lock().table.isolation(cut(name))
    }

    /// Whether this name belongs to a database that [`Leases::keep`] kept, and that still exists.
    #[must_use]
    pub fn is_kept(&self, name: &str) -> bool {
        self.0.lock().table.is_kept(cut(name))
    }

    /// Returns the time when the lease with this name received its database, and its number of sessions. Returns `None` if the
    /// name has no lease, or if the lease has no database yet.
    #[must_use]
    pub fn leased(&self, name: &str) -> Option<(Instant, usize)> {
        let lease = self.0.lock().table.lease(cut(name))?;
        Some((lease.since?, lease.sessions))
    }

    /// Counts a session in which clients create and drop databases with SQL, until the returned guard is dropped.
    #[must_use]
    pub fn maintenance_session(&self) -> MaintenanceGuard {
        self.0.maintenance_sessions.fetch_add(1, Ordering::Relaxed);
        MaintenanceGuard(Arc::clone(&self.0))
    }

    /// Whether any [`MaintenanceGuard`] exists.
    #[must_use]
    pub fn has_maintenance_sessions(&self) -> bool {
        self.0.is_maintained()
    }

    /// Closes all idle backends in leased databases. Call this before a client drops a database with SQL, because the server
    /// refuses to drop a database that has sessions.
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

    /// Whether pgfresh can reset databases, because it knows the format of the server's write-ahead log. If it doesn't, it
    /// replaces each used database with a new copy.
    #[must_use]
    pub fn can_reset(&self) -> bool {
        self.0.evidence.has_known_format()
    }

    /// Returns the isolation of leases whose clients don't ask for any.
    #[must_use]
    pub fn default_isolation(&self) -> Isolation {
        self.0.options.isolation
    }

    /// Whether this is the name of a database that initdb created. Such a database is never leased.
    #[must_use]
    pub fn is_always_there(name: &str) -> bool {
        ALWAYS.contains(&name)
    }

    /// Stops handing out databases and waits for running tasks. Afterwards, the caller may use the server for other purposes.
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

    /// Stops handing out databases and refuses all waiting requests, because pgfresh is shutting down. Open sessions are not
    /// affected.
    pub fn stop_handing_out(&self) {
        let is_open = !self.0.lock().closed;
        if is_open && self.0.has_had_clients.load(Ordering::Relaxed) {
            self.0.note_stock();
        }
        self.0.stop_handing_out(Closing::ShuttingDown);
    }

    /// Stops handing out databases and refuses all waiting requests, because the server has ended.
    pub fn server_gone(&self) {
        self.0.stop_handing_out(Closing::ServerGone);
    }

    /// Calls `call` once if a panic leaves the table of leases in an unknown state. From then on, pgfresh refuses all requests,
    /// and the caller must stop the service. `call` must not block.
    pub fn when_failed(&self, call: impl FnOnce() + Send + 'static) {
        self.0.lock().when_failed(call);
    }

    /// Whether a panic left the table of leases in an unknown state, so that pgfresh refuses all requests.
    #[must_use]
    pub fn have_failed(&self) -> bool {
        self.0.lock().has_failed
    }

    /// Makes the table panic after its next `actions` actions, for tests.
    #[cfg(debug_assertions)]
    pub fn plant_panic(&self, actions: usize) {
        self.0.lock().table.plant_panic(actions);
    }

    /// Stops handing out databases without waiting for running tasks, because the caller is about to stop the server immediately.
    pub fn abandon(&self) {
        self.stop_handing_out();
        let mut core = self.0.lock();
        let servers = core.pool.take_servers();
        core.pool.close_waiting();
        drop(core);
        // Stopping a server takes a while, so stop all of them at the same time.
        thread::scope(|scope| {
            for server in servers {
                scope.spawn(move || drop(server));
            }
        });
    }
}

/// Server settings that matter to leases.
struct ServerFacts {
    /// Whether the server may JIT-compile queries by default.
    jit: bool,
    /// Whether the server ends idle sessions by default.
    ends_idle: bool,
    /// Number of sessions that the server allows.
    sessions: usize,
    /// Whether clients can prepare transactions. All databases share the names of these, and the next test may use them again. So
    /// when a reset is answered, it must have rolled back such transactions.
    prepares: bool,
}

/// Reads the server's settings. Also cleans up after an earlier pgfresh on the same data: drops databases that were ready, in
/// preparation, or about to be dropped, because pgfresh will use their names again.
fn look_around(admin: &AdminPool) -> Result<ServerFacts, LeaseError> {
    // pgfresh's own sessions override the timeout for idle sessions, so read it from the configuration files. Stamps contain the
    // timeouts that are set for roles and databases.
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
