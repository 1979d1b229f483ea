//! Defines groups of options and each command's set of groups. A command has exactly the groups that affect it, and the
//! parser rejects all other options.
// clap prints these doc comments as help, so they must be plain text.
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes)]

use std::path::PathBuf;
use std::time::Duration;

use ::template::Steps;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args};
use lease::Isolation;
use server::{Download, Preset, VersionRequest};
use storage::PlaceRequest;

use super::values;
use crate::output::Verbosity;

/// Messages on standard error. Every command has this group, before or after its name.
#[derive(Debug, Args)]
pub(crate) struct OutputOptions {
    /// Print steps and their times; -vv adds background tasks
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 900)]
    verbose: u8,
    /// Print errors only
    #[arg(short, long, global = true, conflicts_with = "verbose", display_order = 901)]
    quiet: bool,
}

impl OutputOptions {
    pub(crate) fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, 0) => Verbosity::Normal,
            (false, 1) => Verbosity::Verbose,
            (false, _) => Verbosity::Background,
        }
    }
}

/// Version of PostgreSQL.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct PostgresOption {
    /// Major from 13, or path of the programs [default: on PATH, or newest]
    #[arg(
        long,
        value_name = "MAJOR|PATH",
        env = "PGFRESH_POSTGRES",
        hide_env = true,
        hide_short_help = true
    )]
    pub(crate) postgres: Option<VersionRequest>,
}

/// Downloads of PostgreSQL.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct DownloadOptions {
    /// Download missing versions: auto, never (--no-download) [default: auto]
    #[arg(long, value_name = "WHEN", env = "PGFRESH_DOWNLOAD", hide_env = true, hide_short_help = true)]
    #[arg(hide_possible_values = true, value_parser = ["auto", "never"])]
    download: Option<String>,
    #[arg(long, hide = true)]
    no_download: bool,
}

impl DownloadOptions {
    /// Returns whether pgfresh may download PostgreSQL.
    pub(crate) fn policy(&self) -> Download {
        let is_forbidden = self.no_download || self.download.as_deref() == Some("never");
        if is_forbidden { Download::Forbidden } else { Download::Allowed }
    }
}

/// Place of the data directory.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct PlaceOption {
    /// Place of data: auto (RAM if it fits), ram, disk, PATH [default: auto]
    #[arg(long, value_name = "PLACE", env = "PGFRESH_PLACE", hide_env = true, hide_short_help = true)]
    #[arg(value_parser = OsStringValueParser::new().try_map(|text| PlaceRequest::from_os(&text)))]
    pub(crate) place: Option<PlaceRequest>,
}

/// Size of the data.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct SpaceOption {
    /// Maximum size of the data in all databases [default: the free space]
    #[arg(long, value_name = "SIZE", env = "PGFRESH_SPACE", hide_env = true, hide_short_help = true)]
    #[arg(value_parser = values::size)]
    pub(crate) space: Option<u64>,
}

/// Preset of server settings.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct PresetOption {
    /// Preset of server settings: fast (fsync=off) or durable [default: fast]
    #[arg(long, value_name = "PRESET", env = "PGFRESH_PRESET", hide_env = true, hide_short_help = true)]
    pub(crate) preset: Option<Preset>,
}

/// Server settings.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct SettingOptions {
    /// Server setting, which overrides preset and file; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::setting, hide_short_help = true)]
    pub(crate) set: Vec<(String, String)>,
}

/// The template from which a server starts.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Template")]
pub(crate) struct TemplateOptions {
    /// Template of pgfresh.toml, or several as "NAME,NAME", or "none"
    #[arg(long, value_name = "NAME", env = "PGFRESH_TEMPLATE", hide_env = true, hide_short_help = true)]
    pub(crate) template: Option<String>,
    /// Shell command that prepares the template with DATABASE_URL set
    #[arg(long, value_name = "COMMAND", env = "PGFRESH_SETUP", hide_env = true, hide_short_help = true)]
    pub(crate) setup: Option<String>,
    /// File, folder or glob that the setup command reads; repeatable
    #[arg(long, value_name = "GLOB", env = "PGFRESH_INPUTS", hide_env = true, hide_short_help = true)]
    pub(crate) inputs: Vec<String>,
    /// Variable that the setup command reads; repeatable
    #[arg(long, value_name = "NAME", env = "PGFRESH_SETUP_ENV", hide_env = true, hide_short_help = true)]
    pub(crate) setup_env: Vec<String>,
    /// SQL file that prepares the template; repeatable
    #[arg(long, value_name = "FILE", env = "PGFRESH_SQL", hide_env = true, hide_short_help = true)]
    pub(crate) sql: Vec<String>,
    /// Output of pg_dump, in any format, that prepares the template
    #[arg(long, value_name = "FILE", env = "PGFRESH_DUMP", hide_env = true, hide_short_help = true)]
    pub(crate) dump: Option<String>,
    /// Allowed file changes: any, or append-only (incremental) [default: any]
    #[arg(long, value_name = "STEPS", env = "PGFRESH_STEPS", hide_env = true, hide_short_help = true)]
    pub(crate) steps: Option<Steps>,
    /// Template of pgfresh.toml that --setup, --sql or --dump builds on
    #[arg(long, value_name = "NAME", env = "PGFRESH_FROM", hide_env = true, hide_short_help = true)]
    pub(crate) from: Option<String>,
}

/// Name of the template, for commands that use no template but those of pgfresh.toml.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Template")]
pub(crate) struct TemplateNameOption {
    /// Template of pgfresh.toml, or several as "NAME,NAME"
    #[arg(long, value_name = "NAME", env = "PGFRESH_TEMPLATE", hide_env = true, hide_short_help = true)]
    pub(crate) template: Option<String>,
}

/// Options whose variable can have several values, separated by `;`. A flag has one value, and is repeatable.
const LISTS: [&str; 6] = ["inputs", "setup_env", "sql", "cache_key", "created", "except"];

/// Returns the names of list options whose values come from their variables. `matches` is the parsed command line.
pub(super) fn lists_from_variables(matches: &ArgMatches) -> Vec<&'static str> {
    let innermost = std::iter::successors(Some(matches), |matches| Some(matches.subcommand()?.1)).last();
    let is_from_variable = |name: &&str| {
        let matches = innermost.filter(|matches| matches.ids().any(|id| id == *name));
        matches.and_then(|matches| matches.value_source(name)) == Some(ValueSource::EnvVariable)
    };
    LISTS.into_iter().filter(is_from_variable).collect()
}

impl Options {
    /// Splits the values of the list options in `names`, which come from variables.
    pub(super) fn split_lists(mut self, names: &[&str]) -> Self {
        let lists = [
            &mut self.template.inputs,
            &mut self.template.setup_env,
            &mut self.template.sql,
            &mut self.trust.cache_key,
            &mut self.databases.created,
            &mut self.databases.except,
        ];
        for (_, list) in LISTS.iter().zip(lists).filter(|(name, _)| names.contains(name)) {
            *list = list.iter().flat_map(|value| value.split(';')).map(str::to_owned).collect();
        }
        self
    }
}

impl From<TemplateNameOption> for TemplateOptions {
    fn from(TemplateNameOption { template }: TemplateNameOption) -> Self {
        Self { template, ..Self::default() }
    }
}

/// Size of the template cache.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Template cache")]
pub(crate) struct CacheSizeOption {
    /// Maximum size of the cache [default: 10GB, or a fifth of free space]
    #[arg(long, value_name = "SIZE", env = "PGFRESH_CACHE_SIZE", hide_env = true, hide_short_help = true)]
    #[arg(value_parser = values::size)]
    pub(crate) cache_size: Option<u64>,
}

/// Trusted keys.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Template cache")]
pub(crate) struct TrustOptions {
    /// Public key that makes a signed template trusted; repeatable
    #[arg(long, value_name = "KEY", env = "PGFRESH_CACHE_KEYS", hide_env = true, hide_short_help = true)]
    pub(crate) cache_key: Vec<String>,
}

/// Address of the remote template cache.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Template cache")]
pub(crate) struct RemoteOption {
    /// Remote template cache: s3://, gs://, az://, https://, file://, oci://
    #[arg(long, value_name = "URL", env = "PGFRESH_CACHE_REMOTE", hide_env = true, hide_short_help = true)]
    pub(crate) cache_remote: Option<String>,
}

/// Pushes to the remote template cache.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Template cache")]
pub(crate) struct PushOption {
    /// When to push templates: never, always or a CI branch [default: never]
    #[arg(long, value_name = "WHEN", env = "PGFRESH_CACHE_PUSH", hide_env = true, hide_short_help = true)]
    pub(crate) cache_push: Option<String>,
}

/// Leases of databases.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Databases")]
pub(crate) struct DatabaseOptions {
    /// Unit for each test: clone, rollback or server [default: clone]
    #[arg(
        long,
        value_name = "ISOLATION",
        env = "PGFRESH_ISOLATION",
        hide_env = true,
        hide_short_help = true
    )]
    pub(crate) isolation: Option<Isolation>,
    /// Time from the last connection to the end of a lease [default: 5s]
    #[arg(long, value_name = "TIME", env = "PGFRESH_LINGER", hide_env = true, hide_short_help = true)]
    #[arg(value_parser = values::span)]
    pub(crate) linger: Option<Duration>,
    /// Databases to create, such as "test_*"; repeatable [default: all]
    #[arg(
        long = "names",
        value_name = "GLOB",
        env = "PGFRESH_NAMES",
        hide_env = true,
        hide_short_help = true
    )]
    pub(crate) created: Vec<String>,
    /// Names of databases not to create: connections to them fail; repeatable
    #[arg(long, value_name = "GLOB", env = "PGFRESH_EXCEPT", hide_env = true, hide_short_help = true)]
    pub(crate) except: Vec<String>,
}

/// Life of the background server.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Background server")]
pub(crate) struct BackgroundOptions {
    /// Time without clients until the background server stops [default: 5m]
    #[arg(long, value_name = "TIME", env = "PGFRESH_IDLE", hide_env = true, hide_short_help = true)]
    #[arg(value_parser = values::span)]
    pub(crate) idle: Option<Duration>,
}

/// Path of the configuration file.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Files")]
pub(crate) struct ConfigOption {
    /// Configuration file [default: pgfresh.toml, here or above]
    #[arg(long, value_name = "FILE", env = "PGFRESH_CONFIG", hide_env = true, hide_short_help = true)]
    pub(crate) config: Option<PathBuf>,
}

/// Path of the cache.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Files")]
pub(crate) struct CacheOption {
    /// Directory of the cache [default: the user's cache directory]
    #[arg(long, value_name = "PATH", env = "PGFRESH_CACHE", hide_env = true, hide_short_help = true)]
    pub(crate) cache: Option<PathBuf>,
}

/// Declares sets of option groups. Each set converts to [`Options`], in which the missing groups are empty.
macro_rules! sets {
    ($($(#[$doc:meta])* $set:ident { $($group:ident: $type:ty),+ })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, Args)]
        pub(crate) struct $set {
            $(#[command(flatten)] pub(crate) $group: $type,)+
        }

        impl From<&$set> for Options {
            fn from(set: &$set) -> Self {
                Self { $($group: set.$group.clone().into(),)+ ..Self::default() }
            }
        }
    )+};
}

/// All groups from which settings come. Commands that start a pgfresh server have all of them.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) postgres: PostgresOption,
    #[command(flatten)]
    pub(crate) download: DownloadOptions,
    #[command(flatten)]
    pub(crate) place: PlaceOption,
    #[command(flatten)]
    pub(crate) space: SpaceOption,
    #[command(flatten)]
    pub(crate) preset: PresetOption,
    #[command(flatten)]
    pub(crate) settings: SettingOptions,
    #[command(flatten)]
    pub(crate) template: TemplateOptions,
    #[command(flatten)]
    pub(crate) cache_size: CacheSizeOption,
    #[command(flatten)]
    pub(crate) trust: TrustOptions,
    #[command(flatten)]
    pub(crate) remote: RemoteOption,
    #[command(flatten)]
    pub(crate) push: PushOption,
    #[command(flatten)]
    pub(crate) databases: DatabaseOptions,
    #[command(flatten)]
    pub(crate) background: BackgroundOptions,
    #[command(flatten)]
    pub(crate) config: ConfigOption,
    #[command(flatten)]
    pub(crate) cache: CacheOption,
}

sets! {
    /// Options that locate the project's servers.
    ProjectOptions { config: ConfigOption, cache: CacheOption }
    /// Options of `pgfresh sweep`.
    SweepOptions { place: PlaceOption, config: ConfigOption, cache: CacheOption }
    /// Options that locate PostgreSQL's programs.
    InstallationOptions {
        postgres: PostgresOption, download: DownloadOptions, config: ConfigOption, cache: CacheOption
    }
    /// Options of `pgfresh postgres install`.
    InstallOptions { download: DownloadOptions, cache: CacheOption }
    /// Options of commands that only read or write the cache.
    CacheOptions { cache: CacheOption }
    /// Options of `pgfresh ci`.
    CiOptions {
        postgres: PostgresOption, trust: TrustOptions, remote: RemoteOption, push: PushOption, config: ConfigOption
    }
    /// Options that influence a template's fingerprint.
    FingerprintOptions {
        postgres: PostgresOption, download: DownloadOptions, settings: SettingOptions, template: TemplateOptions,
        config: ConfigOption, cache: CacheOption
    }
    /// Options of `pgfresh template pull`.
    PullOptions {
        postgres: PostgresOption, download: DownloadOptions, settings: SettingOptions, template: TemplateOptions,
        cache_size: CacheSizeOption, trust: TrustOptions, remote: RemoteOption, config: ConfigOption, cache: CacheOption
    }
    /// Options of commands that build templates.
    BuildOptions {
        postgres: PostgresOption, download: DownloadOptions, place: PlaceOption, settings: SettingOptions,
        template: TemplateOptions, cache_size: CacheSizeOption, trust: TrustOptions, remote: RemoteOption,
        push: PushOption, config: ConfigOption, cache: CacheOption
    }
    /// Options of `pgfresh explain`, whose server has no clients.
    ExplainOptions {
        postgres: PostgresOption, download: DownloadOptions, place: PlaceOption, space: SpaceOption,
        settings: SettingOptions, template: TemplateOptions, cache_size: CacheSizeOption, trust: TrustOptions,
        remote: RemoteOption, push: PushOption, config: ConfigOption, cache: CacheOption
    }
    /// Options of `pgfresh migrate`, whose databases have no names of their own.
    MigrateOptions {
        postgres: PostgresOption, download: DownloadOptions, place: PlaceOption, space: SpaceOption,
        preset: PresetOption, settings: SettingOptions, template: TemplateNameOption, cache_size: CacheSizeOption,
        trust: TrustOptions, remote: RemoteOption, push: PushOption, config: ConfigOption, cache: CacheOption
    }
    /// Options of `pgfresh faults`, which needs no background server.
    FaultTrialsOptions {
        postgres: PostgresOption, download: DownloadOptions, place: PlaceOption, space: SpaceOption,
        preset: PresetOption, settings: SettingOptions, template: TemplateOptions, cache_size: CacheSizeOption,
        trust: TrustOptions, remote: RemoteOption, push: PushOption, databases: DatabaseOptions,
        config: ConfigOption, cache: CacheOption
    }
    /// Options of commands that only use the remote template cache.
    RemoteCacheOptions { remote: RemoteOption, config: ConfigOption, cache: CacheOption }
    /// Options of `pgfresh template verify`.
    VerifyOptions { trust: TrustOptions, config: ConfigOption }
    /// Options of `pgfresh doctor`.
    DoctorOptions {
        postgres: PostgresOption, place: PlaceOption, settings: SettingOptions, template: TemplateOptions,
        cache_size: CacheSizeOption, config: ConfigOption, cache: CacheOption
    }
    /// Options of benchmarks that start servers from their own templates.
    BenchOptions {
        postgres: PostgresOption, place: PlaceOption, space: SpaceOption, preset: PresetOption,
        settings: SettingOptions, config: ConfigOption, cache: CacheOption
    }
    /// Options of `pgfresh bench start`.
    BenchStartOptions {
        postgres: PostgresOption, place: PlaceOption, space: SpaceOption, preset: PresetOption,
        settings: SettingOptions, template: TemplateOptions, cache_size: CacheSizeOption,
        config: ConfigOption, cache: CacheOption
    }
    /// Options of `pgfresh bench events`, which sets the presets itself.
    BenchEventsOptions {
        postgres: PostgresOption, place: PlaceOption, space: SpaceOption, settings: SettingOptions,
        config: ConfigOption, cache: CacheOption
    }
    /// Options of `pgfresh bench suite`, which sets the places and presets itself.
    BenchSuiteOptions {
        postgres: PostgresOption, download: DownloadOptions, space: SpaceOption, settings: SettingOptions,
        template: TemplateOptions, cache_size: CacheSizeOption, trust: TrustOptions, remote: RemoteOption,
        push: PushOption, databases: DatabaseOptions, config: ConfigOption, cache: CacheOption
    }
    /// Options of `pgfresh bench fleet`.
    BenchFleetOptions { postgres: PostgresOption, config: ConfigOption, cache: CacheOption }
    /// Options of `pgfresh bench fsync`.
    BenchFsyncOptions {
        postgres: PostgresOption, download: DownloadOptions, place: PlaceOption, config: ConfigOption,
        cache: CacheOption
    }
}
