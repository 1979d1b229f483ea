//! Defines the resources that pgfresh holds for each database
//! in the table: backends, sessions, and knowledge about files.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use pgwire::StartupParams;
use server::AdminConnection;
use sys::lock;

use crate::address::DatabaseAddress;
use crate::backends::backend::{CatalogStamp, WaitingBackend, params_id};
use crate::backends::demand::Usage;
use crate::reset::catalog::{Content, FileMap, TemplateCatalog};
use crate::reset::growth::Growth;
use crate::reset::rollback::TransactionSession;
use crate::reset::stats::DatabaseStats;
use crate::runtime::claims::Claim;
#[cfg(test)]
use crate::runtime::claims::Claims;
use crate::runtime::leased_server::LeasedServer;
use crate::runtime::template::{Generation, Template};
use crate::table::ParamsId;
use crate::wal::changes::Changes;
use crate::wal::evidence::Epoch;

/// Files with lower numbers were created by initdb. Source: `FirstNormalObjectId` in `src/include/access/transam.h`.
const FIRST_NORMAL: u32 = 16384;

/// A leased server behind a lock, because several threads may use it concurrently.
pub(crate) type SharedServer = Arc<Mutex<LeasedServer>>;

/// One database's resources. Each variant contains what exists in that state.
#[derive(Debug, Default)]
pub(crate) enum Resources {
    /// pgfresh is creating the database or failed to do so. A database with the claimed name may or may not exist.
    Preparing(Claim),
    /// A copy of a template. It is ready, or leased in isolation `clone`.
    Clone(Box<PooledCopy>),
    /// A copy of a template, with the session for leases in isolation `rollback`.
    Rollback(RollbackCopy),
    /// The server of a lease in isolation `server`.
    Server(SharedServer),
    /// A copy whose task panicked. From now on, pgfresh only removes its name and drops it.
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
    /// The template's changes up to the time of the copy, or `None` if SQL can't change the template.
    pub(crate) copied_after: Option<Changes>,
    /// The epoch in which the database was created. While the log remains in this epoch, pgfresh knows all changes to
    /// the database.
    pub(crate) epoch: Epoch,
    /// The server's generation when the database was last fresh, if pgfresh determined it then.
    pub(crate) generation: Option<Generation>,
    /// Whether using the database's objects may leave something behind in a backend.
    pub(crate) leaves_traces: bool,
    /// The database's files, or `None` while they are the same as the template's files.
    pub(crate) files: Option<FileMap>,
    pub(crate) growth: Growth,
    /// Idle backends waiting for a client.
    pub(crate) waiting: Vec<WaitingBackend>,
    /// pgfresh's own session in the database, once a reset has opened one.
    pub(crate) session: Option<AdminConnection>,
    /// The name of the database's current lease, or else of its last lease.
    pub(crate) last_lease: Option<Arc<str>>,
    pub(crate) phase: Phase,
}

/// Identifies a database in the server by its oid and names.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The oid and current name.
    pub(crate) address: DatabaseAddress,
    /// Names given by pgfresh. The database has one of them, unless
    /// SQL has renamed the database, which then belongs to SQL.
    pub(crate) names: BTreeSet<String>,
    /// The claim on the current name, held while pgfresh prepares the database and programs that list databases can see
    /// it.
    pub(crate) preparing: Option<Claim>,
}

/// Whether a copy is leased.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The database isn't leased. If a lease has just ended, this contains the statistics read at its end.
    Unleased(Option<DatabaseStats>),
    /// The database is leased and named after its lease.
    Leased {
        /// The stamp that a session would have if it started now.
        stamp: CatalogStamp,
        /// True if pgfresh has just read the stamp, so that the next session can rely on it.
        is_current: bool,
        /// True once a session has started since the database was named after the lease or was reset.
        entered: bool,
        /// The backends used by the lease's sessions.
        usage: Usage,
    },
}

/// A copy of a template for leases in isolation `rollback`.
#[derive(Debug)]
pub(crate) struct RollbackCopy {
    pub(crate) copy: Box<PooledCopy>,
    /// The session shared by all clients of the lease. `None` while a client is using it.
    pub(crate) session: Option<Box<TransactionSession>>,
    /// A catalog read from this copy, if the template has none.
    pub(crate) catalog: Option<Arc<TemplateCatalog>>,
}

/// How a server crash affects a database.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CrashEffect {
    /// All contents are in the log, so they survive a crash.
    Nothing,
    /// A crash empties the unlogged tables, so they are intact only if the server is still in this generation.
    EmptiesTables(Option<Generation>),
}

/// Determines which kind of data a database file contains, without requiring the lock.
#[derive(Debug)]
pub(crate) struct KnownFiles {
    files: Option<FileMap>,
    /// Whether any file may be a catalog if `files` is `None`. False for `template1`, whose catalogs are in the files
    /// from initdb.
    is_unread: bool,
}

impl Resources {
    /// Returns the copy of a template, with or without a session for rollback isolation.
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

    /// Returns a database's identity, or `None` if the database doesn't exist yet or is in a leased server.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Retired(identity) => Some(identity),
            other => other.copy().map(|copy| &copy.identity),
        }
    }

    /// Returns a database's identity, mutably.
    pub(crate) fn identity_mut(&mut self) -> Option<&mut Identity> {
        match self {
            Self::Retired(identity) => Some(identity),
            other => other.copy_mut().map(|copy| &mut copy.identity),
        }
    }

    /// Closes all of pgfresh's sessions in the database, which can no longer be leased.
    pub(crate) fn retire(self) -> Self {
        match self {
            Self::Clone(copy) | Self::Rollback(RollbackCopy { copy, .. }) => {
                Self::Retired(Box::new(copy.identity))
            }
            other => other,
        }
    }

    /// Adds a session for leases in isolation `rollback`.
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

    /// Closes the session for leases in isolation `rollback`, if there is one.
    pub(crate) fn into_clone(self) -> Self {
        match self {
            Self::Rollback(RollbackCopy { copy, .. }) => Self::Clone(copy),
            other => other,
        }
    }

    /// Counts the idle sessions in the database.
    pub(crate) fn idle(&self) -> usize {
        self.copy().map_or(0, |copy| copy.waiting.len() + usize::from(copy.session.is_some()))
    }

    /// Closes the idle sessions in the database.
    pub(crate) fn close_waiting(&mut self) {
        if let Some(copy) = self.copy_mut() {
            copy.close_waiting();
        }
    }
}

impl PooledCopy {
    /// Returns the resources of a new, unused copy without idle sessions.
    pub(crate) fn new(identity: Identity, template: Template, epoch: Epoch) -> Self {
        Self {
            identity,
            template,
            copied_after: None,
            epoch,
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

    /// Closes the idle sessions in the database.
    pub(crate) fn close_waiting(&mut self) {
        self.waiting.clear();
        self.session = None;
    }

    /// Removes and returns an idle backend with these startup parameters, preferably one that no client of the lease
    /// has used.
    pub(crate) fn take_waiting(&mut self, params: &StartupParams) -> Option<WaitingBackend> {
        let suitable = self.waiting.iter().enumerate().filter(|(_, at)| at.params == *params);
        let (at, _) = suitable.min_by_key(|(_, at)| at.is_used)?;
        Some(self.waiting.swap_remove(at))
    }

    /// Counts the idle backends with these startup parameters.
    pub(crate) fn waiting_for(&self, params: &StartupParams) -> usize {
        self.waiting.iter().filter(|at| at.params == *params).count()
    }

    /// Closes idle backends that recent leases haven't needed.
    pub(crate) fn close_unneeded(&mut self) {
        let demand = lock(&self.template.demand);
        let mut counts: HashMap<ParamsId, usize> = HashMap::new();
        self.waiting.retain(|at| {
            let id = params_id(&at.params);
            let count = counts.entry(id).or_default();
            *count += 1;
            demand.kept(id).is_none_or(|kept| *count <= kept)
        });
    }

    /// Learns how many backends a lease needs, so that the next copies can start as many. Only the startup parameters
    /// in `expected` count.
    pub(crate) fn learn(&mut self, expected: &[ParamsId]) {
        if let Phase::Leased { usage, .. } = &mut self.phase {
            lock(&self.template.demand).learn(usage, expected);
        }
    }

    /// Returns the backends used by the lease's sessions, or `None` if no lease has the database.
    pub(crate) fn usage(&mut self) -> Option<&mut Usage> {
        match &mut self.phase {
            Phase::Leased { usage, .. } => Some(usage),
            Phase::Unleased(_) => None,
        }
    }

    /// Records that the database now bears the name of a lease, whose first session can rely on this stamp.
    pub(crate) fn begin_lease(&mut self, stamp: CatalogStamp) {
        self.phase = Phase::Leased { stamp, is_current: true, entered: false, usage: Usage::default() };
        self.waiting.iter_mut().for_each(|at| at.is_used = false);
    }

    /// Returns the stamp that a session would have if it started now, or `None` if no lease has the database.
    pub(crate) fn stamp(&self) -> Option<&CatalogStamp> {
        match &self.phase {
            Phase::Leased { stamp, .. } => Some(stamp),
            Phase::Unleased(_) => None,
        }
    }

    /// Records whether the lease has had a session since it began or was last reset.
    pub(crate) fn set_entered(&mut self, is_entered: bool) {
        if let Phase::Leased { entered, .. } = &mut self.phase {
            *entered = is_entered;
        }
    }

    /// Takes out the statistics read at the end of the last lease.
    pub(crate) fn take_stats(&mut self) -> Option<DatabaseStats> {
        match &mut self.phase {
            Phase::Unleased(stats) => stats.take(),
            Phase::Leased { .. } => None,
        }
    }

    /// Returns how a crash since the database was last fresh would have affected it.
    pub(crate) fn crash_effect(&self) -> CrashEffect {
        if self.template.has_unlogged() {
            CrashEffect::EmptiesTables(self.generation)
        } else {
            CrashEffect::Nothing
        }
    }

    /// Returns what pgfresh knows about the database's files, for distinguishing catalogs from other files.
    pub(crate) fn known_files(&self) -> KnownFiles {
        let files = self.files.as_ref().or_else(|| Some(&self.template.catalog()?.files)).cloned();
        KnownFiles { files, is_unread: self.template.is_recyclable() }
    }
}

impl Identity {
    /// Returns the identity of a new database with the claimed name.
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
        let identity = Identity::new(16384, Claims::default().claim("pgfresh_preparing_1"));
        Self::new(identity, Template::fake(), Epoch::default())
    }
}
