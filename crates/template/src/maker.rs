//! What it takes to make a template, and to start a server from one.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use server::{
    Data, InitdbError, Installation, InstallationError, Order, Preset, Server, SettingError, Settings,
    StartError, Version, Wanted,
};
use storage::{Account, AccountError, Cache, CacheError, Entry, FileError, Place, PlaceError, Wish};

use crate::{Fingerprint, base};

/// A prepared, immutable data directory.
#[derive(Debug, Clone)]
pub struct Template {
    /// Its name.
    pub fingerprint: Fingerprint,
    /// Its files.
    pub entry: Entry,
}

/// What users may choose of a server.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// The binaries.
    pub installation: Wanted,
    /// Where the data live.
    pub place: Wish,
    /// The preset of settings.
    pub preset: Preset,
    /// Settings over the preset: names and values, the last word wins.
    pub settings: Vec<(String, String)>,
}

/// Binaries, cache and account: all that templates and servers are made with.
#[derive(Debug, Clone)]
pub struct Maker {
    /// The binaries.
    pub installation: Installation,
    /// Where templates are kept.
    pub cache: Cache,
    /// Whom servers run as.
    pub account: Account,
    /// A pgfresh that can be a guard; see [`server::Guard::over`].
    pub program: PathBuf,
    wishes: Wishes,
}

/// What takes so long that somebody may want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// initdb runs, for the first and only time for this installation.
    BuildingBaseImage(Version),
    /// Another process runs it.
    WaitingForBaseImage,
    /// What the cache had was not what had been put there.
    RebuildingDamaged,
}

/// A server and how it came about.
#[derive(Debug)]
pub struct Started {
    /// The server.
    pub server: Server,
    /// Where its data live.
    pub place: Place,
    /// How long the look-up took, of binaries, cache and place; it includes building what was missing.
    pub look_up: Duration,
}

/// No server, and nothing left of the attempt.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum MakerError {
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error(transparent)]
    Installation(#[from] InstallationError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    Initdb(#[from] InitdbError),
    #[error(transparent)]
    Start(#[from] StartError),
}

impl MakerError {
    /// What came back.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Installation(error) => error.detail(),
            Self::Initdb(error) => error.detail(),
            Self::Start(error) => error.detail(),
            _ => None,
        }
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Account(error) => Some(error.hint()),
            Self::Installation(error) => error.hint(),
            Self::Cache(CacheError::File(error)) | Self::File(error) => error.hint(),
            Self::Place(error) => error.hint(),
            Self::Initdb(error) => error.hint(),
            Self::Start(error) => error.hint(),
            Self::Cache(CacheError::Unfit { .. }) | Self::Setting(_) => None,
        }
    }
}

impl Maker {
    /// Finds binaries and account for what is wished.
    pub fn find(wishes: Wishes, cache: Cache, program: PathBuf) -> Result<Self, MakerError> {
        let account = Account::for_server()?;
        let installation = server::find(&wishes.installation, &cache, &account)?;
        Ok(Self { installation, cache, account, program, wishes })
    }

    /// The template that initdb alone makes.
    pub fn base_image(&self, say: &dyn Fn(Step)) -> Result<Template, MakerError> {
        base::look_up_or_build(self, say)
    }

    /// Starts a server on a copy of the base image, having made that if need be, and once more if it proved damaged.
    pub fn start(&self, say: &dyn Fn(Step)) -> Result<Started, MakerError> {
        let begun = Instant::now();
        let template = self.base_image(say)?;
        match self.start_on(&template, begun) {
            Err(MakerError::Start(StartError::Copy(error))) if error.is_damage() => {
                say(Step::RebuildingDamaged);
                self.cache.building(template.fingerprint.as_str(), || ())?.discard()?;
                self.start_on(&self.base_image(say)?, begun)
            }
            other => other,
        }
    }

    fn start_on(&self, template: &Template, begun: Instant) -> Result<Started, MakerError> {
        let place = self.place(template.entry.bytes())?;
        let settings = self.settings(place.budget())?;
        let look_up = begun.elapsed();
        let order = Order {
            installation: &self.installation,
            account: &self.account,
            place: &place,
            settings: &settings,
            program: &self.program,
        };
        let server = Server::start(&order, Data::Copy(&template.entry))?;
        Ok(Started { server, place, look_up })
    }

    /// Where a server on a template of `bytes` bytes would live.
    pub fn place(&self, bytes: u64) -> Result<Place, MakerError> {
        Ok(Place::choose(&self.wishes.place, bytes, self.cache.root(), &self.account)?)
    }

    /// What a server that may write `budget` bytes would be told.
    pub fn settings(&self, budget: u64) -> Result<Settings, MakerError> {
        let mut settings = Settings::preset(self.wishes.preset, &self.installation, budget);
        for (name, value) in &self.wishes.settings {
            settings.set(name, value)?;
        }
        Ok(settings)
    }

    /// Removes what dead owners left wherever a server of this maker's may have been.
    #[must_use]
    pub fn sweep(&self) -> Swept {
        sweep(&self.cache, &self.wishes.place)
    }
}

/// What was removed, and what could not be.
pub type Swept = (Vec<PathBuf>, Vec<FileError>);

/// Removes what dead owners left beside `cache`, in RAM and in `place`; nothing that is in use.
#[must_use]
pub fn sweep(cache: &Cache, place: &Wish) -> Swept {
    server::sweep(&roots(cache, place))
}

/// Removes the run directories that were kept for people to look at.
#[must_use]
pub fn remove_kept(cache: &Cache, place: &Wish) -> Swept {
    let (mut removed, mut failures) = Swept::default();
    for root in roots(cache, place) {
        match storage::remove_kept(&root) {
            Ok(paths) => removed.extend(paths),
            Err(error) => failures.push(error),
        }
    }
    (removed, failures)
}

fn roots(cache: &Cache, place: &Wish) -> Vec<PathBuf> {
    let named = if let Wish::At(path) = place { Some(path.as_path()) } else { None };
    storage::run_roots(cache.root(), named)
}
