//! `pgfresh ci`: a configuration for this project's tests on a CI system, to begin with.

mod project;

use std::path::Path;
use std::process::ExitCode;

use project::Project;
use server::VersionRequest;

use crate::cli::System;
use crate::output;
use crate::settings::ResolvedSettings;

/// Where the files of this version's release are; Cargo.toml says where the project is.
const RELEASE: &str =
    concat!(env!("CARGO_PKG_REPOSITORY"), "/releases/download/v", env!("CARGO_PKG_VERSION"));
/// The archive of the release, without the part that unpacking needs.
const ARCHIVE: &str = concat!("pgfresh-", env!("CARGO_PKG_VERSION"), "-x86_64-linux");

/// All that a template has places for.
struct Context<'a> {
    system: System,
    project: &'a Project,
    /// The major that the project asks for, if it asks for one.
    major: Option<u32>,
    /// The inputs of all templates, as patterns.
    inputs: Vec<String>,
}

pub(crate) fn execute(settings: &ResolvedSettings, system: System) -> ExitCode {
    let mut project = project::detect(&settings.folder);
    if settings.templates.is_empty() {
        let note = "there is no template in pgfresh.toml: each run starts from an empty database";
        project.notes.push(note.to_owned());
    }
    let major = match &settings.server_options.installation {
        VersionRequest::Major(major) => Some(*major),
        VersionRequest::Any | VersionRequest::Bin(_) => None,
    };
    let inputs = settings.templates.iter().flat_map(|spec| spec.inputs.iter().chain(&spec.sql));
    let inputs = inputs.map(|input| as_glob(&settings.folder, input)).collect();
    output::print(fill_in(&Context { system, project: &project, major, inputs }));
    ExitCode::SUCCESS
}

/// A folder stands for all that is in it.
fn as_glob(folder: &Path, input: &str) -> String {
    if folder.join(input).is_dir() { format!("{}/**", input.trim_end_matches('/')) } else { input.to_owned() }
}

/// The template with the values of the project. A line with a list's name is repeated for each of its values.
fn fill_in(context: &Context<'_>) -> String {
    let project = context.project;
    let lists = [
        ("@NOTE@", notes(context)),
        ("@POSTGRES@", postgres(context)),
        ("@INSTALL@", install(context.system)),
        ("@SETUP@", project.github.iter().map(|&line| line.to_owned()).collect()),
        ("@DEPENDENCY@", project.dependencies.clone()),
        ("@ASKED@", context.major.iter().map(u32::to_string).collect()),
    ];
    let files: Vec<_> =
        ["pgfresh.toml"].into_iter().chain(context.inputs.iter().map(String::as_str)).collect();
    let quoted: Vec<_> = files.iter().map(|file| format!("'{file}'")).collect();
    let patterns: Vec<_> = files.iter().map(|file| format!("':(glob){file}'")).collect();
    let two = &quoted[..quoted.len().min(2)];
    let shown = context.major.unwrap_or(*server::MAJORS.end()).to_string();
    let key = context.major.map_or_else(|| "pgfresh".to_owned(), |major| format!("pgfresh-{major}"));
    let values = [
        ("@KIND@", project.kind),
        ("@VERSION@", env!("CARGO_PKG_VERSION")),
        ("@RELEASE@", RELEASE),
        ("@MAJOR@", &shown),
        ("@KEY@", &key),
        ("@IMAGE@", project.image),
        ("@COMMAND@", &project.command),
        ("@INPUTS@", &quoted.join(", ")),
        ("@TWO_INPUTS@", &two.join(", ")),
        ("@PLAIN_INPUTS@", &files.join(", ")),
        ("@PATHSPECS@", &patterns.join(" ")),
    ];
    let mut text = String::new();
    for line in template(context.system).lines() {
        let lines = match lists.iter().find(|(name, _)| line.contains(name)) {
            Some((name, list)) => list.iter().map(|value| line.replace(name, value)).collect(),
            None => vec![line.to_owned()],
        };
        for mut line in lines {
            for (name, value) in &values {
                line = line.replace(name, value);
            }
            text += line.trim_end();
            text.push('\n');
        }
    }
    text
}

/// What the user must look at.
fn notes(context: &Context<'_>) -> Vec<String> {
    let mut notes = vec![
        "PGFRESH_RELEASE: where the files of the release are, for your CI to reach".to_owned(),
        format!("PGFRESH_SHA256: the digest of {ARCHIVE}.tar.gz, from SHA256SUMS of the release"),
    ];
    if context.major.is_none() {
        notes.push(
            "the major version of PostgreSQL: pgfresh.toml names none, so it is that of the image or runner"
                .to_owned(),
        );
    }
    if matches!(context.system, System::Gitlab) && context.inputs.len() > 1 {
        notes.push(
            "the cache's key: GitLab takes two files or patterns, and your template has more inputs"
                .to_owned(),
        );
    }
    notes.extend(context.project.notes.iter().cloned());
    notes
}

/// Whether a job runs in a container as root, as a user who can use sudo, or as the account of an agent.
enum Machine {
    Container,
    Runner,
    Agent,
}

fn machine(system: System) -> Machine {
    match system {
        System::Gitlab | System::Woodpecker | System::Circleci => Machine::Container,
        System::Github | System::Azure => Machine::Runner,
        System::Jenkins | System::Buildkite => Machine::Agent,
    }
}

/// Commands that install PostgreSQL from the distribution, or, where that does not have the major, from the packages of the
/// PostgreSQL project. On an agent there are none: pgfresh uses its PostgreSQL, or downloads one.
fn postgres(context: &Context<'_>) -> Vec<String> {
    let sudo = match machine(context.system) {
        Machine::Container => "",
        Machine::Runner => "sudo ",
        Machine::Agent => return Vec::new(),
    };
    let get = format!("{sudo}apt-get install -qq -y --no-install-recommends");
    let mut commands = vec![format!("{sudo}apt-get update -qq")];
    if let Some(major) = context.major {
        commands.push(format!("{get} ca-certificates curl postgresql-common"));
        commands.push(format!(
            "apt-cache show postgresql-{major} >/dev/null 2>&1 || {sudo}sh /usr/share/postgresql-common/pgdg/*.sh -y"
        ));
        commands.push(format!("{get} postgresql-{major}"));
    } else {
        commands.push(format!("{get} ca-certificates curl postgresql"));
    }
    commands
}

/// Commands that install the binary of the release, if its digest is the right one.
fn install(system: System) -> Vec<String> {
    let unpack = |sudo: &str, folder: &str| {
        format!("{sudo}tar -xzf pgfresh.tar.gz -C {folder} --strip-components 1 {ARCHIVE}/pgfresh")
    };
    let mut commands = vec![
        format!("curl -fsSL -o pgfresh.tar.gz \"$PGFRESH_RELEASE/{ARCHIVE}.tar.gz\""),
        "echo \"$PGFRESH_SHA256  pgfresh.tar.gz\" | sha256sum -c -".to_owned(),
    ];
    match machine(system) {
        Machine::Container => commands.push(unpack("", "/usr/local/bin")),
        Machine::Runner => commands.push(unpack("sudo ", "/usr/local/bin")),
        Machine::Agent => {
            commands.push("mkdir -p .pgfresh-bin".to_owned());
            commands.push(unpack("", ".pgfresh-bin"));
            commands.push("export PATH=\"$PWD/.pgfresh-bin:$PATH\"".to_owned());
        }
    }
    if matches!(system, System::Buildkite) {
        // Buildkite replaces variables when it reads the file, when these have no value yet.
        return commands.iter().map(|command| command.replace('$', "$$")).collect();
    }
    commands
}

fn template(system: System) -> &'static str {
    match system {
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
mod tests {
    use std::fs;

    use clap::ValueEnum;

    use super::*;

    /// A file that tells each kind of project.
    const MARKERS: [&str; 8] = [
        "pyproject.toml",
        "package.json",
        "go.mod",
        "pom.xml",
        "Cargo.toml",
        "Gemfile",
        "mix.exs",
        "Makefile",
    ];

    #[test]
    fn every_place_is_filled_in_for_every_kind_of_project() {
        for marker in MARKERS {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join(marker), "").unwrap();
            let project = project::detect(folder.path());
            for &system in System::value_variants() {
                for major in [None, Some(17)] {
                    let inputs = vec!["a/**".to_owned(), "b.sql".to_owned()];
                    let text = fill_in(&Context { system, project: &project, major, inputs });
                    let left = text
                        .split('@')
                        .skip(1)
                        .find(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
                    assert_eq!(left, None, "{system:?}: {text}");
                    for part in project.dependencies.iter().chain([&project.command]) {
                        assert!(text.contains(part), "{system:?}: {part}: {text}");
                    }
                }
            }
        }
    }

    #[test]
    fn pgfresh_comes_from_its_release_and_never_by_its_name_alone() {
        let folder = tempfile::tempdir().unwrap();
        let project = project::detect(folder.path());
        for &system in System::value_variants() {
            let text = fill_in(&Context { system, project: &project, major: None, inputs: Vec::new() });
            assert!(text.contains(RELEASE) && text.contains("sha256sum -c -"), "{system:?}: {text}");
            for line in text.lines().filter(|line| line.contains(" install ")) {
                assert!(!line.contains("pgfresh"), "{system:?}: {line}");
            }
        }
    }
}
