//! A fresh PostgreSQL database for each test: a copy of the migrated template that `pgfresh.toml` describes.
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
//! The database ends when the value is dropped. No driver is chosen here: [`Database::url`] is for sqlx, tokio-postgres,
//! diesel and whatever else reads PostgreSQL's URLs. Nor is a runtime: calls block their thread for about a millisecond, as
//! those to a file do, and so stand in asynchronous tests as they are.
//!
//! Within `pgfresh run -- cargo test` all test binaries use the server of that run. Otherwise they share the project's
//! background server, by way of the pgfresh of `PGFRESH_BIN`, or else the one on `PATH`. It notices when a process ends,
//! however that does.

mod api;
mod error;
mod server;
mod statements;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use std::{fmt, mem};

pub use error::Error;
use server::Server;
use statements::{Limits, Measurement};
pub use statements::{Statement, StatementCounter, Statements};

/// A database that nobody else has, fresh when it was leased, until it is dropped.
///
/// If it is dropped by a panic, its test has failed, and pgfresh is told so. Where it keeps the databases of failed tests,
/// the test's output says how to get there. A test that fails by returning an error is not noticed: `unwrap` it.
///
/// # Panics
/// The drop panics if the test exceeded its budget, that of [`Options`] or of `pgfresh.toml`, with the statements that ran
/// most often. It never does so while the thread panics already.
pub struct Database {
    facts: api::Facts,
    server: Arc<Server>,
    limits: Limits,
    /// The test that has used it since it was leased or reset, or "".
    test: Mutex<String>,
    resets: AtomicUsize,
}

impl Database {
    /// Leases a fresh copy of the default template.
    ///
    /// # Panics
    /// If there is none to be had. [`Options::lease`] returns the error.
    #[must_use]
    #[track_caller]
    pub fn fresh() -> Self {
        match Options::default().lease() {
            Ok(database) => database,
            Err(error) => panic!("pgfresh: {error}"),
        }
    }

    /// The name in its server.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// `postgresql://USER:PASSWORD@127.0.0.1:PORT/NAME`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.facts.url
    }

    /// The same for programs on the JVM that a test starts.
    #[must_use]
    pub fn jdbc_url(&self) -> &str {
        &self.facts.jdbc_url
    }

    /// The same over a unix socket, without a password.
    #[must_use]
    pub fn socket_url(&self) -> &str {
        &self.facts.socket_url
    }

    /// The name of what it is a copy of.
    #[must_use]
    pub fn template(&self) -> &str {
        &self.facts.template
    }

    /// Returns it to the state of its template, in about a millisecond.
    ///
    /// # Errors
    /// If that cannot be, for instance because there are open sessions. Also if what ran until now exceeded the budget: the
    /// database is reset then, and pgfresh counts from 0 again.
    pub fn reset(&self) -> Result<(), Error> {
        self.end_test(false)
    }

    /// The same, after the sessions that are open were ended.
    ///
    /// # Errors
    /// If that cannot be, or if what ran until now exceeded the budget.
    pub fn reset_closing_sessions(&self) -> Result<(), Error> {
        self.end_test(true)
    }

    /// Counts the statements of its clients from now on. They must be recorded: by [`Options::record`], by a limit, or by
    /// `[budget]` in `pgfresh.toml`.
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
    /// If they are not recorded.
    pub fn count_statements(&self) -> Result<StatementCounter<'_>, Error> {
        StatementCounter::start(self)
    }

    fn measure(&self, limits: &Limits) -> Result<Measurement, Error> {
        self.server.measure(self.name(), limits)
    }

    fn resets(&self) -> usize {
        self.resets.load(Ordering::Relaxed)
    }

    /// Resets it. What has run until now is of the test that leased it or reset it last.
    fn end_test(&self, close_sessions: bool) -> Result<(), Error> {
        let mut test = self.test.lock().unwrap_or_else(PoisonError::into_inner);
        let over = self.server.reset(self.name(), close_sessions, self.said(&test), &self.limits)?;
        self.resets.fetch_add(1, Ordering::Relaxed);
        *test = this_test();
        over.map_or(Ok(()), |message| Err(Error::new(budget_exceeded(&message))))
    }

    /// The name of a test as it is told. pgfresh tells only those of a result that say a name, be it "".
    fn said<'a>(&self, test: &'a str) -> Option<&'a str> {
        (self.facts.recorded || !test.is_empty()).then_some(test)
    }

    /// Why the test has to fail, if it does: it exceeded its budget, or that cannot be known.
    fn check(&self) -> Option<String> {
        if !self.facts.recorded && self.limits.is_empty() {
            return None;
        }
        match self.measure(&self.limits) {
            Ok(measurement) => measurement.message.map(|message| budget_exceeded(&message)),
            Err(error) => Some(format!("pgfresh: {error}")),
        }
    }

    /// Ends the lease, that of this test, if it has a name. Returns what the user should be told.
    fn release(&self, failed: bool, test: &str) -> Option<String> {
        match self.server.release(self.name(), failed, self.said(test)) {
            Ok(None) => None,
            Ok(Some(url)) => Some(format!("pgfresh: kept the database of the failed test: {url}")),
            Err(error) => Some(format!("pgfresh: {error}")),
        }
    }
}

fn budget_exceeded(message: &str) -> String {
    format!("budget exceeded: {message}")
}

/// A test has a thread of its own, which is called after it, unless tests run one after the other. Of a thread that it has
/// started, tokio's workers above all, it is not known.
fn this_test() -> String {
    let name = thread::current().name().unwrap_or_default().to_owned();
    if ["main", "tokio-rt-worker", "tokio-runtime-worker"].contains(&&*name) { String::new() } else { name }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A second panic would abort the process, and the first one says why the test fails.
        let panicking = thread::panicking();
        let reason = if panicking { None } else { self.check() };
        let here = this_test();
        let test = self.test.get_mut().unwrap_or_else(PoisonError::into_inner);
        let test = if here.is_empty() { mem::take(test) } else { here };
        if let Some(line) = self.release(panicking || reason.is_some(), &test) {
            eprintln!("{line}");
        }
        if let Some(reason) = reason {
            panic!("{reason}");
        }
    }
}

/// Says nothing of the password.
impl fmt::Debug for Database {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Database")
            .field("name", &self.name())
            .field("template", &self.template())
            .finish_non_exhaustive()
    }
}

/// What a database shall be. What is not said is left to pgfresh.
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
    /// The template of the server to copy.
    pub fn template(mut self, template: impl Into<String>) -> Self {
        self.template = Some(template.into());
        self
    }

    /// The database's name, of at most 63 bytes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The kind of isolation, in the words of pgfresh's HTTP API.
    pub fn isolation(mut self, isolation: impl Into<String>) -> Self {
        self.isolation = Some(isolation.into());
        self
    }

    /// Records the statements that clients run in the database, for [`Database::count_statements`]. With a limit they are
    /// recorded anyway.
    pub fn record(mut self) -> Self {
        self.record = true;
        self
    }

    /// The test fails if it runs more statements. This replaces the limit of `pgfresh.toml`, as the other limits do.
    pub fn statements(mut self, limit: u64) -> Self {
        self.limits.statements = Some(limit);
        self
    }

    /// The test fails if one query runs more often with different values; 0 forbids any N+1. A query that runs fewer than
    /// five times is none.
    pub fn n_plus_one(mut self, limit: u64) -> Self {
        self.limits.n_plus_one = Some(limit);
        self
    }

    /// The test fails if its statements take longer than that together, in whole milliseconds.
    pub fn time(mut self, limit: Duration) -> Self {
        self.limits.time = Some(statements::milliseconds(limit));
        self
    }

    /// Leases a fresh database.
    ///
    /// # Errors
    /// If there is no server and none can be started, or if it refuses.
    pub fn lease(&self) -> Result<Database, Error> {
        self.lease_for_test(&Server::of_this_process()?)
    }

    /// For the test that runs.
    fn lease_for_test(&self, server: &Arc<Server>) -> Result<Database, Error> {
        let mut database = self.lease_from(server)?;
        *database.test.get_mut().unwrap_or_else(PoisonError::into_inner) = this_test();
        Ok(database)
    }

    fn lease_from(&self, server: &Arc<Server>) -> Result<Database, Error> {
        Ok(Database {
            facts: server.lease(self)?,
            server: Arc::clone(server),
            limits: self.limits.clone(),
            test: Mutex::default(),
            resets: AtomicUsize::new(0),
        })
    }
}
