//! What it takes to make a template, and to start a server from one.

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

/// A prepared, immutable data directory.
#[derive(Debug, Clone)]
pub struct Template {
    /// Its name in the cache.
    pub fingerprint: Fingerprint,
    /// Its files.
    pub entry: Entry,
    /// The database that was prepared; `postgres` in a base image.
    pub database: String,
}

/// What users may choose of a server.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// The binaries.
    pub installation: VersionRequest,
    /// Where the data live.
    pub place: PlaceRequest,
    /// What they may take there at most, in bytes; without a word, what is free.
    pub space: Option<u64>,
    /// The preset of settings.
    pub preset: Preset,
    /// Settings over the preset: names and values, the last word wins.
    pub settings: Vec<(String, String)>,
    /// What is prepared in it; nothing without one.
    pub template: Option<TemplateSpec>,
    /// What the cache may occupy, in bytes; without a word, 10 GB or a fifth of what the file system has.
    pub cache_size: Option<u64>,
    /// Whether the directory of a server whose setup failed stays.
    pub keep: bool,
    /// Whether templates are built from the start, even those that were built on earlier ones and are in the cache.
    pub full: bool,
}

/// Binaries, cache and account: all that templates and servers are made with.
#[derive(Debug, Clone)]
pub struct Provisioner {
    /// The binaries.
    pub installation: Installation,
    /// Where templates are kept.
    pub cache: Cache,
    /// Whom servers run as.
    pub account: Account,
    /// A pgfresh that can be a guard; see [`server::Guard::over`].
    pub program: PathBuf,
    /// Where templates may come from other than a build.
    pub(crate) source: Option<Arc<dyn TemplateSource>>,
    /// TLS that setups are offered.
    pub(crate) encryption: Option<Arc<dyn LoopbackEncryption>>,
    server_options: ServerOptions,
}

/// What takes so long, or is so rare, that the user may want to know.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// initdb runs, for the first and only time for this installation.
    BuildingBaseImage(Version),
    /// Another process runs it.
    WaitingForBaseImage,
    /// What the cache had was not what had been put there.
    RebuildingDamaged,
    /// A template is made.
    Building {
        /// Whose.
        name: &'a str,
        /// What it will be.
        fingerprint: &'a Fingerprint,
        /// What differs from the one that was made before, if there was one.
        changes: &'a [String],
        /// Where the build begins.
        plan: &'a BuildPlan,
    },
    /// The earlier template that a build was to begin on is not what had been put into the cache, and goes.
    RemovingDamagedParent {
        /// Its name in the cache.
        fingerprint: &'a Fingerprint,
    },
    /// The search for inputs has skipped what it could not read.
    Skipped {
        /// Relative to the folder of the patterns.
        path: &'a str,
        /// The reason.
        error: &'a io::Error,
    },
    /// Another process makes it.
    Waiting {
        /// Whose.
        name: &'a str,
    },
    /// A setup runs whose inputs are unknown.
    RunsEachTime {
        /// Whose.
        name: &'a str,
    },
    /// A setup has run, and there is nothing in its database.
    SetupMadeNothing {
        /// Whose.
        name: &'a str,
    },
    /// The server refused a property of a dumped database, as an owner who is not there.
    PropertyLeftOut {
        /// Template of the dump.
        name: &'a str,
        /// Statement that sets the property.
        statement: &'a str,
        /// Message of the server.
        why: &'a str,
    },
    /// A step of a setup is still running; comes again and again.
    Running {
        /// Which.
        step: &'a str,
        /// Since it began.
        since: Duration,
        /// What it said last.
        line: &'a str,
    },
    /// While it was made, the inputs changed: it is made again.
    InputsChanged {
        /// Which.
        changes: &'a [String],
    },
    /// It is written into the cache.
    Publishing {
        /// Whose.
        name: &'a str,
    },
    /// It is there.
    Built {
        /// Whose.
        name: &'a str,
        /// What it occupies on disk.
        bytes: u64,
        /// How long it took, in seconds.
        took: f64,
    },
    /// Another machine makes it.
    WaitingForMachine {
        /// Whose.
        name: &'a str,
    },
    /// A template comes from elsewhere; comes again and again.
    Fetching {
        /// Whose.
        name: &'a str,
        /// Bytes that have come.
        done: u64,
        /// Of so many.
        total: u64,
    },
    /// It has come.
    Fetched {
        /// Whose.
        name: &'a str,
        /// What came over the network.
        bytes: u64,
        /// How long it took, in seconds.
        took: f64,
    },
    /// It has not, and is built instead.
    NotFetched {
        /// Whose.
        name: &'a str,
        /// Why.
        why: &'a str,
    },
    /// A template goes elsewhere; comes again and again.
    Pushing {
        /// Whose.
        name: &'a str,
        /// Bytes of its files that were looked at.
        done: u64,
        /// Of so many.
        total: u64,
    },
    /// It is there, for others.
    Pushed {
        /// Whose.
        name: &'a str,
        /// What went over the network.
        bytes: u64,
        /// How long it took, in seconds.
        took: f64,
    },
    /// It is not.
    NotPushed {
        /// Whose.
        name: &'a str,
        /// Why.
        why: &'a str,
    },
    /// Something had to go from the cache.
    Evicted(&'a CachedTemplate),
    /// A data directory is being copied; comes again and again.
    Copying {
        /// Bytes that are there.
        done: u64,
        /// Of so many.
        total: u64,
    },
}

impl Provisioner {
    /// Finds the binaries and the account for the options.
    pub fn find(
        server_options: ServerOptions,
        cache: Cache,
        program: PathBuf,
    ) -> Result<Self, ProvisionError> {
        let account = Account::for_server()?;
        let installation = server::find(&server_options.installation, &cache, &account)?;
        Ok(Self { installation, cache, account, program, source: None, encryption: None, server_options })
    }

    /// The same, which looks there before it builds, and offers what it has built.
    #[must_use]
    pub fn with_source(self, source: Arc<dyn TemplateSource>) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Offers setups TLS by `encryption`.
    #[must_use]
    pub fn with_encryption(self, encryption: Arc<dyn LoopbackEncryption>) -> Self {
        Self { encryption: Some(encryption), ..self }
    }

    /// The options as they were given.
    #[must_use]
    pub fn server_options(&self) -> &ServerOptions {
        &self.server_options
    }

    /// Whether the cache can keep the template of the options: that no setup runs each time.
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

    /// Where a server on a template of `bytes` bytes would live.
    pub fn place(&self, bytes: u64) -> Result<Place, ProvisionError> {
        self.choose_place(&self.server_options.place, bytes)
    }

    pub(crate) fn choose_place(&self, request: &PlaceRequest, bytes: u64) -> Result<Place, ProvisionError> {
        let place = Place::choose(request, bytes, self.cache.root(), &self.account)?;
        Ok(place.with_at_most(self.server_options.space))
    }

    /// What a server that may write `budget` bytes would be told.
    pub fn settings(&self, budget: u64) -> Result<Settings, ProvisionError> {
        self.settings_of(self.server_options.preset, budget)
    }

    /// The same for another preset than the one of the options.
    pub fn settings_of(&self, preset: Preset, budget: u64) -> Result<Settings, ProvisionError> {
        self.with_users(Settings::preset(preset, &self.installation, budget))
    }

    /// The settings, with those over them that the user wants.
    pub(crate) fn with_users(&self, mut settings: Settings) -> Result<Settings, ProvisionError> {
        for (name, value) in &self.server_options.settings {
            settings.set(name, value)?;
        }
        Ok(settings)
    }

    pub(crate) fn cache_size(&self) -> u64 {
        self.server_options.cache_size.unwrap_or_else(|| cached::usual_size(&self.cache))
    }

    /// Removes leftovers of crashed runs wherever a server of this maker's may have been.
    #[must_use]
    pub fn sweep(&self) -> Swept {
        sweep(&self.cache, &self.server_options.place)
    }
}

/// What was removed, and what could not be.
pub type Swept = (Vec<PathBuf>, Vec<FileError>);

/// Removes leftovers of crashed runs in and beside `cache`, in RAM and in `place`; nothing that is in use.
#[must_use]
pub fn sweep(cache: &Cache, place: &PlaceRequest) -> Swept {
    let (mut removed, mut failures) = sweep_runs(cache.root(), place);
    match cache.tidy() {
        Ok(paths) => removed.extend(paths),
        Err(error) => failures.push(error),
    }
    (removed, failures)
}

/// The same, but for the cache itself, which need not be there: `disk` is where it is, or would be.
#[must_use]
pub fn sweep_runs(disk: &Path, place: &PlaceRequest) -> Swept {
    server::sweep(&roots(disk, place))
}

/// Removes the run directories that were kept for people to look at. `disk` as for [`sweep_runs`].
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
