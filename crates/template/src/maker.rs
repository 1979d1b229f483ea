//! What it takes to make a template, and to start a server from one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use server::{Data, Guard, Installation, Order, Preset, Server, Settings, StartError, Version, Wanted};
use storage::{Account, Attempt, Cache, Entry, FileError, Place, Wish};

use crate::error::MakerError;
use crate::{Fingerprint, Recipe, Shelved, base, shelf};

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
pub struct Wishes {
    /// The binaries.
    pub installation: Wanted,
    /// Where the data live.
    pub place: Wish,
    /// The preset of settings.
    pub preset: Preset,
    /// Settings over the preset: names and values, the last word wins.
    pub settings: Vec<(String, String)>,
    /// What is prepared in it; nothing without one.
    pub template: Option<Recipe>,
    /// What the cache may occupy, in bytes; without a word, 10 GB or a fifth of what the file system has.
    pub cache_size: Option<u64>,
    /// Whether the directory of a server whose setup failed stays.
    pub keep: bool,
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

/// What takes so long, or is so rare, that somebody may want to know.
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
    },
    /// Another process makes it.
    Waiting {
        /// Whose.
        name: &'a str,
    },
    /// A setup runs of which nobody knows what it reads.
    RunsEachTime {
        /// Whose.
        name: &'a str,
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
    /// Something had to go from the cache.
    Evicted(&'a Shelved),
    /// A data directory is being copied; comes again and again.
    Copying {
        /// Bytes that are there.
        done: u64,
        /// Of so many.
        total: u64,
    },
}

/// A server and how it came about.
#[derive(Debug)]
pub struct Started {
    /// The server.
    pub server: Server,
    /// Where its data live.
    pub place: Place,
    /// The database that was prepared in it; `postgres` without a template.
    pub database: String,
    /// How long the look-up took, of binaries, cache and place; it includes building what was missing.
    pub look_up: Duration,
}

impl Maker {
    /// Finds binaries and account for what is wished.
    pub fn find(wishes: Wishes, cache: Cache, program: PathBuf) -> Result<Self, MakerError> {
        let account = Account::for_server()?;
        let installation = server::find(&wishes.installation, &cache, &account)?;
        Ok(Self { installation, cache, account, program, wishes })
    }

    /// What was wished.
    #[must_use]
    pub fn wishes(&self) -> &Wishes {
        &self.wishes
    }

    /// The template that initdb alone makes.
    pub fn base_image(&self, say: &dyn Fn(Step<'_>)) -> Result<Template, MakerError> {
        base::look_up_or_build(self, say)
    }

    /// The template that is wished, looked up or built; the base image if none is.
    ///
    /// # Errors
    /// Its setup failed, or has no inputs, so that there is nothing to keep.
    pub fn template(&self, say: &dyn Fn(Step<'_>)) -> Result<Template, MakerError> {
        self.template_of(self.wishes.template.as_ref(), say)
    }

    /// The name of what is wished, whether or not it is there; also of what no cache can keep.
    pub fn fingerprint(&self) -> Result<Fingerprint, MakerError> {
        match &self.wishes.template {
            Some(recipe) => Ok(self.ingredients(recipe)?.fingerprint()),
            None => Ok(base::fingerprint(&self.installation)),
        }
    }

    /// Whether the cache can keep what is wished: that no setup runs each time.
    #[must_use]
    pub fn can_be_kept(&self) -> bool {
        let recipe = self.wishes.template.as_ref();
        recipe.is_none_or(|recipe| !recipe.chain().into_iter().any(Recipe::runs_each_time))
    }

    fn template_of(&self, recipe: Option<&Recipe>, say: &dyn Fn(Step<'_>)) -> Result<Template, MakerError> {
        recipe.map_or_else(|| self.base_image(say), |recipe| self.look_up_or_build(recipe, say))
    }

    /// Starts a server on a copy of the template that is wished, having made that if need be. Of a template whose
    /// setup cannot be kept, the last that can is copied, and the rest is run in the new server.
    pub fn start(&self, say: &dyn Fn(Step<'_>)) -> Result<Started, MakerError> {
        let begun = Instant::now();
        let chain = self.wishes.template.as_ref().map_or_else(Vec::new, Recipe::chain);
        let kept = chain.iter().position(|recipe| recipe.runs_each_time()).unwrap_or(chain.len());
        let (kept, each_time) = chain.split_at(kept);
        let mut started = self.on_template(kept.last().copied(), say, |template| {
            let place = self.place(template.entry.bytes())?;
            let settings = self.settings(place.budget())?;
            let look_up = begun.elapsed();
            let server = self.boot(template, &place, &settings, say)?;
            Ok(Started { server, place, database: template.database.clone(), look_up })
        })?;
        for recipe in each_time {
            if recipe.runs_each_time() {
                say(Step::RunsEachTime { name: &recipe.name });
            }
            let fingerprint = self.ingredients(recipe)?.fingerprint();
            started.server = self.set_up(started.server, recipe, &fingerprint, say)?;
            started.database.clone_from(&recipe.name);
        }
        Ok(started)
    }

    /// Starts a server on the data that another one left in the run directory `kept`, which is no more afterwards. The
    /// place must be the same.
    pub fn reopen(&self, kept: &Path) -> Result<Started, MakerError> {
        let begun = Instant::now();
        let place = self.place(0)?;
        let settings = self.settings(place.budget())?;
        let guard = Guard::over(&place, &self.account, &self.program)?;
        let (from, to) = (kept.join("data"), guard.run().data());
        fs::rename(&from, &to).attempt("rename", &from)?;
        fs::remove_dir_all(kept).attempt("remove", kept)?;
        let look_up = begun.elapsed();
        let server = Server::start(&self.order(&place, &settings), Data::Made(guard))?;
        Ok(Started { server, place, database: "postgres".to_owned(), look_up })
    }

    /// Starts a server that was shut down, or crashed, on its data in `place`.
    ///
    /// # Errors
    /// Nothing is left of it then.
    pub fn start_again(&self, guard: Guard, place: &Place) -> Result<Server, MakerError> {
        let settings = self.settings(place.budget())?;
        Ok(Server::start(&self.order(place, &settings), Data::Made(guard))?)
    }

    /// Gives the template of `recipe`, or the base image, to `use_it`; once more, made anew, if it proved damaged.
    pub(crate) fn on_template<T>(
        &self,
        recipe: Option<&Recipe>,
        say: &dyn Fn(Step<'_>),
        use_it: impl Fn(&Template) -> Result<T, MakerError>,
    ) -> Result<T, MakerError> {
        let template = self.template_of(recipe, say)?;
        match use_it(&template) {
            Err(MakerError::Start(StartError::Copy(error))) if error.is_damage() => {
                say(Step::RebuildingDamaged);
                self.cache.building(template.fingerprint.as_str(), || ())?.discard()?;
                use_it(&self.template_of(recipe, say)?)
            }
            other => other,
        }
    }

    pub(crate) fn boot(
        &self,
        template: &Template,
        place: &Place,
        settings: &Settings,
        say: &dyn Fn(Step<'_>),
    ) -> Result<Server, StartError> {
        let order = self.order(place, settings);
        let watch = |done, total| say(Step::Copying { done, total });
        Server::start_watched(&order, Data::Copy(&template.entry), &watch)
    }

    fn order<'a>(&'a self, place: &'a Place, settings: &'a Settings) -> Order<'a> {
        let Self { installation, account, program, .. } = self;
        Order { installation, account, place, settings, program }
    }

    /// Where a server on a template of `bytes` bytes would live.
    pub fn place(&self, bytes: u64) -> Result<Place, MakerError> {
        self.choose_place(&self.wishes.place, bytes)
    }

    pub(crate) fn choose_place(&self, wish: &Wish, bytes: u64) -> Result<Place, MakerError> {
        Ok(Place::choose(wish, bytes, self.cache.root(), &self.account)?)
    }

    /// What a server that may write `budget` bytes would be told.
    pub fn settings(&self, budget: u64) -> Result<Settings, MakerError> {
        self.settings_of(self.wishes.preset, budget)
    }

    /// The same for another preset than the one that is wished.
    pub fn settings_of(&self, preset: Preset, budget: u64) -> Result<Settings, MakerError> {
        let mut settings = Settings::preset(preset, &self.installation, budget);
        for (name, value) in &self.wishes.settings {
            settings.set(name, value)?;
        }
        Ok(settings)
    }

    /// The settings that the user wants, as they are written; the last word of each wins.
    pub(crate) fn user_settings(&self) -> impl Iterator<Item = (String, &str)> {
        self.wishes.settings.iter().map(|(name, value)| (name.trim().to_ascii_lowercase(), value.as_str()))
    }

    pub(crate) fn cache_size(&self) -> u64 {
        self.wishes.cache_size.unwrap_or_else(|| shelf::usual_size(&self.cache))
    }

    /// For people: starts what lies in the run directory `path`, and opens its database.
    pub(crate) fn command_to_open(&self, path: &std::path::Path, database: &str) -> String {
        let (bin, path) = (self.installation.bin().display(), path.display());
        let start = format!(
            "{bin}/pg_ctl -D {path}/data -l {path}/log -o \"-c listen_addresses= -k {path}/socket\" -w start"
        );
        let Account { uid, gid, foreign } = self.account;
        let become_it = if foreign {
            format!("setpriv --reuid={uid} --regid={gid} --clear-groups ")
        } else {
            String::new()
        };
        format!("{become_it}{start} && psql -h {path}/socket -U {} {database}", server::SUPERUSER)
    }

    /// Removes what dead owners left wherever a server of this maker's may have been.
    #[must_use]
    pub fn sweep(&self) -> Swept {
        sweep(&self.cache, &self.wishes.place)
    }
}

/// What was removed, and what could not be.
pub type Swept = (Vec<PathBuf>, Vec<FileError>);

/// Removes what dead owners left in and beside `cache`, in RAM and in `place`; nothing that is in use.
#[must_use]
pub fn sweep(cache: &Cache, place: &Wish) -> Swept {
    let (removed, mut failures) = server::sweep(&roots(cache, place));
    failures.extend(cache.tidy().err());
    (removed, failures)
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
