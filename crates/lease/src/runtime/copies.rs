//! Creates copies of templates, prepares them for clients, and reads each template's catalog in one of the first
//! copies.
//!
//! If possible, all of this happens before a client needs the copy. While clients come and go, pgfresh pauses the
//! copying, because clients need the processors too.

use std::fs::{self, DirEntry};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use pgwire::StartupParams;
use server::AdminConnection;
use sys::lock;

use crate::address::DatabaseAddress;
use crate::admin::{DATABASE_OF, text};
use crate::backends::backend::{
    Backend, WaitingBackend, has_unlimited, is_for_superuser, may_be_too_idle, params_id,
};
use crate::error::LeaseError;
use crate::reset::catalog::TemplateCatalog;
use crate::reset::expressions::MAY_LEAVE_TRACES;
use crate::reset::recycle::NotRecyclable;
use crate::reset::stats::{DatabaseStats, STATS_RENAMED};
use crate::runtime::checkout::CheckedOut;
use crate::runtime::contention::Contention;
use crate::runtime::inner::Inner;
use crate::runtime::resources::{Identity, PooledCopy, Resources};
use crate::runtime::template::{HIDE, Template, name_in};
use crate::table::{DatabaseId, Outcome, Proof};

/// While many clients come and go, how long to pause copying before checking again.
const CROWD_PAUSE: Duration = Duration::from_millis(3);
/// While other programs compete for the processors, how long to pause after each part of a copy that no client needs
/// yet.
const CONTENDED_PAUSE: Duration = Duration::from_millis(5);

/// A backend that is likely to be needed but hasn't been started yet.
struct Lacking {
    params: StartupParams,
    /// True if no other backend with these parameters is waiting in the database.
    is_first: bool,
}

impl Inner {
    /// Creates a copy of a template and prepares it for a client.
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

    /// Copies a template. Returns `false`, leaving no copy behind, if other tasks should go first.
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
        let contention = Contention::begin();
        let go_on = || self.let_clients_pass(id, &template) && self.let_programs_pass(id, &contention);
        let copied = template.copy(claim.name(), self.options.major, &self.admin, &self.evidence, &go_on)?;
        let Some(oid) = copied else { return Ok(false) };
        let leaves_traces = self.look_into(id, &DatabaseAddress::new(oid, claim.name()), &template)?;
        database.change(|resources| match resources {
            Resources::Preparing(claim) => Resources::Clone(Box::new(PooledCopy {
                copied_after,
                leaves_traces,
                ..PooledCopy::new(Identity::new(oid, claim), template, epoch)
            })),
            other => other,
        });
        Ok(true)
    }

    /// Ensures that a copy has the rows of its unlogged tables, which a crash may have removed from the template.
    fn fill_unlogged(&self, copy: &mut PooledCopy) -> Outcome {
        if !copy.template.has_unlogged() {
            return Outcome::Fresh(Proof::new());
        }
        if !self.evidence.has_known_format() || copy.template.has_fixed_unlogged() {
            return self.unless_crashed(copy);
        }
        // A reset restores these rows from the catalog in memory.
        match self.recycle(copy) {
            Ok(proof) => Outcome::Fresh(proof),
            Err(NotRecyclable { reason, .. }) => {
                copy.close_waiting();
                Outcome::Doubt(reason)
            }
        }
    }

    /// Pauses the task creating a copy while clients come and go, unless a client is waiting for this copy. The task
    /// also pauses while all processors are busy, provided that databases are returned often enough to serve all
    /// clients. Returns `false` if the caller should stop because the leases are closed or a client of another template
    /// needs this worker.
    fn let_clients_pass(&self, id: DatabaseId, template: &Template) -> bool {
        // Don't pause a copy that pgfresh will use to read the template's
        // catalog, because the end of a lease waits for the catalog.
        let is_awaited = template.is_to_be_read();
        let mut core = self.lock();
        while !core.closed && !is_awaited {
            let now = Instant::now();
            let pause = core.table.pause(id, now);
            if pause.is_none() {
                if !core.table.come_back_soon(id, now) {
                    break;
                }
                // `are_busy` reads a file, so release the lock first.
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
                // Sleep instead of waiting for the signal. Otherwise, each arriving client that finds no ready database
                // would wake this thread, and the wake-ups would use up the time saved by pausing.
                drop(core);
                thread::sleep(CROWD_PAUSE);
                core = self.lock();
            }
        }
        !core.closed
    }

    /// Pauses a copy that no client needs yet while other programs compete for the processors. The main
    /// competitor is the test runner, which starts at the same time. Returns `false` if the leases are closed.
    fn let_programs_pass(&self, id: DatabaseId, contention: &Contention) -> bool {
        if !contention.is_felt() {
            return true;
        }
        let mut core = self.lock();
        if !core.closed && core.table.is_for_stock(id) {
            core = self.core.wait(&self.shortage, core, CONTENDED_PAUSE);
        }
        contention.restart();
        !core.closed
    }

    /// Practices the statements that run in every lease, so that the first lease is as fast as later ones.
    pub(crate) fn practise(&self) {
        self.admin.practise(&[name_in(self.options.major), &STATS_RENAMED, &DATABASE_OF, &HIDE]);
    }

    /// Accepts a copy whose unlogged tables can't be reset, unless the server has crashed since the template's first
    /// copy.
    fn unless_crashed(&self, copy: &mut PooledCopy) -> Outcome {
        match self.generation() {
            Some(now) if *copy.template.generation.get_or_init(|| now) == now => {
                copy.generation = Some(now);
                Outcome::Fresh(Proof::new())
            }
            _ => Outcome::Failed(LeaseError::Emptied(copy.template.name.clone())),
        }
    }

    /// Reads what pgfresh doesn't know about a template yet, using a copy that no client
    /// has touched. Does nothing if another thread is already reading the template in
    /// another copy. Returns whether using the copy may leave traces in a backend.
    fn look_into(
        &self,
        id: DatabaseId,
        copy: &DatabaseAddress,
        template: &Template,
    ) -> Result<bool, LeaseError> {
        if !template.is_recyclable() {
            // This template may change, so examine each copy.
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

    /// Reads a template's catalog, which pgfresh needs only at the end of a lease. The first copy is skipped so that
    /// the first client doesn't have to wait, and copies on other threads don't wait for the reader, either. However,
    /// if a crash could remove contents of the template, the catalog is read before any client gets a copy.
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
            // There is a note, which pgfresh hasn't used because `paranoid` is enabled. Compare the note with the
            // catalog.
            Some((noted, _)) if !noted.has_same_note(&catalog) => {
                self.report("compare a template with its note", "the note in the cache differs from it");
            }
            None if self.can_note(template) => template.remember(&catalog, leaves_traces),
            _ => {}
        }
        template.catalog.get_or_init(|| (catalog, leaves_traces));
        Ok(())
    }

    /// Decides whether to accept a copy whose catalog couldn't be read. Usually the copy is good
    /// for one lease, after which pgfresh drops it. But if the template may have unlogged tables, a
    /// crash may have emptied them, and only the catalog lists these tables. This copy is accepted
    /// only if the error is permanent, because pgfresh then knows that it must check for crashes.
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

    /// Returns true if pgfresh may store the template's catalog as a note in the cache for the next server on the same
    /// files. This is possible only before the first client, which could have changed something. Templates with
    /// unlogged relations get no note, because a crash may have emptied these relations.
    fn can_note(&self, template: &Template) -> bool {
        !self.has_had_clients.load(Ordering::Relaxed)
            && self.evidence.has_known_format()
            && self.is_all_logged(template)
    }

    /// Returns true if, according to the log, databases that no client has used are unchanged. Also
    /// returns true if pgfresh doesn't support the log's format, because it never resets a database then.
    fn are_untouched(&self, databases: [u32; 2]) -> bool {
        !self.evidence.has_known_format()
            || self.evidence.catch_up(&self.admin).is_ok()
                && databases.iter().all(|oid| self.evidence.is_untouched(*oid))
    }

    /// Reads the catalog from an earlier server's note on the same files. Attributes that differ between servers are
    /// read from the copy instead. Returns `false` if there is no usable note.
    fn recall_catalog(&self, copy: &DatabaseAddress, template: &Template) -> Result<bool, LeaseError> {
        let major = self.options.major;
        // With `paranoid`, pgfresh needs a digest of the whole database, which notes never contain.
        let Some((noted, leaves_traces)) = template.recall(major).filter(|_| !self.options.paranoid) else {
            return Ok(false);
        };
        let attributes = DatabaseStats::read(copy, &self.admin)?.attributes;
        let horizon = template.horizon.clone();
        template.catalog.get_or_init(|| (noted.recalled(attributes, horizon, major), leaves_traces));
        Ok(true)
    }

    /// Returns true if all of a template's tables and sequences are logged, judging by
    /// the files alone: each unlogged relation has an init fork. Also returns false if
    /// the server has additional tablespaces, because their files aren't checked.
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

    /// Starts backends with the startup parameters that clients are likely to use, until there are as
    /// many as the last leases needed. If a backend fails to start, for example because its role isn't
    /// allowed to connect, the client will get the error. If an event trigger fires at each login, starts
    /// no backends, because the trigger should fire only for clients. Stops once a client is waiting for
    /// the database, because that client starts its own backend while this worker makes the next copy.
    pub(crate) fn warm_up(&self, id: DatabaseId, copy: &mut PooledCopy) {
        let lacking = self.lacking(id, copy);
        let PooledCopy { identity: Identity { address, .. }, template, waiting, .. } = copy;
        if lacking.is_empty() || template.fires_at_login || self.ends_idle {
            return;
        }
        let Ok((stamp, before)) = self.read_stamp(address) else { return };
        // Visiting all tables takes as long as making a copy, so skip this for the many planned copies.
        let looked_at = template.catalog().filter(|_| !self.lock().table.is_for_stock(id));
        let tables = looked_at.map_or_else(Vec::new, TemplateCatalog::names);
        let mut started = Vec::new();
        for Lacking { params, is_first } in lacking {
            if may_be_too_idle(&params, &stamp) || !has_unlimited(is_for_superuser(&params), &stamp) {
                continue;
            }
            {
                let core = self.lock();
                let has_room = core.pool.idle() + started.len() < core.most_idle;
                if core.table.is_awaited(id) || !is_first && !has_room {
                    break;
                }
            }
            let Some(seat) = self.seats.try_take() else { break };
            let backend = Backend::start_ahead(&self.options.directory, &params, &address.name);
            // The database will have a different name when the client connects, so the startup response must not
            // contain the name.
            let backend = backend.filter(Backend::may_serve_another);
            // Practice only with the first backend. The others cost clients no more than a backend started on demand.
            let backend =
                if is_first { backend.and_then(|backend| backend.practise(&tables)) } else { backend };
            match backend {
                Some(backend) if has_unlimited(backend.is_superuser(), &stamp) => {
                    if backend.database(&self.admin).and_then(|oid| address.expect(oid)).is_err() {
                        return;
                    }
                    let (backend, stamp) = (Backend { seat, ..backend }, Arc::clone(&stamp));
                    let (since, is_used) = (None, false);
                    started.push(WaitingBackend { params, backend, stamp, since, is_used });
                }
                _ => self.lock().expected.forget(&params),
            }
        }
        if self.is_stamp_unchanged(address, &stamp, before) {
            waiting.append(&mut started);
        }
    }

    /// Returns the backends that a copy lacks, given the startup parameters that pgfresh has learned to expect.
    fn lacking(&self, id: DatabaseId, copy: &PooledCopy) -> Vec<Lacking> {
        let core = self.lock();
        let is_crowded = core.table.is_for_stock(id) && core.pool.idle() >= core.most_idle;
        if !core.has_room() || core.table.is_awaited(id) || is_crowded {
            return Vec::new();
        }
        let demand = lock(&copy.template.demand);
        let of = |params: &StartupParams| {
            let there = copy.waiting_for(params);
            let missing = demand.expected(params_id(params)).saturating_sub(there);
            let lacking = |number| Lacking { params: params.clone(), is_first: there + number == 0 };
            (0..missing).map(lacking).collect::<Vec<_>>()
        };
        let mut lacking: Vec<_> = core.expected.sets().iter().rev().flat_map(of).collect();
        lacking.sort_by_key(|lacking| !lacking.is_first);
        lacking
    }
}
