//! The databases of one server: ready, leased, and on their way out.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use server::SessionError;

use crate::backend::{STANDING, Standing, Waiting, take_waiting};
use crate::keeper;
use crate::leaks::{self, Leak, Watch};
use crate::own;
use crate::recycle::Baseline;
use crate::shape::text;
use crate::sql::Clerks;
use crate::state::{Lease, State};
use crate::template::{PREFIX, Template, rename};
use crate::{Backend, LeaseError, Kind};

/// Databases that are always there, made by initdb: nobody leases them.
pub(crate) const ALWAYS: [&str; 3] = ["postgres", "template0", "template1"];
/// The longest name that a server does not cut, in bytes. Source: NAMEDATALEN.
const LONGEST_NAME: usize = 63;
/// Copies there may always be, however small the budget: a server that cannot have these is of no use.
const LEAST: usize = 4;

/// The server whose databases are handed out.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Where its socket is.
    pub directory: PathBuf,
    /// Its major version.
    pub major: u32,
    /// Bytes that databases may take together.
    pub budget: u64,
    /// The templates; the first is the default, of which copies are ready before anybody asks.
    pub templates: Vec<TemplateDatabase>,
    /// How long a database outlives its last session.
    pub linger: Duration,
    /// Whether each recycled database is compared with its template, row by row, before somebody else has it.
    pub paranoid: bool,
}

/// A database that others are copied from.
#[derive(Debug, Clone)]
pub struct TemplateDatabase {
    /// The template's name, as users say it.
    pub name: String,
    /// What the database is called in the server at rest; it is renamed when it is taken into service.
    pub database: String,
}

/// What a session asks for.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The database by name.
    pub database: &'a str,
    /// The template, if a name is not yet there; `None` is the default one.
    pub template: Option<&'a str>,
    /// How long the database outlives its last session, if not as usual.
    pub linger: Option<Duration>,
    /// Return the database to its template's state first, if it is leased and has no other sessions.
    pub reset: bool,
    /// What kind of session.
    pub kind: &'a Kind,
}

/// A session's backend, and its right to be in that database.
#[derive(Debug)]
pub struct Connected {
    /// The server's end.
    pub backend: Backend,
    /// Held for as long as the session lasts.
    pub tenancy: Tenancy,
}

/// One session's right to be in a database. Dropped when the session ends; with the last one the lease's end begins.
#[derive(Debug)]
pub struct Tenancy(pub(crate) Stay);

/// Where a session is.
#[derive(Debug)]
pub(crate) enum Stay {
    /// In a leased database.
    Database {
        inner: Arc<Inner>,
        name: String,
        kind: Kind,
        /// Of the database when the session started.
        standing: Standing,
    },
    /// With a leased server.
    Server(own::Stay),
    /// Nowhere that would be leased, or not any more.
    Elsewhere,
}

/// What there is, for people and programs to look at.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Ready databases, by template.
    pub ready: Vec<(String, usize)>,
    /// Leases, by name of the database.
    pub leases: Vec<LeaseStatus>,
    /// Databases made since the start, by how long it took: count and sum.
    pub created: (u64, Duration),
    /// Sessions that got a warm backend.
    pub warm: u64,
    /// Sessions that had to wait for a new one.
    pub cold: u64,
    /// Databases recycled, and the time that took: count and sum.
    pub recycled: (u64, Duration),
    /// Databases dropped instead, by reason.
    pub dropped: Vec<(&'static str, u64)>,
    /// What comparing found: recycled databases that were not fresh. None, unless pgfresh has a fault.
    pub differences: Vec<Difference>,
    /// Changes of what all databases share.
    pub leaks: Vec<Leak>,
}

/// A recycled database that was not what its template is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The database as its last holder knew it.
    pub database: String,
    /// The first relation that differed.
    pub relation: String,
}

/// One lease.
#[derive(Debug, Clone)]
pub struct LeaseStatus {
    /// The database.
    pub database: String,
    /// What it is a copy of.
    pub template: String,
    /// Open sessions.
    pub sessions: usize,
    /// Since it was handed out.
    pub age: Duration,
}

/// All databases of one server; clones are the same.
#[derive(Debug, Clone)]
pub struct Databases(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) origin: Origin,
    pub(crate) clerks: Clerks,
    pub(crate) templates: Mutex<Vec<Template>>,
    state: Mutex<State>,
    changed: Condvar,
    keepers: Mutex<Vec<JoinHandle<()>>>,
}

impl Databases {
    /// Takes the templates of a server into service and begins to fill the pool.
    pub fn open(origin: Origin) -> Result<Self, LeaseError> {
        let clerks = Clerks::new(origin.directory.clone());
        let mut state = State::default();
        state.watch = Watch::new(leaks::facts(&clerks)?);
        let mut templates = Vec::new();
        for template in &origin.templates {
            templates.push(Template::take(template, &clerks)?);
            state.add_template(&template.name, templates.len() == 1);
        }
        let inner = Arc::new(Inner {
            origin,
            clerks,
            templates: Mutex::new(templates),
            state: Mutex::new(state),
            changed: Condvar::new(),
            keepers: Mutex::default(),
        });
        let cores = thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cores.clamp(1, 4) {
            let worker = Arc::clone(&inner);
            lock(&inner.keepers).push(thread::spawn(move || keeper::keep(&worker)));
        }
        Ok(Self(inner))
    }

    /// Gives a session with a database: the one of that name, or else a ready one that is given it.
    ///
    /// Blocks for as long as the server takes: about 0.2 ms with a warm backend, a copy's time with an empty pool.
    pub fn connect(&self, request: &Request<'_>) -> Result<Connected, LeaseError> {
        let inner = &self.0;
        let name = cut(request.database);
        if ALWAYS.contains(&name) {
            return inner.enter(name, None, request.kind, Place::default());
        }
        if request.reset {
            match self.reset(name, false) {
                Ok(()) | Err(LeaseError::NotLeased(_)) => {}
                Err(error) => return Err(error),
            }
        }
        loop {
            let (oid, place) = match inner.reserve(name, request)? {
                Entry::Leased(oid) => (oid, inner.take_left(name, oid, request.kind)),
                Entry::New => inner.furnish(name, request.template, Some(request.kind))?,
            };
            match inner.enter(name, oid, request.kind, place) {
                // Dropped by SQL since: a lease of nothing. The next round makes it anew.
                Err(LeaseError::Refused(words)) if oid.is_some() && says(&words, b"C3D000\0") => {
                    inner.forget(name);
                }
                other => return other,
            }
        }
    }

    /// The server's major version.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.0.origin.major
    }

    /// Whether it is a database that initdb has made, which nobody leases.
    #[must_use]
    pub fn is_always_there(name: &str) -> bool {
        ALWAYS.contains(&name)
    }

    /// A lease of that name shall last until it is released, however long nobody is in it.
    pub fn retain(&self, name: &str) {
        self.0.lock().retained.insert(cut(name).to_owned());
    }

    /// Closes the sessions that others have left in leased databases: somebody is going to drop one by SQL, and the
    /// server refuses that as long as there is a session.
    pub fn vacate(&self) {
        for lease in self.0.lock().leases.values_mut() {
            lease.left.clear();
        }
    }

    /// What there is now.
    #[must_use]
    pub fn status(&self) -> Status {
        let state = self.0.lock();
        let count = |name: &str| state.ready.iter().filter(|ready| ready.template == name).count();
        let mut leases: Vec<_> = state
            .leases
            .iter()
            .map(|(name, lease)| LeaseStatus {
                database: name.clone(),
                template: lease.template.clone(),
                sessions: lease.sessions,
                age: lease.since.elapsed(),
            })
            .collect();
        leases.sort_by(|one, other| one.database.cmp(&other.database));
        Status {
            ready: lock(&self.0.templates)
                .iter()
                .map(|template| (template.name.clone(), count(&template.name)))
                .collect(),
            leases,
            created: state.created,
            warm: state.warm,
            cold: state.cold,
            recycled: state.recycled,
            dropped: state.dropped.iter().map(|(reason, count)| (*reason, *count)).collect(),
            differences: state.differences.clone(),
            leaks: state.watch.found(),
        }
    }

    /// Stops filling and dropping, and waits for what is being done; the server may be used by others afterwards.
    pub fn close(&self) {
        self.abandon();
        for keeper in lock(&self.0.keepers).drain(..) {
            let _ = keeper.join();
        }
        self.0.clerks.close();
    }

    /// Stops filling and dropping, whatever is being done just now: the server is going to be stopped at once.
    pub fn abandon(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        state.ready.clear();
        state.forked.clear();
        drop(state);
        self.0.notify();
    }
}

/// What a name stands for when a session comes.
pub(crate) enum Entry {
    /// This database, by its oid; the session counts.
    Leased(Option<u32>),
    /// Nothing yet: the name is reserved, and the session counts.
    New,
}

/// A database that a name was given.
pub(crate) struct Furnished {
    pub(crate) oid: u32,
    pub(crate) baseline: Baseline,
    pub(crate) place: Place,
}

/// Where a session of one kind would go on.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub(crate) warm: Option<Backend>,
    pub(crate) standing: Standing,
}

impl Inner {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits until something has changed, or `patience` is over.
    pub(crate) fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        patience: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        match patience {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(patience) => {
                self.changed.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// The template of that name, or the default one.
    pub(crate) fn template(&self, name: Option<&str>) -> Result<Template, LeaseError> {
        let templates = lock(&self.templates);
        let found = match name {
            None => templates.first(),
            Some(name) => templates.iter().find(|template| template.name == name),
        };
        found.cloned().ok_or_else(|| LeaseError::UnknownTemplate {
            name: name.unwrap_or("default").to_owned(),
            known: templates.iter().map(|template| template.name.clone()).collect(),
        })
    }

    /// How many databases the budget allows.
    pub(crate) fn most(&self) -> usize {
        let largest =
            lock(&self.templates).iter().map(|template| template.bytes).max().unwrap_or(0).max(1 << 20);
        usize::try_from(self.origin.budget / 2 / largest).unwrap_or(usize::MAX).max(LEAST)
    }

    /// Counts a session in, having waited for whoever makes or ends the lease just now.
    pub(crate) fn reserve(&self, name: &str, request: &Request<'_>) -> Result<Entry, LeaseError> {
        if let Some(why) = unusable(name) {
            return Err(LeaseError::Name { name: name.to_owned(), why });
        }
        let template = self.template(request.template)?.name;
        let most = self.most();
        let mut state = self.lock();
        state.remember(request.kind);
        loop {
            let leased = state.leases.len();
            match state.leases.get_mut(name) {
                Some(lease) if !lease.changing => {
                    lease.sessions += 1;
                    lease.ends = None;
                    return Ok(Entry::Leased(Some(lease.oid)));
                }
                Some(_) => {}
                None if leased < most => break,
                None => state.hurry(most)?,
            }
            self.notify();
            state = self.wait(state, None);
        }
        let lease = Lease {
            template,
            oid: 0,
            since: Instant::now(),
            linger: request.linger.unwrap_or(self.origin.linger),
            sessions: 1,
            ends: None,
            lasting: state.retained.contains(name),
            left: Vec::new(),
            baseline: Baseline::default(),
            changing: true,
        };
        state.leases.insert(name.to_owned(), lease);
        state.watch.suspect(name);
        Ok(Entry::New)
    }

    /// A session that another one of its kind has left in a leased database, if it is as good as a new one.
    fn take_left(&self, name: &str, oid: Option<u32>, kind: &Kind) -> Place {
        let standing = oid.and_then(|oid| self.standing(oid).ok()).unwrap_or_default();
        let mut state = self.lock();
        let left = state.leases.get_mut(name).map(|lease| &mut lease.left);
        Place { warm: left.and_then(|left| take_waiting(left, kind, &standing)), standing }
    }

    /// What a new session in the database would find on record.
    pub(crate) fn standing(&self, oid: u32) -> Result<Standing, LeaseError> {
        let rows = self.clerks.execute("look at settings and roles", &STANDING, &[&oid.to_string()])?;
        Ok(text(&rows).into())
    }

    /// Starts a session with a database that is there; `oid` if it is leased, and then the session is counted already.
    pub(crate) fn enter(
        self: &Arc<Self>,
        name: &str,
        oid: Option<u32>,
        kind: &Kind,
        place: Place,
    ) -> Result<Connected, LeaseError> {
        let Place { warm, standing } = place;
        let tenancy = Tenancy(match oid {
            Some(_) => Stay::Database {
                inner: Arc::clone(self),
                name: name.to_owned(),
                kind: kind.clone(),
                standing,
            },
            None => Stay::Elsewhere,
        });
        let mut state = self.lock();
        if warm.is_some() {
            state.warm += 1;
        } else {
            state.cold += 1;
        }
        drop(state);
        let backend = match warm {
            Some(backend) => backend,
            None => self.start_backend(name, kind)?,
        };
        Ok(Connected { backend, tenancy })
    }

    /// Gives a reserved name a database. Returns its oid, and a warm backend in it if there is one; no oid means that
    /// somebody has made a database of that name by SQL, which is nobody's lease.
    pub(crate) fn furnish(
        &self,
        name: &str,
        template: Option<&str>,
        kind: Option<&Kind>,
    ) -> Result<(Option<u32>, Place), LeaseError> {
        let result = self.furnish_reserved(name, template, kind);
        let mut state = self.lock();
        let furnished = match (result, state.leases.get_mut(name)) {
            (Ok(Furnished { oid, baseline, place }), Some(lease)) => {
                (lease.oid, lease.baseline, lease.changing) = (oid, baseline, false);
                Ok((Some(oid), place))
            }
            (result, _) => {
                state.leases.remove(name);
                match result {
                    Err(error) if is_taken(&error) => Ok((None, Place::default())),
                    other => other.map(|furnished| (None, furnished.place)),
                }
            }
        };
        drop(state);
        self.notify();
        furnished
    }

    pub(crate) fn furnish_reserved(
        &self,
        name: &str,
        template: Option<&str>,
        kind: Option<&Kind>,
    ) -> Result<Furnished, LeaseError> {
        let template = self.template(template)?;
        let ready = self.lock().take_ready(&template.name, kind);
        // One more shall be made, whatever comes of this one.
        self.notify();
        let Some(mut ready) = ready else {
            let oid = template.copy(name, self.origin.major, &self.clerks)?;
            let place = Place { warm: None, standing: self.standing(oid)? };
            return Ok(Furnished { oid, baseline: Baseline::default(), place });
        };
        let standing = match rename(ready.oid, name, &self.clerks) {
            Ok(standing) => standing,
            Err(error) => {
                self.lock().ready.push(ready);
                return Err(error);
            }
        };
        let warm = kind.and_then(|kind| take_waiting(&mut ready.warm, kind, &standing));
        Ok(Furnished { oid: ready.oid, baseline: ready.baseline, place: Place { warm, standing } })
    }

    /// Counts a session out, and keeps what it has left. With the last one the lease's end begins, unless it lasts.
    pub(crate) fn leave(&self, name: &str, left: Option<Waiting>) {
        let mut state = self.lock();
        let has_room = state.has_room_for_left();
        if let Some(lease) = state.leases.get_mut(name) {
            lease.sessions = lease.sessions.saturating_sub(1);
            lease.left.extend(left.filter(|_| has_room));
            if !lease.lasting && lease.sessions == 0 {
                lease.ends = Some(Instant::now() + lease.linger);
            }
        }
        drop(state);
        self.notify();
    }

    /// Forgets a lease whose database is no more.
    fn forget(&self, name: &str) {
        self.lock().leases.remove(name);
        self.notify();
    }
}

impl Tenancy {
    /// Ends the session and gives its backend back: idle, in no transaction, everything read that it had to say. It
    /// may serve the database's next holder.
    pub fn give_back(mut self, backend: Backend) {
        match std::mem::replace(&mut self.0, Stay::Elsewhere) {
            Stay::Database { inner, name, kind, standing } => {
                inner.leave(&name, Some(Waiting { kind, backend, standing }));
            }
            other => drop(Self(other)),
        }
    }

    pub(crate) fn of_server(stay: own::Stay) -> Self {
        Self(Stay::Server(stay))
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        match &self.0 {
            Stay::Database { inner, name, .. } => inner.leave(name, None),
            Stay::Server(stay) => stay.leave(),
            Stay::Elsewhere => {}
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is always consistent: a panic elsewhere does not make it less so.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name as the server reads it: no longer than it keeps.
pub(crate) fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(LONGEST_NAME)]
}

/// Why a name cannot be a lease's.
pub(crate) fn unusable(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("it is empty"),
        name if name.starts_with(PREFIX) => Some("pgfresh's own databases are called so"),
        name if ALWAYS.contains(&name) => Some("it is always there"),
        _ => None,
    }
}

/// Whether there is such a field in what the server said.
pub(crate) fn says(words: &[u8], field: &[u8]) -> bool {
    words.windows(field.len()).any(|window| window == field)
}

/// Whether a name could not be given because somebody has it.
pub(crate) fn is_taken(error: &LeaseError) -> bool {
    matches!(error, LeaseError::Sql { source: SessionError::Server { sqlstate, .. }, .. }
        if sqlstate == "23505" || sqlstate == "42P04")
}
