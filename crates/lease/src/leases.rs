//! What can be leased by name: the front of this crate. Sessions ([`Leases::connect`]) are in `session`.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::Instant;

use server::AdminConnection;
use sys::lock;

use crate::admin::AdminPool;
use crate::backend::{IDLE_TIMEOUT, params_id};
use crate::claims::Claims;
use crate::core::Core;
use crate::drop::{drop_database, drop_named, dropped_prefix};
use crate::evidence::Evidence;
use crate::expected::ExpectedParams;
use crate::inner::{Inner, LEAST_CAPACITY};
use crate::leased_server::ServerAction;
use crate::maintenance;
use crate::names::{ALWAYS, check_name, cut, name_of_kept, preparing_prefix, ready_prefix, whole};
use crate::options::LeaseOptions;
use crate::processors::Processors;
use crate::seats::{Seats, Shares};
use crate::table::{Answer, Closing, Event, Source, Terms, WORKERS, Want};
use crate::template::{Template, database_of, discard_statistics};
use crate::{Isolation, LeaseError, TemplateDatabase};

/// All leases of one server; clones are the same.
#[derive(Debug, Clone)]
pub struct Leases(pub(crate) Arc<Inner>);

/// A session with a database from which others are made and dropped by SQL. As long as it lasts, no backend waits in a
/// leased database: it would be in the way.
#[derive(Debug)]
pub struct MaintenanceGuard(Arc<Inner>);

impl Drop for MaintenanceGuard {
    fn drop(&mut self) {
        self.0.maintenance_sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Leases {
    /// Takes the templates of a server into service and begins to make copies ready. The superuser's `session` with the database
    /// `postgres` is the first of pgfresh's own, where there is one already.
    pub fn open(options: LeaseOptions, session: Option<AdminConnection>) -> Result<Self, LeaseError> {
        let core = Arc::new(Mutex::new(Core::new(LEAST_CAPACITY)));
        let admin =
            AdminPool::new(options.directory.clone(), options.major, Arc::<Mutex<Core>>::clone(&core));
        if let Some(session) = session {
            admin.adopt(session)?;
        }
        let ServerFacts { jit, ends_idle, sessions } = look_around(&admin)?;
        let shares = Shares::of(sessions);
        let most_at_work = admin.bound(shares.at_work);
        let expected = ExpectedParams::recall(options.entry.as_ref(), &admin)?;
        {
            let mut core = lock(&core);
            // Half of all sessions are in use by clients, or free.
            core.most_idle = (sessions / 2).saturating_sub(most_at_work);
            core.expected = expected;
        }
        lock(&core).table.rules.clone_from(&options.names);
        let mut templates = Vec::new();
        for template in &options.templates {
            if options.entry.is_none() {
                discard_statistics(&template.database, &admin)?;
            }
            templates.push(Template::take(template, options.entry.clone(), &options.data, &admin)?);
            let table = &mut lock(&core).table;
            table.add_source(Source::Template(template.name.clone()), templates.len() == 1);
            if options.provisioner.is_some() {
                table.add_source(Source::Server(template.name.clone()), false);
            }
        }
        // A worker of autovacuum in a template ended when the template was renamed: what it has done is in all copies.
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
        if let Err(error) = leases.start_workers() {
            leases.close();
            return Err(LeaseError::Threads(error));
        }
        Ok(leases)
    }

    fn start_workers(&self) -> io::Result<()> {
        for number in 0..WORKERS {
            let worker = Arc::clone(&self.0);
            let work = move || {
                // The last one to begin: the session that is there is for who makes the first copy.
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

    /// Begins a lease without a session; a name is made up where none is given. It lasts until it is released. Returns
    /// its name and its template's.
    ///
    /// # Errors
    /// [`LeaseError::Excluded`] if the rules exclude the name.
    /// [`LeaseError::Leased`] if the name is taken, by a lease or by SQL.
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
            // A name that is made up may be that of a database made by SQL, or of a lease that was asked for by that name.
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
        let params = lock(&inner.core).expected.latest().map(params_id);
        let terms =
            Terms { template: template.clone(), isolation, linger: inner.options.linger, retained: true };
        match inner.ask(&name, Want::Lease { params, terms }, None)? {
            Answer::Elsewhere => Err(LeaseError::Leased(name)),
            _ => Ok((name, template)),
        }
    }

    /// Names that `is_issued` are those that a program is told when it leases: to connect to one begins no lease.
    pub fn issue(&self, is_issued: fn(&str) -> bool) {
        lock(&self.0.core).table.is_issued = Some(is_issued);
    }

    /// Says that a session of the replication protocol begins, which may give the log to a standby or to a backup: from now on the
    /// server itself makes all copies, so that its log tells of them.
    pub fn begin_replication(&self) {
        self.0.evidence.log_is_replayed();
    }

    /// Ends a lease: closes its sessions, and takes its database away.
    pub fn release(&self, name: &str) -> Result<(), LeaseError> {
        self.0.ask(cut(whole(name)?), Want::Release, None).map(drop)
    }

    /// Returns a lease to the state of its template. Its sessions are closed if `close`, else they are an error.
    pub fn reset(&self, name: &str, close: bool) -> Result<(), LeaseError> {
        self.0.ask(cut(whole(name)?), Want::Reset { close }, None).map(drop)
    }

    /// Keeps a leased database as it is, for as long as the server lasts: its sessions are closed, and it is given another
    /// name, which is returned and recalls that of its `test`; its own is free again. What is in a transaction or in a server of
    /// its own goes with that: such a lease is released.
    pub fn keep(&self, name: &str, test: Option<&str>) -> Result<Option<String>, LeaseError> {
        let name = cut(whole(name)?);
        let to = loop {
            let serial = lock(&self.0.core).next_serial();
            let to = name_of_kept(name, test, serial);
            // A server that goes on with the data of another one has databases that were kept there.
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

    /// Removes a database that an earlier server on the same data has kept, with its sessions: it is no lease.
    pub fn drop_inherited(&self, name: &str) -> Result<(), LeaseError> {
        drop_named(whole(name)?, &self.0.admin)
    }

    /// Takes a template into service that an earlier server on the same data had in service.
    ///
    /// # Errors
    /// [`LeaseError::UnknownTemplate`] if it is not there any more.
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
        lock(&inner.core).table.add_source(Source::Template(name.to_owned()), false);
        Ok(())
    }

    /// Makes a template of a leased database as it is now; leases of it may begin at once. The name must be new. Its
    /// sessions are closed if `close`, else they are an error: the server copies none that is in use.
    pub fn snapshot(&self, name: &str, template: &str, close: bool) -> Result<(), LeaseError> {
        // As in pgfresh.toml, which may have it one day.
        ::template::check_name(template).map_err(LeaseError::TemplateName)?;
        // Of several that come at the same time the next is made if the first fails.
        let _claim = self.0.claims.claim(template);
        if self.0.template(template).is_ok() {
            let (name, why) = (template.to_owned(), "there is such a template already");
            return Err(LeaseError::Name { name, why });
        }
        self.0.ask(cut(whole(name)?), Want::Copy { to: template.to_owned(), close }, None).map(drop)
    }

    /// Forgets a template: no more copies of it are made, those that are leased stay.
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

    /// The lease of that name lasts until it is released, however long it has no session.
    pub fn retain(&self, name: &str) {
        lock(&self.0.core).table.retained.insert(cut(name).to_owned());
    }

    /// How the lease of that name is isolated; `None` if there is no such lease.
    #[must_use]
    pub fn isolation(&self, name: &str) -> Option<Isolation> {
        lock(&self.0.core).table.isolation(cut(name))
    }

    /// Whether that name is of a database that [`Leases::keep`] has kept, and that is still there.
    #[must_use]
    pub fn is_kept(&self, name: &str) -> bool {
        lock(&self.0.core).table.is_kept(cut(name))
    }

    /// Since when that name is leased, and how many sessions it has; `None` if it has no database.
    #[must_use]
    pub fn leased(&self, name: &str) -> Option<(Instant, usize)> {
        let lease = lock(&self.0.core).table.lease(cut(name))?;
        Some((lease.since?, lease.sessions))
    }

    /// Takes note of a session from which databases are made and dropped by SQL.
    #[must_use]
    pub fn maintenance_session(&self) -> MaintenanceGuard {
        self.0.maintenance_sessions.fetch_add(1, Ordering::Relaxed);
        MaintenanceGuard(Arc::clone(&self.0))
    }

    /// Whether there are such sessions.
    #[must_use]
    pub fn has_maintenance_sessions(&self) -> bool {
        self.0.is_maintained()
    }

    /// Closes all backends that wait in leased databases: a client is going to drop one by SQL, and the server refuses that
    /// as long as there is a session.
    pub fn vacate(&self) {
        let mut core = lock(&self.0.core);
        core.close_waiting_in_leases();
        drop(core);
        self.0.raise(Event::Vacate, None);
    }

    /// The server's major version.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.0.options.major
    }

    /// Whether databases can be reset: the server's write-ahead log is in a format that is known. If not, a new copy takes the
    /// place of each that was used.
    #[must_use]
    pub fn can_reset(&self) -> bool {
        self.0.evidence.has_known_format()
    }

    /// How leases are isolated that do not say.
    #[must_use]
    pub fn default_isolation(&self) -> Isolation {
        self.0.options.isolation
    }

    /// Whether it is a database that initdb has made, which is never leased.
    #[must_use]
    pub fn is_always_there(name: &str) -> bool {
        ALWAYS.contains(&name)
    }

    /// Stops handing out, and waits for what is being done; the server may be used by others afterwards.
    pub fn close(&self) {
        self.abandon();
        for worker in lock(&self.0.workers).drain(..) {
            if worker.join().is_err() {
                tracing::error!("a maintenance worker has panicked");
            }
        }
        self.0.admin.close();
        lock(&self.0.core).databases.clear();
    }

    /// Stops handing out, and tells all who wait: pgfresh is shutting down. Sessions go on.
    pub fn stop_handing_out(&self) {
        self.0.stop_handing_out(Closing::ShuttingDown);
    }

    /// Stops handing out, and tells all who wait: the server has ended.
    pub fn server_gone(&self) {
        self.0.stop_handing_out(Closing::ServerGone);
    }

    /// Stops handing out, whatever is being done just now: the server is going to be stopped at once.
    pub fn abandon(&self) {
        self.stop_handing_out();
        let mut core = lock(&self.0.core);
        let servers: Vec<_> = core.databases.values_mut().filter_map(|held| held.server.take()).collect();
        core.databases.values_mut().for_each(crate::core::Held::close_waiting);
        drop(core);
        // Each takes as long as its shutdown.
        thread::scope(|scope| {
            for server in servers {
                scope.spawn(move || drop(server));
            }
        });
    }
}

/// What a server says of itself.
struct ServerFacts {
    /// It compiles expressions by default.
    jit: bool,
    /// It ends idle sessions by default.
    ends_idle: bool,
    /// So many it admits.
    sessions: usize,
}

/// Looks at the server. Removes databases of an earlier pgfresh, on whose data this server goes on, that were ready, being prepared or
/// being dropped: their names will be given again.
fn look_around(admin: &AdminPool) -> Result<ServerFacts, LeaseError> {
    // Of a bound that our own sessions do not have the files tell, and stamps of what roles and databases have.
    let sql = format!(
        "SELECT current_setting('jit'), current_setting('max_connections'), datname, coalesce(( \
           SELECT setting FROM pg_file_settings WHERE name = '{IDLE_TIMEOUT}' AND applied), '0') \
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
    })
}
