//! Which databases are leased, and on which terms.

use std::path::PathBuf;
use std::time::Duration;

use ::template::Provisioner;
use storage::Entry;

use crate::{Isolation, NameRules};

/// The server whose databases are leased, and on which terms.
#[derive(Debug, Clone)]
pub struct LeaseOptions {
    /// Where its socket is.
    pub directory: PathBuf,
    /// Its data directory.
    pub data: PathBuf,
    /// Its major version.
    pub major: u32,
    /// Bytes that databases may take together.
    pub budget: u64,
    /// The templates; the first is the default, of which copies are ready before a client asks.
    pub templates: Vec<TemplateDatabase>,
    /// What the server's data are a copy of, and nothing else: what is read of its templates is noted there for the next one.
    pub entry: Option<Entry>,
    /// The names of databases that sessions create.
    pub names: NameRules,
    /// How leases are isolated that do not say.
    pub isolation: Isolation,
    /// How long a lease outlives its last session, if it does not say.
    pub linger: Duration,
    /// Whether each database that was reset is compared with its template, row by row, before the next has it.
    pub paranoid: bool,
    /// What makes servers of their own; without it there are none.
    pub provisioner: Option<Provisioner>,
}

/// A database that others are copied from.
#[derive(Debug, Clone)]
pub struct TemplateDatabase {
    /// The template's name, as users say it.
    pub name: String,
    /// What the database is called in the server at rest; it is renamed when it is taken into service.
    pub database: String,
}
