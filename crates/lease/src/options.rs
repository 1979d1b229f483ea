//! Defines the options of [`Leases`](crate::Leases): the server, its templates and the default terms of a lease.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::template::Provisioner;
use server::AdminConnection;
use storage::Entry;

use crate::isolation::Isolation;
use crate::names::NameRules;

/// Describes the server whose databases pgfresh leases, and the default terms of a lease.
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
    /// Templates. The first is the default, whose copies pgfresh prepares before any client requests one.
    pub templates: Vec<TemplateDatabase>,
    /// The cache entry that the server's data directory is an exact copy of, if there is one. For the next server,
    /// pgfresh stores its findings about a template in this entry.
    pub entry: Option<Entry>,
    /// Rules for the names of databases that sessions create.
    pub names: NameRules,
    /// Isolation of leases whose clients don't request any.
    pub isolation: Isolation,
    /// How long a lease lingers after its last session, unless the client requests a different time.
    pub linger: Duration,
    /// Identifies the test suite that the databases are for, so that its notes don't apply to other suites on the same
    /// template. `None` if the suite is unknown.
    pub suite: Option<String>,
    /// Whether pgfresh compares each database row by row with its template between a reset and the next lease.
    pub paranoid: bool,
    /// Starts servers for leases in isolation `server`. If `None`, this isolation isn't available.
    pub provisioner: Option<Provisioner>,
    /// Inspects each database at the end of its lease. If `None`, no database is inspected.
    pub observer: Option<LeaseObserver>,
}

type Look = dyn Fn(&str, Option<&mut AdminConnection>) + Send + Sync;

/// Inspects databases at the ends of their leases, and before a client resets one.
#[derive(Clone)]
pub struct LeaseObserver(Arc<Look>);

impl LeaseObserver {
    /// Creates an observer that calls `look` with the name of the database and a session in this
    /// database. The call comes after the clients' sessions have ended, and the end of the lease waits
    /// for `look` to return. The session belongs to a superuser or, in rollback isolation, to the lease.
    /// `look` gets `None` if the lease has its own server or if pgfresh couldn't open a session.
    #[must_use]
    pub fn new(look: impl Fn(&str, Option<&mut AdminConnection>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(look))
    }

    pub(crate) fn look(&self, name: &str, session: Option<&mut AdminConnection>) {
        (self.0)(name, session);
    }
}

impl fmt::Debug for LeaseObserver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LeaseObserver").finish_non_exhaustive()
    }
}

/// The role of a server in a replication.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServerRole {
    /// The server that clients write to.
    #[default]
    Primary,
    /// A server that replicates the primary. Clients can only read from it.
    Replica,
}

/// A database that pgfresh copies for leases.
#[derive(Debug, Clone)]
pub struct TemplateDatabase {
    /// The template's name in the user's configuration and in requests.
    pub name: String,
    /// Name of the database before pgfresh puts it into service and renames it.
    pub database: String,
}
