//! Provisioner: makes templates and starts servers with one set of programs, one cache and one account.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use server::{
    AdminConnection, Data, Installation, LoopbackEncryption, Order, Preset, Server, Settings, StartError,
    Version, VersionRequest,
};
use storage::{Account, Cache, Entry, FileError, Place, PlaceRequest};

use crate::error::ProvisionError;
use crate::{BuildPlan, CachedTemplate, Fingerprint, TemplateSource, TemplateSpec, cached};

/// Prepared, immutable data directory.
#[derive(Debug, Clone)]
pub struct Template {
    /// Name of the template in the cache.
    pub fingerprint: Fingerprint,
    /// Files of the template.
    pub entry: Entry,
    /// Database that the template has prepared; `postgres` in a base image.
    pub database: String,
}

/// Options of a server that users choose.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// Version or folder of the PostgreSQL programs.
    pub installation: VersionRequest,
    /// Place of the data directory.
    pub place: PlaceRequest,
    /// Most bytes that the data may take there. `None`: as many as are free.
    pub space: Option<u64>,
    /// Preset of settings.
    pub preset: Preset,
    /// Settings that override the preset: names and values. The last value of a name wins.
    pub settings: Vec<(String, String)>,
    /// Specification of the template. `None` for an empty cluster.
    pub template: Option<TemplateSpec>,
    /// Most bytes that the cache may take. `None`: 10 GB, or a fifth of the file system's free space if that is less.
    pub cache_size: Option<u64>,
    /// Whether the data directory stays after a failed setup.
    pub keep: bool,
    /// Whether templates are built in full, even if the cache has one from an incremental build.
    pub full: bool,
}

/// Programs, cache and account behind all templates and servers.
#[derive(Debug, Clone)]
pub struct Provisioner {
    /// PostgreSQL's programs.
    pub installation: Installation,
    /// Cache of the templates.
    pub cache: Cache,
    /// Account that servers run as.
    pub account: Account,
    /// Executable of pgfresh that can run as a guard; see [`server::Guard::over`].
    pub program: PathBuf,
    /// Source of templates besides builds, such as a remote.
    pub(crate) source: Option<Arc<dyn TemplateSource>>,
    /// TLS that pgfresh offers to setups.
    pub(crate) encryption: Option<Arc<dyn LoopbackEncryption>>,
    server_options: ServerOptions,
}

/// Step that takes long or is rare, so that the user may want to know about it.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// initdb runs, once for each installation.
    BuildingBaseImage(Version),
    /// Another process runs initdb.
    WaitingForBaseImage,
    /// The files of a cache entry differ from those that pgfresh put there. It builds the entry again.
    RebuildingDamaged,
    /// A build of a template begins.
    Building {
        /// Name of the template.
        name: &'a str,
        /// Fingerprint of the template.
        fingerprint: &'a Fingerprint,
        /// Differences from the inputs of the last build; empty without an earlier build.
        changes: &'a [String],
        /// Start of the build.
        plan: &'a BuildPlan,
    },
    /// The parent of a build is damaged, and pgfresh removes it from the cache.
    RemovingDamagedParent {
        /// Name of the parent in the cache.
        fingerprint: &'a Fingerprint,
    },
    /// The search for inputs skipped an unreadable path.
    Skipped {
        /// Path, relative to the folder of the patterns.
        path: &'a str,
        /// Reason.
        error: &'a io::Error,
    },
    /// Another process builds the template.
    Waiting {
        /// Name of the template.
        name: &'a str,
    },
    /// A setup without inputs runs, as it does each time.
    RunsEachTime {
        /// Name of the template.
        name: &'a str,
    },
    /// A setup has run, and has left the template's database empty.
    SetupMadeNothing {
        /// Name of the template.
        name: &'a str,
    },
    /// The server refused a property of a dumped database, such as a missing owner.
    PropertyLeftOut {
        /// Template of the dump.
        name: &'a str,
        /// Statement that sets the property.
        statement: &'a str,
        /// Message of the server.
        why: &'a str,
    },
    /// A step of a setup is still running. Repeats until its end.
    Running {
        /// Name of the step.
        step: &'a str,
        /// Time since the step began.
        since: Duration,
        /// Last line of its output.
        line: &'a str,
    },
    /// The inputs changed during the build, so pgfresh builds the template again.
    InputsChanged {
        /// Changed inputs.
        changes: &'a [String],
    },
    /// The cache takes in the finished template.
    Publishing {
        /// Name of the template.
        name: &'a str,
    },
    /// The template is in the cache.
    Built {
        /// Name of the template.
        name: &'a str,
        /// Bytes on disk.
        bytes: u64,
        /// Duration of the build, in seconds.
        took: f64,
    },
    /// Another machine builds the template.
    WaitingForMachine {
        /// Name of the template.
        name: &'a str,
    },
    /// A template arrives from a remote. Repeats until its end.
    Fetching {
        /// Name of the template.
        name: &'a str,
        /// Bytes that have arrived.
        done: u64,
        /// Bytes of the whole template.
        total: u64,
    },
    /// The template from the remote is in the cache.
    Fetched {
        /// Name of the template.
        name: &'a str,
        /// Bytes that arrived over the network.
        bytes: u64,
        /// Duration in seconds.
        took: f64,
    },
    /// The remote did not deliver the template, so pgfresh builds it.
    NotFetched {
        /// Name of the template.
        name: &'a str,
        /// Reason.
        why: &'a str,
    },
    /// pgfresh pushes a template to a remote. Repeats until its end.
    Pushing {
        /// Name of the template.
        name: &'a str,
        /// Bytes of its files that pgfresh has compared or sent.
        done: u64,
        /// Bytes of all its files.
        total: u64,
    },
    /// The remote has the template.
    Pushed {
        /// Name of the template.
        name: &'a str,
        /// Bytes that went over the network.
        bytes: u64,
        /// Duration in seconds.
        took: f64,
    },
    /// The remote did not take the template.
    NotPushed {
        /// Name of the template.
        name: &'a str,
        /// Reason.
        why: &'a str,
    },
    /// The cache was full, so pgfresh removed an entry.
    Evicted(&'a CachedTemplate),
    /// pgfresh copies a data directory. Repeats until its end.
    Copying {
        /// Bytes of the copy so far.
        done: u64,
        /// Bytes of the whole directory.
        total: u64,
    },
}

impl Provisioner {
    /// Finds the programs and the account for the options.
    pub fn find(
        server_options: ServerOptions,
        cache: Cache,
        program: PathBuf,
    ) -> Result<Self, ProvisionError> {
        let account = Account::for_server()?;
        let installation = server::find(&server_options.installation, &cache, &account)?;
        Ok(Self { installation, cache, account, program, source: None, encryption: None, server_options })
    }

    /// Returns a provisioner that asks `source` for a template before it builds one, and offers it each new one.
    #[must_use]
    pub fn with_source(self, source: Arc<dyn TemplateSource>) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Returns a provisioner that offers setups TLS by `encryption`.
    #[must_use]
    pub fn with_encryption(self, encryption: Arc<dyn LoopbackEncryption>) -> Self {
        Self { encryption: Some(encryption), ..self }
    }

    /// Returns the options of this provisioner.
    #[must_use]
    pub fn server_options(&self) -> &ServerOptions {
        &self.server_options
    }

    /// Whether the cache can keep the template of the options. It cannot if a setup runs each time.
    #[must_use]
    pub fn can_be_kept(&self) -> bool {
        let spec = self.server_options.template.as_ref();
        spec.is_none_or(|spec| !spec.chain().into_iter().any(TemplateSpec::runs_each_time))
    }

    pub(crate) fn boot(
        &self,
        template: &Template,
        place: &Place,
        settings: &Settings,
        say: &dyn Fn(Step<'_>),
    ) -> Result<(Server, AdminConnection), StartError> {
        let order = self.order(place, settings);
        let watch = |done, total| say(Step::Copying { done, total });
        Server::start_and_connect(&order, Data::Copy(&template.entry), &watch)
    }

    pub(crate) fn order<'a>(&'a self, place: &'a Place, settings: &'a Settings) -> Order<'a> {
        let Self { installation, account, program, .. } = self;
        Order { installation, account, place, settings, program }
    }

    /// Chooses the place of a server on a template of `bytes` bytes.
    pub fn place(&self, bytes: u64) -> Result<Place, ProvisionError> {
        self.choose_place(&self.server_options.place, bytes)
    }

    pub(crate) fn choose_place(&self, request: &PlaceRequest, bytes: u64) -> Result<Place, ProvisionError> {
        let place = Place::choose(request, bytes, self.cache.root(), &self.account)?;
        Ok(place.with_at_most(self.server_options.space))
    }

    /// Returns the settings of a server that may write `budget` bytes.
    pub fn settings(&self, budget: u64) -> Result<Settings, ProvisionError> {
        self.settings_of(self.server_options.preset, budget)
    }

    /// Returns the settings of such a server for the given preset instead of the one in the options.
    pub fn settings_of(&self, preset: Preset, budget: u64) -> Result<Settings, ProvisionError> {
        self.with_users(Settings::preset(preset, &self.installation, budget))
    }

    /// Adds the user's settings, which override the given ones.
    pub(crate) fn with_users(&self, mut settings: Settings) -> Result<Settings, ProvisionError> {
        for (name, value) in &self.server_options.settings {
            settings.set(name, value)?;
        }
        Ok(settings)
    }

    pub(crate) fn cache_size(&self) -> u64 {
        self.server_options.cache_size.unwrap_or_else(|| cached::usual_size(&self.cache))
    }

    /// Removes leftovers of crashed runs from all places in which this provisioner may have started a server.
    #[must_use]
    pub fn sweep(&self) -> Swept {
        sweep(&self.cache, &self.server_options.place)
    }
}

/// Removed run directories, and failures of the removal.
pub type Swept = (Vec<PathBuf>, Vec<FileError>);

/// Removes leftovers of crashed runs in and beside `cache`, in RAM and in `place`. Leaves alone whatever is in use.
#[must_use]
pub fn sweep(cache: &Cache, place: &PlaceRequest) -> Swept {
    let (mut removed, mut failures) = sweep_runs(cache.root(), place);
    match cache.tidy() {
        Ok(paths) => removed.extend(paths),
        Err(error) => failures.push(error),
    }
    (removed, failures)
}

/// Removes leftovers of crashed runs as [`sweep`] does, but none from the cache. `disk` is the cache's path, which
/// need not exist.
#[must_use]
pub fn sweep_runs(disk: &Path, place: &PlaceRequest) -> Swept {
    server::sweep(&roots(disk, place))
}

/// Removes the run directories that pgfresh left for inspection. `disk` is the cache's path, which need not exist.
#[must_use]
pub fn remove_kept(disk: &Path, place: &PlaceRequest) -> Swept {
    let (mut removed, mut failures) = Swept::default();
    for root in roots(disk, place) {
        match storage::remove_kept(&root) {
            Ok(paths) => removed.extend(paths),
            Err(error) => failures.push(error),
        }
    }
    (removed, failures)
}

fn roots(disk: &Path, place: &PlaceRequest) -> Vec<PathBuf> {
    let named = if let PlaceRequest::At(path) = place { Some(path.as_path()) } else { None };
    storage::run_roots(disk, named)
}
