//! A second server, in which pgfresh repeats the transcript of a migration and observes each statement.
//!
//! ```text
//! transcripts ─▶ events (in the order of the answers) ─▶ requests ─▶ units (a statement each) ─▶ repeated session
//!                                                                                                  │ questions
//!                                              Observations ◀─ facts ◀─ locks, files and counters ◀─┘
//! ```
//!
//! A repeated session asks its own questions after each statement, in the same transaction, so that the locks are still
//! held. The laboratory wraps a request outside transactions in BEGIN and COMMIT, so that the locks are still held. PostgreSQL
//! refuses some statements in a transaction. They run alone, and a second session looks at their locks. So it does with
//! statements that fail.

mod answer;
mod bystander;
mod catalog;
mod class;
mod databases;
mod deferred;
mod error;
mod events;
mod facts;
mod failing;
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
use server::{AdminConnection, SUPERUSER, Server};
use template::Provisioner;

use self::databases::Databases;
use self::error::During;
pub use self::error::LaboratoryError;
use self::repetition::Repetition;
use crate::Observations;

/// Timeout for a response in the laboratory's own sessions. Copies of databases and the measurement of speeds take long.
const TIMEOUT: Duration = Duration::from_mins(10);
/// Database of the laboratory's own sessions.
const ADMIN: &str = "postgres";
/// First major whose sessions can turn login triggers off.
const FIRST_WITH_LOGIN_TRIGGERS: u32 = 17;
/// Settings of the server. Autovacuum would take locks, and workers of a parallel scan have counters of their own.
const SETTINGS: [(&str, &str); 4] = [
    ("autovacuum", "off"),
    ("track_counts", "on"),
    ("max_parallel_workers_per_gather", "0"),
    ("max_parallel_maintenance_workers", "0"),
];

/// A server on another copy of the template. If it is dropped, the guard removes the copy a moment later.
#[derive(Debug)]
pub struct Laboratory {
    server: Server,
    major: u32,
    databases: Databases,
}

impl Laboratory {
    /// Starts a server on a copy of the provisioner's template. If there are several templates, uses the default one.
    ///
    /// # Errors
    ///
    /// If the server does not start, or the template's database cannot be copied.
    pub fn start(provisioner: &Provisioner) -> Result<Self, LaboratoryError> {
        let started = provisioner.start(&|_| ())?;
        // An open session would prevent copies of its database.
        drop(started.session);
        let major = provisioner.installation.version().major;
        let databases = Databases::prepare(&started.server, major, started.database, started.templates)?;
        let laboratory = Self { server: started.server, major, databases };
        laboratory.set()?;
        Ok(laboratory)
    }

    /// Repeats the transcripts and returns what the statements lock, scan and rewrite. Call it once.
    ///
    /// # Errors
    ///
    /// If the server or one of the laboratory's own sessions fails. A repetition that differs from the tool's run is no
    /// error: [`Observations::unseen`] says so.
    pub fn observe(&mut self, transcripts: &[SessionTranscript]) -> Result<Observations, LaboratoryError> {
        let sizes = self.databases.prepare_for(&self.server, transcripts)?;
        Repetition::new(&self.server, self.major, transcripts, sizes).run()
    }

    /// Creates another copy of the template's database and returns its name.
    ///
    /// # Errors
    ///
    /// If the database cannot be copied.
    pub fn fresh_database(&mut self) -> Result<String, LaboratoryError> {
        self.databases.create_fresh(&self.server)
    }

    /// Opens a session of the superuser, with the settings that a client's session would have. Login triggers do not
    /// fire.
    ///
    /// # Errors
    ///
    /// If the server refuses the session.
    pub fn session(&self, database: &str) -> Result<AdminConnection, LaboratoryError> {
        let has_triggers = self.major >= FIRST_WITH_LOGIN_TRIGGERS;
        let options = if has_triggers { "-c event_triggers=off" } else { "" };
        let params =
            StartupParams::new([("user", SUPERUSER), ("application_name", "pgfresh"), ("options", options)]);
        let folder = self.server.run().socket_directory();
        AdminConnection::open_with(&folder, &params, database, TIMEOUT).during("connect")
    }

    /// Returns the name of the database that the migration has changed. Of several, it is the one with most requests.
    #[must_use]
    pub fn migrated_database(&self) -> &str {
        self.databases.migrated()
    }

    /// Stops the server and removes the copy.
    ///
    /// # Errors
    ///
    /// If the end of the server's processes cannot be observed. The guard removes the copy nevertheless.
    pub fn stop(self) -> Result<(), LaboratoryError> {
        self.server.stop()?;
        Ok(())
    }

    /// Changes the server's settings, and waits until new sessions have them.
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
