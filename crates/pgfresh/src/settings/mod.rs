//! Combines flags, `PGFRESH_*` variables and `pgfresh.toml`, in this order of priority. Commands only read the result,
//! [`ResolvedSettings`], so they all apply the same rules.

mod config_file;
mod keys;
mod migrate;
mod remote;
mod schema;
mod template;
mod toml_file;
mod values;

use std::env::{self, VarError};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use ::template::{ServerOptions, TemplateSpec};
use gateway::Budget;
use lease::{Isolation, NameRules};
use plans::PlanBudget;
use storage::TrustedKey;

pub(crate) use self::config_file::check;
pub(crate) use self::keys::{SIGNING_KEY, expect_trusted, no_trusted_key, signing_key, take_signing_key};
pub(crate) use self::migrate::MigrateSettings;
use self::remote::RemoteOptions;
pub(crate) use self::remote::{PushPolicy, RemoteSettings, parse_address, pull_request_target};
#[cfg(test)]
pub(crate) use self::schema::tables;
use self::template::TemplateRequest;
pub(crate) use self::template::{is_template_name, working_directory};
use self::values::{Count, Parsed, Size, Span, Version};
use crate::cli::{self, Options};
use crate::failure::Failure;

/// Variable with the password, for clients that must know it before the server starts.
pub(crate) const PASSWORD: &str = "PGFRESH_PASSWORD";
/// How long the background server outlives its last client by default.
const IDLE: Duration = Duration::from_mins(5);
/// How long a database remains leased after its last session ends, by default.
const LINGER: Duration = Duration::from_secs(5);

/// Options for the server, its templates and its databases, combined from all sources.
#[derive(Debug)]
pub(crate) struct ResolvedSettings {
    /// Server options, without a template.
    pub(crate) server_options: ServerOptions,
    /// The configuration file's templates, in file order.
    pub(crate) templates: Vec<TemplateSpec>,
    template_request: TemplateRequest,
    /// The project's folder: the configuration file's folder, or the working directory if there is no file.
    pub(crate) folder: PathBuf,
    /// Trusted keys. A template built elsewhere must be signed with one of them. If the list is empty, pgfresh doesn't
    /// check signatures.
    pub(crate) trusted: Vec<TrustedKey>,
    /// The remote template cache, if there is one.
    pub(crate) remote: Option<RemoteSettings>,
    pub(crate) download: server::Download,
    /// How long the background server outlives its last client.
    pub(crate) idle: Duration,
    /// Names of the databases that clients can create by connecting to them.
    pub(crate) names: NameRules,
    /// Isolation of leases whose clients don't request a specific one.
    pub(crate) isolation: Isolation,
    /// How long a database remains leased after its last session ends.
    pub(crate) linger: Duration,
    /// True if the user has set `linger`.
    pub(crate) is_linger_set: bool,
    /// Budget for each test.
    pub(crate) budget: Budget,
    pub(crate) plans: PlanSettings,
    /// Settings for migration checks.
    pub(crate) migrate: MigrateSettings,
    pub(crate) password: Result<Option<Password>, UnusablePassword>,
}

/// Settings for production's query plans.
#[derive(Debug)]
pub(crate) struct PlanSettings {
    /// File with production's statistics.
    pub(crate) statistics: Option<PathBuf>,
    /// File with the plan shapes to compare with.
    pub(crate) baseline: Option<PathBuf>,
    /// Limits for each statement's plan.
    pub(crate) budget: PlanBudget,
}

impl ResolvedSettings {
    /// Reads the configuration file and combines it with the command line and the environment.
    pub(crate) fn resolve(options: &Options) -> Result<Self, Failure> {
        let Options { postgres, place, space, preset, settings, template, cache_size, .. } = options;
        let Options { download, trust, remote, push, databases, background, config, .. } = options;
        let file = config_file::read(config.config.as_deref())?;
        let folder =
            if file.folder.as_os_str().is_empty() { template::working_directory()? } else { file.folder };
        let in_file = file.postgres.settings.0.into_iter().map(|(name, value)| (name, value.into_text()));
        let server_options = ServerOptions {
            installation: postgres
                .postgres
                .clone()
                .or(file.postgres.version.map(|Version(version)| version))
                .unwrap_or_default(),
            place: place.place.clone().or(file.postgres.place.map(|Parsed(place)| place)).unwrap_or_default(),
            space: space.space.or(file.postgres.space.map(|Size(bytes)| bytes)),
            preset: preset.preset.or(file.postgres.preset.map(|Parsed(preset)| preset)).unwrap_or_default(),
            settings: in_file.chain(settings_of_environment()?).chain(settings.set.clone()).collect(),
            cache_size: cache_size.cache_size.or(file.cache.size.map(|Size(bytes)| bytes)),
            ..ServerOptions::default()
        };
        let given =
            RemoteOptions { address: remote.cache_remote.as_deref(), push: push.cache_push.as_deref() };
        let plans = PlanSettings {
            statistics: file.plans.statistics.map(PathBuf::from),
            baseline: file.plans.baseline.map(PathBuf::from),
            budget: PlanBudget {
                cost: file.budget.plan_cost.map(|Count(cost)| report::as_f64(cost)),
                sequential_bytes: file.budget.no_seq_scan_over.map(|Size(bytes)| bytes),
            },
        };
        Ok(Self {
            server_options,
            templates: file.templates,
            template_request: TemplateRequest::of(template),
            folder,
            trusted: keys::trusted(&trust.cache_key, file.cache.keys.0)?,
            remote: given.resolve(file.cache.remote.map(|Parsed(address)| address), file.cache.push)?,
            download: download.policy(),
            idle: background.idle.or(file.server.idle.map(|Span(time)| time)).unwrap_or(IDLE),
            names: NameRules {
                names: given_or(&databases.created, file.databases.names.0),
                except: given_or(&databases.except, file.databases.except.0),
            },
            isolation: databases
                .isolation
                .or(file.database.isolation.map(|Parsed(isolation)| isolation))
                .unwrap_or_default(),
            is_linger_set: databases.linger.is_some() || file.database.linger.is_some(),
            linger: databases.linger.or(file.database.linger.map(|Span(time)| time)).unwrap_or(LINGER),
            budget: Budget {
                statements: file.budget.statements.map(|Count(count)| count),
                n_plus_one: file.budget.n_plus_one.map(|Count(count)| count),
                time: file.budget.time.map(|Span(time)| time),
            },
            plans,
            migrate: file.migrate,
            password: Password::of_environment(),
        })
    }

    /// Returns the server options, including the template to start from.
    pub(crate) fn with_template(&self) -> Result<ServerOptions, Failure> {
        let template = self.template_request.choose(&self.templates)?;
        Ok(ServerOptions { template, ..self.server_options.clone() })
    }

    /// Returns true if the user has to select one of the configuration file's templates.
    pub(crate) fn has_open_choice(&self) -> bool {
        self.template_request.is_open(&self.templates)
    }

    /// Returns the configuration file's template with this name.
    pub(crate) fn find_template(&self, name: &str) -> Result<TemplateSpec, Failure> {
        template::find(&self.templates, name)
    }
}

/// A password whose characters are all allowed in a URL.
#[derive(Clone)]
pub(crate) struct Password(pub(crate) String);

impl Password {
    /// Reads the password from the environment. Returns `None` if the variable is unset or empty.
    fn of_environment() -> Result<Option<Self>, UnusablePassword> {
        match env::var(PASSWORD) {
            Err(VarError::NotPresent) => Ok(None),
            Ok(password) if password.is_empty() => Ok(None),
            Ok(password) if password.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(Self(password))),
            _ => Err(UnusablePassword),
        }
    }
}

/// A password that can't be part of a URL. Only commands that start a server report this error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnusablePassword;

impl From<UnusablePassword> for Failure {
    fn from(_: UnusablePassword) -> Self {
        Self::new(format!("cannot use the password in {PASSWORD}"))
            .hint("Use only ASCII letters, digits and punctuation, without spaces.".to_owned())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// Returns the patterns from flags or variables, falling back to the configuration file.
fn given_or(flags: &[String], file: Vec<String>) -> Vec<String> {
    let given: Vec<_> = flags.iter().filter(|text| !text.is_empty()).cloned().collect();
    if given.is_empty() { file } else { given }
}

/// Reads the names and values of server settings from `PGFRESH_SET`.
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
