//! Leases on request: begun without a session, ended before their time, reset, and made templates of.

use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use crate::backend::Waiting;
use crate::databases::{ALWAYS, Entry, Furnished, Inner, Place, cut, lock};
use crate::sql::{identifier, literal};
use crate::state::{Ready, State};
use crate::template::{PREFIX, Template, drop_database, rename};
use crate::{LeaseError, Databases, Kind, Request, TemplateDatabase, keeper};

/// How long sessions may take to end that were told to.
const CLOSING: Duration = Duration::from_secs(10);
/// Bytes of a name that a kept database's own begins with; behind it there is room for a number.
const KEPT_OF_NAME: usize = 40;
/// How long sessions may take to end whose client is gone: it may know so before we do.
const LEAVING: Duration = Duration::from_millis(500);

impl Databases {
    /// Leases a database without a session; a name is made up where none is given. Returns the name. The lease lasts
    /// until it is released.
    ///
    /// # Errors
    /// [`LeaseError::Leased`] if the name is taken, by a lease or by SQL.
    pub fn lease(&self, name: Option<&str>, template: Option<&str>) -> Result<String, LeaseError> {
        let inner = &self.0;
        let name = match name {
            Some(name) if ALWAYS.contains(&name) => {
                return Err(LeaseError::Name { name: name.to_owned(), why: "it is always there" });
            }
            Some(name) => cut(name).to_owned(),
            None => {
                let mut state = inner.lock();
                state.serial += 1;
                format!("fresh_{}", state.serial)
            }
        };
        // A session of the kind that came last waits for the first client.
        let kind = inner.lock().kinds.last().cloned();
        let nobody = Kind::default();
        let request = Request {
            database: &name,
            template,
            linger: None,
            reset: false,
            kind: kind.as_ref().unwrap_or(&nobody),
        };
        let Entry::New = inner.reserve(&name, &request)? else {
            inner.leave(&name, None);
            return Err(LeaseError::Leased(name));
        };
        let (oid, Place { warm, standing }) = inner.furnish(&name, template, kind.as_ref())?;
        if oid.is_none() {
            return Err(LeaseError::Leased(name));
        }
        if let Some(lease) = inner.lock().leases.get_mut(&name) {
            lease.lasting = true;
        }
        inner.leave(&name, kind.zip(warm).map(|(kind, backend)| Waiting { kind, backend, standing }));
        Ok(name)
    }

    /// Ends a lease: its sessions are closed, its database is no more.
    pub fn release(&self, name: &str) -> Result<(), LeaseError> {
        let inner = &self.0;
        let name = cut(name);
        let (mut state, oid) = inner.begin_change(name)?;
        if let Some(lease) = state.leases.get_mut(name) {
            lease.ends = None;
        }
        drop(inner.empty(state, name, oid, true)?);
        keeper::end(inner, name)
    }

    /// Keeps a leased database as it is, for as long as the server lasts: its sessions are closed, and it is given another
    /// name, which is returned; its own is free again.
    pub fn keep(&self, name: &str) -> Result<String, LeaseError> {
        let inner = &self.0;
        let name = cut(name);
        let (mut state, oid) = inner.begin_change(name)?;
        if let Some(lease) = state.leases.get_mut(name) {
            lease.lasting = true;
            lease.ends = None;
        }
        let mut state = inner.empty(state, name, oid, true)?;
        if let Some(lease) = state.leases.get_mut(name) {
            lease.left.clear();
        }
        state.serial += 1;
        let kept = format!("{}_failed_{}", &name[..name.floor_char_boundary(KEPT_OF_NAME)], state.serial);
        drop(state);
        let renamed = rename(oid, &kept, &inner.clerks);
        let mut state = inner.lock();
        if renamed.is_ok()
            && let Some(mut lease) = state.leases.remove(name)
        {
            lease.changing = false;
            state.leases.insert(kept.clone(), lease);
        }
        inner.end_change(state, name);
        renamed.map(|_| kept)
    }

    /// Returns a leased database to the state of its template: by recycling, or by another copy under its name. Its
    /// sessions are closed if `close`, else they are an error.
    pub fn reset(&self, name: &str, close: bool) -> Result<(), LeaseError> {
        let inner = &self.0;
        let name = cut(name);
        let (state, oid) = inner.begin_change(name)?;
        let mut state = inner.empty(state, name, oid, close)?;
        let mut used = Ready { template: String::new(), oid, database: name.to_owned(), ..Ready::default() };
        if let Some(lease) = state.leases.get_mut(name) {
            used.template.clone_from(&lease.template);
            used.warm = std::mem::take(&mut lease.left);
            used.baseline = std::mem::take(&mut lease.baseline);
        }
        drop(state);
        let result = inner.renew_or_replace(&mut used);
        let mut state = inner.lock();
        if result.is_err() {
            state.leases.remove(name);
        } else if let Some(lease) = state.leases.get_mut(name) {
            lease.oid = used.oid;
            lease.baseline = used.baseline;
            lease.left = used.warm;
        }
        inner.end_change(state, name);
        result
    }

    /// Makes a template of a leased database as it is now; leases of it may begin at once. The name must be new. Its
    /// sessions are closed if `close`, else they are an error: the server copies none that is in use.
    pub fn snapshot(&self, name: &str, template: &str, close: bool) -> Result<(), LeaseError> {
        let inner = &self.0;
        let name = cut(name);
        if template.is_empty() || template.len() > 40 {
            return Err(LeaseError::Name {
                name: template.to_owned(),
                why: "a template's has 1 to 40 bytes",
            });
        }
        if inner.template(Some(template)).is_ok() {
            return Err(LeaseError::Name {
                name: template.to_owned(),
                why: "there is such a template already",
            });
        }
        let (state, oid) = inner.begin_change(name)?;
        let mut state = inner.empty(state, name, oid, close)?;
        if let Some(lease) = state.leases.get_mut(name) {
            lease.left.clear();
        }
        drop(state);
        let result = inner.copy_to_template(name, template);
        inner.end_change(inner.lock(), name);
        result
    }

    /// Forgets a template: no more copies of it are made, those that are leased stay.
    pub fn remove_template(&self, name: &str) -> Result<(), LeaseError> {
        let inner = &self.0;
        let template = inner.template(Some(name))?;
        lock(&inner.templates).retain(|template| template.name != name);
        inner.lock().remove_template(name);
        let sql = format!("UPDATE pg_database SET datistemplate = false WHERE oid = {}", template.oid);
        inner.clerks.run("open a template", &sql)?;
        drop_database(&template.database, &inner.clerks)?;
        inner.notify();
        Ok(())
    }
}

impl Inner {
    /// Waits until nobody else changes the lease, and keeps others from it until [`Self::end_change`]. Returns the oid of
    /// its database.
    fn begin_change(&self, name: &str) -> Result<(MutexGuard<'_, State>, u32), LeaseError> {
        let mut state = self.lock();
        while state.leases.get(name).is_some_and(|lease| lease.changing) {
            state = self.wait(state, None);
        }
        let Some(lease) = state.leases.get_mut(name) else {
            return Err(LeaseError::NotLeased(name.to_owned()));
        };
        lease.changing = true;
        let oid = lease.oid;
        Ok((state, oid))
    }

    fn end_change(&self, mut state: MutexGuard<'_, State>, name: &str) {
        if let Some(lease) = state.leases.get_mut(name) {
            lease.changing = false;
        }
        drop(state);
        self.notify();
    }

    /// Waits, with a bound, until the sessions of a lease that is being changed have left. Those that do not leave by
    /// themselves are ended if `close`, else they are an error, and the change is over.
    fn empty<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        name: &str,
        oid: u32,
        close: bool,
    ) -> Result<MutexGuard<'a, State>, LeaseError> {
        let sessions = |state: &State| state.leases.get(name).map_or(0, |lease| lease.sessions);
        let mut state = state;
        if close && sessions(&state) > 0 {
            drop(state);
            let sql = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datid = {oid}");
            // Whoever does not go is a straggler to the recycling, which then makes another copy.
            let _ = self.clerks.run("close the sessions of a database", &sql);
            state = self.lock();
        }
        let (begun, patience) = (Instant::now(), if close { CLOSING } else { LEAVING });
        while sessions(&state) > 0 && begun.elapsed() < patience {
            state = self.wait(state, Some(patience.saturating_sub(begun.elapsed())));
        }
        match sessions(&state) {
            left if left > 0 && !close => {
                self.end_change(state, name);
                Err(LeaseError::InUse { name: name.to_owned(), sessions: left })
            }
            _ => Ok(state),
        }
    }

    /// Makes a leased database fresh in place, or gives its name to another copy.
    fn renew_or_replace(&self, used: &mut Ready) -> Result<(), LeaseError> {
        let begun = Instant::now();
        let template = self.template(Some(&used.template))?;
        let name = used.database.clone();
        match keeper::renew(self, &template, used, &name) {
            Ok(()) => {
                let mut state = self.lock();
                state.recycled.0 += 1;
                state.recycled.1 += begun.elapsed();
                Ok(())
            }
            Err(reason) => {
                let old = {
                    let mut state = self.lock();
                    *state.dropped.entry(reason).or_default() += 1;
                    state.next_name("old")
                };
                rename(used.oid, &old, &self.clerks)?;
                self.lock().to_drop.push_back(old);
                let Furnished { oid, baseline, .. } =
                    self.furnish_reserved(&used.database, Some(&used.template), None)?;
                (used.oid, used.baseline) = (oid, baseline);
                Ok(())
            }
        }
    }

    /// Copies a database that has no sessions, and takes the copy into service as a template.
    fn copy_to_template(&self, name: &str, template: &str) -> Result<(), LeaseError> {
        let called = format!("{PREFIX}template_{template}");
        let strategy = if self.origin.major >= 15 { " STRATEGY FILE_COPY" } else { "" };
        let sql = format!("CREATE DATABASE {} TEMPLATE {}{strategy}", identifier(&called), identifier(name));
        self.clerks.run("copy a database", &sql)?;
        let sql = format!(
            "UPDATE pg_database n SET datdba = t.datdba, datacl = t.datacl FROM pg_database t \
             WHERE n.datname = {} AND t.datname = {}",
            literal(&called),
            literal(name)
        );
        self.clerks.run("complete a template", &sql)?;
        let taken = Template::take(
            &TemplateDatabase { name: template.to_owned(), database: called.clone() },
            &self.clerks,
        )?;
        lock(&self.templates).push(taken);
        self.lock().add_template(template, true);
        self.notify();
        Ok(())
    }
}
