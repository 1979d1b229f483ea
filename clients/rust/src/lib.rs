//! Fresh PostgreSQL databases for tests: copies of the migrated template that `pgfresh.toml` describes.
//!
//! ```ignore
//! #[tokio::test]
//! async fn orders_are_found() {
//!     let database = Database::fresh();
//!     let pool = PgPool::connect(database.url()).await.unwrap();
//!     …
//! }
//! ```
//!
//! Dropping a [`Database`] releases it. The crate has no driver: use [`Database::url`] with sqlx, tokio-postgres,
//! diesel and other programs that read PostgreSQL URLs. The crate has no runtime either: calls block their thread for
//! about a millisecond, like file operations, so they also work in asynchronous tests.
//!
//! Within `pgfresh run -- cargo test` all test binaries use the server of that run. Otherwise they start the binary
//! that `PGFRESH_BIN` names, or the one on `PATH`, and share the project's background server. However a process ends,
//! pgfresh releases the databases that this process leased.

mod api;
mod error;
mod faults;
mod server;
mod statements;
#[cfg(test)]
mod tests;
mod trust;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use std::{fmt, mem};

use contract::{EndOfTest, LeaseResponse, Measurement};
pub use error::Error;
use faults::unfired_message;
pub use faults::{FaultStatus, Moment, TestFault};
use server::Server;
use statements::Limits;
pub use statements::{Statement, StatementCounter, Statements};

/// Leased copy of a template. Dropping it releases the database.
///
/// A drop during a panic reports to pgfresh that the test failed. If pgfresh keeps the database, the client prints the
/// database URL. The client doesn't notice a test that returns an error: `unwrap` the error in the test.
///
/// # Panics
/// The drop panics if the test exceeded its budget, which [`Options`] or `pgfresh.toml` sets. The message lists the
/// most frequent statements. The drop also panics if a [`TestFault`] never fired. If the thread is already panicking,
/// the drop doesn't panic.
pub struct Database {
    response: LeaseResponse,
    server: Arc<Server>,
    limits: Limits,
    /// Name of the test that has used the database since the lease or the last reset. Empty if unknown.
    test: Mutex<String>,
    resets: AtomicUsize,
    /// Whether [`Database::fault`] was called since the lease or the last reset.
    faulty: AtomicBool,
}

impl Database {
    /// Leases a fresh copy of the template in `pgfresh.toml`.
    ///
    /// # Panics
    /// Panics if pgfresh doesn't start or refuses the request. [`Options::lease`] returns the error instead.
    #[must_use]
    #[track_caller]
    pub fn fresh() -> Self {
        match Options::default().lease() {
            Ok(database) => database,
            Err(error) => panic!("pgfresh: {error}"),
        }
    }

    /// Returns the name of the database, unique on its server.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.response.name
    }

    /// Returns the URL, `postgresql://USER:PASSWORD@127.0.0.1:PORT/NAME`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.response.url
    }

    /// Returns the JDBC URL, for JVM programs that a test starts.
    #[must_use]
    pub fn jdbc_url(&self) -> &str {
        &self.response.jdbc_url
    }

    /// Returns the URL with the server's unix socket, without a password.
    #[must_use]
    pub fn socket_url(&self) -> &str {
        &self.response.socket_url
    }

    /// Returns the URL of the replica, or `None` if the template has none.
    #[must_use]
    pub fn replica_url(&self) -> Option<&str> {
        self.response.replica_url.as_deref()
    }

    /// Returns the name of the template that the database is a copy of.
    #[must_use]
    pub fn template(&self) -> &str {
        &self.response.template
    }

    /// Makes the replica lag behind, for isolation `server`, and returns once the replica lags. `none`: a commit
    /// returns once the replica shows it. `paused`: the replica doesn't show further commits. A time, such as
    /// `500ms`: the replica shows each commit after this time.
    ///
    /// # Errors
    /// Fails if the database has no replica.
    pub fn set_replica_lag(&self, lag: &str) -> Result<(), Error> {
        self.server.set_replica_lag(self.name(), lag)
    }

    /// Stops the server of the database and promotes the replica, which takes the place of this server.
    ///
    /// # Errors
    /// Fails if the database has no replica.
    pub fn promote_replica(&self) -> Result<(), Error> {
        self.server.promote_replica(self.name())
    }

    /// Restores the state of the template, in about a millisecond.
    ///
    /// # Errors
    /// Fails if the server refuses the reset, for example because sessions are open. Also fails if the statements
    /// before the reset exceeded the budget, or if a [`TestFault`] requested before the reset never fired. In these
    /// two cases the reset happens nevertheless, and pgfresh counts from 0 again.
    pub fn reset(&self) -> Result<(), Error> {
        self.end_test(false)
    }

    /// Closes all open sessions and restores the state of the template.
    ///
    /// # Errors
    /// Fails if the server refuses the reset, if the statements before the reset exceeded the budget, or if a fault
    /// never fired.
    pub fn reset_closing_sessions(&self) -> Result<(), Error> {
        self.end_test(true)
    }

    /// Starts to count the statements of all clients. pgfresh must record the statements, which [`Options::record`],
    /// a limit, or `[budget]` in `pgfresh.toml` enables.
    ///
    /// ```no_run
    /// # fn doc(list_orders: fn(&str)) -> Result<(), pgfresh_test::Error> {
    /// let database = pgfresh_test::Options::default().record().lease()?;
    /// let counter = database.count_statements()?;
    /// list_orders(database.url());
    /// let ran = counter.finish()?;
    /// assert!(ran.count <= 3, "{ran}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if pgfresh doesn't record the statements.
    pub fn count_statements(&self) -> Result<StatementCounter<'_>, Error> {
        StatementCounter::start(self)
    }

    /// Requests a fault, which lasts until the next reset or the drop. When the method returns, the fault applies to
    /// all open sessions. If the fault never fires, the drop panics.
    ///
    /// # Errors
    /// Fails if pgfresh refuses the fault, for example because of an invalid SQLSTATE.
    pub fn fault(&self, fault: TestFault) -> Result<(), Error> {
        self.server.fault(self.name(), &fault.into_request())?;
        self.faulty.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the faults requested since the lease or the last reset, in this order.
    ///
    /// # Errors
    /// Fails if the client can't read the faults from the server.
    pub fn faults(&self) -> Result<Vec<FaultStatus>, Error> {
        let list = self.server.faults(self.name())?;
        Ok(list.faults.into_iter().map(FaultStatus::from).collect())
    }

    fn measure(&self, limits: &Limits) -> Result<Measurement, Error> {
        self.server.measure(self.name(), limits)
    }

    fn resets(&self) -> usize {
        self.resets.load(Ordering::Relaxed)
    }

    /// Resets the database, which ends the current test. The caller becomes the next test.
    fn end_test(&self, close_sessions: bool) -> Result<(), Error> {
        let mut test = self.test.lock().unwrap_or_else(PoisonError::into_inner);
        let ended =
            self.server.reset(self.name(), close_sessions, self.reported_name(&test), &self.limits)?;
        self.resets.fetch_add(1, Ordering::Relaxed);
        self.faulty.store(false, Ordering::Relaxed);
        *test = this_test();
        let exceeded = ended.measurement.and_then(|measured| measured.message);
        let exceeded = exceeded.map(|message| budget_exceeded(&message));
        let reason = exceeded.or_else(|| unfired_message(&ended.unfired_faults));
        reason.map_or(Ok(()), |reason| Err(Error::new(reason)))
    }

    /// Returns the test name to send with a request. pgfresh reports an exceeded budget only if the request has a
    /// name, which may be "".
    fn reported_name<'a>(&self, test: &'a str) -> Option<&'a str> {
        (self.response.recorded || !test.is_empty()).then_some(test)
    }

    /// Returns the reason why the test must fail: it exceeded its budget, a fault never fired, or the client can't
    /// read the counts.
    fn check(&self) -> Option<String> {
        self.check_budget().or_else(|| self.check_faults())
    }

    fn check_budget(&self) -> Option<String> {
        if !self.response.recorded && self.limits.is_empty() {
            return None;
        }
        match self.measure(&self.limits) {
            Ok(measurement) => measurement.message.map(|message| budget_exceeded(&message)),
            Err(error) => Some(format!("pgfresh: {error}")),
        }
    }

    fn check_faults(&self) -> Option<String> {
        if !self.faulty.swap(false, Ordering::Relaxed) {
            return None;
        }
        match self.server.faults(self.name()) {
            Ok(list) => unfired_message(&list.unfired_faults),
            Err(error) => Some(format!("pgfresh: {error}")),
        }
    }

    fn release(&self, failed: bool, test: &str) -> Released {
        match self.server.release(self.name(), failed, self.reported_name(test)) {
            Ok(EndOfTest { url, unfired_faults, .. }) => {
                let line = url.map(|url| format!("pgfresh: kept the database of the failed test: {url}"));
                Released { line, unfired: unfired_message(&unfired_faults).filter(|_| !failed) }
            }
            Err(error) => Released { line: Some(format!("pgfresh: {error}")), unfired: None },
        }
    }
}

/// Result of a release.
struct Released {
    /// Line for the user: the URL of a kept database, or an error.
    line: Option<String>,
    /// Reason why a test that hasn't failed must fail: a fault that was requested with SQL never fired.
    unfired: Option<String>,
}

fn budget_exceeded(message: &str) -> String {
    format!("budget exceeded: {message}")
}

/// Returns the name of the running test, which is the name of its thread. Returns "" in an unnamed thread, in a tokio
/// worker, and in the main thread, which runs the tests if they don't run in parallel.
fn this_test() -> String {
    let name = thread::current().name().unwrap_or_default().to_owned();
    if ["main", "tokio-rt-worker", "tokio-runtime-worker"].contains(&&*name) { String::new() } else { name }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A second panic would abort the process, and the first panic already has the reason, so don't panic again.
        let panicking = thread::panicking();
        let reason = if panicking { None } else { self.check() };
        let current = this_test();
        let test = self.test.get_mut().unwrap_or_else(PoisonError::into_inner);
        let test = if current.is_empty() { mem::take(test) } else { current };
        let Released { line, unfired } = self.release(panicking || reason.is_some(), &test);
        if let Some(line) = line {
            eprintln!("{line}");
        }
        if let Some(reason) = reason.or(unfired) {
            panic!("{reason}");
        }
    }
}

/// Omits the URLs, because they contain the password.
impl fmt::Debug for Database {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Database")
            .field("name", &self.name())
            .field("template", &self.template())
            .finish_non_exhaustive()
    }
}

/// Options of a lease.
///
/// ```no_run
/// # fn doc() -> Result<(), pgfresh_test::Error> {
/// let database = pgfresh_test::Options::default().template("stocked").name("orders").lease()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default, Clone)]
#[must_use]
pub struct Options {
    template: Option<String>,
    name: Option<String>,
    isolation: Option<String>,
    record: bool,
    limits: Limits,
}

impl Options {
    /// Selects the template. Default: the one in `pgfresh.toml`.
    pub fn template(mut self, template: impl Into<String>) -> Self {
        self.template = Some(template.into());
        self
    }

    /// Sets the database name, at most 63 bytes. Default: pgfresh generates a name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Selects the isolation of the database. The HTTP API documentation lists the kinds.
    pub fn isolation(mut self, isolation: impl Into<String>) -> Self {
        self.isolation = Some(isolation.into());
        self
    }

    /// Makes pgfresh record the statements, for [`Database::count_statements`]. A limit implies this.
    pub fn record(mut self) -> Self {
        self.record = true;
        self
    }

    /// Limits the number of statements. A test that exceeds the limit fails. Each limit replaces the one in
    /// `pgfresh.toml`.
    pub fn statements(mut self, limit: u64) -> Self {
        self.limits.statements = Some(limit);
        self
    }

    /// Limits how often the same query runs with different values. 0 forbids an N+1. pgfresh ignores fewer than five
    /// runs.
    pub fn n_plus_one(mut self, limit: u64) -> Self {
        self.limits.n_plus_one = Some(limit);
        self
    }

    /// Limits the total time in the database. The client rounds `limit` up to whole milliseconds.
    pub fn time(mut self, limit: Duration) -> Self {
        self.limits.time = Some(statements::milliseconds(limit));
        self
    }

    /// Leases a fresh database.
    ///
    /// # Errors
    /// Fails if pgfresh doesn't start or refuses the request.
    pub fn lease(&self) -> Result<Database, Error> {
        self.lease_for_test(&Server::of_this_process()?)
    }

    /// Leases a database for the running test.
    fn lease_for_test(&self, server: &Arc<Server>) -> Result<Database, Error> {
        let mut database = self.lease_from(server)?;
        *database.test.get_mut().unwrap_or_else(PoisonError::into_inner) = this_test();
        Ok(database)
    }

    fn lease_from(&self, server: &Arc<Server>) -> Result<Database, Error> {
        Ok(Database {
            response: server.lease(self)?,
            server: Arc::clone(server),
            limits: self.limits.clone(),
            test: Mutex::default(),
            resets: AtomicUsize::new(0),
            faulty: AtomicBool::new(false),
        })
    }
}
