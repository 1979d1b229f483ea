//! Settings: flags, `PGFRESH_*` variables and `pgfresh.toml`, in this order. [`ResolvedSettings`] has the result, and
//! no command reads any of them again.

mod config_file;
mod keys;
mod remote;
mod schema;
mod template;
mod toml_file;

use std::env::{self, VarError};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use ::template::{ServerOptions, TemplateSpec};
use gateway::Budget;
use lease::{Isolation, NameRules};
use storage::TrustedKey;

pub(crate) use self::keys::{SIGNING_KEY, signing_key, take_signing_key};
pub(crate) use self::remote::{PushPolicy, RemoteSettings, parse_address};
#[cfg(test)]
pub(crate) use self::schema::TABLES;
use self::template::TemplateRequest;
use crate::cli::{self, Options};
use crate::failure::Failure;
use crate::output::Verbosity;

/// Variable with the password that clients know beforehand.
pub(crate) const PASSWORD: &str = "PGFRESH_PASSWORD";
/// Default time for which the background server outlives its last client.
const IDLE: Duration = Duration::from_mins(5);
/// Default time for which a database outlives its last session.
const LINGER: Duration = Duration::from_secs(5);

/// Resolved options of a command for the server, its templates and its databases.
#[derive(Debug)]
pub(crate) struct ResolvedSettings {
    /// Options of the server, without a template.
    pub(crate) server_options: ServerOptions,
    /// Templates of the file, in its order.
    pub(crate) templates: Vec<TemplateSpec>,
    template_request: TemplateRequest,
    /// Folder of the project: the one of the file, or else the working directory.
    pub(crate) folder: PathBuf,
    /// Folder of the cache. `None` means the default place.
    pub(crate) cache: Option<PathBuf>,
    /// Keys of which one must have signed a template from elsewhere. If empty, pgfresh does not check signatures.
    pub(crate) trusted: Vec<TrustedKey>,
    /// Remote template cache, if there is one.
    pub(crate) remote: Option<RemoteSettings>,
    pub(crate) download: server::Download,
    /// Time for which the background server outlives its last client.
    pub(crate) idle: Duration,
    /// Names of databases that clients create by connecting to them.
    pub(crate) names: NameRules,
    /// Isolation of leases that do not choose one.
    pub(crate) isolation: Isolation,
    /// Time for which a database outlives its last session.
    pub(crate) linger: Duration,
    /// Budget of each test.
    pub(crate) budget: Budget,
    pub(crate) password: Result<Option<Password>, UnusablePassword>,
    pub(crate) verbosity: Verbosity,
}

impl ResolvedSettings {
    /// Reads the file, and combines it with the command line and the environment.
    pub(crate) fn resolve(options: &Options) -> Result<Self, Failure> {
        let file = config_file::read(options.config.as_deref())?;
        let folder =
            if file.folder.as_os_str().is_empty() { template::working_directory()? } else { file.folder };
        let postgres = file.postgres;
        let settings = postgres.settings.into_iter().map(|(name, value)| (name, value.into_text()));
        let server_options = ServerOptions {
            installation: options.postgres.clone().or(postgres.version).unwrap_or_default(),
            place: options.place.clone().or(postgres.place).unwrap_or_default(),
            space: options.space.or(postgres.space),
            preset: options.preset.or(postgres.preset).unwrap_or_default(),
            settings: settings.chain(settings_of_environment()?).chain(options.set.clone()).collect(),
            cache_size: options.cache_size.or(file.cache.size),
            ..ServerOptions::default()
        };
        Ok(Self {
            server_options,
            templates: file.templates,
            template_request: TemplateRequest::of(options),
            folder,
            cache: options.cache.clone(),
            trusted: keys::trusted(&options.cache_key, file.cache.keys)?,
            remote: RemoteSettings::resolve(options, (file.cache.remote, file.cache.push))?,
            download: options.download(),
            idle: options.idle.or(file.server.idle).unwrap_or(IDLE),
            names: NameRules {
                names: given_or(&options.created, file.databases.names),
                except: given_or(&options.except, file.databases.except),
            },
            isolation: options.isolation.or(file.database.isolation).unwrap_or_default(),
            linger: options.linger.or(file.database.linger).unwrap_or(LINGER),
            budget: Budget {
                statements: file.budget.statements,
                n_plus_one: file.budget.n_plus_one,
                time: file.budget.time,
            },
            password: Password::of_environment(),
            verbosity: options.verbosity(),
        })
    }

    /// Returns the options of the server, with the template that it starts from.
    pub(crate) fn with_template(&self) -> Result<ServerOptions, Failure> {
        let template = self.template_request.choose(&self.templates)?;
        Ok(ServerOptions { template, ..self.server_options.clone() })
    }

    /// Returns the template of that name in the file.
    pub(crate) fn find_template(&self, name: &str) -> Result<TemplateSpec, Failure> {
        template::find(&self.templates, name)
    }
}

/// Password that a URL can hold.
#[derive(Clone)]
pub(crate) struct Password(pub(crate) String);

impl Password {
    /// Reads the password of the variable. `None` if that is unset or empty.
    fn of_environment() -> Result<Option<Self>, UnusablePassword> {
        match env::var(PASSWORD) {
            Err(VarError::NotPresent) => Ok(None),
            Ok(password) if password.is_empty() => Ok(None),
            Ok(password) if password.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(Self(password))),
            _ => Err(UnusablePassword),
        }
    }
}

/// Error of a password that no URL can hold, for commands that start a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnusablePassword;

impl From<UnusablePassword> for Failure {
    fn from(_: UnusablePassword) -> Self {
        Self::new(format!("cannot use the password in {PASSWORD}"))
            .hint("It has letters, digits and signs of ASCII, and no space.".to_owned())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// Returns the patterns of flags or variables; those of the file if there are none.
fn given_or(flags: &[String], file: Vec<String>) -> Vec<String> {
    let given: Vec<_> = flags.iter().filter(|text| !text.is_empty()).cloned().collect();
    if given.is_empty() { file } else { given }
}

/// Reads the server's settings in `PGFRESH_SET`, by name.
fn settings_of_environment() -> Result<Vec<(String, String)>, Failure> {
    let environment = env::var("PGFRESH_SET").unwrap_or_default();
    let pairs = environment.split(';').filter(|pair| !pair.trim().is_empty());
    let read = |pair: &str| {
        cli::setting(pair).map_err(|why| {
            Failure::new(format!("cannot read \"{pair}\" in PGFRESH_SET: {why}"))
                .hint("Write PGFRESH_SET=\"work_mem=64MB; jit=off\".".to_owned())
        })
    };
    pairs.map(read).collect()
}
