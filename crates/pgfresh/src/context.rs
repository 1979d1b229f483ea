//! Provides what commands need besides their own arguments: settings, verbosity and a provisioner.

pub(crate) mod provisioning;

use std::cell::OnceCell;
use std::path::PathBuf;

use storage::Cache;
use template::Provisioner;

use crate::cli::{ConfigOption, Options};
use crate::exit::ExitRequests;
use crate::failure::Failure;
use crate::output::Verbosity;
use crate::settings::ResolvedSettings;

/// A command's settings, verbosity and provisioner. `main` creates the context and passes it to every command.
///
/// The settings are resolved on first use, so a mistake in `pgfresh.toml` doesn't affect commands that work without
/// settings, for example within a run.
#[derive(Debug)]
pub(crate) struct Context {
    options: Options,
    pub(crate) verbosity: Verbosity,
    /// Lets the command's other threads end the process.
    pub(crate) exit: ExitRequests,
    settings: OnceCell<ResolvedSettings>,
    provisioner: OnceCell<Provisioner>,
}

impl Context {
    pub(crate) fn new(options: Options, verbosity: Verbosity, exit: ExitRequests) -> Self {
        Self { options, verbosity, exit, settings: OnceCell::new(), provisioner: OnceCell::new() }
    }

    /// Creates a context with another configuration file. `None` means the nearest file.
    pub(crate) fn with_config(&self, file: Option<PathBuf>) -> Self {
        let config = ConfigOption { config: file };
        let options = Options { config, ..self.options.clone() };
        Self::new(options, self.verbosity, self.exit.clone())
    }

    pub(crate) fn settings(&self) -> Result<&ResolvedSettings, Failure> {
        if let Some(settings) = self.settings.get() {
            return Ok(settings);
        }
        let settings = ResolvedSettings::resolve(&self.options)?;
        Ok(self.settings.get_or_init(|| settings))
    }

    /// Returns the cache, creating its directory if it is missing.
    pub(crate) fn cache(&self) -> Result<Cache, Failure> {
        Ok(Cache::locate(self.options.cache.cache.as_deref())?)
    }

    /// Returns the options from the command line and the environment.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the provisioner for the settings and their template. PostgreSQL is downloaded if it is missing and the
    /// user allows downloads.
    pub(crate) fn provisioner(&self) -> Result<&Provisioner, Failure> {
        if let Some(provisioner) = self.provisioner.get() {
            return Ok(provisioner);
        }
        let provisioner = provisioning::provisioner(self, self.settings()?.with_template()?)?;
        Ok(self.provisioner.get_or_init(|| provisioner))
    }
}
