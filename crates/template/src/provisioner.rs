//! Provides templates and servers. A provisioner holds what every build and server start needs: the PostgreSQL
//! programs, the cache and the account.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use server::{
    AdminConnection, Data, Installation, LoopbackEncryption, Preset, Server, Settings, StartError,
    StartOptions, Version, VersionRequest,
};
use storage::{Account, Cache, Entry, FileError, Place, PlaceRequest};

use crate::error::ProvisionError;
use crate::{BuildPlan, CachedTemplate, Fingerprint, TemplateSource, TemplateSpec, cached};

/// A prepared, immutable data directory.
#[derive(Debug, Clone)]
pub struct Template {
    /// The template's name in the cache.
    pub fingerprint: Fingerprint,
    /// The template's files.
    pub entry: Entry,
    /// Name of the database that the template's steps filled, or `postgres` in a base image.
    pub database: String,
}

/// Server options that users choose.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// Version or folder of the PostgreSQL programs.
    pub installation: VersionRequest,
    /// Place of the data directory.
    pub place: PlaceRequest,
    /// Maximum size of the data there, in bytes. `None` means the free space.
    pub space: Option<u64>,
    /// Preset of server settings.
    pub preset: Preset,
    /// Settings that override the preset, as names and values. If a name occurs several times, the last value wins.
    pub settings: Vec<(String, String)>,
    /// Specification of the template, or `None` for an empty cluster.
    pub template: Option<TemplateSpec>,
    /// Maximum size of the cache, in bytes. `None` means 10 GB, or a fifth of the file system's free space if that is
    /// less.
    pub cache_size: Option<u64>,
    /// If true, the data directory is retained after a failed setup.
    pub keep: bool,
    /// If true, only the result of a full build counts, and a template from an incremental build is rebuilt.
    pub full: bool,
}

/// The programs, cache and account that every template build and server start needs.
#[derive(Debug, Clone)]
pub struct Provisioner {
    /// PostgreSQL's programs.
    pub installation: Installation,
    /// Cache for templates.
    pub cache: Cache,
    /// Account under which servers run.
    pub account: Account,
    /// A pgfresh executable that can run as a guard, see [`server::Guard::over`].
    pub program: PathBuf,
    /// A source that may already have a missing template, such as a
    /// remote. pgfresh queries the source before building a template.
    pub(crate) source: Option<Arc<dyn TemplateSource>>,
    /// Encryption for the connections of setup commands. Some programs insist on TLS, which the server itself lacks.
    pub(crate) encryption: Option<Arc<dyn LoopbackEncryption>>,
    /// Whether each server is the primary of a standby.
    has_standby: bool,
    server_options: ServerOptions,
}

/// A step that the user may want to know about, because it is slow or rare.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// initdb runs, once for each installation.
    BuildingBaseImage(Version),
    /// Another process is running initdb.
    WaitingForBaseImage,
    /// A cache entry's files differ from those that pgfresh stored, so pgfresh rebuilds the entry.
    RebuildingDamaged,
    /// A template build begins.
    Building {
        /// Name of the template.
        name: &'a str,
        /// Fingerprint of the template.
        fingerprint: &'a Fingerprint,
        /// Differences from the last build's inputs. Empty if there was no earlier build.
        changes: &'a [String],
        /// How the build starts.
        plan: &'a BuildPlan,
    },
    /// A build's parent is damaged, so pgfresh removes it from the cache.
    RemovingDamagedParent {
        /// The parent's name in the cache.
        fingerprint: &'a Fingerprint,
    },
    /// The search for inputs skipped an unreadable path.
    Skipped {
        /// Path, relative to the folder of the patterns.
        path: &'a str,
        /// The operating system's error.
        error: &'a io::Error,
    },
    /// Another process is building the template.
    Waiting {
        /// Name of the template.
        name: &'a str,
    },
    /// A setup without inputs is running, which happens at each start.
    RunsEachTime {
        /// Name of the template.
        name: &'a str,
    },
    /// A setup has succeeded, but the template's database is still empty.
    SetupMadeNothing {
        /// Name of the template.
        name: &'a str,
    },
    /// The server refused to set a dumped database's property, for example because the owner's role is missing.
    PropertyLeftOut {
        /// The template that the dump belongs to.
        name: &'a str,
        /// Statement that sets the property.
        statement: &'a str,
        /// The server's message.
        why: &'a str,
    },
    /// A setup step is still running. This is reported repeatedly until the step finishes.
    Running {
        /// Name of the step.
        step: &'a str,
        /// How long the step has been running.
        since: Duration,
        /// Last line of the step's output.
        line: &'a str,
    },
    /// The inputs changed during the build, so pgfresh restarts the build.
    InputsChanged {
        /// Changed inputs.
        changes: &'a [String],
    },
    /// pgfresh is moving the finished template into the cache.
    Publishing {
        /// Name of the template.
        name: &'a str,
    },
    /// The template is in the cache.
    Built {
        /// Name of the template.
        name: &'a str,
        /// Size on disk, in bytes.
        bytes: u64,
        /// How long the build took, in seconds.
        took: f64,
    },
    /// Another machine is building the template.
    WaitingForMachine {
        /// Name of the template.
        name: &'a str,
    },
    /// A template is being fetched from a remote. This is reported repeatedly until the fetch finishes.
    Fetching {
        /// Name of the template.
        name: &'a str,
        /// Number of bytes received so far.
        done: u64,
        /// Size of the whole template, in bytes.
        total: u64,
    },
    /// The template was fetched from the remote and is in the cache.
    Fetched {
        /// Name of the template.
        name: &'a str,
        /// Number of bytes received over the network.
        bytes: u64,
        /// How long the fetch took, in seconds.
        took: f64,
    },
    /// The remote didn't deliver the template, so pgfresh builds it.
    NotFetched {
        /// Name of the template.
        name: &'a str,
        /// Reason.
        why: &'a str,
    },
    /// A template is being pushed to a remote. This is reported repeatedly until the push finishes.
    Pushing {
        /// Name of the template.
        name: &'a str,
        /// Number of bytes compared or sent so far.
        done: u64,
        /// Size of all of the template's files, in bytes.
        total: u64,
    },
    /// The remote now has the template.
    Pushed {
        /// Name of the template.
        name: &'a str,
        /// Number of bytes sent over the network.
        bytes: u64,
        /// How long the push took, in seconds.
        took: f64,
    },
    /// The remote rejected the template.
    NotPushed {
        /// Name of the template.
        name: &'a str,
        /// Reason.
        why: &'a str,
    },
    /// The cache was full, so pgfresh removed an entry.
    Evicted(&'a CachedTemplate),
    /// A data directory is being copied. This is reported repeatedly until the copy finishes.
    Copying {
        /// Number of bytes copied so far.
        done: u64,
        /// Size of the whole directory, in bytes.
        total: u64,
    },
}

impl Provisioner {
    /// Finds the programs and the account required by the options.
    ///
    /// # Errors
    /// Returns [`ProvisionError::Account`] if no account can run the server, and [`ProvisionError::Installation`] if no
    /// suitable PostgreSQL was found.
    pub fn find(
        server_options: ServerOptions,
        cache: Cache,
        program: PathBuf,
    ) -> Result<Self, ProvisionError> {
        let account = Account::for_server()?;
        let installation = server::find(&server_options.installation, &cache, &account)?;
        Ok(Self {
            installation,
            cache,
            account,
            program,
            source: None,
            encryption: None,
            has_standby: false,
            server_options,
        })
    }

    /// Returns a provisioner that queries `source` for a template before
    /// building the template, and offers each new template to `source`.
    #[must_use]
    pub fn with_source(self, source: Arc<dyn TemplateSource>) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Returns a provisioner that offers TLS to setup commands, using `encryption`.
    #[must_use]
    pub fn with_encryption(self, encryption: Arc<dyn LoopbackEncryption>) -> Self {
        Self { encryption: Some(encryption), ..self }
    }

    /// Returns a provisioner for leased servers. If a template in the options has a
    /// replica, each server is the primary of a standby (see [`Self::start_standby`]).
    #[must_use]
    pub fn for_leased_servers(&self) -> Self {
        let template = self.server_options.template.as_ref();
        Self { has_standby: template.is_some_and(TemplateSpec::any_has_replica), ..self.clone() }
    }

    /// Returns true if each server is the primary of a standby.
    #[must_use]
    pub fn has_standby(&self) -> bool {
        self.has_standby
    }

    /// Returns this provisioner's options.
    #[must_use]
    pub fn server_options(&self) -> &ServerOptions {
        &self.server_options
    }

    /// Returns true if the template in the options can be cached, and false if one of its setups runs each time.
    #[must_use]
    pub fn is_cacheable(&self) -> bool {
        let spec = self.server_options.template.as_ref();
        spec.is_none_or(|spec| !spec.chain().into_iter().any(TemplateSpec::runs_each_time))
    }

    pub(crate) fn boot(
        &self,
        template: &Template,
        place: &Place,
        settings: &Settings,
        report: &dyn Fn(Step<'_>),
    ) -> Result<(Server, AdminConnection), StartError> {
        let order = self.order(place, settings);
        let watch = |done, total| report(Step::Copying { done, total });
        Server::start_and_connect(&order, Data::Copy(&template.entry), &watch)
    }

    pub(crate) fn order<'a>(&'a self, place: &'a Place, settings: &'a Settings) -> StartOptions<'a> {
        let Self { installation, account, program, .. } = self;
        StartOptions { installation, account, place, settings, program }
    }

    /// Selects a place for a server whose template has `bytes` bytes.
    ///
    /// # Errors
    /// Returns [`ProvisionError::Place`] if the requested place is unsuitable, or if no place has enough room.
    pub fn place(&self, bytes: u64) -> Result<Place, ProvisionError> {
        self.choose_place(&self.server_options.place, bytes)
    }

    pub(crate) fn choose_place(&self, request: &PlaceRequest, bytes: u64) -> Result<Place, ProvisionError> {
        let place = Place::choose(request, bytes, self.cache.root(), &self.account)?;
        Ok(place.with_at_most(self.server_options.space))
    }

    /// Returns the settings for a server that can write up to `budget` bytes.
    ///
    /// # Errors
    /// Returns [`ProvisionError::Setting`] if the user set something that pgfresh must control, or if a name or a value
    /// is invalid.
    pub fn settings(&self, budget: u64) -> Result<Settings, ProvisionError> {
        let settings = Settings::preset(self.server_options.preset, &self.installation, budget);
        self.with_user_settings(if self.has_standby { settings.for_primary() } else { settings })
    }

    /// Returns the settings for a server that can write up to `budget` bytes, with `preset` instead of the preset in
    /// the options.
    ///
    /// # Errors
    /// Returns the errors of [`Self::settings`].
    pub fn settings_of(&self, preset: Preset, budget: u64) -> Result<Settings, ProvisionError> {
        self.with_user_settings(Settings::preset(preset, &self.installation, budget))
    }

    /// Adds the user's settings, which override the given ones.
    pub(crate) fn with_user_settings(&self, mut settings: Settings) -> Result<Settings, ProvisionError> {
        for (name, value) in &self.server_options.settings {
            settings.set(name, value)?;
        }
        Ok(settings)
    }

    pub(crate) fn cache_size(&self) -> u64 {
        self.server_options.cache_size.unwrap_or_else(|| cached::default_size(&self.cache))
    }

    /// Removes the leftovers of crashed runs from all places where this provisioner may have started a server.
    #[must_use]
    pub fn sweep(&self) -> Swept {
        sweep(&self.cache, &self.server_options.place)
    }
}

/// The removed run directories, and the errors that occurred while removing others.
pub type Swept = (Vec<PathBuf>, Vec<FileError>);

/// Removes the leftovers of crashed runs in and beside `cache`, in RAM and in `place`, without touching anything in
/// use.
#[must_use]
pub fn sweep(cache: &Cache, place: &PlaceRequest) -> Swept {
    let (mut removed, mut failures) = sweep_runs(cache.root(), place);
    match cache.tidy() {
        Ok(paths) => removed.extend(paths),
        Err(error) => failures.push(error),
    }
    (removed, failures)
}

/// Like [`sweep`], but doesn't remove anything from the cache. `disk` is the cache's path, which doesn't have to exist.
#[must_use]
pub fn sweep_runs(disk: &Path, place: &PlaceRequest) -> Swept {
    server::sweep(&roots(disk, place))
}

/// Removes the run directories retained for inspection. `disk` is the cache's path, which doesn't have to exist.
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
