//! Leases that one session has alone, for whoever keeps it and plays many others on its database.

use std::time::{Duration, Instant};

use server::Session;

use crate::databases::{Entry, Stay, cut, is_taken, unusable};
use crate::sql::literal;
use crate::template::rename;
use crate::{Connected, LeaseError, Databases, Request, Tenancy};

impl Databases {
    /// Begins a lease that is this session's alone, and ends with it at once. Where somebody has made a database of that
    /// name by SQL, it is a session with that one, and no lease: see [`Tenancy::is_leased`].
    ///
    /// # Errors
    /// [`LeaseError::Leased`] if it is leased already.
    pub fn connect_alone(&self, request: &Request<'_>) -> Result<Connected, LeaseError> {
        let inner = &self.0;
        let name = cut(request.database);
        let request = Request { linger: Some(Duration::ZERO), ..request.clone() };
        let Entry::New = inner.reserve(name, &request)? else {
            inner.leave(name, None);
            return Err(LeaseError::Leased(name.to_owned()));
        };
        let (oid, place) = inner.furnish(name, request.template, Some(request.kind))?;
        if let Some(lease) = inner.lock().leases.get_mut(name) {
            lease.lasting = false;
        }
        inner.enter(name, oid, request.kind, place)
    }

    /// Makes sure that nobody has that name, by a lease or by SQL, and that somebody may.
    pub fn expect_free(&self, name: &str) -> Result<(), LeaseError> {
        let inner = &self.0;
        let name = cut(name);
        if let Some(why) = unusable(name) {
            return Err(LeaseError::Name { name: name.to_owned(), why });
        }
        let sql = format!("SELECT FROM pg_database WHERE datname = {}", literal(name));
        if inner.lock().leases.contains_key(name)
            || !inner.clerks.run("look for a database", &sql)?.is_empty()
        {
            return Err(LeaseError::Leased(name.to_owned()));
        }
        Ok(())
    }
}

impl Tenancy {
    /// Whether the session is in a leased database.
    #[must_use]
    pub fn is_leased(&self) -> bool {
        matches!(self.0, Stay::Database { .. })
    }

    /// Gives the lease and its database another name, under the session that is in it, or the same one for another
    /// holder. Returns whether a session that begins now would find the same on record as this one did.
    ///
    /// # Errors
    /// [`LeaseError::Leased`] if somebody else has that name, by a lease or by SQL; then it keeps the one it has.
    pub fn pass_on(&mut self, to: &str) -> Result<bool, LeaseError> {
        let to = cut(to);
        if let Some(why) = unusable(to) {
            return Err(LeaseError::Name { name: to.to_owned(), why });
        }
        let not_leased = || LeaseError::NotLeased(to.to_owned());
        let Stay::Database { inner, name, standing, .. } = &mut self.0 else { return Err(not_leased()) };
        let taken = || LeaseError::Leased(to.to_owned());
        let mut state = inner.lock();
        if name != to && state.leases.contains_key(to) {
            return Err(taken());
        }
        let mut lease = state.leases.remove(name).ok_or_else(not_leased)?;
        let oid = lease.oid;
        lease.since = Instant::now();
        state.leases.insert(to.to_owned(), lease);
        state.watch.suspect(to);
        drop(state);
        let found = if name == to { inner.standing(oid) } else { rename(oid, to, &inner.clerks) };
        if found.is_ok() {
            to.clone_into(name);
        } else {
            let mut state = inner.lock();
            if let Some(lease) = state.leases.remove(to) {
                state.leases.insert(name.clone(), lease);
            }
        }
        inner.notify();
        let found = found.map_err(|error| if is_taken(&error) { taken() } else { error })?;
        Ok(!found.is_empty() && found == *standing)
    }

    /// A session of ours with the same database.
    pub fn open_session(&self) -> Result<Session, LeaseError> {
        match &self.0 {
            Stay::Database { inner, name, .. } => inner.clerks.open(name),
            Stay::Server(_) | Stay::Elsewhere => Err(LeaseError::NotLeased(String::new())),
        }
    }
}
