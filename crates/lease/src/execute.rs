//! Executes the table's tasks in the server: renames, resets and copies.
//!
//! Each task runs in one thread, and does not hold the lock on the core while it waits for the server. When the task has ended, its
//! outcome goes back to the table as an event.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use ::template::{complete_copy, create_copy};
use server::AdminConnection;
use sys::lock;

use crate::address::DatabaseAddress;
use crate::admin::{MARK, mark_of};
use crate::backend::{WaitingBackend, ids};
use crate::catalog::{FileMap, TemplateCatalog};
use crate::core::Held;
use crate::drop::drop_named;
use crate::eviction::{copy_without_sessions, evict};
use crate::evidence::Epoch;
use crate::growth::Growth;
use crate::inner::Inner;
use crate::leased_server::LeasedServer;
use crate::reset::{GONE, NotRecyclable, Used, open_own_session, reset};
use crate::rollback::{TransactionSession, are_only_sequences, restore_sequences};
use crate::stats::DatabaseStats;
use crate::table::{DatabaseId, Event, Outcome, Proof, Source, TaskKind};
use crate::template::{Template, database_of};
use crate::{Difference, Digest, LeaseError, TemplateDatabase};

/// A database at the end of its lease in rollback isolation.
struct RolledBack {
    address: DatabaseAddress,
    template: Template,
    /// The database's own catalog, if its template has none.
    catalog: Option<Arc<TemplateCatalog>>,
    files: Option<FileMap>,
    epoch: Epoch,
    leaves_traces: bool,
}

impl RolledBack {
    fn of(held: &Held) -> Option<Self> {
        Some(Self {
            address: held.leased_address(),
            template: held.template.clone()?,
            catalog: held.catalog.clone(),
            files: held.files.clone(),
            epoch: held.epoch,
            leaves_traces: held.leaves_traces,
        })
    }
}

/// Parts of a [`Held`] that a reset takes out, to work on them without the lock.
struct Taken {
    template: Template,
    address: DatabaseAddress,
    epoch: Epoch,
    stats: Option<DatabaseStats>,
    files: Option<FileMap>,
    growth: Growth,
    waiting: Vec<WaitingBackend>,
    session: Option<AdminConnection>,
}

impl Taken {
    fn from(held: &mut Held, in_place: bool) -> Option<Self> {
        Some(Self {
            template: held.template.clone()?,
            address: if in_place { held.leased_address() } else { held.own_address() },
            epoch: held.epoch,
            stats: held.stats.take(),
            files: held.files.take(),
            growth: std::mem::take(&mut held.growth),
            waiting: std::mem::take(&mut held.waiting),
            session: held.session.take(),
        })
    }
}

impl Inner {
    /// Executes a task. Reports a failure, unless the cause is a lack of sessions.
    pub(crate) fn execute(&self, id: DatabaseId, kind: &TaskKind) -> Outcome {
        let _span = tracing::debug_span!("database", number = id.0).entered();
        let outcome = match kind {
            TaskKind::Create(Source::Template(template)) => self.hide(id, self.create(id, template)),
            TaskKind::Create(Source::Server(template)) => self.start_server(id, template),
            TaskKind::Name { to, isolation, params } => self.name(id, to, *isolation, *params),
            TaskKind::Unname => self.unname(id),
            TaskKind::Reset { in_place: false } => self.hide(id, self.reset(id, false)),
            TaskKind::Reset { in_place: true } => self.reset(id, true),
            TaskKind::Keep { to } => self.rename(id, to),
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
                let held = Held::of_server(server, self.evidence.epoch());
                self.lock().databases.insert(id, held);
                Outcome::Fresh(Proof::new())
            }
            Err(error) => Outcome::Failed(error),
        }
    }

    fn reset(&self, id: DatabaseId, in_place: bool) -> Outcome {
        let begun = Instant::now();
        if !in_place {
            let name = self.lock().databases.get(&id).map_or_else(String::new, |held| held.last_name.clone());
            self.shared().ended(&name);
            self.look_at_shared_state();
        }
        let transaction = self.lock().databases.get_mut(&id).and_then(|held| held.transaction.take());
        let result = match transaction {
            Some(session) => self.roll_back(id, session),
            None => self.recycle(id, in_place).map(Outcome::Fresh),
        };
        match result {
            Ok(outcome) => {
                if matches!(outcome, Outcome::Fresh(_)) {
                    let mut core = self.lock();
                    core.counters.recycled.0 += 1;
                    core.counters.recycled.1 += begun.elapsed();
                }
                outcome
            }
            Err(NotRecyclable { reason, error }) => {
                if let Some(error) = error {
                    self.report("reset a database", &error);
                }
                Outcome::Doubt(reason)
            }
        }
    }

    /// Ends a lease in rollback isolation. The database is then fresh. Its session waits for the next lease if it is fresh too.
    fn roll_back(
        &self,
        id: DatabaseId,
        mut session: Box<TransactionSession>,
    ) -> Result<Outcome, NotRecyclable> {
        let gone = || NotRecyclable::because(GONE);
        let database = self.lock().databases.get(&id).and_then(RolledBack::of).ok_or_else(gone)?;
        let RolledBack { address, template, catalog, files, epoch, leaves_traces } = database;
        let catalog = catalog.as_deref().or_else(|| template.catalog_when_read());
        let catalog = catalog.ok_or_else(|| NotRecyclable::because(template.why_unknown()))?;
        let leaves_nothing = session.transaction.leaves_nothing;
        let (touched, rows) = session.roll_back(&self.evidence, address.oid, catalog, files.as_ref())?;
        self.check_epoch(epoch)?;
        if !self.lock().databases.get_mut(&id).is_some_and(|held| held.has_room_for(rows)) {
            return Err(NotRecyclable::because("what was rolled back takes too much room"));
        }
        if !touched.is_empty() {
            let kept = self.lock().databases.get_mut(&id).and_then(|held| held.session.take());
            let mut own = match kept.and_then(|mut session| session.is_alive().then_some(session)) {
                Some(session) => session,
                None => open_own_session(&self.admin, &address)?,
            };
            let rows = own.query(&format!("{}{MARK}", restore_sequences(catalog, &touched)))?;
            are_only_sequences(&self.evidence.changes_up_to(mark_of(&rows), address.oid))?;
            self.keep_session(id, own);
        }
        // The database is fresh by now. Its session can only be used again if it is fresh too.
        if leaves_traces
            || !leaves_nothing
            || !session.may_greet_another
            || !self.may_wait(&session.params, &session.stamp)
            || self.is_maintained()
        {
            return Ok(Outcome::SessionSpent);
        }
        if let Some(held) = self.lock().databases.get_mut(&id) {
            held.transaction = Some(session);
        }
        Ok(Outcome::Fresh(Proof::new()))
    }

    /// Keeps pgfresh's session in a database for the next reset.
    fn keep_session(&self, id: DatabaseId, session: AdminConnection) {
        let mut core = self.lock();
        if let Some(held) = core.databases.get_mut(&id) {
            held.session = Some(session);
        }
        core.trim_idle(id);
    }

    /// Resets a database to the state of its template.
    pub(crate) fn recycle(&self, id: DatabaseId, in_place: bool) -> Result<Proof, NotRecyclable> {
        let gone = || NotRecyclable::because(GONE);
        let taken = self
            .lock()
            .databases
            .get_mut(&id)
            .and_then(|held| Taken::from(held, in_place))
            .ok_or_else(gone)?;
        let Taken { template, address, epoch, stats, files, growth, waiting, session } = taken;
        if !template.is_recyclable() {
            return Err(NotRecyclable::because("databases of this template are not recycled"));
        }
        let catalog = template.catalog_when_read();
        let catalog = catalog.ok_or_else(|| NotRecyclable::because(template.why_unknown()))?;
        let generation = if template.has_unlogged() { self.generation() } else { 0 };
        let mut used = Used { address: &address, catalog, stats, files, growth, waiting, session };
        let proof = reset(&self.admin, &self.evidence, &mut used)?;
        self.check_epoch(epoch)?;
        let Used { files, growth, mut waiting, session, .. } = used;
        if let Some(digest) = &catalog.digest {
            self.compare(id, digest, &address)?;
        }
        if !in_place && self.lock().table.has_time_for(id) {
            waiting = self.warm_up(id, &address, &template, waiting);
        }
        let mut core = self.lock();
        let waiting = core.admit(waiting);
        let params = ids(&waiting);
        let held = core.databases.get_mut(&id).ok_or_else(gone)?;
        (held.files, held.growth, held.waiting, held.session) = (files, growth, waiting, session);
        held.entered = false;
        // An earlier lease may have begun before pgfresh had looked for functions.
        held.leaves_traces = template.may_leave_traces();
        held.generation = generation;
        core.trim_idle(id);
        core.raise_in_background(Event::Warmed { database: id, params });
        Ok(proof)
    }

    /// Checks that the reader has followed the log without a gap since the database was fresh.
    fn check_epoch(&self, epoch: Epoch) -> Result<(), NotRecyclable> {
        if epoch == self.evidence.epoch() {
            return Ok(());
        }
        Err(NotRecyclable::because("the write-ahead log could not be followed"))
    }

    /// Compares a database completely with its template, and records the first difference.
    fn compare(
        &self,
        id: DatabaseId,
        fresh: &Digest,
        address: &DatabaseAddress,
    ) -> Result<(), NotRecyclable> {
        let mut session = self.admin.open_in(address, &[])?;
        let digest = Digest::read(&mut session)?;
        let Some(relation) = fresh.difference(&digest) else { return Ok(()) };
        let mut core = self.lock();
        let database =
            core.databases.get(&id).map_or_else(|| address.name.clone(), |held| held.last_name.clone());
        core.counters.differences.push(Difference { database, relation: relation.to_owned() });
        Err(NotRecyclable::because("it differed from its template"))
    }

    /// Copies a database that has no sessions, and takes the copy into service as a template.
    fn copy_to_template(&self, id: DatabaseId, template: &str) -> Result<(), LeaseError> {
        let DatabaseAddress { oid, name } = {
            let mut core = self.lock();
            let held =
                core.databases.get_mut(&id).ok_or_else(|| LeaseError::NotLeased(template.to_owned()))?;
            held.close_waiting();
            held.leased_address()
        };
        let database = TemplateDatabase { name: template.to_owned(), database: database_of(template) };
        let called = &database.database;
        // Any remaining session has been opened without the gateway.
        evict(&name, &self.admin)?;
        let sql = create_copy(&name, called, self.options.major);
        let copied = copy_without_sessions(&name, &sql, &self.admin);
        // If the connection was lost, the copy may exist. After any other error, it does not.
        let is_there = copied.as_ref().map_or_else(LeaseError::is_lost, |_| true);
        let taken = copied
            .and_then(|_| self.admin.run("complete a template", &complete_copy(&name, called)))
            .and_then(|_| Template::take(&database, None, &self.options.data, &self.admin))
            .and_then(|taken| self.expect_source(&taken, oid).map(|()| taken));
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

    /// Checks that a template is a copy of the database with this oid.
    fn expect_source(&self, template: &Template, oid: u32) -> Result<(), LeaseError> {
        self.evidence.catch_up(&self.admin)?;
        match self.evidence.source(template.oid) {
            Some(source) if source != oid => Err(LeaseError::NotLeased(template.name.clone())),
            _ => {
                // The records of its creation are not changes of the template.
                drop(self.evidence.take(template.oid));
                Ok(())
            }
        }
    }

    /// Ends the sessions of a database, if it has clients.
    pub(crate) fn close_sessions(&self, id: DatabaseId) {
        let (server, oid) = {
            let mut core = self.lock();
            // If it has no clients, its sessions are waiting for the next one.
            let held = core.databases.get_mut(&id).filter(|held| !held.clients.is_empty());
            let Some(held) = held else { return };
            held.close_waiting();
            held.clients.iter().for_each(|client| client.close());
            (held.server.clone(), held.oid)
        };
        if let Some(server) = server {
            return lock(&server).close_sessions();
        }
        let sql = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datid = {oid}");
        if let Err(error) = self.admin.run("close the sessions of a database", &sql) {
            self.report("close sessions", &error.to_string());
        }
    }

    /// Checks for changes in the state that all databases share, if the log or a file shows any.
    pub(crate) fn look_at_shared_state(&self) {
        // Only one thread at a time may do this, so that each thread compares its reading before the next one reads.
        let _looking = lock(&self.looking);
        let ended = self.shared().take_ended();
        let changes = self.evidence.take_shared();
        let files_changed = self.shared().have_files_changed(&self.options.data);
        if !files_changed && changes.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        let facts = match crate::shared::facts(&self.admin, self.options.major) {
            Ok(facts) => facts,
            Err(error) => {
                self.shared().put_back(ended);
                return self.report("look for changes of what all databases share", &error.to_string());
            }
        };
        let (leased, guilty) = {
            let core = self.lock();
            let name = |oid: u32| {
                let held = core.databases.values().find(|held| held.oid == oid)?;
                (!held.last_name.is_empty()).then(|| held.last_name.clone())
            };
            let guilty: BTreeSet<_> =
                changes.iter().flatten().filter_map(|change| name(change.from?)).collect();
            (core.table.held_names(), guilty.into_iter().collect::<Vec<_>>())
        };
        self.shared().compare(facts, ended, leased.into_iter(), &guilty);
    }

    /// Counts and logs an error of background work, with its causes.
    pub(crate) fn report_error(&self, verb: &'static str, error: &LeaseError) {
        let detail = error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        self.report(verb, &format!("{}{detail}", error.with_causes()));
    }

    /// Counts and logs a failure of background work. A cause that has been reported lately is logged at a lower level.
    pub(crate) fn report(&self, verb: &'static str, why: &str) {
        let mut core = self.lock();
        if core.closed {
            // The task has failed because the server is stopping.
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
    /// Returns the purpose of the task, for error messages.
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
