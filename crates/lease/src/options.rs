//! Lease options: the server, its templates and the default terms.

use std::path::PathBuf;
use std::time::Duration;

use ::template::Provisioner;
use storage::Entry;

use crate::isolation::Isolation;
use crate::names::NameRules;

/// A server whose databases pgfresh leases, and the default terms of a lease.
#[derive(Debug, Clone)]
pub struct LeaseOptions {
    /// Directory of the server's socket.
    pub directory: PathBuf,
    /// Data directory of the server.
    pub data: PathBuf,
    /// Major version of the server.
    pub major: u32,
    /// Maximum size of all databases together, in bytes.
    pub budget: u64,
    /// Templates. The first one is the default, and pgfresh prepares copies of it before any client asks.
    pub templates: Vec<TemplateDatabase>,
    /// Cache entry from which the server's data come, if they are an exact copy. In this entry, pgfresh stores what it reads about
    /// a template, so that the next server can use it.
    pub entry: Option<Entry>,
    /// Rules for the names of databases that sessions create.
    pub names: NameRules,
    /// Isolation of leases for which the client requests none.
    pub isolation: Isolation,
    /// How long a lease outlives its last session, unless the client requests a different time.
    pub linger: Duration,
    /// Whether pgfresh compares each reset database with its template, row by row, before it hands the database out again.
    pub paranoid: bool,
    /// Starts servers for leases in server isolation. `None` means that this isolation is not available.
    pub provisioner: Option<Provisioner>,
}

/// A database that pgfresh copies for leases.
#[derive(Debug, Clone)]
pub struct TemplateDatabase {
    /// The template's name in the user's configuration and in requests.
    pub name: String,
    /// Name of the database before pgfresh takes it into service. pgfresh then renames the database.
    pub database: String,
}
