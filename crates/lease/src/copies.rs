//! Creates copies of templates and prepares them for clients. Also reads a template's catalog in one of the first copies.
//!
//! Everything here happens ahead of a client if possible. While clients come and go, the creation of copies pauses, because both
//! need the processors.

use std::fs::{self, DirEntry};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use server::{AdminConnection, literal};
use sys::lock;

use crate::address::DatabaseAddress;
use crate::admin::{DATABASE_OF, number, text};
use crate::backend::{WaitingBackend, ids, may_be_too_idle};
use crate::catalog::TemplateCatalog;
use crate::core::Held;
use crate::drop::{drop_database, drop_named};
use crate::inner::Inner;
use crate::names::ready;
use crate::reach::MAY_LEAVE_TRACES;
use crate::reset::NotRecyclable;
use crate::stats::{DatabaseStats, STATS_RENAMED};
use crate::table::{DatabaseId, Event, Outcome, Proof};
use crate::template::{HIDE, Template, name_in};
use crate::{Backend, LeaseError};

/// How long the creation of a copy pauses while many clients come and go, before it checks again.
const CROWD_PAUSE: Duration = Duration::from_millis(3);

/// Maximum time for which a client waits until a database in preparation is ready.
const PREPARATION_TIMEOUT: Duration = Duration::from_secs(5);

impl Inner {
    /// Creates a copy of a template, and prepares it for a client.
    pub(crate) fn create(&self, id: DatabaseId, template: &str) -> Outcome {
        let begun = Instant::now();
        let (epoch, own_name) = (self.evidence.epoch(), self.lock().next_name());
        let made = self.template(template).and_then(|template| {
            let mut held = Held::new(own_name.clone(), Some(template.clone()), epoch);
            held.copied_after = (!template.is_recyclable()).then(|| self.evidence.changes(template.oid));
            self.lock().databases.insert(id, held);
            let _coming = template.announce_copy();
            let go_on = || self.let_clients_pass(id, &template);
            let copied = template.copy(&own_name, self.options.major, &self.admin, &self.evidence, &go_on)?;
            let Some(oid) = copied else { return Ok(None) };
            let address = DatabaseAddress::new(oid, &own_name);
            let leaves_traces = self.look_into(id, &address, &template)?;
            Ok(Some((template, address, leaves_traces)))
        });
        let (template, address, leaves_traces) = match made {
            Ok(Some(made)) => made,
            Ok(None) => return Outcome::PutOff,
            Err(error) => return Outcome::Failed(error),
        };
        if !self.lock().table.is_awaited(id) {
            self.practise();
        }
        self.let_clients_pass(id, &template);
        let waiting = self.warm_up(id, &address, &template, Vec::new());
        let mut core = self.lock();
        core.counters.created.0 += 1;
        core.counters.created.1 += begun.elapsed();
        let waiting = core.admit(waiting);
        let params = ids(&waiting);
        if let Some(held) = core.databases.get_mut(&id) {
            (held.oid, held.leaves_traces, held.waiting) = (address.oid, leaves_traces, waiting);
        }
        core.trim_idle(id);
        core.raise_in_background(Event::Warmed { database: id, params });
        drop(core);
        if !template.has_unlogged() {
            return Outcome::Fresh(Proof::new());
        }
        if !self.evidence.has_known_format() || template.has_fixed_unlogged() {
            return self.unless_crashed(id, &template);
        }
        // A crash may have emptied the template's own unlogged tables. The reset restores their rows in the copy from memory.
        match self.recycle(id, false) {
            Ok(proof) => Outcome::Fresh(proof),
            Err(NotRecyclable { reason, .. }) => Outcome::Doubt(reason),
        }
    }

    /// Hides a newly prepared database from programs that list databases to connect to them. `outcome` is the outcome of the
    /// preparation. The sessions that wait in the database are not affected, because they have started before.
    pub(crate) fn hide(&self, id: DatabaseId, outcome: Outcome) -> Outcome {
        if !matches!(outcome, Outcome::Fresh(_)) {
            return outcome;
        }
        let (oid, from, to) = {
            let mut core = self.lock();
            let Some(held) = core.databases.get_mut(&id) else { return outcome };
            if !held.names.contains(&held.own_name) {
                // After a rollback, the database keeps the name of its lease for the next one.
                return outcome;
            }
            let to = ready(&held.own_name);
            // If the connection is lost, the database may have either name.
            held.names.insert(to.clone());
            (held.oid, held.own_name.clone(), to)
        };
        let arguments = [&*oid.to_string(), &literal(&from), &literal(&to)];
        match self.admin.execute("hide a database", &HIDE, &arguments) {
            Ok(rows) if rows.is_empty() => {}
            Ok(_) => {
                if let Some(held) = self.lock().databases.get_mut(&id) {
                    held.names.retain(|name| *name == to);
                    held.own_name = to;
                }
            }
            Err(error) => tracing::debug!(%error, "a ready database can be seen"),
        }
        outcome
    }

    /// Drops a database, or stops the server of a lease in isolation `server`.
    pub(crate) fn drop(&self, id: DatabaseId) -> Outcome {
        let Some(held) = self.lock().databases.remove(&id) else { return Outcome::Done };
        if held.server.is_some() {
            return Outcome::Done;
        }
        let dropped = if held.oid == 0 {
            // The copy has failed before pgfresh received its oid.
            drop_named(&held.own_name, &self.admin)
        } else {
            drop_database(held.oid, &held.names, &self.admin)
        };
        match dropped {
            Ok(()) => {
                // The changes of the database no longer matter.
                self.evidence.take(held.oid);
                Outcome::Done
            }
            Err(error) => {
                self.lock().databases.insert(id, held);
                Outcome::Failed(error)
            }
        }
    }

    /// Waits, up to a limit, while pgfresh prepares a database under this name. The name changes once the database is ready.
    pub(crate) fn wait_until_prepared(&self, name: &str) {
        let begun = Instant::now();
        let is_there = || self.lock().databases.values().any(|held| held.own_name == name);
        while is_there() && begun.elapsed() < PREPARATION_TIMEOUT {
            // Only programs that visit all databases wait here, and these are rare.
            thread::sleep(CROWD_PAUSE);
        }
    }

    /// Pauses the creation of a copy while clients come and go, unless a client waits for the copy. Also pauses it while all
    /// processors are busy, as long as databases come back so soon that no client needs the copy. Returns false if the caller
    /// should put the creation off. This is the case once the leases are closed, or if a client of another template waits for this
    /// worker.
    fn let_clients_pass(&self, id: DatabaseId, template: &Template) -> bool {
        // pgfresh reads the template's catalog in this copy, and the end of a lease waits for that.
        let is_awaited = template.is_to_be_read();
        let mut core = self.lock();
        while !core.closed && !is_awaited {
            let now = Instant::now();
            let pause = core.table.pause(id, now);
            if pause.is_none() {
                if !core.table.come_back_soon(id, now) {
                    break;
                }
                // The answer comes from a file, and no thread reads files while it has the lock.
                drop(core);
                let are_busy = self.processors.are_busy();
                core = self.lock();
                if !are_busy {
                    break;
                }
            }
            if core.table.gives_way(id, now) {
                return false;
            }
            if let Some(pause) = pause {
                core = self.shortage.wait_timeout(core, pause).unwrap_or_else(PoisonError::into_inner).0;
            } else {
                // Each arriving client finds no ready database and would wake this thread. The wake-ups would take up the time that
                // the pause saves.
                drop(core);
                thread::sleep(CROWD_PAUSE);
                core = self.lock();
            }
        }
        !core.closed
    }

    /// Prepares the statements that run for every lease.
    pub(crate) fn practise(&self) {
        self.admin.practise(&[name_in(self.options.major), &STATS_RENAMED, &DATABASE_OF, &HIDE]);
    }

    /// Accepts a copy of a template with unlogged tables whose rows no reset can restore, unless the server has crashed since.
    fn unless_crashed(&self, id: DatabaseId, template: &Template) -> Outcome {
        let now = self.generation();
        if now == 0 || *template.generation.get_or_init(|| now) != now {
            return Outcome::Failed(LeaseError::Emptied(template.name.clone()));
        }
        if let Some(held) = self.lock().databases.get_mut(&id) {
            held.generation = now;
        }
        Outcome::Fresh(Proof::new())
    }

    /// Returns the process id of the checkpointer. It changes with each crash, so equal numbers mean that the server has not
    /// crashed in between. Returns 0 if the server does not answer.
    pub(crate) fn generation(&self) -> u32 {
        let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
        self.admin.run("look at the server", sql).map_or(0, |rows| number(&text(&rows)))
    }

    /// Reads from an unused copy what pgfresh doesn't know about its template yet, unless another thread is reading it from another
    /// copy. Returns whether using the copy may leave traces in a backend.
    fn look_into(
        &self,
        id: DatabaseId,
        copy: &DatabaseAddress,
        template: &Template,
    ) -> Result<bool, LeaseError> {
        if !template.is_recyclable() {
            // This template may change, so its copies may differ.
            return self.leaves_traces(copy);
        }
        match template.catalog() {
            None if !template.is_to_be_read() => {}
            None if self.recall_catalog(copy, template)? => {}
            None => self.read_catalog_once(copy, template)?,
            Some(catalog) if catalog.digests.are_wanted() && !self.lock().table.is_awaited(id) => {
                if let Ok(_reading) = template.reading.try_lock() {
                    let read = |session: &mut AdminConnection| catalog.read_digests(session);
                    match self.admin.ask(copy, "read a template's definitions", read) {
                        Ok(digests) if self.are_untouched([template.oid, copy.oid]) => {
                            catalog.digests.know(digests);
                        }
                        Ok(_) => {}
                        Err(error) => {
                            catalog.digests.give_up();
                            self.report_error("read a template's definitions", &error);
                        }
                    }
                }
            }
            Some(_) => {}
        }
        Ok(template.may_leave_traces())
    }

    /// Reads a template's catalog, which is only needed at the end of a lease. It does so in the second copy, so that the first
    /// client doesn't have to wait. While one copy is used for reading, other copies don't wait either. If a crash could remove
    /// contents of the template, the catalog is read before anything else.
    fn read_catalog_once(&self, copy: &DatabaseAddress, template: &Template) -> Result<(), LeaseError> {
        let can_wait = self.is_all_logged(template);
        if can_wait && !template.passed_over.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let reading = if can_wait { template.reading.try_lock().ok() } else { Some(lock(&template.reading)) };
        if reading.is_none() || template.catalog().is_some() {
            return Ok(());
        }
        let catalog = self.read_catalog(copy, template);
        let (catalog, leaves_traces) = match catalog.and_then(|read| Ok((read, self.leaves_traces(copy)?))) {
            Ok(read) => read,
            Err(error) => return self.go_on_without(template, error, can_wait),
        };
        if !self.are_untouched([template.oid, copy.oid]) {
            return Ok(());
        }
        match template.recall(self.options.major) {
            // With the option `paranoid`, pgfresh has ignored the note so far.
            Some((noted, _)) if !noted.says_the_same_as(&catalog) => {
                self.report("compare a template with its note", "the note in the cache differs from it");
            }
            None if self.can_note(template) => template.remember(&catalog, leaves_traces),
            _ => {}
        }
        template.catalog.get_or_init(|| (catalog, leaves_traces));
        Ok(())
    }

    /// Decides about a copy after an error while reading the catalog. The copy is good for one lease, and pgfresh drops it
    /// afterwards. But a crash may have emptied unlogged tables. pgfresh checks this only once it is certain that it can't read the
    /// catalog, which would list such tables.
    fn go_on_without(
        &self,
        template: &Template,
        error: LeaseError,
        is_all_logged: bool,
    ) -> Result<(), LeaseError> {
        if error.is_lasting() {
            template.unreadable.get_or_init(|| !is_all_logged);
        } else if !is_all_logged {
            return Err(error);
        }
        self.report_error("read a template's catalog", &error);
        Ok(())
    }

    /// Whether pgfresh may store the template's catalog as a note for the next server on the same files. It may only do so as long
    /// as no client could have changed anything. A template with unlogged relations has no note, because a crash may have emptied
    /// them.
    fn can_note(&self, template: &Template) -> bool {
        !self.has_had_clients.load(Ordering::Relaxed)
            && self.evidence.has_known_format()
            && self.is_all_logged(template)
    }

    /// Whether the log shows no change in databases that no client has. Returns true if the format of the log is unknown, because
    /// then pgfresh resets no database.
    fn are_untouched(&self, databases: [u32; 2]) -> bool {
        !self.evidence.has_known_format()
            || self.evidence.catch_up(&self.admin).is_ok()
                && databases.iter().all(|oid| self.evidence.is_untouched(*oid))
    }

    /// Reads the catalog from a note, if an earlier server on the same files has left one. Reads those attributes that differ
    /// between servers from the copy. Returns whether there is a usable note.
    fn recall_catalog(&self, copy: &DatabaseAddress, template: &Template) -> Result<bool, LeaseError> {
        let major = self.options.major;
        // A note never contains the digest of a whole database.
        let Some((noted, leaves_traces)) = template.recall(major).filter(|_| !self.options.paranoid) else {
            return Ok(false);
        };
        let attributes = DatabaseStats::read(copy, &self.admin)?.attributes;
        let horizon = template.horizon.clone();
        template.catalog.get_or_init(|| (noted.recalled(attributes, horizon, major), leaves_traces));
        Ok(true)
    }

    /// Whether a template has no unlogged tables or sequences, judging by its files, because each unlogged relation has an init
    /// fork. Returns false if the server has additional tablespaces.
    fn is_all_logged(&self, template: &Template) -> bool {
        let is_init = |file: io::Result<DirEntry>| {
            file.is_ok_and(|file| file.file_name().as_encoded_bytes().ends_with(b"_init"))
        };
        let data = &self.options.data;
        let files = fs::read_dir(data.join("base").join(template.oid.to_string()));
        let tablespaces = fs::read_dir(data.join("pg_tblspc"));
        files.is_ok_and(|mut files| !files.any(is_init))
            && tablespaces.is_ok_and(|mut tablespaces| tablespaces.next().is_none())
    }

    fn leaves_traces(&self, copy: &DatabaseAddress) -> Result<bool, LeaseError> {
        let found = self.admin.ask(copy, "look for functions", |session| session.query(MAY_LEAVE_TRACES))?;
        Ok(text(&found) != "f")
    }

    pub(crate) fn read_catalog(
        &self,
        copy: &DatabaseAddress,
        template: &Template,
    ) -> Result<TemplateCatalog, LeaseError> {
        let attributes = DatabaseStats::read(copy, &self.admin)?.attributes;
        let (major, paranoid) = (self.options.major, self.options.paranoid);
        self.admin.ask(copy, "read a template's catalog", |session| {
            TemplateCatalog::read(session, attributes.clone(), template.horizon.clone(), major, paranoid)
        })
    }

    /// Starts backends with the parameters that clients are likely to use, unless such a backend waits already. If a backend
    /// doesn't start (for example, because the role may not connect), its client will receive the error. If an event trigger fires
    /// at each login, no backend starts, because the trigger should fire only when a client comes. If a client already waits for
    /// the database, that client starts its own backend, while this worker makes the next copy.
    pub(crate) fn warm_up(
        &self,
        id: DatabaseId,
        address: &DatabaseAddress,
        template: &Template,
        mut waiting: Vec<WaitingBackend>,
    ) -> Vec<WaitingBackend> {
        let expected = {
            let core = self.lock();
            if core.has_room() && !core.table.is_awaited(id) {
                core.expected.sets().to_vec()
            } else {
                Vec::new()
            }
        };
        let lacking: Vec<_> = expected
            .into_iter()
            .filter(|params| waiting.iter().all(|waits| waits.params != *params))
            .collect();
        if lacking.is_empty() || template.fires_at_login || self.ends_idle {
            return waiting;
        }
        let Ok((stamp, before)) = self.read_stamp(address) else { return waiting };
        let tables = template.catalog().map_or_else(Vec::new, TemplateCatalog::names);
        let mut started = Vec::new();
        for params in lacking.into_iter().filter(|params| !may_be_too_idle(params, &stamp)) {
            if self.lock().table.is_awaited(id) {
                break;
            }
            let Some(seat) = self.seats.try_take() else { break };
            let backend = Backend::practised(&self.options.directory, &params, &address.name, &tables);
            match backend {
                Some(backend) => {
                    if backend.database(&self.admin).and_then(|oid| address.expect(oid)).is_err() {
                        return waiting;
                    }
                    let backend = Backend { seat, ..backend };
                    started.push(WaitingBackend { params, backend, stamp: Arc::clone(&stamp), since: None });
                }
                None => self.lock().expected.forget(&params),
            }
        }
        // Equal stamps before and after show that no setting existed only while the backends started.
        let is_same = self.read_stamp(address).is_ok_and(|(now, _)| now == stamp);
        if is_same && self.evidence.are_settings_unchanged(before) {
            waiting.append(&mut started);
        }
        waiting
    }
}
