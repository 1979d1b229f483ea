//! Starts servers from templates. pgfresh looks up or builds the template, copies it, and starts a server on the copy.
//! It then runs the setups whose results can't be cached.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use server::{AdminConnection, Data, Guard, RestartFailure, Server, Settings, StartError};
use storage::{Attempt, BackgroundCopy, Deferred, Entry, PersistentData, Place, PlaceRequest};

use crate::error::ProvisionError;
use crate::provisioner::{Provisioner, Step, Template};
use crate::setup::StartingPoint;
use crate::{Fingerprint, TemplateSpec, base};

/// A started server, with information about its start.
#[derive(Debug)]
pub struct Started {
    /// The server.
    pub server: Server,
    /// The session that tested the server, or `None` if a setup has run in the server since.
    pub session: Option<AdminConnection>,
    /// Cache entry of the copied template, or `None` if a setup has run in the server since the copy.
    pub entry: Option<Entry>,
    /// Place of the data directory.
    pub place: Place,
    /// The prepared database. With several templates, this is the default one. Without a template, it is `postgres`.
    pub database: String,
    /// Names of the templates in the server, which are also the names of their databases. The default is first.
    pub templates: Vec<String>,
    /// How long it took to look up the programs, the cache and the place, including building missing templates.
    pub look_up: Duration,
}

impl Provisioner {
    /// Returns the base image, which contains only what initdb creates.
    ///
    /// # Errors
    /// Returns an error if `initdb` fails, the new cluster doesn't start or stop, or the cache can't keep it.
    pub fn base_image(&self, report: &dyn Fn(Step<'_>)) -> Result<Template, ProvisionError> {
        base::look_up_or_build(self, report)
    }

    /// Looks up or builds the template in the options, or the base image if the options have no template.
    ///
    /// # Errors
    /// Returns an error if the setup failed, or if the setup doesn't
    /// have inputs, because its result can't be cached then.
    pub fn template(&self, report: &dyn Fn(Step<'_>)) -> Result<Template, ProvisionError> {
        self.template_of(self.server_options().template.as_ref(), report)
    }

    /// Computes the fingerprint of the template in the options. The template doesn't have to be in the cache, or even
    /// be cacheable.
    ///
    /// # Errors
    /// Returns [`ProvisionError::Input`] if an input file can't be read.
    pub fn fingerprint(&self) -> Result<Fingerprint, ProvisionError> {
        match &self.server_options().template {
            Some(spec) => Ok(self.fingerprint_inputs(spec, &|_| ())?.fingerprint()),
            None => Ok(base::fingerprint(&self.installation)),
        }
    }

    fn template_of(
        &self,
        spec: Option<&TemplateSpec>,
        report: &dyn Fn(Step<'_>),
    ) -> Result<Template, ProvisionError> {
        spec.map_or_else(|| self.base_image(report), |spec| self.look_up_or_build(spec, report))
    }

    /// Starts a server on a copy of the template in the options, building the template first if
    /// necessary. A template whose setup runs each time isn't in the cache. Instead, pgfresh copies
    /// the last cacheable template before it and runs the remaining setups in the new server.
    ///
    /// # Errors
    /// Returns the errors of [`Self::template`], [`ProvisionError::Place`] if no place has enough room, and
    /// [`ProvisionError::Start`] if the server doesn't start. Only files that the error names are left behind.
    pub fn start(&self, report: &dyn Fn(Step<'_>)) -> Result<Started, ProvisionError> {
        let begun = Instant::now();
        let (kept, each_time) = self.chain();
        let started = self.on_template(kept.last().copied(), report, |template| {
            let place = self.place(template.entry.bytes())?;
            let settings = self.settings(place.budget())?;
            let look_up = begun.elapsed();
            let (server, session) = self.boot(template, &place, &settings, report)?;
            let entry = Some(template.entry.clone());
            Ok(Started { session: Some(session), entry, ..self.describe_start(server, place, look_up) })
        })?;
        self.run_each_time(started, &each_time, report)
    }

    /// Describes a server on a copy of the template. Setups that run each time have yet to run.
    fn describe_start(&self, server: Server, place: Place, look_up: Duration) -> Started {
        let spec = self.server_options().template.as_ref();
        let templates: Vec<_> = spec.map_or_else(Vec::new, TemplateSpec::names);
        let templates: Vec<_> = templates.into_iter().map(str::to_owned).collect();
        let database = templates.first().cloned().unwrap_or_else(|| "postgres".to_owned());
        Started { server, session: None, entry: None, place, database, templates, look_up }
    }

    /// Splits the chain of templates into those that can be cached and those that run each time.
    fn chain(&self) -> (Vec<&TemplateSpec>, Vec<&TemplateSpec>) {
        let mut kept = self.server_options().template.as_ref().map_or_else(Vec::new, TemplateSpec::chain);
        let count = kept.iter().position(|spec| spec.runs_each_time()).unwrap_or(kept.len());
        let each_time = kept.split_off(count);
        (kept, each_time)
    }

    /// Runs the setups whose results can't be cached in the new server.
    fn run_each_time(
        &self,
        mut started: Started,
        specs: &[&TemplateSpec],
        report: &dyn Fn(Step<'_>),
    ) -> Result<Started, ProvisionError> {
        for spec in specs {
            // An open session would prevent setups from dropping or copying its database.
            (started.session, started.entry) = (None, None);
            if spec.runs_each_time() {
                report(Step::RunsEachTime { name: &spec.name });
            }
            let fingerprint = self.fingerprint_inputs(spec, report)?.fingerprint();
            let start = StartingPoint::of(spec);
            started.server = self.run_setup_steps(started.server, spec, start, &fingerprint, report)?;
        }
        Ok(started)
    }

    /// Starts a server on the data that an earlier server left in the run directory `kept`, and removes that directory.
    /// The data stays on its file system, even if new data would go elsewhere.
    ///
    /// # Errors
    /// Returns [`ProvisionError::File`] if the data can't be moved; `kept` stays in that case. Returns
    /// [`ProvisionError::Start`] if the server doesn't start; the data is removed in that case.
    pub fn reopen(&self, kept: &Path) -> Result<Started, ProvisionError> {
        let begun = Instant::now();
        // The path has the form PLACE/pgfresh-UID/kept-ID.
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
        let server = Server::start(&self.order(&place, &settings), Data::Prepared(guard), &|_, _| ())?;
        let database = "postgres".to_owned();
        Ok(Started { server, session: None, entry: None, place, database, templates: Vec::new(), look_up })
    }

    /// Starts a server on persistent data. If `is_new` is true, any existing data is first replaced with a copy of the
    /// template, as in [`Self::start`]. When this returns, the new data is complete but not yet durable, see
    /// [`PersistentData::remember`].
    ///
    /// Existing data doesn't record which database is the prepared one, so in this case the result always contains
    /// `postgres`.
    ///
    /// # Errors
    /// Returns the errors of [`Self::start`]. The data stays, but is incomplete if `is_new` is true.
    pub fn start_persistent(
        &self,
        data: PersistentData,
        is_new: bool,
        report: &dyn Fn(Step<'_>),
    ) -> Result<Started, ProvisionError> {
        let begun = Instant::now();
        let (kept, each_time) = self.chain();
        let (path, files) = (data.path().to_owned(), data.data());
        if is_new {
            self.on_template(kept.last().copied(), report, |template| {
                data.clear()?;
                let all = Deferred { below: "", last: None };
                let copying = BackgroundCopy::begin(&template.entry, &files, &self.account, all)
                    .map_err(StartError::from)?;
                let watch = |done, total| report(Step::Copying { done, total });
                copying.finish(&watch).map_err(StartError::from)?;
                Ok(())
            })?;
        }
        let place = self.choose_place(&PlaceRequest::At(path), 0)?;
        let settings = self.with_user_settings(Settings::persistent(&self.installation, place.budget()))?;
        let guard = Guard::over(&self.place(0)?, &self.account, &self.program)?.with_persistent(data)?;
        let look_up = begun.elapsed();
        let server = Server::start(&self.order(&place, &settings), Data::Prepared(guard), &|_, _| ())?;
        if is_new {
            return self.run_each_time(self.describe_start(server, place, look_up), &each_time, report);
        }
        let database = "postgres".to_owned();
        Ok(Started { server, session: None, entry: None, place, database, templates: Vec::new(), look_up })
    }

    /// Starts a standby that follows a primary through the replication slot `slot`. The
    /// primary's socket is in `directory`, and its data began as a copy of `entry`. The standby
    /// has its own run directory and guard. Returns the standby and the place of its data.
    ///
    /// # Errors
    /// Returns [`ProvisionError::Place`] if no place has enough room, and [`ProvisionError::Start`] if the standby
    /// doesn't start. Nothing is left behind.
    pub fn start_standby(
        &self,
        entry: &Entry,
        directory: &Path,
        slot: &str,
    ) -> Result<(Server, Place), ProvisionError> {
        let place = self.place(entry.bytes())?;
        let settings = self.settings(place.budget())?.for_standby(directory, slot);
        let order = self.order(&place, &settings);
        let guard = Guard::over(&place, &self.account, &self.program)?;
        // A standby replays changes before it is ready, so wait until the copy is complete.
        let all = Deferred { below: "", last: None };
        let copying = BackgroundCopy::begin(entry, &guard.run().data(), &self.account, all);
        copying.and_then(|copying| copying.finish(&|_, _| ())).map_err(StartError::from)?;
        guard.make_standby(&order)?;
        let server = Server::start(&order, Data::Prepared(guard), &|_, _| ())?;
        Ok((server, place))
    }

    /// Restarts a stopped server on its data in `place`, even if the server crashed. See [`Server::start_again`].
    ///
    /// # Errors
    /// Returns the error and the guard of the data, which the caller can pass to the next attempt.
    pub fn start_again(
        &self,
        guard: Guard,
        place: &Place,
        settings: &Settings,
    ) -> Result<Server, Box<RestartFailure>> {
        Server::start_again(&self.order(place, settings), guard)
    }

    /// Calls `use_it` with the template of `spec`, or with the base image if `spec` is `None`. If the template turns
    /// out to be damaged, rebuilds it and retries once.
    pub(crate) fn on_template<T>(
        &self,
        spec: Option<&TemplateSpec>,
        report: &dyn Fn(Step<'_>),
        use_it: impl Fn(&Template) -> Result<T, ProvisionError>,
    ) -> Result<T, ProvisionError> {
        let template = self.template_of(spec, report)?;
        match use_it(&template) {
            Err(error) if error.is_damage() => {
                report(Step::RebuildingDamaged);
                self.cache.building(template.fingerprint.as_str(), || ())?.discard(&template.entry)?;
                use_it(&self.template_of(spec, report)?)
            }
            other => other,
        }
    }
}
