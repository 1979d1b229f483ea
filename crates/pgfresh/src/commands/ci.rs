//! `pgfresh ci`: prints an initial CI configuration that runs this project's tests.

mod credentials;
mod project;

use std::path::Path;
use std::process::ExitCode;

use credentials::SharedTemplates;
use project::Project;
use server::VersionRequest;

use crate::cli::{Ci, System};
use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::settings::{PushPolicy, ResolvedSettings};

/// URL of this version's release files, based on the project's URL from Cargo.toml.
const RELEASE: &str =
    concat!(env!("CARGO_PKG_REPOSITORY"), "/releases/download/v", env!("CARGO_PKG_VERSION"));
/// File name of the release archive, without its extension.
const ARCHIVE: &str = concat!("pgfresh-", env!("CARGO_PKG_VERSION"), "-x86_64-linux");
/// Marks a configuration line for projects that keep their templates in the CI system's own cache.
const CACHED: &str = " @CACHED@";
/// Marks a configuration line for projects with a remote template cache.
const SHARED: &str = " @SHARED@";

/// Values for the placeholders in a configuration.
struct Values<'a> {
    system: System,
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
    let mut project = project::detect(&settings.folder);
    project.notes.extend(missing(settings));
    let major = match &settings.server_options.installation {
        VersionRequest::Major(major) => Some(*major),
        VersionRequest::Any | VersionRequest::Bin(_) => None,
    };
    let inputs = settings.templates.iter().flat_map(|spec| spec.inputs.iter().chain(&spec.sql));
    let inputs = inputs.map(|input| as_glob(&settings.folder, input)).collect();
    let shared = shared(settings);
    output::print(fill_in(&Values { system, project: &project, major, inputs, shared }));
    Ok(ExitCode::SUCCESS)
}

/// Returns notes for the user about missing settings.
fn missing(settings: &ResolvedSettings) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(remote) = settings.remote.as_ref().filter(|_| settings.trusted.is_empty()) {
        notes.push(format!(
            "keys under [cache], or PGFRESH_CACHE_KEYS: no key is trusted, and pgfresh run refuses {} without",
            remote.address
        ));
    }
    if settings.templates.is_empty() {
        let unused = if settings.remote.is_some() { ", and nothing is in the remote" } else { "" };
        notes.push(format!(
            "there is no template in pgfresh.toml: each run starts from an empty database{unused}"
        ));
    }
    notes
}

/// Describes the remote template cache in the settings, if there are templates to share.
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

/// Replaces the configuration's placeholders with the project's values. A line with a list placeholder is repeated for
/// each of the list's values.
fn fill_in(context: &Values<'_>) -> String {
    let (lists, values) = (lists(context), values(context));
    let (wanted, other) = if context.shared.is_some() { (SHARED, CACHED) } else { (CACHED, SHARED) };
    let mut text = String::new();
    for line in template(context.system).lines().filter(|line| !line.ends_with(other)) {
        let line = line.strip_suffix(wanted).unwrap_or(line);
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

fn lists(context: &Values<'_>) -> Vec<(&'static str, Vec<String>)> {
    let (system, project) = (context.system, context.project);
    let mut lists = vec![
        ("@NOTE@", notes(context)),
        ("@POSTGRES@", postgres(context)),
        ("@INSTALL@", as_written(system, install(system))),
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
    let files: Vec<_> =
        ["pgfresh.toml"].into_iter().chain(context.inputs.iter().map(String::as_str)).collect();
    let quoted: Vec<_> = files.iter().map(|file| format!("'{file}'")).collect();
    let patterns: Vec<_> = files.iter().map(|file| format!("':(glob){file}'")).collect();
    let two = &quoted[..quoted.len().min(2)];
    let shown = context.major.unwrap_or(*server::MAJORS.end());
    let key = context.major.map_or_else(|| "pgfresh".to_owned(), |major| format!("pgfresh-{major}"));
    vec![
        ("@KIND@", project.kind.to_owned()),
        ("@VERSION@", env!("CARGO_PKG_VERSION").to_owned()),
        ("@RELEASE@", RELEASE.to_owned()),
        ("@MAJOR@", shown.to_string()),
        ("@KEY@", key),
        ("@IMAGE@", project.image.to_owned()),
        ("@COMMAND@", project.command.clone()),
        ("@INPUTS@", quoted.join(", ")),
        ("@TWO_INPUTS@", two.join(", ")),
        ("@PLAIN_INPUTS@", files.join(", ")),
        ("@PATHSPECS@", patterns.join(" ")),
        ("@BRANCH@", shared.map(|shared| shared.branch.clone()).unwrap_or_default()),
        ("@BINDINGS@", shared.map(SharedTemplates::bindings).unwrap_or_default()),
    ]
}

/// Returns notes about everything the user has to check.
fn notes(context: &Values<'_>) -> Vec<String> {
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
    if matches!(context.system, System::Gitlab) && context.inputs.len() > 1 && context.shared.is_none() {
        notes.push(
            "the cache's key: GitLab takes two files or patterns, and your template has more inputs"
                .to_owned(),
        );
    }
    notes.extend(context.shared.iter().flat_map(|shared| shared.notes(context.system)));
    notes.extend(context.project.notes.iter().cloned());
    notes
}

/// Account that runs a job: root in a container, a user with sudo, or the CI agent's account.
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

/// Returns commands that install PostgreSQL from the distribution's packages, or from the PostgreSQL project's if the
/// distribution lacks the major version. CI agents need no commands, because pgfresh uses the agent's PostgreSQL or
/// downloads one.
fn postgres(context: &Values<'_>) -> Vec<String> {
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

/// Returns commands that verify the release binary's digest and install the binary.
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
    commands
}

/// Escapes commands as the configuration's format requires.
fn as_written(system: System, commands: Vec<String>) -> Vec<String> {
    // Buildkite expands variables while reading the file. That is too early, because the commands only set the
    // variables later.
    let dollar = if matches!(system, System::Buildkite) { "$$" } else { "$" };
    commands.into_iter().map(|command| command.replace('$', dollar)).collect()
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
    use std::process::Command;

    use clap::ValueEnum;

    use super::credentials::Credentials;
    use super::*;
    use crate::settings::SIGNING_KEY;

    /// One identifying file for each kind of project.
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
    fn ci_file_fills_all_placeholders_for_every_project() {
        for marker in MARKERS {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join(marker), "").unwrap();
            let project = project::detect(folder.path());
            for &system in System::value_variants() {
                for (major, remote) in
                    [None, Some(17)].into_iter().flat_map(|m| REMOTES.map(|remote| (m, remote)))
                {
                    let inputs = vec!["a/**".to_owned(), "b.sql".to_owned()];
                    let shared = remote.map(|remote| sharing(remote, major.map(|_| "main")));
                    let text = fill_in(&Values { system, project: &project, major, inputs, shared });
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

    /// A remote of each kind. `None` means no remote.
    const REMOTES: [Option<&str>; 7] = [
        None,
        Some("s3://bucket/prefix"),
        Some("gs://bucket"),
        Some("az://container"),
        Some("https://cache.example/templates"),
        Some("oci://registry.example:5000/team/templates"),
        Some("file:///srv/templates"),
    ];

    /// Describes a remote to which jobs on `branch` push templates.
    fn sharing(remote: &str, branch: Option<&str>) -> SharedTemplates {
        SharedTemplates::new(remote, branch.map(str::to_owned))
    }

    /// Returns the configuration for an empty folder.
    fn plain(system: System) -> String {
        let folder = tempfile::tempdir().unwrap();
        let project = &project::detect(folder.path());
        fill_in(&Values { system, project, major: None, inputs: Vec::new(), shared: None })
    }

    /// Returns the configuration for each kind of project, with a remote to which jobs on `branch` push templates.
    fn printed(system: System, remote: &str, branch: Option<&str>) -> Vec<String> {
        let text = |marker| {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join(marker), "").unwrap();
            let project = project::detect(folder.path());
            let shared = Some(sharing(remote, branch));
            let inputs = vec!["a/**".to_owned(), "b.sql".to_owned(), "c.sql".to_owned()];
            fill_in(&Values { system, project: &project, major: None, inputs, shared })
        };
        MARKERS.map(text).into()
    }

    /// Returns the lines that aren't comments.
    fn code(text: &str) -> impl Iterator<Item = &str> {
        text.lines().filter(|line| !line.trim_start().starts_with(['#', '/']))
    }

    /// Returns the lines after `head` that are indented more deeply than `head`.
    fn block<'a>(text: &'a str, head: &str) -> Vec<&'a str> {
        let indent = |line: &str| line.len() - line.trim_start().len();
        let mut lines = text.lines().skip_while(|line| line.trim() != head);
        let first = lines.next().unwrap_or_else(|| panic!("no {head}: {text}"));
        lines.take_while(|line| line.is_empty() || indent(line) > indent(first)).collect()
    }

    #[test]
    fn without_a_remote_nothing_is_said_of_one() {
        for &system in System::value_variants() {
            let text = plain(system);
            for word in
                [SIGNING_KEY, "template build", "templates-", "_PUSH", "secrets", "withCredentials", "branch"]
            {
                assert!(code(&text).all(|line| !line.contains(word)), "{system:?}: {word}: {text}");
            }
        }
    }

    #[test]
    fn remote_excludes_other_caches_and_lists_each_secret() {
        for (&system, remote) in System::value_variants()
            .iter()
            .flat_map(|system| REMOTES.into_iter().flatten().map(move |r| (system, r)))
        {
            for text in printed(system, remote, None) {
                for word in ["actions/cache", "Cache@2", "save_cache", "restore_cache", "  cache:"] {
                    assert!(!text.contains(word), "{system:?}: {word}: {text}");
                }
                assert!(text.contains("PGFRESH_CACHE_PUSH"), "{system:?}: {text}");
                let secrets = Credentials::of(remote).secrets(system);
                for name in secrets.iter().chain([&SIGNING_KEY]) {
                    // Some systems provide secrets without any configuration. For these, only the notes list the
                    // secrets.
                    let listed = !matches!(system, System::Gitlab | System::Circleci);
                    let lines: Vec<_> = if listed { code(&text).collect() } else { text.lines().collect() };
                    assert!(lines.iter().any(|line| line.contains(name)), "{system:?}: {name}: {text}");
                }
            }
        }
    }

    /// Checks that steps with a write secret run only on the pushing branch, not on other branches or in pull requests.
    /// Since a pull request can change the configuration file, the CI system itself must protect these secrets, too
    /// (see `holders`).
    #[test]
    fn write_secrets_are_limited_to_pushing_branch() {
        for remote in REMOTES.into_iter().flatten() {
            for text in printed(System::Woodpecker, remote, Some("trunk")) {
                let all = block(&text, "- name: test").join("\n");
                assert!(all.contains("exclude: \"trunk\"") && !all.contains("WRITE_"), "{text}");
                let push = block(&text, "- name: test-and-push").join("\n");
                assert!(
                    push.contains("branch: \"trunk\"") && push.contains("WRITE_PGFRESH_SIGNING_KEY"),
                    "{text}"
                );
                assert!(!push.contains("pull_request") && !push.contains("READ_"), "{text}");
            }
            for text in printed(System::Buildkite, remote, Some("trunk")) {
                let all = block(&text, "- label: test").join("\n");
                assert!(
                    all.contains("if: build.branch != \"trunk\" ||") && !all.contains("WRITE_"),
                    "{text}"
                );
                let push = block(&text, "- label: test and push").join("\n");
                assert!(
                    push.contains("if: build.branch == \"trunk\" &&") && !push.contains("READ_"),
                    "{text}"
                );
                assert!(push.contains("PGFRESH_SIGNING_KEY: WRITE_PGFRESH_SIGNING_KEY"), "{text}");
            }
            for text in printed(System::Circleci, remote, Some("trunk")) {
                let contexts: Vec<_> = code(&text).filter(|line| line.contains("context:")).collect();
                assert_eq!(contexts, ["          context: templates"], "{text}");
                assert!(text.contains("only: \"trunk\"") && text.contains("ignore: \"trunk\""), "{text}");
            }
            for text in printed(System::Jenkins, remote, Some("trunk")) {
                let branch = block(&text, "if (env.BRANCH_NAME == 'trunk') {").join("\n");
                assert!(branch.contains(SIGNING_KEY), "{text}");
                assert_eq!(code(&text).filter(|line| line.contains(SIGNING_KEY)).count(), 1, "{text}");
            }
            for (system, choice) in [
                (System::Github, "environment: ${{ github.ref == 'refs/heads/trunk' && 'templates' || '' }}"),
                (
                    System::Azure,
                    "iif(eq(variables['Build.SourceBranch'], 'refs/heads/trunk'), 'templates-write', ",
                ),
                (System::Gitlab, "name: templates/$CI_COMMIT_REF_PROTECTED"),
            ] {
                for text in printed(system, remote, Some("trunk")) {
                    assert!(code(&text).any(|line| line.contains(choice)), "{system:?}: {text}");
                    // In systems that grant secrets to individual steps, the test step must get none.
                    let tests = code(&text).filter(|line| line.contains("pgfresh run"));
                    assert!(tests.into_iter().all(|line| !line.contains("secrets.")), "{text}");
                    assert!(!code(&text).any(|line| line.contains("CACHE_PUSH")), "{text}");
                }
            }
        }
    }

    #[test]
    fn only_file_remotes_require_a_mounted_directory() {
        for (&system, remote) in System::value_variants()
            .iter()
            .flat_map(|system| REMOTES.into_iter().flatten().map(move |remote| (system, remote)))
        {
            for text in printed(system, remote, Some("main")) {
                let said = format!("{remote}: mount the directory on each runner, ");
                let lines = text.lines().filter(|line| line.contains("mount the directory"));
                let lines: Vec<_> = lines.map(|line| line.contains(&said)).collect();
                assert_eq!(lines, [true].repeat(usize::from(remote.starts_with("file://"))), "{text}");
            }
        }
    }

    #[test]
    fn service_tests_follow_a_place_for_migrations() {
        for &system in System::value_variants() {
            for text in printed(system, "s3://bucket", None).into_iter().chain([plain(system)]) {
                let (mut lines, mut places) = (text.lines().map(str::trim), 0);
                while lines.any(|line| line.ends_with("# The database is empty: run your migrations here.")) {
                    let test = lines.next().unwrap_or_default();
                    assert!(!test.contains("pgfresh run"), "{system:?}: {text}");
                    assert!(
                        text.contains(&format!(
                            "pgfresh run -- {}",
                            test.trim_start_matches("- ")
                                .trim_start_matches("run: ")
                                .trim_start_matches("script: ")
                        )),
                        "{system:?}: {test}"
                    );
                    places += 1;
                }
                assert_eq!(places, 1, "{system:?}: {text}");
            }
        }
    }

    /// Runs the commands that log in to `remote`, then returns the variables whose names contain `word`.
    fn after_login(system: System, remote: &str, word: &str, variables: [(&str, &str); 2]) -> Vec<String> {
        let script = format!("{}\nenv", sharing(remote, Some("main")).login(system).join("\n"));
        let run = Command::new("bash").args(["-euc", &script]).env_clear().envs(variables).output().unwrap();
        assert!(run.status.success(), "{run:?}");
        let mut left: Vec<_> = String::from_utf8(run.stdout)
            .unwrap()
            .lines()
            .filter(|line| line.contains(word))
            .map(str::to_owned)
            .collect();
        left.sort();
        left
    }

    #[test]
    fn public_store_is_read_without_secrets_remote_on() {
        let left = |remote, word, variables| after_login(System::Github, remote, word, variables);
        let aws =
            |id| left("s3://bucket", "SKIP", [("AWS_ACCESS_KEY_ID", id), ("AWS_SECRET_ACCESS_KEY", id)]);
        assert_eq!(
            (aws("").join(""), aws("key").join("")),
            ("AWS_SKIP_SIGNATURE=true".to_owned(), String::new())
        );
        let azure =
            |token| left("az://container", "SKIP", [("AZURE_STORAGE_SAS_TOKEN", token), ("HOME", "/")]);
        assert_eq!(
            (azure("").join(""), azure("sig=x").join("")),
            ("AZURE_SKIP_SIGNATURE=true".to_owned(), String::new())
        );
        let google =
            |key| left("gs://bucket", "GOOGLE", [("GOOGLE_SERVICE_ACCOUNT_KEY", key), ("HOME", "/")]);
        assert_eq!(google(""), ["GOOGLE_SKIP_SIGNATURE=true"]);
        assert_eq!(google("{}"), ["GOOGLE_SERVICE_ACCOUNT_KEY={}"]);
        for system in [System::Github, System::Azure] {
            let url = |url| {
                after_login(
                    system,
                    "https://host/x",
                    "REMOTE",
                    [("PGFRESH_CACHE_REMOTE", url), ("PATH", "/usr/bin:/bin")],
                )
            };
            assert_eq!(url("https://me:word@host/x"), ["PGFRESH_CACHE_REMOTE=https://me:word@host/x"]);
            for missing in ["", "$(PGFRESH_CACHE_REMOTE)"] {
                assert_eq!(url(missing), [""; 0], "{system:?}");
            }
        }
    }

    #[test]
    fn login_matches_docker_format_and_requires_password() {
        for system in [System::Circleci, System::Woodpecker] {
            let shared = sharing("oci://registry.example:5000/a/b", Some("main"));
            for (password, expected) in [
                ("pass\"word", r#"{"auths":{"registry.example:5000":{"auth":"bWU6cGFzcyJ3b3Jk"}}}"#),
                ("", ""),
            ] {
                let script = format!(
                    "set -eu\n{}\ncat \"$REGISTRY_AUTH_FILE\"; rm \"$REGISTRY_AUTH_FILE\"",
                    shared.login(system).join("\n")
                );
                let run = Command::new("sh")
                    .args(["-c", &script])
                    .env("REGISTRY_USER", "me")
                    .env("REGISTRY_PASSWORD", password)
                    .output()
                    .unwrap();
                assert!(run.status.success(), "{run:?}");
                assert_eq!(String::from_utf8_lossy(&run.stdout), expected);
            }
        }
    }

    #[test]
    fn ci_installs_pgfresh_from_verified_release_only() {
        for &system in System::value_variants() {
            let text = plain(system);
            assert!(text.contains(RELEASE) && text.contains("sha256sum -c -"), "{system:?}: {text}");
            for line in text.lines().filter(|line| line.contains(" install ")) {
                assert!(!line.contains("pgfresh"), "{system:?}: {line}");
            }
        }
    }
}
