//! Builds templates. A build computes the template's fingerprint and looks it up in the cache. Only if the cache
//! doesn't have it does the build run the template's steps.

use std::time::Instant;

use server::{Guard, Preset, Server, Settings, discard_statistics};
use storage::{Building, Entry, PlaceRequest};

use crate::description::{self, EntryDescription};
use crate::error::{KeptServer, ProvisionError, SetupError};
use crate::fingerprint_inputs::{GOES_ON_FROM, INPUT, PREPARE_COMMAND, SQL_FILES};
use crate::incremental::Parent;
use crate::inputs::{InputFiles, Skipped};
use crate::provisioner::{Provisioner, Step, Template};
use crate::setup::{FailedStep, Setup, StartingPoint, dump_files};
use crate::source::FetchResult;
use crate::{BuildPlan, Fingerprint, FingerprintInputs, TemplateSpec, base, cached, inputs};

/// Maximum number of attempts at a build that changes its own inputs. Builds commonly need a second attempt, for
/// example because their setup writes a schema file. A setup that still changes its inputs after that would never stop.
const MAX_ATTEMPTS: usize = 3;
/// Server settings for a build, in addition to the user's settings. They keep the server from leaving unused WAL
/// segments, which would end up in each copy of the template.
const BUILD_SETTINGS: [(&str, &str); 2] = [("wal_recycle", "off"), ("wal_init_zero", "off")];

/// Result of [`Provisioner::status`]: the template's cache entry, or the plan of the build that would create it.
#[derive(Debug)]
pub struct TemplateStatus {
    /// Name of the template in the cache.
    pub fingerprint: Fingerprint,
    /// Inputs that determine the fingerprint.
    pub fingerprint_inputs: FingerprintInputs,
    /// The cache entry, or `None` if the template isn't cached.
    pub entry: Option<Entry>,
    /// Differences from the last build's inputs, or `None` if there was no earlier build.
    pub changes: Option<Vec<String>>,
    /// Fingerprint of the earlier template that the build started from. `None` after a full build, or if the template
    /// isn't cached.
    pub parent: Option<String>,
    /// How the build would start, or `None` if the template is cached.
    pub plan: Option<BuildPlan>,
}

impl Provisioner {
    /// Collects the inputs that determine the result of `spec`. Calls `report` for each path that the search skips.
    pub(crate) fn fingerprint_inputs(
        &self,
        spec: &TemplateSpec,
        report: &dyn Fn(Step<'_>),
    ) -> Result<FingerprintInputs, ProvisionError> {
        let mut all = FingerprintInputs::default();
        let from = match spec.base() {
            Some(from) => self.fingerprint_inputs(from, report)?.fingerprint(),
            None => base::fingerprint(&self.installation),
        };
        all.add(GOES_ON_FROM, from.as_str());
        all.add("version of PostgreSQL", self.installation.version().to_string());
        all.add("name", &spec.name);
        if spec.beside.is_some() {
            let from = spec.from.as_ref().map_or("none", |from| &from.name);
            all.add("database that it copies", from);
        }
        for (name, value) in &self.server_options().settings {
            all.add(format!("setting {}", name.trim().to_ascii_lowercase()), value);
        }
        let folder = &spec.folder;
        if let Some(prepare) = &spec.prepare {
            all.add(PREPARE_COMMAND, prepare);
        }
        let InputFiles { files: sql, mut skipped } = inputs::expand_sql(folder, &spec.sql)?;
        if !sql.is_empty() {
            all.add(SQL_FILES, sql.join("\n"));
        }
        let mut files = sql;
        if let Some(dump) = &spec.dump {
            all.add("dump", dump);
            files.extend(dump_files(folder, dump)?);
        }
        if let Some(setup) = &spec.setup {
            all.add("setup command", setup);
        }
        let named = inputs::expand(folder, &spec.inputs)?;
        files.extend(named.files);
        skipped.extend(named.skipped);
        for Skipped { path, error, .. } in &skipped {
            report(Step::Skipped { path, error });
        }
        // A note about a temporary checkout would stay in the cache forever, so don't write one.
        let cache = spec.checkout_of.is_none().then_some(&self.cache);
        for (path, digest) in inputs::digest(folder, &files, cache)? {
            all.add(format!("{INPUT}{path}"), digest);
        }
        for name in &spec.env {
            // The value may be a secret, so only its digest becomes part of the fingerprint inputs.
            let value = std::env::var_os(name);
            let value = value.map(|value| blake3::hash(value.as_encoded_bytes()).to_string());
            all.add(format!("environment variable {name}"), value.unwrap_or_else(|| "not set".to_owned()));
        }
        Ok(all)
    }

    /// Reports what a look-up of `spec` would find, and why, without building anything or changing any entry's last
    /// use.
    ///
    /// # Errors
    /// Returns [`ProvisionError::Input`] if the input files of `spec` can't be read, and [`ProvisionError::Cache`] or
    /// [`ProvisionError::File`] if the cache can't.
    pub fn status(&self, spec: &TemplateSpec) -> Result<TemplateStatus, ProvisionError> {
        let fingerprint_inputs = self.fingerprint_inputs(spec, &|_| ())?;
        let fingerprint = fingerprint_inputs.fingerprint();
        let entry = self.cache.examine(fingerprint.as_str())?;
        let before = description::last_inputs(&self.cache, spec);
        let changes = before.map(|before| fingerprint_inputs.differences(&before));
        let parent = entry.as_ref().and_then(|entry| EntryDescription::parse(&entry.about())?.parent);
        let plan = if entry.is_none() { Some(self.plan(spec, &fingerprint_inputs)?) } else { None };
        Ok(TemplateStatus { fingerprint, fingerprint_inputs, entry, changes, parent, plan })
    }

    /// Looks up the template in the cache, or builds it if it isn't cached. If the template it extends isn't cached
    /// either, that template is built first.
    pub(crate) fn look_up_or_build(
        &self,
        spec: &TemplateSpec,
        report: &dyn Fn(Step<'_>),
    ) -> Result<Template, ProvisionError> {
        if let Some(spec) = spec.chain().into_iter().find(|spec| spec.runs_each_time()) {
            return Err(SetupError::RunsEachTime { name: spec.name.clone() }.into());
        }
        let (title, mut changes) = (spec.title(), Vec::new());
        for _ in 0..MAX_ATTEMPTS {
            let inputs = self.fingerprint_inputs(spec, report)?;
            let fingerprint = inputs.fingerprint();
            let found = |entry| Template {
                fingerprint: fingerprint.clone(),
                entry,
                database: spec.names()[0].to_owned(),
            };
            if let Some(entry) = self.look_up(&fingerprint)? {
                return Ok(found(entry));
            }
            self.expect_settings()?;
            let waiting = || report(Step::Waiting { name: &title });
            let building = self.cache.building(fingerprint.as_str(), waiting)?;
            if let Some(entry) = self.look_up(&fingerprint)? {
                return Ok(found(entry));
            }
            // Other machines wait for this build until `_notice` is dropped.
            let _notice = match self.fetch(spec, &fingerprint, &building, report)? {
                FetchResult::Fetched(entry) => return Ok(found(entry)),
                FetchResult::Missing(notice) => notice,
            };
            if changes.is_empty() {
                let before = description::last_inputs(&self.cache, spec);
                changes = before.map_or_else(Vec::new, |before| inputs.differences(&before));
            }
            let begun = Instant::now();
            let (guard, parent) = self.prepare(spec, &inputs, &changes, report)?;
            let after = self.fingerprint_inputs(spec, &|_| ())?;
            if after == inputs {
                let version = self.installation.version().to_string();
                let about = EntryDescription::new(Some(spec), version, begun.elapsed(), inputs)
                    .with_parent(parent.as_ref());
                return Ok(found(self.publish(spec, building, guard, &about, report)?));
            }
            changes = after.differences(&inputs);
            report(Step::InputsChanged { changes: &changes });
        }
        Err(SetupError::Unsettled { name: title, changes }.into())
    }

    /// Rejects user settings that the server doesn't support, as
    /// far as pgfresh can determine without starting a server.
    fn expect_settings(&self) -> Result<(), ProvisionError> {
        let settings = self.with_user_settings(Settings::default())?;
        Ok(self.installation.expect_settings(settings.iter().map(|(name, _)| name))?)
    }

    /// Returns the template's cache entry. If the user demands a full build, entries from incremental builds are
    /// ignored.
    fn look_up(&self, fingerprint: &Fingerprint) -> Result<Option<Entry>, ProvisionError> {
        let on_another = |entry: &Entry| {
            EntryDescription::parse(&entry.about()).is_some_and(|about| about.parent.is_some())
        };
        let entry = self.cache.look_up(fingerprint.as_str())?;
        Ok(entry.filter(|entry| !(self.server_options().full && on_another(entry))))
    }

    fn publish(
        &self,
        spec: &TemplateSpec,
        building: Building,
        guard: Guard,
        about: &EntryDescription,
        report: &dyn Fn(Step<'_>),
    ) -> Result<Entry, ProvisionError> {
        let name = &spec.title();
        report(Step::Publishing { name });
        let entry = building.publish(&guard.run().data(), &base::NOT_PUBLISHED, &about.to_text())?;
        // Remove the run directory now: it may be inside a checkout, which test runners search as soon as they start.
        guard.remove();
        description::save_inputs(&self.cache, spec, &about.fingerprint_inputs)?;
        report(Step::Built { name, bytes: entry.occupied()?, took: about.took });
        for evicted in cached::evict(&self.cache, self.cache_size())? {
            report(Step::Evicted(&evicted));
        }
        self.offer(spec, &entry, report);
        Ok(entry)
    }

    /// Runs the missing steps of `spec` in a server. Returns the data directory after a clean shutdown, and the
    /// fingerprint of the earlier template that the build started from, if any. `inputs` are this build's inputs, and
    /// `changes` are their differences from the last build.
    fn prepare(
        &self,
        spec: &TemplateSpec,
        inputs: &FingerprintInputs,
        changes: &[String],
        report: &dyn Fn(Step<'_>),
    ) -> Result<(Guard, Option<Fingerprint>), ProvisionError> {
        let (name, fingerprint) = (&spec.title(), &inputs.fingerprint());
        while let Some(parent) = self.parent(spec, inputs)? {
            report(Step::Building { name, fingerprint, changes, plan: &parent.plan() });
            // This look-up marks the parent as recently used, so the cache is less likely to evict it.
            self.cache.look_up(parent.template.fingerprint.as_str())?;
            let server = match self.boot_for_build(&parent.template, report) {
                Err(error) if error.is_damage() => {
                    let fingerprint = &parent.template.fingerprint;
                    report(Step::RemovingDamagedParent { fingerprint });
                    self.cache.building(fingerprint.as_str(), || ())?.discard(&parent.template.entry)?;
                    continue;
                }
                server => server?,
            };
            let Parent { template: Template { fingerprint: parent, entry, .. }, sql_files, added, .. } =
                parent;
            // The new server has its own copy of the files, so the cache can evict the entry while the setup runs.
            drop(entry);
            let server =
                self.run_setup_steps(server, spec, StartingPoint::Parent { sql_files }, fingerprint, report);
            let server = server.map_err(|error| error.on_parent(&parent, added))?;
            return Ok((shut_down_for_template(server)?, Some(parent)));
        }
        let plan = BuildPlan::Full { reasons: self.reasons_for_full_build(spec, inputs) };
        report(Step::Building { name, fingerprint, changes, plan: &plan });
        let server =
            self.on_template(spec.base(), report, |template| self.boot_for_build(template, report))?;
        let server = self.run_setup_steps(server, spec, StartingPoint::of(spec), fingerprint, report)?;
        Ok((shut_down_for_template(server)?, None))
    }

    /// Starts a server for the steps on a copy of `template`.
    fn boot_for_build(
        &self,
        template: &Template,
        report: &dyn Fn(Step<'_>),
    ) -> Result<Server, ProvisionError> {
        // The final size is unknown, so RAM might not be enough. Use it only if the user explicitly chose it.
        let request = if self.server_options().place == PlaceRequest::Auto {
            PlaceRequest::Disk
        } else {
            self.server_options().place.clone()
        };
        let place = self.choose_place(&request, template.entry.bytes())?;
        let mut settings = self.settings_of(Preset::Fast, place.budget())?;
        for (name, value) in BUILD_SETTINGS {
            settings.set(name, value)?;
        }
        Ok(self.boot(template, &place, &settings, report).map(|(server, _)| server)?)
    }

    /// Runs the steps of one specification in `server`.
    ///
    /// # Errors
    /// Returns an error if the setup failed. The error contains the path of the log and, with `ServerOptions::keep`,
    /// the server.
    pub(crate) fn run_setup_steps(
        &self,
        server: Server,
        spec: &TemplateSpec,
        start: StartingPoint<'_>,
        fingerprint: &Fingerprint,
        report: &dyn Fn(Step<'_>),
    ) -> Result<Server, ProvisionError> {
        let encryption = self.encryption.as_ref();
        let setup = Setup { server: &server, installation: &self.installation, encryption, spec, report };
        match setup.run(start)? {
            None => Ok(server),
            Some(broken) => Err(self.failed(server, spec, fingerprint, broken)?.into()),
        }
    }

    fn failed(
        &self,
        server: Server,
        spec: &TemplateSpec,
        fingerprint: &Fingerprint,
        broken: FailedStep,
    ) -> Result<SetupError, ProvisionError> {
        let log = Setup::log(&server);
        let last_lines = Setup::last_lines(&log);
        let extension = Setup::advice_for_extension(&server, &self.installation);
        let (log, kept) = if self.server_options().keep {
            let path = server.keep()?;
            let log = path.join(log.file_name().unwrap_or_default());
            let (open, sweep) = (self.command_to_open(&path, &spec.name), self.command_to_sweep());
            (log, Some(KeptServer { path, open, sweep }))
        } else {
            let name = format!("{}-{fingerprint}.log", spec.name);
            (self.cache.keep_log(&name, &log)?, None)
        };
        let FailedStep { step, status, after, wants_tls } = broken;
        let (name, fingerprint) = (spec.name.clone(), fingerprint.clone());
        let log = Some(log);
        Ok(SetupError::Failed {
            name,
            fingerprint,
            step,
            status,
            after,
            wants_tls,
            extension,
            last_lines,
            log,
            kept,
        })
    }
}

/// Stops a server so that its data can become a template.
fn shut_down_for_template(server: Server) -> Result<Guard, ProvisionError> {
    // After this switch, the shutdown's checkpoint removes all segments written so far.
    server.session("postgres")?.query("SELECT pg_switch_wal()")?;
    let guard = server.shut_down()?;
    discard_statistics(&guard)?;
    Ok(guard)
}
