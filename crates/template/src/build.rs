//! From a specification to a template: its fingerprint, the look-up, and the build where there is nothing to be found.

use std::time::Instant;

use server::{Guard, Preset, Server};
use storage::{Building, Entry, PlaceRequest};

use crate::about::{self, About};
use crate::error::{ProvisionError, SetupError};
use crate::fingerprint_inputs::INPUT;
use crate::provisioner::{Provisioner, Step, Template};
use crate::setup::{Broken, Setup, dump_files};
use crate::{Fingerprint, FingerprintInputs, TemplateSpec, base, cached, inputs};

/// How often a build may be repeated because it changed its own inputs: once is common (a schema file that is written
/// after migrating), more often it would never end.
const ATTEMPTS: usize = 3;
/// What a server is told, beyond the user's settings, whose data will be a template: no WAL that is never read is kept
/// for reuse, because each copy would have to carry it.
const BUILDING: [(&str, &str); 2] = [("wal_recycle", "off"), ("wal_init_zero", "off")];

/// What would be found of a template, and why.
#[derive(Debug)]
pub struct TemplateStatus {
    /// Its name in the cache.
    pub fingerprint: Fingerprint,
    /// What that is made of.
    pub fingerprint_inputs: FingerprintInputs,
    /// What is there of it.
    pub entry: Option<Entry>,
    /// What differs from the one that was built last, if one was.
    pub changes: Option<Vec<String>>,
}

impl Provisioner {
    /// All that shapes what `spec` makes, with what it goes on from.
    pub(crate) fn fingerprint_inputs(
        &self,
        spec: &TemplateSpec,
    ) -> Result<FingerprintInputs, ProvisionError> {
        let mut all = FingerprintInputs::default();
        let from = match &spec.from {
            Some(from) => self.fingerprint_inputs(from)?.fingerprint(),
            None => base::fingerprint(&self.installation),
        };
        all.add("template it goes on from", from.as_str());
        all.add("version of PostgreSQL", self.installation.version().to_string());
        all.add("name", &spec.name);
        for (name, value) in self.user_settings() {
            all.add(format!("setting {name}"), value);
        }
        let folder = &spec.folder;
        let sql = inputs::expand(folder, &spec.sql)?;
        if !sql.is_empty() {
            all.add("list of SQL files", sql.join("\n"));
        }
        let mut files = sql;
        if let Some(dump) = &spec.dump {
            all.add("dump", dump);
            files.extend(dump_files(folder, dump)?);
        }
        if let Some(setup) = &spec.setup {
            all.add("setup command", setup);
        }
        files.extend(inputs::expand(folder, &spec.inputs)?);
        for (path, digest) in inputs::digest(folder, &files, &self.cache)? {
            all.add(format!("{INPUT}{path}"), digest);
        }
        for name in &spec.env {
            // It may be a secret: only its digest is kept.
            let value = std::env::var_os(name);
            let value = value.map(|value| blake3::hash(value.as_encoded_bytes()).to_string());
            all.add(format!("environment variable {name}"), value.unwrap_or_else(|| "not set".to_owned()));
        }
        Ok(all)
    }

    /// What a look-up of `spec` would find, and why; nothing is built, and nothing counts as used.
    pub fn status(&self, spec: &TemplateSpec) -> Result<TemplateStatus, ProvisionError> {
        let fingerprint_inputs = self.fingerprint_inputs(spec)?;
        let fingerprint = fingerprint_inputs.fingerprint();
        let entry = self.cache.examine(fingerprint.as_str())?;
        let before = about::last(&self.cache, spec);
        let changes = before.map(|before| fingerprint_inputs.differences(&before));
        Ok(TemplateStatus { fingerprint, fingerprint_inputs, entry, changes })
    }

    /// Looks the template up, or makes it and, before, what it goes on from.
    pub(crate) fn look_up_or_build(
        &self,
        spec: &TemplateSpec,
        say: &dyn Fn(Step<'_>),
    ) -> Result<Template, ProvisionError> {
        if let Some(spec) = spec.chain().into_iter().find(|spec| spec.runs_each_time()) {
            return Err(SetupError::RunsEachTime { name: spec.name.clone() }.into());
        }
        let mut changes = Vec::new();
        for _ in 0..ATTEMPTS {
            let fingerprint_inputs = self.fingerprint_inputs(spec)?;
            let fingerprint = fingerprint_inputs.fingerprint();
            let found =
                |entry| Template { fingerprint: fingerprint.clone(), entry, database: spec.name.clone() };
            if let Some(entry) = self.cache.look_up(fingerprint.as_str())? {
                return Ok(found(entry));
            }
            let waiting = || say(Step::Waiting { name: &spec.name });
            let building = self.cache.building(fingerprint.as_str(), waiting)?;
            if let Some(entry) = self.cache.look_up(fingerprint.as_str())? {
                return Ok(found(entry));
            }
            if changes.is_empty() {
                let before = about::last(&self.cache, spec);
                changes = before.map_or_else(Vec::new, |before| fingerprint_inputs.differences(&before));
            }
            say(Step::Building { name: &spec.name, fingerprint: &fingerprint, changes: &changes });
            let begun = Instant::now();
            let guard = self.prepare(spec, &fingerprint, say)?;
            let after = self.fingerprint_inputs(spec)?;
            if after == fingerprint_inputs {
                let version = self.installation.version().to_string();
                let about = About::new(Some(spec), version, begun.elapsed(), fingerprint_inputs);
                return Ok(found(self.publish(spec, building, guard, &about, say)?));
            }
            changes = after.differences(&fingerprint_inputs);
            say(Step::InputsChanged { changes: &changes });
        }
        Err(SetupError::Unsettled { name: spec.name.clone(), changes }.into())
    }

    fn publish(
        &self,
        spec: &TemplateSpec,
        building: Building,
        guard: Guard,
        about: &About,
        say: &dyn Fn(Step<'_>),
    ) -> Result<Entry, ProvisionError> {
        say(Step::Publishing { name: &spec.name });
        let entry = building.publish(&guard.run().data(), &base::NOT_PUBLISHED, &about.to_text())?;
        // It may be in the cache, and the cache in a checkout: test runners walk through that as soon as they are started.
        guard.remove();
        about::remember(&self.cache, spec, &about.fingerprint_inputs)?;
        say(Step::Built { name: &spec.name, bytes: entry.occupied()?, took: about.took });
        for evicted in cached::evict(&self.cache, self.cache_size())? {
            say(Step::Evicted(&evicted));
        }
        Ok(entry)
    }

    /// Runs the specification's steps in a server on what it goes on from, and leaves a data directory at rest.
    fn prepare(
        &self,
        spec: &TemplateSpec,
        fingerprint: &Fingerprint,
        say: &dyn Fn(Step<'_>),
    ) -> Result<Guard, ProvisionError> {
        // How large it becomes is unknown: where the user does not decide, that is no matter for RAM.
        let request = if self.server_options().place == PlaceRequest::Auto {
            PlaceRequest::Disk
        } else {
            self.server_options().place.clone()
        };
        let from = spec.from.as_deref();
        let server = self.on_template(from, say, |template| {
            let place = self.choose_place(&request, template.entry.bytes())?;
            let mut settings = self.settings_of(Preset::Fast, place.budget())?;
            for (name, value) in BUILDING {
                settings.set(name, value)?;
            }
            Ok(self.boot(template, &place, &settings, say)?)
        })?;
        let server = self.set_up(server, spec, fingerprint, say)?;
        // Everything written until now lies in segments that the checkpoint of the shutdown removes.
        server.session("postgres")?.query("SELECT pg_switch_wal()")?;
        Ok(server.shut_down()?)
    }

    /// Runs the steps of one specification in `server`.
    ///
    /// # Errors
    /// The log of what failed is kept, and the server's directory if that was asked for.
    pub(crate) fn set_up(
        &self,
        server: Server,
        spec: &TemplateSpec,
        fingerprint: &Fingerprint,
        say: &dyn Fn(Step<'_>),
    ) -> Result<Server, ProvisionError> {
        let setup = Setup { server: &server, installation: &self.installation, spec, say };
        let parent = spec.from.as_ref().map(|from| from.name.as_str());
        match setup.run(parent)? {
            None => Ok(server),
            Some(broken) => Err(self.failed(server, spec, fingerprint, broken)?.into()),
        }
    }

    fn failed(
        &self,
        server: Server,
        spec: &TemplateSpec,
        fingerprint: &Fingerprint,
        broken: Broken,
    ) -> Result<SetupError, ProvisionError> {
        let log = Setup::log(&server);
        let last_lines = Setup::last_lines(&log);
        let (log, kept) = if self.server_options().keep {
            let path = server.keep()?;
            let command = self.command_to_open(&path, &spec.name);
            (path.join(log.file_name().unwrap_or_default()), Some((path, command)))
        } else {
            let name = format!("{}-{fingerprint}.log", spec.name);
            (self.cache.keep_log(&name, &log)?, None)
        };
        let Broken { step, status, after } = broken;
        let (name, fingerprint) = (spec.name.clone(), fingerprint.clone());
        let log = Some(log);
        Ok(SetupError::Failed { name, fingerprint, step, status, after, last_lines, log, kept })
    }
}
