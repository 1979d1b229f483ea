//! Opens sessions for clients and decides what happens to a backend when its client disconnects.
//!
//! A client gets a session in a leased database. If an idle backend is waiting there, the client gets that backend,
//! which saves the time to start one. Once the client has disconnected, its backend can often serve the next client.

use std::cell::LazyCell;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use pgwire::{ErrorResponse, StartupParams};
use server::literal;

use crate::address::DatabaseAddress;
use crate::admin::ROOM_TIMEOUT;
use crate::backends::backend::{
    Backend, CatalogStamp, WaitingBackend, has_unlimited, may_be_too_idle, may_compile, params_id, stamp_in,
    stamp_of,
};
use crate::backends::client::{Client, ClientLink};
use crate::backends::expected::may_come_again;
use crate::backends::seats::Seat;
use crate::error::LeaseError;
use crate::isolation::Isolation;
use crate::lsn::Lsn;
use crate::names::{ALWAYS, check_name, cut, is_preparing};
use crate::options::ServerRole;
use crate::reset::rollback::{LeaseTransaction, TransactionSession};
use crate::runtime::core::{Core, Counters, Newcomer};
use crate::runtime::inner::Inner;
use crate::runtime::leased_server::LeasedServer;
use crate::runtime::leases::Leases;
use crate::runtime::requests::{Admission, Visit};
use crate::runtime::resources::Resources;
use crate::table::{Answer, DatabaseId, Event, Explicit, Terms, Want};

/// Maximum number of attempts to start a session when the database keeps disappearing.
const ATTEMPTS: usize = 5;
/// How long a client waits for a free seat (one of the server's sessions for clients). Backends being started for
/// expected clients may occupy seats for a while.
const SEAT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a client that requests a database still in preparation waits for the database to get its final name. Only
/// programs that visit all databases request such names.
const PREPARATION_TIMEOUT: Duration = Duration::from_mins(1);

/// A request for a session.
#[derive(Debug, Clone)]
pub struct ConnectRequest<'a> {
    /// Name of the database.
    pub database: &'a str,
    /// Template in case this request begins a new lease. `None` means the default template.
    pub template: Option<&'a str>,
    /// Isolation of the lease. With `None`, the client joins an existing lease in any isolation, while a new lease gets
    /// the default isolation.
    pub isolation: Option<Isolation>,
    /// How long the lease lingers after its last session has ended. `None` means the default.
    pub linger: Option<Duration>,
    /// Whether to reset the database first if the name already has a lease. The database must have no other sessions.
    pub reset: bool,
    /// Startup parameters of the session.
    pub params: &'a StartupParams,
    /// Link that reports whether the client is still connected. `None` if the caller doesn't know.
    pub client: Option<Arc<dyn ClientLink>>,
}

/// The session that a client has received.
#[derive(Debug)]
pub enum Entered {
    /// A session used only by this client.
    Plain(Connected),
    /// The session of a lease in rollback isolation, which the lease's clients use in turn, along with its transaction.
    Transaction(TransactionGuard),
}

/// A session's backend and its right to use the database.
#[derive(Debug)]
pub struct Connected {
    /// The server's backend for this session.
    pub backend: Backend,
    /// Counts the session in its lease. The caller must hold this guard as long as the session lasts.
    pub guard: SessionGuard,
}

/// One session's right to use a database, to be dropped when the session ends. After its last session has ended, a
/// lease lingers for a while and then ends, too.
#[derive(Debug)]
pub struct SessionGuard(Option<LeasedSession>);

/// One client's right to use the session of a lease in rollback isolation. Dropping this guard without calling
/// [`Self::leave`] ends the lease.
#[derive(Debug)]
pub struct TransactionGuard {
    stay: Option<LeasedSession>,
    session: Option<Box<TransactionSession>>,
}

/// A session in a leased database.
#[derive(Debug)]
struct LeasedSession {
    inner: Arc<Inner>,
    id: DatabaseId,
    client: Arc<Client>,
    params: StartupParams,
    stamp: CatalogStamp,
    since: Option<Lsn>,
}

impl<'a> ConnectRequest<'a> {
    /// Returns a request for a session in this database, with defaults for all other fields.
    #[must_use]
    pub fn new(database: &'a str, params: &'a StartupParams) -> Self {
        Self { database, template: None, isolation: None, linger: None, reset: false, params, client: None }
    }
}

impl Leases {
    /// Opens a session in the lease with this name, beginning the lease if necessary. While the lease is changing, the
    /// call waits up to a timeout.
    ///
    /// # Errors
    /// Returns [`LeaseError::Refused`] with the server's response if the server refuses the session,
    /// and a different [`LeaseError`] if the session can neither begin nor join a lease with this name.
    pub fn connect(&self, request: &ConnectRequest<'_>) -> Result<Entered, LeaseError> {
        self.connect_to(request, ServerRole::Primary)
    }

    /// Opens a session on the server with this role.
    pub(super) fn connect_to(
        &self,
        request: &ConnectRequest<'_>,
        role: ServerRole,
    ) -> Result<Entered, LeaseError> {
        let inner = &self.0;
        inner.has_had_clients.store(true, Ordering::Relaxed);
        // Make sure that pgfresh has read the shared state before this session can change it.
        drop(inner.shared());
        let name = cut(request.database);
        // Without templates, there is nothing to lease, so connect as to any other server.
        if ALWAYS.contains(&name) || inner.options.templates.is_empty() {
            return inner.connect_unleased(name, request.params);
        }
        check_name(name)?;
        self.connect_leased(request, role)
    }

    /// Like [`Self::connect_to`], for a name that a lease can have.
    pub(super) fn connect_leased(
        &self,
        request: &ConnectRequest<'_>,
        role: ServerRole,
    ) -> Result<Entered, LeaseError> {
        let inner = &self.0;
        let name = cut(request.database);
        let usual = inner.options.isolation;
        let terms = Terms {
            template: inner.template_for(name, request.template)?,
            isolation: request.isolation.unwrap_or(usual),
            linger: request.linger.unwrap_or(inner.options.linger),
            retained: false,
        };
        if terms.isolation == Isolation::Server {
            inner.expect_free(name)?;
        }
        if is_preparing(name) {
            inner.preparing.wait(name, PREPARATION_TIMEOUT);
        }
        let want = Want::Session {
            params: params_id(request.params),
            terms,
            explicit: Explicit {
                isolation: request.isolation.is_some(),
                template: request.template.is_some(),
            },
            reset: request.reset,
        };
        let mut last = LeaseError::NotLeased(name.to_owned());
        for _ in 0..ATTEMPTS {
            let client = Arc::new(Client::new(request.client.clone()));
            let newcomer = Newcomer { client, params: request.params.clone() };
            let answer = inner.ask_for_session(name, want.clone(), newcomer.clone())?;
            match answer {
                Answer::Session(id) => match self.enter(id, name, newcomer, role) {
                    // SQL has dropped the database or terminated the session in the meantime. Try again: the next
                    // attempt begins a new lease or waits until the lease has changed.
                    Err(error) if is_gone(&error) || is_closed(&error) => last = error,
                    other => return other,
                },
                _ => match inner.connect_elsewhere(name, request.params) {
                    // A lease has taken the name in the meantime and must count the session, so try again.
                    Err(error @ LeaseError::NotLeased(_)) => last = error,
                    other => return other,
                },
            }
        }
        Err(last)
    }

    /// Starts a session in a leased database after the table has counted the session.
    fn enter(
        &self,
        id: DatabaseId,
        name: &str,
        newcomer: Newcomer,
        role: ServerRole,
    ) -> Result<Entered, LeaseError> {
        let inner = &self.0;
        let stay = LeasedSession::new(inner, id, newcomer);
        let admission = inner.lock().admit(id);
        match admission {
            Some(Admission::Clone(visit)) => stay.begin(name, &visit),
            // The table compares only hashes of startup parameters, so compare the parameters themselves here.
            Some(Admission::Rollback(session)) if session.params == stay.params => {
                inner.lock().expected.served(&stay.params);
                Ok(Entered::Transaction(TransactionGuard { stay: Some(stay), session: Some(session) }))
            }
            Some(Admission::Server(server)) => {
                let backend =
                    LeasedServer::connect(&server, role, &stay.params).inspect_err(|_| stay.leave(false))?;
                stay.entered(backend)
            }
            Some(Admission::Rollback(_)) | None => Err(stay.lost(name)),
        }
    }
}

impl Inner {
    /// Requests a session from the table. Returns [`Answer::Elsewhere`] if the table refuses but SQL has created a
    /// database with that name.
    fn ask_for_session(&self, name: &str, want: Want, newcomer: Newcomer) -> Result<Answer, LeaseError> {
        match self.ask(name, want, Some(newcomer)) {
            Err(error @ (LeaseError::Closed | LeaseError::Gone | LeaseError::Failed)) => Err(error),
            Err(_) if matches!(self.expect_free(name), Err(LeaseError::Leased(_))) => Ok(Answer::Elsewhere),
            answer => answer,
        }
    }

    /// Reads a database's stamp and the end of the log. The stamp is empty if SQL has dropped or renamed the database.
    pub(crate) fn read_stamp(
        &self,
        DatabaseAddress { oid, name }: &DatabaseAddress,
    ) -> Result<(CatalogStamp, Lsn), LeaseError> {
        let arguments = [&*oid.to_string(), &literal(name)];
        let stamp = stamp_in(self.options.major);
        let (rows, mark) = self.admin.execute_and_mark("look at settings and roles", stamp, &arguments)?;
        self.evidence.read(mark);
        Ok((stamp_of(&rows, &self.options.data), mark))
    }

    /// Returns true if the database still has this stamp and no settings have changed since `before`. Otherwise, a
    /// backend may have started with a setting that existed only in between.
    pub(crate) fn is_stamp_unchanged(&self, address: &DatabaseAddress, stamp: &str, before: Lsn) -> bool {
        self.read_stamp(address).is_ok_and(|(now, _)| *now == *stamp)
            && self.evidence.are_settings_unchanged(before)
    }

    /// Returns true if a backend with these startup parameters may wait for its next client in a database with this
    /// stamp. Backends must not wait if idle time or the last client could make them differ from a new one.
    pub(crate) fn may_wait(&self, params: &StartupParams, stamp: &str) -> bool {
        let may_compile = self.jit || may_compile(params);
        let may_be_ended = self.ends_idle || may_be_too_idle(params, stamp);
        !may_compile && !may_be_ended && may_come_again(params)
    }

    /// Starts a backend by database name and checks that the backend is in the right database.
    ///
    /// # Errors
    /// Returns [`LeaseError::NotLeased`] if SQL has given the name to another database.
    pub(crate) fn start_backend_in(
        &self,
        database: &DatabaseAddress,
        params: &StartupParams,
    ) -> Result<Backend, LeaseError> {
        let backend = self.start_backend(&database.name, params)?;
        database.expect(backend.database(&self.admin)?)?;
        Ok(backend)
    }

    /// Starts a backend in the database that currently has this name. If the server has no room for another backend,
    /// closes idle ones.
    pub(crate) fn start_backend(&self, name: &str, params: &StartupParams) -> Result<Backend, LeaseError> {
        // The server counts replication sessions separately, so they need no seat.
        let seat = if params.is_replication() { Seat::default() } else { self.take_seat()? };
        let start = || Backend::connect(&self.options.directory, params, name);
        let is_full =
            |error: &LeaseError| matches!(error, LeaseError::Refused(words) if has_field(words, b"C53300\0"));
        let backend = self.admin.with_room(ROOM_TIMEOUT, start, is_full)?;
        Ok(Backend { seat, ..backend })
    }

    fn take_seat(&self) -> Result<Seat, LeaseError> {
        if let Some(seat) = self.seats.try_take() {
            return Ok(seat);
        }
        self.lock().evict_idle();
        let seat = self.seats.take_within(SEAT_TIMEOUT);
        seat.ok_or(LeaseError::TooManyClients { most: self.seats.most() })
    }
}

impl LeasedSession {
    fn new(inner: &Arc<Inner>, id: DatabaseId, newcomer: Newcomer) -> Self {
        let Newcomer { client, params } = newcomer;
        Self { inner: Arc::clone(inner), id, client, params, stamp: CatalogStamp::from(""), since: None }
    }

    /// Takes an idle backend that is equivalent to a new one. If no backend qualifies, returns `None` after recording
    /// the stamp and log position for a new backend.
    fn find_waiting(&mut self, visit: &Visit) -> Option<Backend> {
        let inner = &self.inner;
        let position;
        (self.stamp, position) = match &visit.stamp {
            Some(stamp) => (Arc::clone(stamp), inner.evidence.position()),
            None => inner.read_stamp(&visit.address).unwrap_or((CatalogStamp::from(""), Lsn(0))),
        };
        self.since = Some(position);
        // A client of the lease may have defined a function that left something behind in one of the lease's used
        // backends.
        let may_be_defined = LazyCell::new(|| {
            inner.evidence.may_have_changed(visit.address.oid, |file| visit.files.may_be_definition(file))
        });
        let settings = inner.evidence.settings_changed();
        let is_new = |at: &WaitingBackend| {
            let unchanged = at.since.is_none_or(|since| settings.is_some_and(|changed| since > changed));
            let holds_nothing = !at.is_used || !*may_be_defined;
            !self.stamp.is_empty() && at.stamp == self.stamp && unchanged && holds_nothing && at.will_serve()
        };
        loop {
            // Release the lock before consulting the evidence, which may read files.
            let found = inner.lock().pool.copy_mut(self.id)?.take_waiting(&self.params)?;
            if is_new(&found) {
                self.since = found.since;
                return Some(found.backend);
            }
        }
    }

    /// Counts a session with a ready backend as warm or cold.
    fn begun(&self, counter: impl FnOnce(&mut Counters) -> &mut u64) {
        let mut core = self.inner.lock();
        *counter(&mut core.counters) += 1;
        core.expected.served(&self.params);
        if let Some(copy) = core.pool.copy_mut(self.id) {
            copy.set_entered(true);
            if let Some(usage) = copy.usage() {
                usage.take(params_id(&self.params));
            }
        }
    }

    /// Starts the session in an idle backend or, failing that, in a new one.
    fn begin(mut self, name: &str, visit: &Visit) -> Result<Entered, LeaseError> {
        let backend = match self.find_waiting(visit) {
            Some(backend) => {
                self.begun(|counters| &mut counters.warm);
                backend
            }
            None => match self.inner.start_backend_in(&visit.address, &self.params) {
                // The server may have crashed between the database's last check and the start of this session.
                Ok(_) if visit.is_first && self.inner.has_crashed_since(visit.crash_effect) => {
                    return Err(self.lost(name));
                }
                Ok(backend) => {
                    self.begun(|counters| &mut counters.cold);
                    backend
                }
                Err(error) if is_gone(&error) => return Err(self.lost(name)),
                Err(error) => {
                    self.leave(false);
                    return Err(error);
                }
            },
        };
        self.entered(backend)
    }

    /// Hands the backend to the client. If pgfresh terminated the lease's sessions before this one started, returns the
    /// error that the server would have sent.
    fn entered(self, backend: Backend) -> Result<Entered, LeaseError> {
        if self.client.is_closed() {
            drop(backend);
            self.leave(false);
            return Err(session_terminated());
        }
        Ok(Entered::Plain(Connected { backend, guard: SessionGuard(Some(self)) }))
    }

    /// Removes an ended session from its lease without waiting for the server. If `lost` is set, the lease ends, too.
    fn leave(&self, lost: bool) {
        self.leave_in(self.inner.lock(), lost);
    }

    fn leave_in(&self, mut core: MutexGuard<'_, Core>, lost: bool) {
        self.count_out(&mut core, lost);
        // If the lease must end, a maintenance worker takes care of that.
        self.inner.wake_worker(core);
    }

    /// Removes an ended session from its lease. If this ends the lease, also resets the database in this thread,
    /// because the name's next client waits for the reset.
    fn leave_and_end_in(&self, mut core: MutexGuard<'_, Core>, lost: bool) {
        self.count_out(&mut core, lost);
        let task = core.table.take_due(self.id);
        self.inner.wake_worker(core);
        if let Some(task) = task {
            self.inner.run(task);
        }
    }

    fn count_out(&self, core: &mut Core, lost: bool) {
        let Some(leaving) = core.count_out(self.id, &self.client) else { return };
        let database = self.id;
        let event =
            if lost { Event::Lost { database, leaving } } else { Event::Disconnected { database, leaving } };
        core.raise_in_background(event);
    }

    /// Returns true if the lease ends with this session.
    fn ends_lease(&self) -> bool {
        self.inner.lock().table.ends_with_its_session(self.id)
    }

    fn lost(self, name: &str) -> LeaseError {
        self.leave(true);
        LeaseError::NotLeased(name.to_owned())
    }

    /// Records that the client has disconnected and the session is about to end.
    fn leaving(&self) {
        let mut core = self.inner.lock();
        let is_counted = core.pool.clients(self.id).iter().any(|other| Arc::ptr_eq(other, &self.client));
        if is_counted && self.client.leave() {
            core.raise_in_background(Event::Leaving { database: self.id });
        }
    }
}

impl SessionGuard {
    /// Returns a guard for a session that no lease counts.
    pub(crate) fn unleased() -> Self {
        Self(None)
    }

    /// Ends the session and reclaims its backend, which may then serve another client. The backend must be idle,
    /// outside a transaction and without unread output. `DISCARD ALL` must have removed everything that the client left
    /// behind.
    pub fn give_back(mut self, backend: Backend) {
        let Some(stay) = self.0.take() else { return };
        let mut core = stay.inner.lock();
        let may_wait = core.make_room_for_left(stay.id);
        if let Some(copy) = core.pool.copy_mut(stay.id)
            && may_wait
            && !stay.client.is_closed()
            && !copy.leaves_traces
            && !stay.stamp.is_empty()
            && backend.may_serve_another()
            && stay.inner.may_wait(&stay.params, &stay.stamp)
            && has_unlimited(backend.is_superuser(), &stay.stamp)
        {
            let (params, stamp, since) = (stay.params.clone(), stay.stamp.clone(), stay.since);
            if let Some(usage) = copy.usage() {
                usage.give_back(params_id(&params));
            }
            copy.waiting.push(WaitingBackend { params, backend, stamp, since, is_used: true });
            core.trim_idle(stay.id);
        }
        stay.leave_in(core, false);
    }

    /// Records that the client has disconnected and the session is about to end.
    pub fn leaving(&self) {
        if let Some(stay) = &self.0 {
            stay.leaving();
        }
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        if let Some(stay) = self.0.take() {
            stay.leave(false);
        }
    }
}

impl TransactionGuard {
    /// Lends the session to a client, together with the startup response to send and the transaction to continue.
    /// Returns `None` if the session has ended, which also ends the lease.
    pub fn lend(&mut self) -> Option<(UnixStream, Vec<u8>, LeaseTransaction)> {
        let session = self.session.as_mut()?;
        let stream = session.lend().ok()?;
        Some((stream, session.startup_response.clone(), session.transaction.clone()))
    }

    /// Records that the client has disconnected and is about to return the session.
    pub fn leaving(&self) {
        if let Some(stay) = &self.stay {
            stay.leaving();
        }
    }

    /// Reclaims the session from the client.
    pub fn leave(mut self, stream: UnixStream, transaction: LeaseTransaction) {
        let (Some(stay), Some(mut session)) = (self.stay.take(), self.session.take()) else { return };
        session.take_back(stream, transaction);
        // If the lease ends now, pgfresh undoes everything anyway.
        // Otherwise, discard what this client left in the session.
        let kept = stay.ends_lease() || session.discard().is_ok();
        let mut core = stay.inner.lock();
        let kept = kept && !stay.client.is_closed();
        if kept && let Some(Resources::Rollback(rollback)) = core.pool.get_mut(stay.id) {
            rollback.session = Some(session);
        }
        stay.leave_and_end_in(core, !kept);
    }
}

impl Drop for TransactionGuard {
    fn drop(&mut self) {
        if let Some(stay) = self.stay.take() {
            drop(self.session.take());
            stay.leave(true);
        }
    }
}

/// Returns true if the ErrorResponse in `words` contains `field`.
fn has_field(words: &[u8], field: &[u8]) -> bool {
    words.windows(field.len()).any(|window| window == field)
}

/// Returns the error that the server sends when it terminates a session.
fn session_terminated() -> LeaseError {
    let words = ErrorResponse::fatal("57P01", "terminating connection due to administrator command");
    LeaseError::Refused(words.to_bytes())
}

/// Returns true if the error means that a client or pgfresh terminated the session before it began.
fn is_closed(error: &LeaseError) -> bool {
    matches!(error, LeaseError::Refused(words) if has_field(words, b"C57P01\0"))
}

/// Returns true if the error means that the database no longer exists.
fn is_gone(error: &LeaseError) -> bool {
    match error {
        LeaseError::Refused(words) => has_field(words, b"C3D000\0"),
        LeaseError::NotLeased(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
