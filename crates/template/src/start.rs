//! From what is asked for to a running server: its template is looked up or built, copied, and what cannot be kept is run.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use server::{AdminConnection, Data, Guard, NotStarted, Server, Settings, StartError};
use storage::{Attempt, Copying, Deferred, Entry, PersistentData, Place, PlaceRequest};

use crate::error::ProvisionError;
use crate::provisioner::{Provisioner, Step, Template};
use crate::setup::StartingPoint;
use crate::{Fingerprint, TemplateSpec, base};

/// A server and how it came about.
#[derive(Debug)]
pub struct Started {
    /// The server.
    pub server: Server,
    /// The session that had its first answer, if no setup was run in it since.
    pub session: Option<AdminConnection>,
    /// What its data are a copy of, if no setup was run in it since.
    pub entry: Option<Entry>,
    /// Where its data live.
    pub place: Place,
    /// The database that was prepared in it, the default one of several; `postgres` without a template.
    pub database: String,
    /// The templates in it by name, and their databases', the default first.
    pub templates: Vec<String>,
    /// How long the look-up took, of binaries, cache and place; it includes building what was missing.
    pub look_up: Duration,
}

impl Provisioner {
    /// The template that initdb alone makes.
    pub fn base_image(&self, say: &dyn Fn(Step<'_>)) -> Result<Template, ProvisionError> {
        base::look_up_or_build(self, say)
    }

    /// The template of the options, looked up or built; the base image if they name none.
    ///
    /// # Errors
    /// Its setup failed, or has no inputs, so that there is nothing to keep.
    pub fn template(&self, say: &dyn Fn(Step<'_>)) -> Result<Template, ProvisionError> {
        self.template_of(self.server_options().template.as_ref(), say)
    }

    /// The name of the template of the options, whether or not it is there; also of what no cache can keep.
    pub fn fingerprint(&self) -> Result<Fingerprint, ProvisionError> {
        match &self.server_options().template {
            Some(spec) => Ok(self.fingerprint_inputs(spec, &|_| ())?.fingerprint()),
            None => Ok(base::fingerprint(&self.installation)),
        }
    }

    fn template_of(
        &self,
        spec: Option<&TemplateSpec>,
        say: &dyn Fn(Step<'_>),
    ) -> Result<Template, ProvisionError> {
        spec.map_or_else(|| self.base_image(say), |spec| self.look_up_or_build(spec, say))
    }

    /// Starts a server on a copy of the template of the options, having made that if need be. Of a template whose
    /// setup cannot be kept, the last that can is copied, and the rest is run in the new server.
    pub fn start(&self, say: &dyn Fn(Step<'_>)) -> Result<Started, ProvisionError> {
        let begun = Instant::now();
        let (kept, each_time) = self.chain();
        let started = self.on_template(kept.last().copied(), say, |template| {
            let place = self.place(template.entry.bytes())?;
            let settings = self.settings(place.budget())?;
            let look_up = begun.elapsed();
            let (server, session) = self.boot(template, &place, &settings, say)?;
            let entry = Some(template.entry.clone());
            Ok(Started { session: Some(session), entry, ..self.started(server, place, look_up) })
        })?;
        self.run_each_time(started, &each_time, say)
    }

    /// A server that has, or is about to have, the template of the options.
    fn started(&self, server: Server, place: Place, look_up: Duration) -> Started {
        let spec = self.server_options().template.as_ref();
        let templates: Vec<_> = spec.map_or_else(Vec::new, TemplateSpec::served);
        let templates: Vec<_> = templates.into_iter().map(str::to_owned).collect();
        let database = templates.first().cloned().unwrap_or_else(|| "postgres".to_owned());
        Started { server, session: None, entry: None, place, database, templates, look_up }
    }

    /// The templates from the first to that of the options: those that the cache keeps, and those that are run each time.
    fn chain(&self) -> (Vec<&TemplateSpec>, Vec<&TemplateSpec>) {
        let mut kept = self.server_options().template.as_ref().map_or_else(Vec::new, TemplateSpec::chain);
        let count = kept.iter().position(|spec| spec.runs_each_time()).unwrap_or(kept.len());
        let each_time = kept.split_off(count);
        (kept, each_time)
    }

    /// Runs the setups in the new server that no cache keeps.
    fn run_each_time(
        &self,
        mut started: Started,
        specs: &[&TemplateSpec],
        say: &dyn Fn(Step<'_>),
    ) -> Result<Started, ProvisionError> {
        for spec in specs {
            // The session would be in the way of setups that drop or copy its database.
            (started.session, started.entry) = (None, None);
            if spec.runs_each_time() {
                say(Step::RunsEachTime { name: &spec.name });
            }
            let fingerprint = self.fingerprint_inputs(spec, say)?.fingerprint();
            let start = StartingPoint::of(spec);
            started.server = self.set_up(started.server, spec, start, &fingerprint, say)?;
        }
        Ok(started)
    }

    /// Starts a server on the data that another one left in the run directory `kept`, which is gone afterwards. They stay on
    /// their file system, wherever new ones would be.
    pub fn reopen(&self, kept: &Path) -> Result<Started, ProvisionError> {
        let begun = Instant::now();
        // PLACE/pgfresh-UID/kept-ID
        let root = kept.ancestors().nth(2).unwrap_or(kept);
        let place = self.choose_place(&PlaceRequest::At(root.to_owned()), 0)?;
        let settings = self.settings(place.budget())?;
        let guard = Guard::over(&place, &self.account, &self.program)?;
        let (from, to) = (kept.join("data"), guard.run().data());
        fs::rename(&from, &to).attempt("rename", &from)?;
        if let Err(error) = fs::remove_dir_all(kept) {
            tracing::warn!(%error, path = %kept.display(), "could not remove a run directory that was kept");
        }
        let look_up = begun.elapsed();
        let server = Server::start(&self.order(&place, &settings), Data::Made(guard), &|_, _| ())?;
        let database = "postgres".to_owned();
        Ok(Started { server, session: None, entry: None, place, database, templates: Vec::new(), look_up })
    }

    /// Starts a server on persistent data. New ones are made first, as [`Self::start`] makes them, in place of what is there.
    /// They are complete when this returns, though not yet durable: see [`PersistentData::remember`].
    ///
    /// Of existing data the name of the database is not known here: it is `postgres`.
    pub fn start_persistent(
        &self,
        data: PersistentData,
        is_new: bool,
        say: &dyn Fn(Step<'_>),
    ) -> Result<Started, ProvisionError> {
        let begun = Instant::now();
        let (kept, each_time) = self.chain();
        let (path, files) = (data.path().to_owned(), data.data());
        if is_new {
            self.on_template(kept.last().copied(), say, |template| {
                data.clear()?;
                let all = Deferred { below: "", last: None };
                let copying =
                    Copying::begin(&template.entry, &files, &self.account, all).map_err(StartError::from)?;
                let watch = |done, total| say(Step::Copying { done, total });
                copying.finish(&watch).map_err(StartError::from)?;
                Ok(())
            })?;
        }
        let place = self.choose_place(&PlaceRequest::At(path), 0)?;
        let settings = self.with_users(Settings::persistent(&self.installation, place.budget()))?;
        let guard = Guard::over(&self.place(0)?, &self.account, &self.program)?.with_persistent(data)?;
        let look_up = begun.elapsed();
        let server = Server::start(&self.order(&place, &settings), Data::Made(guard), &|_, _| ())?;
        if is_new {
            return self.run_each_time(self.started(server, place, look_up), &each_time, say);
        }
        let database = "postgres".to_owned();
        Ok(Started { server, session: None, entry: None, place, database, templates: Vec::new(), look_up })
    }

    /// Starts a server that has ended, whichever way, on its data in `place`: see [`Server::start_again`].
    pub fn start_again(
        &self,
        guard: Guard,
        place: &Place,
        settings: &Settings,
    ) -> Result<Server, Box<NotStarted>> {
        Server::start_again(&self.order(place, settings), guard)
    }

    /// Gives the template of `spec`, or the base image, to `use_it`; once more, made anew, if it proved damaged.
    pub(crate) fn on_template<T>(
        &self,
        spec: Option<&TemplateSpec>,
        say: &dyn Fn(Step<'_>),
        use_it: impl Fn(&Template) -> Result<T, ProvisionError>,
    ) -> Result<T, ProvisionError> {
        let template = self.template_of(spec, say)?;
        match use_it(&template) {
            Err(error) if error.is_damage() => {
                say(Step::RebuildingDamaged);
                self.cache.building(template.fingerprint.as_str(), || ())?.discard(&template.entry)?;
                use_it(&self.template_of(spec, say)?)
            }
            other => other,
        }
    }
}
