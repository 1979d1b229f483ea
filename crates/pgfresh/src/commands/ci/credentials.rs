//! Determines which credentials CI jobs need for a project's remote template cache, and which jobs may have them. Code
//! from a pull request must never get write credentials.

use crate::cli::System;
use crate::settings::SIGNING_KEY;

/// Part of the note about a shared directory, which a job's container has to mount, too.
const MOUNTED: &str = "and in the container of the job if there is one";

/// The remote template cache in a CI system's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SharedTemplates {
    pub(super) credentials: Credentials,
    /// Branch whose jobs push templates.
    pub(super) branch: String,
    /// True if pgfresh.toml names the branch. Otherwise the CI configuration has to name it.
    pub(super) pushes: bool,
    /// The remote's URL, if it is a directory.
    pub(super) directory: Option<String>,
}

/// The kind of credentials a store requires. Pull requests only get read credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    Aws,
    Google,
    Azure,
    /// The remote's address itself contains the credentials.
    Url,
    /// The remote is the registry on this host, which accepts the `docker login` credentials.
    Registry(String),
    /// The remote is on the job's machine and requires no credentials.
    None,
}

impl Credentials {
    /// Determines which credentials the remote at `address` (a URL without a password) requires.
    pub(super) fn of(address: &str) -> Self {
        let (scheme, rest) = address.split_once("://").unwrap_or_default();
        match scheme {
            "s3" => Self::Aws,
            "gs" => Self::Google,
            "az" => Self::Azure,
            "https" => Self::Url,
            "oci" => Self::Registry(rest.split('/').next().unwrap_or_default().to_owned()),
            _ => Self::None,
        }
    }

    /// Returns the names of the secret variables in `system`.
    pub(super) fn secrets(&self, system: System) -> &'static [&'static str] {
        match self {
            Self::Aws => &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
            Self::Google => &["GOOGLE_SERVICE_ACCOUNT_KEY"],
            Self::Azure => &["AZURE_STORAGE_SAS_TOKEN"],
            Self::Url => &["PGFRESH_CACHE_REMOTE"],
            Self::Registry(_) if has_files(system) => &["REGISTRY_AUTH_FILE"],
            Self::Registry(_) => &["REGISTRY_USER", "REGISTRY_PASSWORD"],
            Self::None => &[],
        }
    }

    /// Returns the variable that the store needs in addition to the secrets, with an example value.
    fn value(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Aws => Some(("AWS_REGION", "put-the-region-here")),
            Self::Azure => Some(("AZURE_STORAGE_ACCOUNT_NAME", "put-the-account-here")),
            _ => None,
        }
    }
}

/// Returns true if `system` can provide a secret as a file, such as the file that `docker login` writes.
fn has_files(system: System) -> bool {
    matches!(system, System::Gitlab | System::Jenkins)
}

/// Returns commands that log in with docker if docker is installed, without affecting later steps or the agent's own
/// configuration.
fn docker_login(system: System, host: &str) -> Vec<String> {
    if has_files(system) {
        return Vec::new();
    }
    if matches!(system, System::Github | System::Azure) {
        return vec![
            format!("trap 'docker logout {host}' EXIT"),
            format!(
                "printf %s \"$REGISTRY_PASSWORD\" | docker login --username \"$REGISTRY_USER\" --password-stdin {host} || echo \"no login\""
            ),
        ];
    }
    let mut commands = vec!["export REGISTRY_AUTH_FILE=$(mktemp)".to_owned()];
    if matches!(system, System::Buildkite) {
        commands.push("trap 'rm \"$REGISTRY_AUTH_FILE\"' EXIT".to_owned());
    }
    commands
        .push("auth=$(printf %s \"$REGISTRY_USER:$REGISTRY_PASSWORD\" | base64 | tr -d '\\n')".to_owned());
    let unless_empty = "test -z \"$REGISTRY_PASSWORD\" || ";
    let write = format!(
        "printf '{{\"auths\":{{\"{host}\":{{\"auth\":\"%s\"}}}}}}' \"$auth\" >\"$REGISTRY_AUTH_FILE\""
    );
    commands.push(format!("{unless_empty}{write}"));
    commands
}

impl SharedTemplates {
    /// Describes the remote at `address` (a URL without a password). `branch` is the branch that pushes templates, if
    /// pgfresh.toml names one.
    pub(super) fn new(address: &str, branch: Option<String>) -> Self {
        Self {
            credentials: Credentials::of(address),
            pushes: branch.is_some(),
            branch: branch.unwrap_or_else(|| "main".to_owned()),
            directory: address.starts_with("file://").then(|| address.to_owned()),
        }
    }

    /// Returns the names of the secrets that all jobs get.
    pub(super) fn secrets_to_pull(&self, system: System) -> Vec<String> {
        self.credentials.secrets(system).iter().map(|&name| name.to_owned()).collect()
    }

    /// Returns the names of the secrets that only the pushing branch gets.
    pub(super) fn secrets_to_push(&self, system: System) -> Vec<String> {
        self.secrets_to_pull(system).into_iter().chain([SIGNING_KEY.to_owned()]).collect()
    }

    /// Returns commands to run before pgfresh uses the remote. Jobs for forks have no secrets, so these commands let
    /// them read the remote without credentials.
    pub(super) fn login(&self, system: System) -> Vec<String> {
        let forks_lack_secrets = matches!(system, System::Github | System::Gitlab | System::Circleci);
        let command = match &self.credentials {
            Credentials::Aws if forks_lack_secrets => {
                "test -n \"$AWS_ACCESS_KEY_ID\" || export AWS_SKIP_SIGNATURE=true"
            }
            // The store would reject an empty key.
            Credentials::Google if forks_lack_secrets => {
                "test -n \"$GOOGLE_SERVICE_ACCOUNT_KEY\" || { unset GOOGLE_SERVICE_ACCOUNT_KEY; export GOOGLE_SKIP_SIGNATURE=true; }"
            }
            Credentials::Azure if forks_lack_secrets => {
                "test -n \"$AZURE_STORAGE_SAS_TOKEN\" || export AZURE_SKIP_SIGNATURE=true"
            }
            // An empty value would disable the remote. On Azure, a missing secret expands to the literal text
            // "$(NAME)".
            Credentials::Url if matches!(system, System::Github | System::Azure) => {
                "echo \"$PGFRESH_CACHE_REMOTE\" | grep -q :// || unset PGFRESH_CACHE_REMOTE"
            }
            Credentials::Registry(host) => return docker_login(system, host),
            _ => return Vec::new(),
        };
        vec![command.to_owned()]
    }

    /// Returns the non-secret variables as configuration lines.
    pub(super) fn values(&self, system: System) -> Vec<String> {
        let push = (!self.pushes).then_some(("PGFRESH_CACHE_PUSH", self.branch.as_str()));
        let line = |(name, value): (&str, &str)| match system {
            System::Jenkins => format!("{name} = '{value}'"),
            _ => format!("{name}: \"{value}\""),
        };
        self.credentials.value().into_iter().chain(push).map(line).collect()
    }

    /// Returns the Groovy code that binds Jenkins's read credentials to the job's variables.
    pub(super) fn bindings(&self) -> String {
        let kind = if matches!(self.credentials, Credentials::Registry(_)) { "file" } else { "string" };
        let names = self.credentials.secrets(System::Jenkins).iter();
        let bindings: Vec<_> =
            names.map(|name| format!("{kind}(credentialsId: '{name}', variable: '{name}')")).collect();
        bindings.join(", ")
    }

    /// Returns notes about the one-time setup in `system` and about pull requests from forks.
    pub(super) fn notes(&self, system: System) -> Vec<String> {
        let value = self.credentials.value();
        let mut notes: Vec<_> =
            value.iter().map(|(name, _)| format!("{name}: the value for your store")).collect();
        notes.extend(
            self.directory.iter().map(|url| format!("{url}: mount the directory on each runner, {MOUNTED}")),
        );
        let (reads, writes) = self.holders(system);
        let (read, write) = prefixes(system);
        let names = |prefix| {
            let names = self.credentials.secrets(system).iter().map(|name| format!("{prefix}{name}"));
            names.collect::<Vec<_>>().join(" and ")
        };
        if self.credentials == Credentials::None {
            notes.push(format!("{writes}: {write}{SIGNING_KEY}"));
            if matches!(system, System::Azure) {
                notes.push(format!("{reads}: any variable, because the group cannot be empty"));
            }
        } else {
            notes.push(format!("{reads}: {}, which may only read", names(read)));
            notes.push(format!("{writes}: {}, which may write, and {write}{SIGNING_KEY}", names(write)));
        }
        let apart = match system {
            System::Jenkins => Some("label"),
            System::Buildkite => Some("queue"),
            _ => None,
        };
        notes.extend(
            apart.map(|what| format!("agents with the {what} \"templates\", only for {}", self.branch)),
        );
        notes.push(format!("pull requests from forks: {}", self.forks(system)));
        notes
    }

    /// Describes where `system` stores the read and write secrets so that other jobs can't see them.
    fn holders(&self, system: System) -> (&'static str, String) {
        let branch = &self.branch;
        match system {
            System::Github => (
                "secrets of the repository",
                format!("secrets of its environment \"templates\", only for the branch {branch}"),
            ),
            System::Gitlab => (
                "variables of the project",
                format!(
                    "its protected variables for the environment \"templates/true\" ({branch} is protected, too)"
                ),
            ),
            System::Circleci => (
                "variables of the project",
                format!(
                    "a context \"templates\" with the restriction pipeline.git.branch == \"{branch}\" and not job.ssh.enabled"
                ),
            ),
            System::Azure => (
                "a variable group \"templates-read\"",
                format!(
                    "a variable group \"templates-write\" with a branch control check for refs/heads/{branch}"
                ),
            ),
            System::Jenkins => (
                "credentials of the folder that contains your multibranch project",
                format!("credentials of a separate folder, with a multibranch project only for {branch}"),
            ),
            System::Woodpecker => (
                "secrets for the events push and pull_request",
                "secrets for the event push on any branch, so trust everyone who can push".to_owned(),
            ),
            System::Buildkite => ("secrets", format!("secrets with the policy \"build_branch: {branch}\"")),
        }
    }

    fn forks(&self, system: System) -> &'static str {
        match (system, &self.credentials) {
            (System::Buildkite, _) => {
                "if you build them, prefix their branch names, so that none matches a branch of yours"
            }
            (_, Credentials::None) => "they get no secrets, and need none for reading",
            (System::Woodpecker | System::Jenkins, _) => {
                "they get the read-only secrets, so require approval for them"
            }
            (System::Azure, Credentials::Aws | Credentials::Google | Credentials::Azure) => {
                "they get no secrets, and build their templates"
            }
            _ => "they get no secrets, and build their templates unless the store is public",
        }
    }
}

/// Returns the prefixes that distinguish read secrets from write secrets. The prefixes are empty for systems where two
/// secrets can have the same name.
fn prefixes(system: System) -> (&'static str, &'static str) {
    match system {
        System::Woodpecker | System::Buildkite => ("READ_", "WRITE_"),
        _ => ("", ""),
    }
}
