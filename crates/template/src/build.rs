//! From a recipe to a template: its fingerprint, the look-up, and the build where there is nothing to be found.

use std::time::Instant;

use server::{Guard, Preset, Server};
use storage::{Building, Entry, Wish};

use crate::about::{self, About};
use crate::error::{MakerError, SetupError};
use crate::ingredients::INPUT;
use crate::maker::{Maker, Step, Template};
use crate::setup::{Broken, Setup, dump_files};
use crate::{Fingerprint, Ingredients, Recipe, base, inputs, shelf};

/// How often a build may be repeated because it changed its own inputs: once is common (a schema file that is written
/// after migrating), more often it would never end.
const ATTEMPTS: usize = 3;
/// What a server is told, beyond the user's settings, whose data will be a template: no WAL that nobody reads is kept
/// for reuse, because each copy would have to carry it.
const BUILDING: [(&str, &str); 2] = [("wal_recycle", "off"), ("wal_init_zero", "off")];

/// What would be found of a template, and why.
#[derive(Debug)]
pub struct Outlook {
    /// Its name in the cache.
    pub fingerprint: Fingerprint,
    /// What that is made of.
    pub ingredients: Ingredients,
    /// What is there of it.
    pub entry: Option<Entry>,
    /// What differs from the one that was built last, if one was.
    pub changes: Option<Vec<String>>,
}

impl Maker {
    /// All that shapes what `recipe` makes, with what it goes on from.
    pub(crate) fn ingredients(&self, recipe: &Recipe) -> Result<Ingredients, MakerError> {
        let mut all = Ingredients::default();
        let from = match &recipe.from {
            Some(from) => self.ingredients(from)?.fingerprint(),
            None => base::fingerprint(&self.installation),
        };
        all.add("template it goes on from", from.as_str());
        all.add("version of PostgreSQL", self.installation.version().to_string());
        all.add("name", &recipe.name);
        for (name, value) in self.user_settings() {
            all.add(format!("setting {name}"), value);
        }
        let folder = &recipe.folder;
        let sql = inputs::expand(folder, &recipe.sql)?;
        if !sql.is_empty() {
            all.add("list of SQL files", sql.join("\n"));
        }
        let mut files = sql;
        if let Some(dump) = &recipe.dump {
            all.add("dump", dump);
            files.extend(dump_files(folder, dump)?);
        }
        if let Some(setup) = &recipe.setup {
            all.add("setup command", setup);
        }
        files.extend(inputs::expand(folder, &recipe.inputs)?);
        for (path, digest) in inputs::digest(folder, &files, &self.cache)? {
            all.add(format!("{INPUT}{path}"), digest);
        }
        for name in &recipe.env {
            // It may be a secret: only its digest is kept.
            let value = std::env::var_os(name);
            let value = value.map(|value| blake3::hash(value.as_encoded_bytes()).to_string());
            all.add(format!("environment variable {name}"), value.unwrap_or_else(|| "not set".to_owned()));
        }
        Ok(all)
    }

    /// What a look-up of `recipe` would find, and why; nothing is built, and nothing counts as used.
    pub fn outlook(&self, recipe: &Recipe) -> Result<Outlook, MakerError> {
        let ingredients = self.ingredients(recipe)?;
        let fingerprint = ingredients.fingerprint();
        let entry = self.cache.examine(fingerprint.as_str())?;
        let before = about::last(&self.cache, recipe);
        let changes = before.map(|before| ingredients.differences(&before));
        Ok(Outlook { fingerprint, ingredients, entry, changes })
    }

    /// Looks the template up, or makes it and, before, what it goes on from.
    pub(crate) fn look_up_or_build(
        &self,
        recipe: &Recipe,
        say: &dyn Fn(Step<'_>),
    ) -> Result<Template, MakerError> {
        if let Some(recipe) = recipe.chain().into_iter().find(|recipe| recipe.runs_each_time()) {
            return Err(SetupError::RunsEachTime { name: recipe.name.clone() }.into());
        }
        let mut changes = Vec::new();
        for _ in 0..ATTEMPTS {
            let ingredients = self.ingredients(recipe)?;
            let fingerprint = ingredients.fingerprint();
            let found =
                |entry| Template { fingerprint: fingerprint.clone(), entry, database: recipe.name.clone() };
            if let Some(entry) = self.cache.look_up(fingerprint.as_str())? {
                return Ok(found(entry));
            }
            let waiting = || say(Step::Waiting { name: &recipe.name });
            let building = self.cache.building(fingerprint.as_str(), waiting)?;
            if let Some(entry) = self.cache.look_up(fingerprint.as_str())? {
                return Ok(found(entry));
            }
            if changes.is_empty() {
                let before = about::last(&self.cache, recipe);
                changes = before.map_or_else(Vec::new, |before| ingredients.differences(&before));
            }
            say(Step::Building { name: &recipe.name, fingerprint: &fingerprint, changes: &changes });
            let begun = Instant::now();
            let guard = self.prepare(recipe, &fingerprint, say)?;
            let after = self.ingredients(recipe)?;
            if after == ingredients {
                let version = self.installation.version().to_string();
                let about = About::new(Some(recipe), version, begun.elapsed(), ingredients);
                return Ok(found(self.publish(recipe, building, &guard, &about, say)?));
            }
            changes = after.differences(&ingredients);
            say(Step::InputsChanged { changes: &changes });
        }
        Err(SetupError::Unsettled { name: recipe.name.clone(), changes }.into())
    }

    fn publish(
        &self,
        recipe: &Recipe,
        building: Building,
        guard: &Guard,
        about: &About,
        say: &dyn Fn(Step<'_>),
    ) -> Result<Entry, MakerError> {
        say(Step::Publishing { name: &recipe.name });
        let entry = building.publish(&guard.run().data(), &base::NOT_PUBLISHED, &about.to_text())?;
        about::remember(&self.cache, recipe, &about.ingredients)?;
        say(Step::Built { name: &recipe.name, bytes: entry.occupied()?, took: about.took });
        for evicted in shelf::evict(&self.cache, self.cache_size())? {
            say(Step::Evicted(&evicted));
        }
        Ok(entry)
    }

    /// Runs the recipe's steps in a server on what it goes on from, and leaves a data directory at rest.
    fn prepare(
        &self,
        recipe: &Recipe,
        fingerprint: &Fingerprint,
        say: &dyn Fn(Step<'_>),
    ) -> Result<Guard, MakerError> {
        // Nobody knows how large it becomes: where the user does not decide, that is no matter for RAM.
        let wish = if self.wishes().place == Wish::Auto { Wish::Disk } else { self.wishes().place.clone() };
        let from = recipe.from.as_deref();
        let server = self.on_template(from, say, |template| {
            let place = self.choose_place(&wish, template.entry.bytes())?;
            let mut settings = self.settings_of(Preset::Fast, place.budget())?;
            for (name, value) in BUILDING {
                settings.set(name, value)?;
            }
            Ok(self.boot(template, &place, &settings, say)?)
        })?;
        let server = self.set_up(server, recipe, fingerprint, say)?;
        // Everything written until now lies in segments that the checkpoint of the shutdown removes.
        server.session("postgres")?.query("SELECT pg_switch_wal()").map_err(server::StartError::from)?;
        Ok(server.shut_down()?)
    }

    /// Runs the steps of one recipe in `server`.
    ///
    /// # Errors
    /// The log of what failed is kept, and the server's directory if that was wished.
    pub(crate) fn set_up(
        &self,
        server: Server,
        recipe: &Recipe,
        fingerprint: &Fingerprint,
        say: &dyn Fn(Step<'_>),
    ) -> Result<Server, MakerError> {
        let setup = Setup { server: &server, installation: &self.installation, recipe, say };
        let parent = recipe.from.as_ref().map(|from| from.name.as_str());
        match setup.run(parent)? {
            None => Ok(server),
            Some(broken) => Err(self.failed(server, recipe, fingerprint, broken)?.into()),
        }
    }

    fn failed(
        &self,
        server: Server,
        recipe: &Recipe,
        fingerprint: &Fingerprint,
        broken: Broken,
    ) -> Result<SetupError, MakerError> {
        let log = Setup::log(&server);
        let last_lines = Setup::last_lines(&log);
        let (log, kept) = if self.wishes().keep {
            let path = server.keep()?;
            let command = self.command_to_open(&path, &recipe.name);
            (path.join(log.file_name().unwrap_or_default()), Some((path, command)))
        } else {
            let name = format!("{}-{fingerprint}.log", recipe.name);
            (self.cache.keep_log(&name, &log)?, None)
        };
        let Broken { step, status, after } = broken;
        let (name, fingerprint) = (recipe.name.clone(), fingerprint.clone());
        let log = Some(log);
        Ok(SetupError::Failed { name, fingerprint, step, status, after, last_lines, log, kept })
    }
}
