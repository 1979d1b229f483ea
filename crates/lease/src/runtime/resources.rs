//! Runtime resources of the table's databases: their backends, sessions and files.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use pgwire::StartupParams;
use server::AdminConnection;

use crate::address::DatabaseAddress;
use crate::backends::backend::{CatalogStamp, WaitingBackend};
use crate::reset::catalog::{Content, FileMap, TemplateCatalog};
use crate::reset::growth::Growth;
use crate::reset::rollback::TransactionSession;
use crate::reset::stats::DatabaseStats;
use crate::runtime::claims::Claim;
#[cfg(test)]
use crate::runtime::claims::Claims;
use crate::runtime::leased_server::LeasedServer;
use crate::runtime::template::{Generation, Template};
use crate::wal::changes::Changes;
use crate::wal::evidence::Epoch;

/// The lowest number for a file that initdb has not created. Source: `FirstNormalObjectId` in `src/include/access/transam.h`.
const FIRST_NORMAL: u32 = 16384;

/// A leased server. Several threads use it at the same time.
pub(crate) type SharedServer = Arc<Mutex<LeasedServer>>;

/// Resources of one database. Each variant has what exists in its state.
#[derive(Debug, Default)]
pub(crate) enum Resources {
    /// pgfresh is creating the database, or has failed to create it. The server may have a database with the claimed name.
    Preparing(Claim),
    /// A copy of a template that is ready, or that has a lease in isolation `clone`.
    Clone(Box<PooledCopy>),
    /// A copy of a template with a session for leases in isolation `rollback`.
    Rollback(RollbackCopy),
    /// The server of a lease in isolation `server`.
    Server(SharedServer),
    /// A copy whose task has panicked. pgfresh can only take its name away and drop it.
    Retired(Box<Identity>),
    /// The database no longer exists.
    #[default]
    Gone,
}

/// A copy of a template.
#[derive(Debug)]
pub(crate) struct PooledCopy {
    pub(crate) identity: Identity,
    pub(crate) template: Template,
    /// The template's changes before it was copied. `None` if SQL cannot change the template.
    pub(crate) copied_after: Option<Changes>,
    /// Epoch of the log since which pgfresh knows all changes in the database.
    pub(crate) epoch: Epoch,
    /// Generation of the server in which the database was fresh, if pgfresh has read it.
    pub(crate) generation: Option<Generation>,
    /// Whether a session that uses an object of the database may leave something in its backend.
    pub(crate) leaves_traces: bool,
    /// The database's files, if they differ from the template's.
    pub(crate) files: Option<FileMap>,
    pub(crate) growth: Growth,
    /// Backends that wait here for a client.
    pub(crate) waiting: Vec<WaitingBackend>,
    /// pgfresh's own session in the database, once a reset has opened one.
    pub(crate) session: Option<AdminConnection>,
    /// The name under which the last lease had the database, or has it now.
    pub(crate) last_lease: Option<Arc<str>>,
    pub(crate) phase: Phase,
}

/// The oid of a database, and its names in the server.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The oid, and the current name.
    pub(crate) address: DatabaseAddress,
    /// Names that pgfresh has given the database and that it may have now. A database with a different name belongs to SQL.
    pub(crate) names: BTreeSet<String>,
    /// The claim on the current name while programs that list databases can see it, although no lease has the database.
    pub(crate) preparing: Option<Claim>,
}

/// The use of a copy.
#[derive(Debug)]
pub(crate) enum Phase {
    /// No lease has the database. If a lease has just ended, these are the statistics from its end.
    Unleased(Option<DatabaseStats>),
    /// The database has the name of a lease.
    Leased {
        /// The stamp that a session would have if it started now.
        stamp: CatalogStamp,
        /// Whether pgfresh has read the stamp for the next session.
        is_current: bool,
        /// Whether a session has started since the database received its lease's name, or since its last reset.
        entered: bool,
    },
}

/// A copy of a template for leases in isolation `rollback`.
#[derive(Debug)]
pub(crate) struct RollbackCopy {
    pub(crate) copy: Box<PooledCopy>,
    /// The session of the lease, while no client uses it.
    pub(crate) session: Option<Box<TransactionSession>>,
    /// The copy's own catalog, if its template has none.
    pub(crate) catalog: Option<Arc<TemplateCatalog>>,
}

/// The effect of a crash of the server on a database.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CrashEffect {
    /// All contents are in the log, so they survive a crash.
    Nothing,
    /// A crash since this generation has emptied the unlogged tables.
    EmptiesTables(Option<Generation>),
}

/// Data that tell what a file of one database contains. They can be used without a lock.
#[derive(Debug)]
pub(crate) struct KnownFiles {
    files: Option<FileMap>,
    /// Whether any file may be a catalog while `files` is `None`. This is false for the system's own template, whose catalogs have
    /// the files that initdb has given them.
    is_unread: bool,
}

impl Resources {
    /// Returns the copy of a template, in either isolation.
    pub(crate) fn copy(&self) -> Option<&PooledCopy> {
        match self {
            Self::Clone(copy) | Self::Rollback(RollbackCopy { copy, .. }) => Some(copy),
            Self::Preparing(_) | Self::Server(_) | Self::Retired(_) | Self::Gone => None,
        }
    }

    pub(crate) fn copy_mut(&mut self) -> Option<&mut PooledCopy> {
        match self {
            Self::Clone(copy) | Self::Rollback(RollbackCopy { copy, .. }) => Some(copy),
            Self::Preparing(_) | Self::Server(_) | Self::Retired(_) | Self::Gone => None,
        }
    }

    /// Returns the identity of a database in the server that all leases share, once the database exists.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Retired(identity) => Some(identity),
            other => other.copy().map(|copy| &copy.identity),
        }
    }

    /// Returns the identity to change it.
    pub(crate) fn identity_mut(&mut self) -> Option<&mut Identity> {
        match self {
            Self::Retired(identity) => Some(identity),
            other => other.copy_mut().map(|copy| &mut copy.identity),
        }
    }

    /// Closes all sessions in the database. Afterwards, no lease can have it.
    pub(crate) fn retire(self) -> Self {
        match self {
            Self::Clone(copy) | Self::Rollback(RollbackCopy { copy, .. }) => {
                Self::Retired(Box::new(copy.identity))
            }
            other => other,
        }
    }

    /// Gives the copy a session for leases in isolation `rollback`.
    pub(crate) fn into_rollback(
        self,
        session: Box<TransactionSession>,
        catalog: Option<Arc<TemplateCatalog>>,
    ) -> Self {
        match self {
            Self::Clone(copy) | Self::Rollback(RollbackCopy { copy, .. }) => {
                Self::Rollback(RollbackCopy { copy, session: Some(session), catalog })
            }
            other => other,
        }
    }

    /// Ends the session for leases in isolation `rollback`, if there is one.
    pub(crate) fn into_clone(self) -> Self {
        match self {
            Self::Rollback(RollbackCopy { copy, .. }) => Self::Clone(copy),
            other => other,
        }
    }

    /// Returns the number of sessions that wait in the database.
    pub(crate) fn idle(&self) -> usize {
        self.copy().map_or(0, |copy| copy.waiting.len() + usize::from(copy.session.is_some()))
    }

    /// Closes the sessions that wait in the database.
    pub(crate) fn close_waiting(&mut self) {
        if let Some(copy) = self.copy_mut() {
            copy.close_waiting();
        }
    }
}

impl PooledCopy {
    /// Closes the sessions that wait in the database.
    pub(crate) fn close_waiting(&mut self) {
        self.waiting.clear();
        self.session = None;
    }

    /// Removes and returns a waiting backend with these parameters.
    pub(crate) fn take_waiting(&mut self, params: &StartupParams) -> Option<WaitingBackend> {
        let at = self.waiting.iter().position(|at| at.params == *params)?;
        Some(self.waiting.swap_remove(at))
    }

    /// Records that the database has the name of a lease, and the stamp that pgfresh has read for its first session.
    pub(crate) fn begin_lease(&mut self, stamp: CatalogStamp) {
        self.phase = Phase::Leased { stamp, is_current: true, entered: false };
    }

    /// Returns the stamp that a session would have if it started now. It is `None` without a lease.
    pub(crate) fn stamp(&self) -> Option<&CatalogStamp> {
        match &self.phase {
            Phase::Leased { stamp, .. } => Some(stamp),
            Phase::Unleased(_) => None,
        }
    }

    /// Records whether a session has started in the lease.
    pub(crate) fn set_entered(&mut self, is_entered: bool) {
        if let Phase::Leased { entered, .. } = &mut self.phase {
            *entered = is_entered;
        }
    }

    /// Takes the statistics from the end of the last lease.
    pub(crate) fn take_stats(&mut self) -> Option<DatabaseStats> {
        match &mut self.phase {
            Phase::Unleased(stats) => stats.take(),
            Phase::Leased { .. } => None,
        }
    }

    /// Returns the effect of a crash since the database was fresh.
    pub(crate) fn crash_effect(&self) -> CrashEffect {
        if self.template.has_unlogged() {
            CrashEffect::EmptiesTables(self.generation)
        } else {
            CrashEffect::Nothing
        }
    }

    /// Returns the data that show if a file belongs to a catalog.
    pub(crate) fn known_files(&self) -> KnownFiles {
        let files = self.files.as_ref().or_else(|| Some(&self.template.catalog()?.files)).cloned();
        KnownFiles { files, is_unread: self.template.is_recyclable() }
    }
}

impl Identity {
    /// Returns the identity of a new database that has the claimed name.
    pub(crate) fn new(oid: u32, preparing: Claim) -> Self {
        let address = DatabaseAddress::new(oid, preparing.name());
        let names = BTreeSet::from([address.name.clone()]);
        Self { address, names, preparing: Some(preparing) }
    }
}

impl KnownFiles {
    pub(crate) fn may_be_definition(&self, file: u32) -> bool {
        match &self.files {
            Some(known) => matches!(
                known.get(file),
                None | Some(Content::Catalog(_) | Content::CatalogValues(_) | Content::Classes)
            ),
            None => self.is_unread || file < FIRST_NORMAL,
        }
    }
}

#[cfg(test)]
impl PooledCopy {
    /// Returns a copy for tests that don't use its server.
    pub(crate) fn fake() -> Self {
        Self {
            identity: Identity::new(16384, Claims::default().claim("pgfresh_preparing_1")),
            template: Template::fake(),
            copied_after: None,
            epoch: Epoch::default(),
            generation: None,
            leaves_traces: false,
            files: None,
            growth: Growth::default(),
            waiting: Vec::new(),
            session: None,
            last_lease: None,
            phase: Phase::Unleased(None),
        }
    }
}
