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
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::thread;

pub use error::Error;
use server::Server;

/// A database that nobody else has, fresh when it was leased, until it is dropped.
///
/// If it is dropped by a panic, its test has failed, and pgfresh is told so. Where it keeps the databases of failed tests,
/// the test's output says how to get there. A test that fails by returning an error is not noticed: `unwrap` it.
pub struct Database {
    facts: api::Facts,
    server: Arc<Server>,
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

    /// Straight to the server's unix socket, past the gateway and the backends that it keeps ready.
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
    /// If that cannot be, for instance because there are open sessions.
    pub fn reset(&self) -> Result<(), Error> {
        self.server.reset(self.name(), false)
    }

    /// The same, after the sessions that are open were ended.
    ///
    /// # Errors
    /// If that cannot be.
    pub fn reset_closing_sessions(&self) -> Result<(), Error> {
        self.server.reset(self.name(), true)
    }

    /// Ends the lease, that of this test, if it has a name. Returns what the user should be told.
    fn release(&self, failed: bool, test: &str) -> Option<String> {
        match self.server.release(self.name(), failed, test) {
            Ok(None) => None,
            Ok(Some(url)) => Some(format!("pgfresh: kept the database of the failed test: {url}")),
            Err(error) => Some(format!("pgfresh: {error}")),
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A test has a thread of its own, which is called after it, unless tests run one after the other.
        let thread = thread::current();
        let test = thread.name().filter(|name| *name != "main").unwrap_or_default();
        if let Some(line) = self.release(thread::panicking(), test) {
            eprintln!("{line}");
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

    /// Leases a fresh database.
    ///
    /// # Errors
    /// If there is no server and none can be started, or if it refuses.
    pub fn lease(&self) -> Result<Database, Error> {
        self.lease_from(&Server::of_this_process()?)
    }

    fn lease_from(&self, server: &Arc<Server>) -> Result<Database, Error> {
        Ok(Database { facts: server.lease(self)?, server: Arc::clone(server) })
    }
}
