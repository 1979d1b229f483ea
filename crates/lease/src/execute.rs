//! What tasks do in the server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use ::template::{complete_copy, create_copy};
use server::AdminConnection;
use sys::lock;

use crate::admin::{MARK, mark_of};
use crate::backend::{WaitingBackend, ids};
use crate::catalog::{FileMap, TemplateCatalog};
use crate::core::Held;
use crate::drop::drop_database;
use crate::eviction::{copy_without_sessions, evict};
use crate::evidence::Epoch;
use crate::growth::Growth;
use crate::inner::Inner;
use crate::leased_server::LeasedServer;
use crate::reset::{NotRecyclable, Used, open_own_session, reset};
use crate::rollback::{TransactionSession, are_only_sequences, restore_sequences};
use crate::stats::DatabaseStats;
use crate::table::{DatabaseId, Event, Outcome, ParamsId, Proof, Source, TaskKind};
use crate::template::{Template, database_of, rename};
use crate::{Difference, Digest, Isolation, LeaseError, TemplateDatabase};

/// A database whose lease in rollback isolation ends.
struct RolledBack {
    oid: u32,
    name: String,
    template: Template,
    /// Its own, where the template has none.
    catalog: Option<Arc<TemplateCatalog>>,
    files: Option<FileMap>,
    epoch: Epoch,
    leaves_traces: bool,
}

impl RolledBack {
    fn of(held: &Held) -> Option<Self> {
        Some(Self {
            oid: held.oid,
            name: held.last_name.clone(),
            template: held.template.clone()?,
            catalog: held.catalog.clone(),
            files: held.files.clone(),
            epoch: held.epoch,
            leaves_traces: held.leaves_traces,
        })
    }
}

/// What is taken out of a database while it is reset.
struct Taken {
    template: Template,
    /// As the server knows it now.
    name: String,
    oid: u32,
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
            name: if in_place { held.last_name.clone() } else { held.own_name.clone() },
            oid: held.oid,
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
    /// Does what a task asks for.
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

    /// Gives a ready database a lease's name.
    fn name(&self, id: DatabaseId, to: &str, isolation: Isolation, params: Option<ParamsId>) -> Outcome {
        let server = self.lock().databases.get(&id).and_then(|held| held.server.clone());
        if let Some(server) = server {
            return outcome(lock(&server).rename(to));
        }
        let renamed = if self.is_parked_as(id, to) { self.look_again(id) } else { self.rename(id, to) };
        if !matches!(renamed, Outcome::Done) {
            return renamed;
        }
        if let Err(error) = self.restore_attributes(id) {
            return Outcome::Failed(error);
        }
        let (oid, epoch, stamp, transaction) = {
            let mut core = self.lock();
            let Some(held) = core.databases.get_mut(&id) else { return Outcome::Vanished };
            held.clients.clear();
            held.entered = false;
            (held.oid, held.epoch, Arc::clone(&held.stamp.0), held.transaction.take())
        };
        // A crash empties the unlogged tables of every database.
        if self.has_crashed_since(id) || self.has_template_changed_since(id) {
            return Outcome::Unfit;
        }
        // A ready database has had no sessions; if it was changed all the same, it is reset first.
        if epoch != self.evidence.epoch() || !self.evidence.is_untouched(oid) {
            return Outcome::Unfit;
        }
        if isolation != Isolation::Rollback {
            return Outcome::Done;
        }
        let transaction = match transaction {
            Some(session) => Some(session).filter(|session| {
                let unchanged = session.since.is_none_or(|since| self.evidence.are_settings_unchanged(since));
                session.stamp == stamp && unchanged && session.will_serve()
            }),
            None => match self.open_transaction_session(id, to, params) {
                Ok(session) => Some(session),
                Err(error) => return Outcome::Failed(error),
            },
        };
        let Some(transaction) = transaction else { return Outcome::Unfit };
        if let Some(held) = self.lock().databases.get_mut(&id) {
            held.transaction = Some(transaction);
        }
        Outcome::Done
    }

    /// Whether a crash may have emptied unlogged tables of a database since it was known to be fresh.
    pub(crate) fn has_crashed_since(&self, id: DatabaseId) -> bool {
        let known = {
            let core = self.lock();
            let Some(held) = core.databases.get(&id) else { return true };
            if !held.template.as_ref().is_some_and(Template::has_unlogged) {
                return false;
            }
            held.generation
        };
        known == 0 || known != self.generation()
    }

    /// Whether SQL has changed the template of a ready database since that was copied, as it may do to `template1`.
    fn has_template_changed_since(&self, id: DatabaseId) -> bool {
        let (oid, copied_after) = {
            let core = self.lock();
            let Some(held) = core.databases.get(&id) else { return true };
            let Some(template) = &held.template else { return false };
            (template.oid, held.copied_after.clone())
        };
        copied_after.is_some_and(|before| before != self.evidence.changes(oid))
    }

    /// Whether a database that was rolled back still has that name.
    fn is_parked_as(&self, id: DatabaseId, name: &str) -> bool {
        let core = self.lock();
        core.databases.get(&id).is_some_and(|held| held.transaction.is_some() && held.last_name == name)
    }

    /// Restores what hangs on a database that has just got its name, if that has changed since it was made: some statements change
    /// it in each database of a role.
    fn restore_attributes(&self, id: DatabaseId) -> Result<(), LeaseError> {
        let (oid, name, attributes) = {
            let core = self.lock();
            let Some(held) = core.databases.get(&id) else { return Ok(()) };
            let attributes = held.template.as_ref().and_then(|template| template.attributes.clone());
            let Some(attributes) = attributes.filter(|noted| !noted.are_in(&held.stamp.0)) else {
                return Ok(());
            };
            (held.oid, held.last_name.clone(), attributes)
        };
        // Where a role is not what it was, which is reported, it stays as it is.
        if let Err(error) = self.admin.run("restore the owner of a database", &attributes.put_on(&name)) {
            tracing::debug!(%error, name, "could not restore what hangs on a database");
        }
        let (stamp, _) = self.read_stamp(oid)?;
        if let Some(held) = self.lock().databases.get_mut(&id) {
            held.stamp = (stamp, true);
        }
        Ok(())
    }

    /// Reads what a session in a database would find that keeps its name.
    fn look_again(&self, id: DatabaseId) -> Outcome {
        let Some(oid) = self.lock().databases.get(&id).map(|held| held.oid) else { return Outcome::Vanished };
        match self.read_stamp(oid) {
            Ok((stamp, _)) if stamp.is_empty() => Outcome::Vanished,
            Ok((stamp, _)) => {
                if let Some(held) = self.lock().databases.get_mut(&id) {
                    held.stamp = (stamp, true);
                }
                Outcome::Done
            }
            Err(error) => Outcome::Failed(error),
        }
    }

    fn open_transaction_session(
        &self,
        id: DatabaseId,
        name: &str,
        params: Option<ParamsId>,
    ) -> Result<Box<TransactionSession>, LeaseError> {
        let (params, waiting, stamp, oid, unread) = {
            let mut core = self.lock();
            let known = params.and_then(|params| core.params_of(params));
            let params = known.ok_or_else(|| LeaseError::NotLeased(name.to_owned()))?;
            let held = core.databases.get_mut(&id).ok_or_else(|| LeaseError::NotLeased(name.to_owned()))?;
            let stamp = Arc::clone(&held.stamp.0);
            let waiting = held.take_waiting(&params).filter(|at| at.stamp == stamp && at.since.is_none());
            held.waiting.clear();
            let unread = held.template.clone().filter(|template| !template.is_recyclable());
            (params, waiting, stamp, held.oid, unread.filter(|_| held.catalog().is_none()))
        };
        if let Some(template) = unread {
            let catalog = Arc::new(self.read_catalog(oid, name, &template)?);
            if let Some(held) = self.lock().databases.get_mut(&id) {
                held.catalog = Some(catalog);
            }
        }
        let (backend, since) = if let Some(waiting) = waiting.filter(WaitingBackend::will_serve) {
            (waiting.backend, None)
        } else {
            let since = self.evidence.position();
            (self.start_backend(name, &params)?, Some(since))
        };
        let session = TransactionSession::new(params, backend, stamp, since);
        session.map(Box::new).map_err(|source| LeaseError::Sql { verb: "prepare a session", source })
    }

    /// Takes a database away from its name.
    fn unname(&self, id: DatabaseId) -> Outcome {
        let (oid, own_name, last_name) = {
            let mut core = self.lock();
            let own_name = core.next_name();
            let Some(held) = core.databases.get_mut(&id) else { return Outcome::Vanished };
            if held.server.is_some() {
                return Outcome::Done;
            }
            held.transaction = None;
            held.clients.clear();
            held.own_name.clone_from(&own_name);
            (held.oid, own_name, held.last_name.clone())
        };
        self.shared().ended(&last_name);
        match DatabaseStats::rename_and_read(oid, &own_name, &self.admin) {
            Ok(stats) => {
                self.evidence.read(stats.mark);
                if let Some(held) = self.lock().databases.get_mut(&id) {
                    held.stats = Some(stats);
                }
                Outcome::Done
            }
            Err(error) => not_renamed(error),
        }
    }

    fn rename(&self, id: DatabaseId, name: &str) -> Outcome {
        let Some(oid) = self.lock().databases.get(&id).map(|held| held.oid) else { return Outcome::Vanished };
        match rename(oid, name, &self.options, &self.admin) {
            Ok((stamp, mark)) => {
                self.evidence.read(mark);
                if let Some(held) = self.lock().databases.get_mut(&id) {
                    held.stamp = (stamp, true);
                    name.clone_into(&mut held.last_name);
                }
                Outcome::Done
            }
            Err(error) => not_renamed(error),
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

    /// Ends a lease in rollback isolation.
    fn roll_back(
        &self,
        id: DatabaseId,
        mut session: Box<TransactionSession>,
    ) -> Result<Outcome, NotRecyclable> {
        let gone = || NotRecyclable::because("it was dropped by SQL");
        let database = self.lock().databases.get(&id).and_then(RolledBack::of).ok_or_else(gone)?;
        let RolledBack { oid, name, template, catalog, files, epoch, leaves_traces } = database;
        let catalog = catalog.as_deref().or_else(|| template.catalog_when_read());
        let catalog = catalog.ok_or_else(|| NotRecyclable::because(template.why_unknown()))?;
        let leaves_nothing = session.transaction.leaves_nothing;
        let (touched, rows) = session.roll_back(&self.evidence, oid, catalog, files.as_ref())?;
        self.check_epoch(epoch)?;
        if !self.lock().databases.get_mut(&id).is_some_and(|held| held.has_room_for(rows)) {
            return Err(NotRecyclable::because("what was rolled back takes too much room"));
        }
        if !touched.is_empty() {
            let kept = self.lock().databases.get_mut(&id).and_then(|held| held.session.take());
            let mut own = match kept.and_then(|mut session| session.is_alive().then_some(session)) {
                Some(session) => session,
                None => open_own_session(&self.admin, &name)?,
            };
            let rows = own.query(&format!("{}{MARK}", restore_sequences(catalog, &touched)))?;
            are_only_sequences(&self.evidence.changes_up_to(mark_of(&rows), oid))?;
            self.keep_session(id, own);
        }
        // The database is reset; its session goes on only if that is, too.
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

    /// Keeps our own session in a database for the next time.
    fn keep_session(&self, id: DatabaseId, session: AdminConnection) {
        let mut core = self.lock();
        if let Some(held) = core.databases.get_mut(&id) {
            held.session = Some(session);
        }
        core.trim_idle(id);
    }

    /// Returns a database to its template's state.
    pub(crate) fn recycle(&self, id: DatabaseId, in_place: bool) -> Result<Proof, NotRecyclable> {
        let gone = || NotRecyclable::because("it was dropped by SQL");
        let taken = self
            .lock()
            .databases
            .get_mut(&id)
            .and_then(|held| Taken::from(held, in_place))
            .ok_or_else(gone)?;
        let Taken { template, name, oid, epoch, stats, files, growth, waiting, session } = taken;
        if !template.is_recyclable() {
            return Err(NotRecyclable::because("databases of this template are not recycled"));
        }
        let catalog = template.catalog_when_read();
        let catalog = catalog.ok_or_else(|| NotRecyclable::because(template.why_unknown()))?;
        let generation = if template.has_unlogged() { self.generation() } else { 0 };
        let mut used = Used { oid, name: &name, catalog, stats, files, growth, waiting, session };
        let proof = reset(&self.admin, &self.evidence, &mut used)?;
        self.check_epoch(epoch)?;
        let Used { files, growth, mut waiting, session, .. } = used;
        if let Some(digest) = &catalog.digest {
            self.compare(id, digest, &name)?;
        }
        if !in_place && self.lock().table.has_time_for(id) {
            waiting = self.warm_up(id, oid, &name, &template, waiting);
        }
        let mut core = self.lock();
        let waiting = core.admit(waiting);
        let params = ids(&waiting);
        let held = core.databases.get_mut(&id).ok_or_else(gone)?;
        (held.files, held.growth, held.waiting, held.session) = (files, growth, waiting, session);
        held.entered = false;
        // It may have been handed out before that was known.
        held.leaves_traces = template.may_leave_traces();
        held.generation = generation;
        core.trim_idle(id);
        core.raise_in_background(Event::Warmed { database: id, params });
        Ok(proof)
    }

    /// Whether the log was followed without a gap since a database was last known to be fresh.
    fn check_epoch(&self, epoch: Epoch) -> Result<(), NotRecyclable> {
        if epoch == self.evidence.epoch() {
            return Ok(());
        }
        Err(NotRecyclable::because("the write-ahead log could not be followed"))
    }

    /// Reads a database from end to end, and keeps what differs from its template's.
    fn compare(&self, id: DatabaseId, fresh: &Digest, name: &str) -> Result<(), NotRecyclable> {
        let mut session = self.admin.open(name)?;
        let digest = Digest::read(&mut session)?;
        let Some(relation) = fresh.difference(&digest) else { return Ok(()) };
        let mut core = self.lock();
        let database = core.databases.get(&id).map_or_else(|| name.to_owned(), |held| held.last_name.clone());
        core.counters.differences.push(Difference { database, relation: relation.to_owned() });
        Err(NotRecyclable::because("it differed from its template"))
    }

    /// Copies a database that has no sessions, and takes the copy into service as a template.
    fn copy_to_template(&self, id: DatabaseId, template: &str) -> Result<(), LeaseError> {
        let name = {
            let mut core = self.lock();
            let held =
                core.databases.get_mut(&id).ok_or_else(|| LeaseError::NotLeased(template.to_owned()))?;
            held.close_waiting();
            held.last_name.clone()
        };
        let database = TemplateDatabase { name: template.to_owned(), database: database_of(template) };
        let called = &database.database;
        // What is left in it has not come through the gateway.
        evict(&name, &self.admin)?;
        let sql = create_copy(&name, called, self.options.major);
        let copied = copy_without_sessions(&name, &sql, &self.admin);
        // Whether it was made before the connection was lost is unknown. Any other error means that it was not.
        let is_there = copied.as_ref().map_or_else(LeaseError::is_lost, |_| true);
        let taken = copied
            .and_then(|_| self.admin.run("complete a template", &complete_copy(&name, called)))
            .and_then(|_| Template::take(&database, None, &self.options.data, &self.admin));
        if taken.is_err()
            && is_there
            && let Err(error) = drop_database(called, &self.admin)
        {
            self.report_error("drop a template", &error);
        }
        lock(&self.templates).push(taken?);
        self.measure_capacity();
        self.lock().table.add_source(Source::Template(template.to_owned()), true);
        Ok(())
    }

    /// Ends the sessions of a database.
    pub(crate) fn close_sessions(&self, id: DatabaseId) {
        let (server, oid) = {
            let mut core = self.lock();
            // Without clients, what is in it waits for the next one.
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

    /// Looks whether a client has changed what all databases share, if the log or a file says that there is something to see.
    pub(crate) fn look_at_shared_state(&self) {
        // What is read first is compared first.
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

    /// The same of an error.
    pub(crate) fn report_error(&self, verb: &'static str, error: &LeaseError) {
        let detail = error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        self.report(verb, &format!("{}{detail}", error.with_causes()));
    }

    /// Counts what went wrong in the background, and logs it.
    pub(crate) fn report(&self, verb: &'static str, why: &str) {
        let mut core = self.lock();
        if core.closed {
            // It waited for a server that is being stopped.
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
    /// What the task is for, in errors.
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

fn not_renamed(error: LeaseError) -> Outcome {
    match error {
        LeaseError::NotLeased(_) => Outcome::Vanished,
        error if matches!(error.sqlstate(), "23505" | "42P04") => Outcome::NameTaken,
        error => Outcome::Failed(error),
    }
}

fn outcome(result: Result<(), LeaseError>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(error) => Outcome::Failed(error),
    }
}
