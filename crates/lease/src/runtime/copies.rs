//! Creates copies of templates and prepares them for clients. Also reads a template's catalog in one of the first copies.
//!
//! Everything here happens ahead of a client if possible. While clients come and go, the creation of copies pauses, because both
//! need the processors.

use std::fs::{self, DirEntry};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use server::AdminConnection;
use sys::lock;

use crate::address::DatabaseAddress;
use crate::admin::{DATABASE_OF, text};
use crate::backends::backend::{Backend, WaitingBackend, may_be_too_idle};
use crate::error::LeaseError;
use crate::reset::catalog::TemplateCatalog;
use crate::reset::expressions::MAY_LEAVE_TRACES;
use crate::reset::growth::Growth;
use crate::reset::recycle::NotRecyclable;
use crate::reset::stats::{DatabaseStats, STATS_RENAMED};
use crate::runtime::checkout::CheckedOut;
use crate::runtime::inner::Inner;
use crate::runtime::resources::{Identity, Phase, PooledCopy, Resources};
use crate::runtime::template::{HIDE, Template, name_in};
use crate::table::{DatabaseId, Outcome, Proof};

/// How long the creation of a copy pauses while many clients come and go, before it checks again.
const CROWD_PAUSE: Duration = Duration::from_millis(3);

impl Inner {
    /// Creates a copy of a template, and prepares it for a client.
    pub(crate) fn create(&self, id: DatabaseId, template: &str) -> Outcome {
        let begun = Instant::now();
        let template = match self.template(template) {
            Ok(template) => template,
            Err(error) => return Outcome::Failed(error),
        };
        let mut database = self.core.insert_checked_out(id, Resources::Preparing(self.claim_next_name()));
        match self.copy_template(id, &mut database, template) {
            Ok(true) => {}
            Ok(false) => return Outcome::PutOff,
            Err(error) => return Outcome::Failed(error),
        }
        let Some(copy) = database.copy_mut() else { return Outcome::Failed(LeaseError::Panicked) };
        if !self.lock().table.is_awaited(id) {
            self.practise();
        }
        self.let_clients_pass(id, &copy.template);
        self.warm_up(id, copy);
        {
            let mut core = self.lock();
            core.counters.created.0 += 1;
            core.counters.created.1 += begun.elapsed();
        }
        let outcome = self.fill_unlogged(copy);
        if matches!(outcome, Outcome::Fresh(_)) {
            self.put_back_ready(id, database, false);
        }
        outcome
    }

    /// Copies a template, unless other tasks should go first. Then returns false.
    fn copy_template(
        &self,
        id: DatabaseId,
        database: &mut CheckedOut<'_>,
        template: Template,
    ) -> Result<bool, LeaseError> {
        let Resources::Preparing(claim) = &**database else { return Ok(false) };
        let epoch = self.evidence.epoch();
        let copied_after = (!template.is_recyclable()).then(|| self.evidence.changes(template.oid));
        let _coming = template.announce_copy();
        let go_on = || self.let_clients_pass(id, &template);
        let copied = template.copy(claim.name(), self.options.major, &self.admin, &self.evidence, &go_on)?;
        let Some(oid) = copied else { return Ok(false) };
        let leaves_traces = self.look_into(id, &DatabaseAddress::new(oid, claim.name()), &template)?;
        database.change(|resources| match resources {
            Resources::Preparing(claim) => Resources::Clone(Box::new(PooledCopy {
                identity: Identity::new(oid, claim),
                template,
                copied_after,
                epoch,
                generation: None,
                leaves_traces,
                files: None,
                growth: Growth::default(),
                waiting: Vec::new(),
                session: None,
                last_lease: None,
                phase: Phase::Unleased(None),
            })),
            other => other,
        });
        Ok(true)
    }

    /// Makes sure that a copy has the rows of unlogged tables, which a crash may have removed from the template.
    fn fill_unlogged(&self, copy: &mut PooledCopy) -> Outcome {
        if !copy.template.has_unlogged() {
            return Outcome::Fresh(Proof::new());
        }
        if !self.evidence.has_known_format() || copy.template.has_fixed_unlogged() {
            return self.unless_crashed(copy);
        }
        // The reset restores the rows in the copy from memory.
        match self.recycle(copy) {
            Ok(proof) => Outcome::Fresh(proof),
            Err(NotRecyclable { reason, .. }) => {
                copy.close_waiting();
                Outcome::Doubt(reason)
            }
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
                core = self.core.wait(&self.shortage, core, pause);
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
    fn unless_crashed(&self, copy: &mut PooledCopy) -> Outcome {
        match self.generation() {
            Some(now) if *copy.template.generation.get_or_init(|| now) == now => {
                copy.generation = Some(now);
                Outcome::Fresh(Proof::new())
            }
            _ => Outcome::Failed(LeaseError::Emptied(copy.template.name.clone())),
        }
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
    pub(crate) fn warm_up(&self, id: DatabaseId, copy: &mut PooledCopy) {
        let expected = {
            let core = self.lock();
            if core.has_room() && !core.table.is_awaited(id) {
                core.expected.sets().to_vec()
            } else {
                Vec::new()
            }
        };
        let PooledCopy { identity: Identity { address, .. }, template, waiting, .. } = copy;
        let lacking: Vec<_> = expected
            .into_iter()
            .filter(|params| waiting.iter().all(|waits| waits.params != *params))
            .collect();
        if lacking.is_empty() || template.fires_at_login || self.ends_idle {
            return;
        }
        let Ok((stamp, before)) = self.read_stamp(address) else { return };
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
                        return;
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
    }
}
