//! Repeats a migration's transcript on a second server and observes each statement.
//!
//! ```text
//! transcripts ─▶ events (in the order of the answers) ─▶ requests ─▶ units (a statement each) ─▶ repeated session
//!                                                                                                  │ questions
//!                                              Observations ◀─ facts ◀─ locks, files and counters ◀─┘
//! ```
//!
//! A repeated session runs queries of the laboratory, called questions, after each statement. They run in the
//! statement's own transaction, because its locks are released at the end. If a request starts outside transactions,
//! the laboratory wraps it in BEGIN and COMMIT. PostgreSQL refuses some statements in a transaction. These statements
//! run alone while a second session observes their locks. The laboratory observes failing statements from other
//! sessions, too.

mod answer;
mod bystander;
mod catalog;
mod class;
mod code;
mod databases;
mod deferred;
mod error;
mod events;
mod facts;
mod failing;
mod hidden;
mod observe;
mod progress;
mod questions;
mod records;
mod repetition;
mod requests;
mod session;
mod sizes;
mod watch;
mod wire;

use std::time::Duration;

use pgwire::{SessionTranscript, StartupParams};
use server::{AdminConnection, Major, SUPERUSER, Server};
use template::Provisioner;

use self::databases::Databases;
use self::error::During;
pub use self::error::LaboratoryError;
use self::repetition::Repetition;
use crate::Observations;

/// Timeout for a response in the laboratory's own sessions. It is long because copying databases and measuring speeds
/// take long.
const TIMEOUT: Duration = Duration::from_mins(10);
/// Database that the laboratory's own sessions connect to.
const ADMIN: &str = "postgres";
/// Server settings. Autovacuum is off because it would take locks. Parallel queries are off because their workers have
/// separate counters.
const SETTINGS: [(&str, &str); 4] = [
    ("autovacuum", "off"),
    ("track_counts", "on"),
    ("max_parallel_workers_per_gather", "0"),
    ("max_parallel_maintenance_workers", "0"),
];

/// A server with another copy of the template. If this value is dropped without [`Self::stop`], the guard removes the
/// copy a moment later.
#[derive(Debug)]
pub struct Laboratory {
    server: Server,
    major: u32,
    databases: Databases,
}

impl Laboratory {
    /// Starts a server with a copy of the provisioner's template, or of the default template if there are several.
    ///
    /// # Errors
    ///
    /// Returns an error if the server doesn't start or the template's database can't be copied.
    pub fn start(provisioner: &Provisioner) -> Result<Self, LaboratoryError> {
        let started = provisioner.start(&|_| ())?;
        // An open session would prevent the laboratory from copying the session's database.
        drop(started.session);
        let major = provisioner.installation.version().major;
        let databases = Databases::prepare(&started.server, major, started.database, started.templates)?;
        let laboratory = Self { server: started.server, major, databases };
        laboratory.set()?;
        Ok(laboratory)
    }

    /// Repeats the transcripts and returns what the statements lock, scan and rewrite. Call this only once.
    ///
    /// # Errors
    ///
    /// Returns an error if the server or one of the laboratory's own sessions fails. A repetition that differs from the
    /// tool's run isn't an error. [`Observations::unseen`] lists such differences.
    pub fn observe(&mut self, transcripts: &[SessionTranscript]) -> Result<Observations, LaboratoryError> {
        let sizes = self.databases.prepare_for(&self.server, transcripts)?;
        Repetition::new(&self.server, self.major, transcripts, sizes).run()
    }

    /// Creates another copy of the template's database and returns its name.
    ///
    /// # Errors
    ///
    /// Returns an error if the database can't be copied.
    pub fn fresh_database(&mut self) -> Result<String, LaboratoryError> {
        self.databases.create_fresh(&self.server)
    }

    /// Opens a superuser session with the settings that a client's session would have. Login triggers don't fire.
    ///
    /// # Errors
    ///
    /// Returns an error if the server refuses the session.
    pub fn session(&self, database: &str) -> Result<AdminConnection, LaboratoryError> {
        let options = if Major(self.major).has_login_triggers() { "-c event_triggers=off" } else { "" };
        let params =
            StartupParams::new([("user", SUPERUSER), ("application_name", "pgfresh"), ("options", options)]);
        let folder = self.server.run().socket_directory();
        AdminConnection::open_with(&folder, &params, database, TIMEOUT).during("connect")
    }

    /// Returns the name of the database that the migration changed. If it changed several, returns the one with the
    /// most requests.
    #[must_use]
    pub fn migrated_database(&self) -> &str {
        self.databases.migrated()
    }

    /// Stops the server and removes its copy of the template.
    ///
    /// # Errors
    ///
    /// Returns an error if it can't be observed whether the server's processes ended. The guard removes the copy
    /// anyway.
    pub fn stop(self) -> Result<(), LaboratoryError> {
        self.server.stop()?;
        Ok(())
    }

    /// Changes the server's settings and waits until new sessions use them.
    fn set(&self) -> Result<(), LaboratoryError> {
        let mut session = self.databases.admin(&self.server)?;
        let change = |(name, value)| format!("ALTER SYSTEM SET {name} = {value}");
        let mut changes: Vec<_> = SETTINGS.into_iter().map(change).collect();
        changes.push("SELECT pg_reload_conf()".to_owned());
        session.query_all(&changes).during("change settings")?;
        let names: Vec<_> = SETTINGS.iter().map(|(name, value)| format!("('{name}', '{value}')")).collect();
        let missing = format!("SELECT 1 FROM pg_settings WHERE (name, setting) IN ({})", names.join(", "));
        error::wait_for("the server's settings", || {
            Ok(session.query(&missing).during("read settings")?.len() == SETTINGS.len())
        })
    }
}
