//! `pgfresh ci`: prints an initial CI configuration that runs this project's tests, or checks its migrations.

mod credentials;
mod install;
mod names;

use std::path::Path;
use std::process::ExitCode;

use credentials::SharedTemplates;
use install::RELEASE;
use server::VersionRequest;

use crate::cli::{Ci, System};
use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::project::{self, Project};
use crate::settings::{PushPolicy, ResolvedSettings};

/// Marks a configuration line for projects that keep their templates in the CI system's own cache.
const CACHED: &str = " @CACHED@";
/// Marks a configuration line for projects with a remote template cache.
const SHARED: &str = " @SHARED@";

/// Placeholders for inputs in a YAML value, which needs quotes if an input has special characters.
const INPUTS: [&str; 3] = ["@INPUTS@", "@PLAIN_INPUTS@", "@PATHSPECS@"];

/// Purpose of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Job {
    Tests,
    Migrations,
}

/// Values for the placeholders in a configuration.
struct Values<'a> {
    system: System,
    job: Job,
    project: &'a Project,
    /// Major PostgreSQL version, if the project requires one.
    major: Option<u32>,
    /// Glob patterns for the inputs of all templates.
    inputs: Vec<String>,
    /// The remote template cache, if the project has one and a template to share through it.
    shared: Option<SharedTemplates>,
}

pub(crate) fn execute(context: &Context, arguments: &Ci) -> Result<ExitCode, Failure> {
    let (settings, system) = (context.settings()?, arguments.system);
    let job = if arguments.migrations { Job::Migrations } else { Job::Tests };
    if job == Job::Migrations && !matches!(system, System::Github | System::Gitlab) {
        let failure = Failure::new("cannot print a check of migrations for this CI system");
        return Err(
            failure.hint("Add \"pgfresh migrate check --report migrations.md\" to your own job.".to_owned())
        );
    }
    let mut project = project::detect(&settings.folder);
    project.notes.extend(missing(settings));
    let major = match &settings.server_options.installation {
        VersionRequest::Major(major) => Some(*major),
        VersionRequest::Any | VersionRequest::Bin(_) => None,
    };
    let inputs = settings.templates.iter().flat_map(|spec| spec.inputs.iter().chain(&spec.sql));
    let inputs = inputs.map(|input| as_glob(&settings.folder, input)).collect();
    let shared = shared(settings);
    let values = Values { system, job, project: &project, major, inputs, shared };
    names::check(system, &written_inputs(&values))?;
    output::print(fill_in(&values));
    Ok(ExitCode::SUCCESS)
}

/// Returns notes for the user about missing settings.
fn missing(settings: &ResolvedSettings) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(remote) = settings.remote.as_ref().filter(|_| settings.trusted.is_empty()) {
        notes.push(format!(
            "keys under [cache], or PGFRESH_CACHE_KEYS: no key is trusted, so pgfresh run rejects all templates from {}",
            remote.address
        ));
    }
    if settings.templates.is_empty() {
        let unused = if settings.remote.is_some() { ", and the remote stays empty" } else { "" };
        notes.push(format!(
            "there is no template in pgfresh.toml: each run starts from an empty database{unused}"
        ));
    }
    notes
}

/// Returns how CI shares templates: the settings' remote cache, or `None` without a cache or templates.
fn shared(settings: &ResolvedSettings) -> Option<SharedTemplates> {
    let remote = settings.remote.as_ref().filter(|_| !settings.templates.is_empty())?;
    let branch = match &remote.push {
        // A branch name with only these characters doesn't need quotes in any of the files.
        PushPolicy::Branch(name) if name.chars().all(|c| c.is_ascii_alphanumeric() || "._/-".contains(c)) => {
            Some(name.clone())
        }
        _ => None,
    };
    Some(SharedTemplates::new(&remote.address.to_string(), branch))
}

/// Converts a folder to a glob that matches everything in the folder, and returns any other input unchanged.
fn as_glob(folder: &Path, input: &str) -> String {
    if folder.join(input).is_dir() { format!("{}/**", input.trim_end_matches('/')) } else { input.to_owned() }
}

/// Returns the input patterns that the configuration contains. Only the key of a CI system's cache has any.
fn written_inputs(context: &Values<'_>) -> Vec<String> {
    let all: Vec<_> = ["pgfresh.toml".to_owned()].into_iter().chain(context.inputs.iter().cloned()).collect();
    match context.system {
        _ if context.shared.is_some() => Vec::new(),
        System::Jenkins | System::Woodpecker | System::Buildkite => Vec::new(),
        // GitLab's cache key has room for two. A glob usually stands for the migrations.
        System::Gitlab => {
            let most_important = all.iter().skip(1).find(|file| file.contains('*')).or_else(|| all.get(1));
            all.iter().take(1).chain(most_important).cloned().collect()
        }
        System::Github | System::Azure | System::Circleci => all,
    }
}

/// Replaces the configuration's placeholders with the project's values. A line with a list placeholder is repeated for
/// each of the list's values.
fn fill_in(context: &Values<'_>) -> String {
    let (lists, values) = (lists(context), values(context));
    let (wanted, other) = if context.shared.is_some() { (SHARED, CACHED) } else { (CACHED, SHARED) };
    let mut text = String::new();
    for line in template(context.system, context.job).lines().filter(|line| !line.ends_with(other)) {
        let line = line.strip_suffix(wanted).unwrap_or(line);
        let lines = match lists.iter().find(|(name, _)| line.contains(name)) {
            Some((name, list)) => list
                .iter()
                .map(|value| replace(line, &[&values[..], &[(*name, value.clone())]].concat()))
                .collect(),
            None => vec![replace(line, &values)],
        };
        for line in lines {
            text += line.trim_end();
            text.push('\n');
        }
    }
    text
}

/// Replaces the placeholders in a line. A value is final: text in it that looks like a placeholder stays.
fn replace(line: &str, values: &[(&str, String)]) -> String {
    if let Some((key, value)) =
        line.split_once(": ").filter(|_| INPUTS.iter().any(|name| line.contains(name)))
    {
        return format!("{key}: {}", names::scalar(&replace_in_text(value, values)));
    }
    replace_in_text(line, values)
}

fn replace_in_text(line: &str, values: &[(&str, String)]) -> String {
    let (mut text, mut rest) = (String::new(), line);
    while let Some(at) = rest.find('@') {
        let placeholder = values.iter().find(|(name, _)| rest[at..].starts_with(name));
        let (name, value) = placeholder.map_or(("@", "@"), |(name, value)| (*name, value.as_str()));
        text += &rest[..at];
        text += value;
        rest = &rest[at + name.len()..];
    }
    text + rest
}

fn lists(context: &Values<'_>) -> Vec<(&'static str, Vec<String>)> {
    let (system, project) = (context.system, context.project);
    let mut lists = vec![
        ("@NOTE@", notes(context)),
        ("@POSTGRES@", install::postgres(system, context.major)),
        ("@INSTALL@", as_written(system, install::pgfresh(system, project))),
        ("@SETUP@", project.github.iter().map(|&line| line.to_owned()).collect()),
        ("@DEPENDENCY@", project.dependencies.clone()),
        ("@ASKED@", context.major.iter().map(u32::to_string).collect()),
    ];
    let shared = context.shared.as_ref();
    let read = shared.map(|shared| shared.secrets_to_pull(system)).unwrap_or_default();
    lists.extend([
        ("@VALUE@", shared.map(|shared| shared.values(system)).unwrap_or_default()),
        ("@LOGIN@", as_written(system, shared.map(|shared| shared.login(system)).unwrap_or_default())),
        ("@SECRETS@", read.first().map(|_| "secrets:".to_owned()).into_iter().collect()),
        ("@READ_SECRET@", read),
        ("@WRITE_SECRET@", shared.map(|shared| shared.secrets_to_push(system)).unwrap_or_default()),
    ]);
    lists
}

fn values(context: &Values<'_>) -> Vec<(&'static str, String)> {
    let (project, shared) = (context.project, context.shared.as_ref());
    let inputs = written_inputs(context);
    let shown = context.major.unwrap_or(server::NEWEST_PACKAGED);
    let key = context.major.map_or_else(|| "pgfresh".to_owned(), |major| format!("pgfresh-{major}"));
    vec![
        ("@KIND@", project.kind.to_owned()),
        ("@VERSION@", env!("CARGO_PKG_VERSION").to_owned()),
        ("@RELEASE@", RELEASE.to_owned()),
        ("@MAJOR@", shown.to_string()),
        ("@KEY@", key),
        ("@IMAGE@", project.image.to_owned()),
        ("@PROGRAMS@", install::PROGRAMS.to_owned()),
        ("@COMMAND@", project.command.clone()),
        ("@INPUTS@", names::arguments(&inputs)),
        ("@TWO_INPUTS@", names::items(&inputs)),
        ("@PLAIN_INPUTS@", names::patterns(&inputs)),
        ("@PATHSPECS@", names::pathspecs(&inputs)),
        ("@BRANCH@", shared.map(|shared| shared.branch.clone()).unwrap_or_default()),
        ("@BINDINGS@", shared.map(SharedTemplates::bindings).unwrap_or_default()),
    ]
}

/// Returns notes about everything the user has to check.
fn notes(context: &Values<'_>) -> Vec<String> {
    let mut notes = vec![
        "PGFRESH_RELEASE: the URL of the release's files, which your CI must be able to reach".to_owned(),
        "PGFRESH_SHA256: the digest of the release's file SHA256SUMS".to_owned(),
    ];
    if context.job == Job::Tests {
        notes.extend(install::client_note(context.project).map(str::to_owned));
    } else if matches!(context.system, System::Gitlab) {
        notes.push(
            "PGFRESH_COMMENT_TOKEN: a masked variable with a project access token of scope api; without it, there is no comment"
                .to_owned(),
        );
    }
    if context.major.is_none() {
        notes.push(
            "the major version of PostgreSQL: pgfresh.toml does not set it, so the image or runner determines it"
                .to_owned(),
        );
    }
    if matches!(context.system, System::Gitlab) && context.inputs.len() > 1 && context.shared.is_none() {
        notes.push(
            "the cache's key: GitLab accepts at most two files or patterns, but your template has more inputs"
                .to_owned(),
        );
    }
    notes.extend(context.shared.iter().flat_map(|shared| shared.notes(context.system)));
    notes.extend(context.project.notes.iter().cloned());
    // A line break in a name would end the comment.
    notes.into_iter().map(|note| note.replace(char::is_control, " ")).collect()
}

/// Escapes commands as the configuration's format requires.
fn as_written(system: System, commands: Vec<String>) -> Vec<String> {
    // Buildkite expands variables while reading the file. That is too early, because the commands only set the
    // variables later.
    let dollar = if matches!(system, System::Buildkite) { "$$" } else { "$" };
    commands.into_iter().map(|command| command.replace('$', dollar)).collect()
}

fn template(system: System, job: Job) -> &'static str {
    match system {
        System::Github if job == Job::Migrations => include_str!("ci/github-migrations.yml"),
        System::Gitlab if job == Job::Migrations => include_str!("ci/gitlab-migrations.yml"),
        System::Github => include_str!("ci/github.yml"),
        System::Gitlab => include_str!("ci/gitlab.yml"),
        System::Woodpecker => include_str!("ci/woodpecker.yml"),
        System::Circleci => include_str!("ci/circleci.yml"),
        System::Jenkins => include_str!("ci/jenkins.groovy"),
        System::Azure => include_str!("ci/azure.yml"),
        System::Buildkite => include_str!("ci/buildkite.yml"),
    }
}

#[cfg(test)]
mod tests;
