//! Options of leases: the server, its templates and the default terms.

use std::path::PathBuf;
use std::time::Duration;

use ::template::Provisioner;
use storage::Entry;

use crate::{Isolation, NameRules};

/// A server whose databases pgfresh leases, with the default terms of a lease.
#[derive(Debug, Clone)]
pub struct LeaseOptions {
    /// Directory of the server's socket.
    pub directory: PathBuf,
    /// Data directory of the server.
    pub data: PathBuf,
    /// Major version of the server.
    pub major: u32,
    /// Most bytes of all databases together.
    pub budget: u64,
    /// Templates. The first is the default: pgfresh prepares copies of it before a client asks.
    pub templates: Vec<TemplateDatabase>,
    /// Cache entry from which the server's data come, if they are an exact copy. pgfresh notes there what it reads of a
    /// template, for the next server.
    pub entry: Option<Entry>,
    /// Rules for the names of databases that sessions create.
    pub names: NameRules,
    /// Isolation of leases that request none.
    pub isolation: Isolation,
    /// Time that a lease outlives its last session, if the client requests no other.
    pub linger: Duration,
    /// Whether pgfresh compares each reset database with its template, row by row, before the next lease has it.
    pub paranoid: bool,
    /// Starts the servers of leases in server isolation; `None` means that this isolation is not available.
    pub provisioner: Option<Provisioner>,
}

/// A database that pgfresh copies for leases.
#[derive(Debug, Clone)]
pub struct TemplateDatabase {
    /// Name of the template in the user's configuration and requests.
    pub name: String,
    /// Name of the database in a server at rest. pgfresh renames the database when it takes it into service.
    pub database: String,
}
