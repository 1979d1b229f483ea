//! `pgfresh ci`: a configuration for this project's tests on a CI system, to begin with.

use std::path::Path;
use std::process::ExitCode;

use server::VersionRequest;

use crate::cli::System;
use crate::output;
use crate::settings::ResolvedSettings;

/// A kind of project: a file that tells it, how its tests are run, in which image, and what installs pgfresh there.
struct Kind {
    marker: &'static str,
    command: &'static str,
    image: &'static str,
    install: &'static str,
}

const PIP: &str = "pip install pgfresh";
const NPM: &str = "npm install --global pgfresh";
const CARGO: &str = "cargo install --locked pgfresh";

/// The first that fits.
const KINDS: [Kind; 10] = [
    Kind { marker: "manage.py", command: "python manage.py test", image: "python:3.13", install: PIP },
    Kind { marker: "pyproject.toml", command: "pytest", image: "python:3.13", install: PIP },
    Kind { marker: "requirements.txt", command: "pytest", image: "python:3.13", install: PIP },
    Kind { marker: "go.mod", command: "go test ./...", image: "golang:1", install: CARGO },
    Kind { marker: "Cargo.toml", command: "cargo test", image: "rust:1", install: CARGO },
    Kind { marker: "mvnw", command: "./mvnw -B test", image: "eclipse-temurin:21", install: CARGO },
    Kind { marker: "pom.xml", command: "mvn -B test", image: "maven:3", install: CARGO },
    Kind { marker: "Gemfile", command: "bundle exec rake test", image: "ruby:3", install: CARGO },
    Kind { marker: "mix.exs", command: "mix test", image: "elixir:1", install: CARGO },
    Kind { marker: "package.json", command: "npm test", image: "node:22", install: NPM },
];
/// What fits every project.
const ANY: Kind = Kind { marker: "", command: "make test", image: "debian:12", install: CARGO };

pub(crate) fn execute(settings: &ResolvedSettings, system: System) -> ExitCode {
    let kind = KINDS.iter().find(|kind| settings.folder.join(kind.marker).exists()).unwrap_or(&ANY);
    let major = match &settings.server_options.installation {
        VersionRequest::Major(major) => *major,
        VersionRequest::Any | VersionRequest::Bin(_) => *server::MAJORS.end(),
    };
    let inputs = settings.templates.iter().flat_map(|spec| spec.inputs.iter().chain(&spec.sql));
    let inputs: Vec<_> = inputs.map(|input| as_glob(&settings.folder, input)).collect();
    output::print(fill_in(template(system), kind, major, &inputs));
    ExitCode::SUCCESS
}

fn fill_in(template: &str, kind: &Kind, major: u32, inputs: &[String]) -> String {
    let inputs = [vec!["'pgfresh.toml'".to_owned()], inputs.iter().map(|glob| format!("'{glob}'")).collect()];
    let inputs = inputs.concat().join(", ");
    template
        .replace("@MAJOR@", &major.to_string())
        .replace("@INPUTS@", &inputs)
        .replace("@IMAGE@", kind.image)
        .replace("@INSTALL@", kind.install)
        .replace("@COMMAND@", kind.command)
}

/// A folder stands for all that is in it.
fn as_glob(folder: &Path, input: &str) -> String {
    if folder.join(input).is_dir() { format!("{}/**", input.trim_end_matches('/')) } else { input.to_owned() }
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
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_place_is_filled_in_for_every_kind_of_project() {
        for &system in System::value_variants() {
            for kind in KINDS.iter().chain([&ANY]) {
                let text = fill_in(template(system), kind, 17, &["a/**".to_owned()]);
                assert!(
                    !text.contains("@M") && !text.contains("@I") && !text.contains("@C"),
                    "{system:?}: {text}"
                );
                assert!(text.contains(kind.command) && text.contains(kind.install), "{text}");
            }
        }
    }
}
