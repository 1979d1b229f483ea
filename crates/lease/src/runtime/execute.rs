//! Runs the table's tasks in the server. Most tasks rename, reset or copy a database.
//!
//! Each task runs on one thread and never waits for the server while holding the core's lock. When a task finishes, the
//! table receives the outcome as an event.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ::template::{complete_copy, create_copy};
use sys::lock;

use crate::address::DatabaseAddress;
use crate::admin::{MARK, mark_of};
use crate::backends::backend::ids;
use crate::backends::demand::Usage;
use crate::error::LeaseError;
use crate::options::TemplateDatabase;
use crate::reset::digest::{Difference, Digest};
use crate::reset::recycle::{GONE, NotRecyclable, Used, open_own_session, reset};
use crate::reset::rollback::{TransactionSession, are_only_sequences, restore_sequences};
use crate::runtime::checkout::{Access, CheckedOut};
use crate::runtime::drop::{drop_database, drop_named};
use crate::runtime::inner::Inner;
use crate::runtime::leased_server::LeasedServer;
use crate::runtime::resources::{Identity, PooledCopy, Resources, RollbackCopy};
use crate::runtime::template::{Template, copy_without_sessions, database_of, evict};
use crate::table::{DatabaseId, Event, Outcome, Proof, Source, TaskKind};
use crate::wal::evidence::Epoch;

impl Inner {
    /// Runs a task and reports any failure, except a lack of sessions for clients in the server.
    pub(crate) fn execute(&self, id: DatabaseId, kind: &TaskKind) -> Outcome {
        let _span = tracing::debug_span!("database", number = id.0).entered();
        let outcome = match kind {
            TaskKind::Create(Source::Template(template)) => self.create(id, template),
            TaskKind::Create(Source::Server(template)) => self.start_server(id, template),
            TaskKind::Name { to, isolation, params } => self.name(id, to, *isolation, *params),
            TaskKind::Unname => self.unname(id),
            TaskKind::Reset { in_place } => self.reset(id, *in_place),
            TaskKind::Keep { to } => self.keep(id, to),
            TaskKind::Copy { to } => outcome(self.copy_to_template(id, to)),
            TaskKind::Drop => self.drop(id),
            TaskKind::Close => Outcome::Done,
        };
        tracing::debug!(?kind, ?outcome, "task ended");
        if let Outcome::Failed(error) = &outcome
            && !matches!(error, LeaseError::TooManyClients { .. })
        {
            self.report_error(kind.verb(), error);
        }
        outcome
    }

    fn start_server(&self, id: DatabaseId, template: &str) -> Outcome {
        let Some(provisioner) = &self.options.provisioner else {
            return Outcome::Failed(LeaseError::NoServers);
        };
        match LeasedServer::start(provisioner, template, &self.options.templates) {
            Ok(server) => {
                self.lock().pool.insert(id, Resources::Server(Arc::new(Mutex::new(server))));
                Outcome::Fresh(Proof::new())
            }
            Err(error) => Outcome::Failed(error),
        }
    }

    fn reset(&self, id: DatabaseId, in_place: bool) -> Outcome {
        let begun = Instant::now();
        let Some(Access::Exclusive(mut database)) = self.core.check_out(id) else {
            return Outcome::Doubt(GONE);
        };
        if in_place {
            self.observe(&database);
        } else {
            if let Some(lease) = database.copy().and_then(|copy| copy.last_lease.as_deref()) {
                self.shared().ended(lease);
            }
            self.look_at_shared_state();
        }
        let result = self.restore(id, &mut database, in_place);
        match result {
            Ok(Outcome::Fresh(proof)) => {
                {
                    let mut core = self.lock();
                    core.counters.recycled.0 += 1;
                    core.counters.recycled.1 += begun.elapsed();
                }
                self.put_back_ready(id, database, in_place);
                Outcome::Fresh(proof)
            }
            Ok(outcome) => outcome,
            Err(NotRecyclable { reason, error }) => {
                // The table will request that the database be dropped, so close its sessions.
                database.close_waiting();
                if let Some(error) = error {
                    self.report("reset a database", &error);
                }
                Outcome::Doubt(reason)
            }
        }
    }

    /// Restores the template's state, in rollback isolation by rolling back the lease's transaction.
    fn restore(
        &self,
        id: DatabaseId,
        database: &mut CheckedOut<'_>,
        in_place: bool,
    ) -> Result<Outcome, NotRecyclable> {
        if let Resources::Rollback(rollback) = &mut **database {
            if let Some(session) = rollback.session.take() {
                return self.roll_back(rollback, session);
            }
            if let Some(observer) = &self.options.observer {
                observer.look(&rollback.copy.identity.address.name, None);
            }
        }
        let copy = database.copy_mut().ok_or(NotRecyclable::because(GONE))?;
        let proof = self.recycle(copy)?;
        if !in_place {
            copy.close_unneeded();
        }
        if !in_place && self.lock().table.has_time_for(id) {
            self.warm_up(id, copy);
        }
        Ok(Outcome::Fresh(proof))
    }

    /// Returns a fresh database's resources to the pool and tells the table which idle backends they include. Unless a
    /// lease continues in the database, the database is hidden first.
    pub(crate) fn put_back_ready(&self, id: DatabaseId, mut database: CheckedOut<'_>, in_place: bool) {
        if !in_place && let Some(identity) = database.identity_mut() {
            self.hide(identity);
        }
        let params = database.copy().map(|copy| ids(&copy.waiting)).unwrap_or_default();
        drop(database);
        self.lock().raise_in_background(Event::Warmed { database: id, params });
    }

    /// Rolls back a lease, which leaves the database fresh. If the session contains no traces of the lease, the next
    /// lease reuses it.
    fn roll_back(
        &self,
        RollbackCopy { copy, session: kept, catalog }: &mut RollbackCopy,
        mut session: Box<TransactionSession>,
    ) -> Result<Outcome, NotRecyclable> {
        let address = &copy.identity.address;
        let leaves_nothing = session.transaction.leaves_nothing;
        if let Some(observer) = &self.options.observer {
            session.observe(observer, &address.name)?;
        }
        let catalog = catalog.as_deref().or_else(|| copy.template.catalog_when_read());
        let catalog = catalog.ok_or_else(|| NotRecyclable::because(copy.template.why_unknown()))?;
        let (touched, rows) = session.roll_back(&self.evidence, address.oid, catalog, copy.files.as_ref())?;
        self.check_epoch(copy.epoch)?;
        if !copy.growth.has_room_for_rolled_back(rows) {
            return Err(NotRecyclable::because("what was rolled back takes too much room"));
        }
        if !touched.is_empty() {
            let mut own = match copy.session.take().and_then(|mut own| own.is_alive().then_some(own)) {
                Some(own) => own,
                None => open_own_session(&self.admin, address)?,
            };
            let rows = own.query(&format!("{}{MARK}", restore_sequences(catalog, &touched)))?;
            are_only_sequences(&self.evidence.changes_up_to(mark_of(&rows), address.oid))?;
            copy.session = Some(own);
        }
        // The database is fresh now. Reuse its session only if the session behaves like a new one.
        if copy.leaves_traces
            || !leaves_nothing
            || !session.may_serve_another
            || !self.may_wait(&session.params, &session.stamp)
            || self.is_maintained()
        {
            return Ok(Outcome::SessionSpent);
        }
        *kept = Some(session);
        Ok(Outcome::Fresh(Proof::new()))
    }

    /// Resets a database to its template's state.
    pub(crate) fn recycle(&self, copy: &mut PooledCopy) -> Result<Proof, NotRecyclable> {
        if !copy.template.is_recyclable() {
            return Err(NotRecyclable::because("databases of this template are not recycled"));
        }
        let stats = copy.take_stats();
        let catalog = copy.template.catalog_when_read();
        let catalog = catalog.ok_or_else(|| NotRecyclable::because(copy.template.why_unknown()))?;
        let generation = copy.template.has_unlogged().then(|| self.generation()).flatten();
        let mut used = Used {
            address: &copy.identity.address,
            catalog,
            stats,
            files: copy.files.take(),
            growth: mem::take(&mut copy.growth),
            waiting: mem::take(&mut copy.waiting),
            session: copy.session.take(),
        };
        let proof = reset(&self.admin, &self.evidence, &mut used)?;
        self.check_epoch(copy.epoch)?;
        let Used { files, growth, waiting, session, .. } = used;
        if let Some(digest) = &catalog.digest {
            self.compare(copy, digest)?;
        }
        (copy.files, copy.growth, copy.waiting, copy.session) = (files, growth, waiting, session);
        copy.set_entered(false);
        if let Some(usage) = copy.usage() {
            *usage = Usage::default();
        }
        // When the database was created, pgfresh may not have checked for functions yet.
        copy.leaves_traces = copy.template.may_leave_traces();
        copy.generation = generation;
        Ok(proof)
    }

    /// Checks that pgfresh has read the log without gaps since the database was created.
    fn check_epoch(&self, epoch: Epoch) -> Result<(), NotRecyclable> {
        if epoch == self.evidence.epoch() {
            return Ok(());
        }
        Err(NotRecyclable::because("the write-ahead log could not be followed"))
    }

    /// Compares the whole database with its template and records the first difference.
    fn compare(&self, copy: &PooledCopy, fresh: &Digest) -> Result<(), NotRecyclable> {
        let address = &copy.identity.address;
        let mut session = self.admin.open_in(address, &[])?;
        let digest = Digest::read(&mut session)?;
        let Some(relation) = fresh.difference(&digest) else { return Ok(()) };
        let database = copy.last_lease.as_deref().unwrap_or(&address.name).to_owned();
        self.lock().counters.differences.push(Difference { database, relation: relation.to_owned() });
        Err(NotRecyclable::because("it differed from its template"))
    }

    /// Copies a database without sessions and puts the copy into service as a template.
    fn copy_to_template(&self, id: DatabaseId, template: &str) -> Result<(), LeaseError> {
        let unknown = || LeaseError::NotLeased(template.to_owned());
        let Some(Access::Exclusive(mut source)) = self.core.check_out(id) else { return Err(unknown()) };
        source.close_waiting();
        let DatabaseAddress { oid, name } = &source.identity().ok_or_else(unknown)?.address;
        let database = TemplateDatabase { name: template.to_owned(), database: database_of(template) };
        let called = &database.database;
        // Any remaining sessions bypass the gateway, so terminate them.
        evict(name, &self.admin)?;
        let sql = create_copy(name, called, self.options.major);
        let copied = copy_without_sessions(name, &sql, &self.admin);
        // If the connection was lost, the copy may or may not exist. After any other error, there is no copy.
        let is_there = copied.as_ref().map_or_else(LeaseError::is_lost, |_| true);
        let taken = copied
            .and_then(|_| self.admin.run("complete a template", &complete_copy(name, called)))
            .and_then(|_| Template::take(&database, None, &self.options.data, &self.admin))
            .and_then(|taken| self.expect_source(&taken, *oid).map(|()| taken));
        if taken.is_err()
            && is_there
            && let Err(error) = drop_named(called, &self.admin)
        {
            self.report_error("drop a template", &error);
        }
        lock(&self.templates).push(taken?);
        self.measure_capacity();
        self.lock().table.add_source(Source::Template(template.to_owned()), true);
        Ok(())
    }

    /// Checks that a template was copied from the database with this oid.
    fn expect_source(&self, template: &Template, oid: u32) -> Result<(), LeaseError> {
        self.evidence.catch_up(&self.admin)?;
        match self.evidence.source(template.oid) {
            Some(source) if source != oid => Err(LeaseError::NotLeased(template.name.clone())),
            _ => {
                // Discard the log records of the template's creation, which don't count as changes.
                drop(self.evidence.take(template.oid));
                Ok(())
            }
        }
    }

    /// Terminates all sessions in a database if any of them has a client.
    pub(crate) fn close_sessions(&self, id: DatabaseId) {
        let mut core = self.lock();
        // Without clients, the only sessions are idle ones waiting for the next client.
        let clients = core.pool.clients(id);
        if clients.is_empty() {
            return;
        }
        for client in clients {
            client.close();
        }
        if let Some(Resources::Server(server)) = core.pool.get(id) {
            let server = Arc::clone(server);
            drop(core);
            return lock(&server).close_sessions();
        }
        if let Some(resources) = core.pool.get_mut(id) {
            resources.close_waiting();
        }
        let oid = core.pool.oid_of(id);
        drop(core);
        let Some(oid) = oid else { return };
        let sql = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datid = {oid}");
        if let Err(error) = self.admin.run("close the sessions of a database", &sql) {
            self.report("close sessions", &error.to_string());
        }
    }

    /// Drops a database. In isolation `server`, stops the lease's server instead.
    pub(crate) fn drop(&self, id: DatabaseId) -> Outcome {
        let mut database = match self.core.check_out(id) {
            Some(Access::Exclusive(database)) => database,
            Some(Access::Server(_)) => {
                // The server stops when `_server` is dropped at the end of this function.
                let _server = self.lock().pool.remove(id);
                return Outcome::Done;
            }
            None => return Outcome::Done,
        };
        let dropped = match &mut *database {
            // The oid may be unknown because creating the database failed.
            Resources::Preparing(claim) => drop_named(claim.name(), &self.admin),
            resources => match resources.identity_mut() {
                Some(Identity { address, names, .. }) => {
                    drop_database(address.oid, names, &self.admin).map(|()| {
                        // Discard the log records about the database.
                        self.evidence.take(address.oid);
                    })
                }
                None => Ok(()),
            },
        };
        match dropped {
            Ok(()) => {
                database.change(|_| Resources::Gone);
                Outcome::Done
            }
            Err(error) => Outcome::Failed(error),
        }
    }

    /// Checks whether the state shared by all databases has changed.
    /// Reads this state only if the log or a file indicates a change.
    pub(crate) fn look_at_shared_state(&self) {
        // Serialize these checks: each must finish its comparison before the next reads the state.
        let _looking = lock(&self.looking);
        let ended = self.shared().take_ended();
        let changes = self.evidence.take_shared();
        let files_changed = self.shared().have_files_changed(&self.options.data);
        if !files_changed && changes.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        let facts = match crate::runtime::shared::facts(&self.admin, self.options.major) {
            Ok(facts) => facts,
            Err(error) => {
                self.shared().put_back(ended);
                return self.report("look for changes of what all databases share", &error.to_string());
            }
        };
        let (leased, guilty) = {
            let core = self.lock();
            let guilty: BTreeSet<_> = changes
                .iter()
                .flatten()
                .filter_map(|change| core.pool.lease_of(change.from?))
                .map(str::to_owned)
                .collect();
            (core.table.held_names(), guilty.into_iter().collect::<Vec<_>>())
        };
        self.shared().compare(facts, ended, leased.into_iter(), &guilty);
    }

    /// Counts and logs an error in background work, including its causes.
    pub(crate) fn report_error(&self, verb: &'static str, error: &LeaseError) {
        let detail = error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        self.report(verb, &format!("{}{detail}", error.with_causes()));
    }

    /// Counts and logs a failure in background work, at a lower level if the same cause was reported recently.
    pub(crate) fn report(&self, verb: &'static str, why: &str) {
        let mut core = self.lock();
        if core.closed {
            // The task failed only because the server is shutting down.
            return tracing::debug!(verb, why, "background task ended with the server");
        }
        *core.counters.errors.entry(verb).or_default() += 1;
        if core.counters.is_news(verb, why) {
            tracing::warn!(verb, why, "background task failed");
        } else {
            tracing::debug!(verb, why, "background task failed again");
        }
    }
}

impl TaskKind {
    /// Returns the task's purpose, for error messages.
    fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "make a database",
            Self::Name { .. } => "name a database",
            Self::Unname => "take a name back",
            Self::Reset { .. } => "reset a database",
            Self::Keep { .. } => "keep a database",
            Self::Copy { .. } => "copy a database",
            Self::Close => "close sessions",
            Self::Drop => "drop a database",
        }
    }
}

fn outcome(result: Result<(), LeaseError>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(error) => Outcome::Failed(error),
    }
}
