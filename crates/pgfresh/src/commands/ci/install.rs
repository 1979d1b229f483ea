//! Builds shell commands that install PostgreSQL and pgfresh in a CI job.

use crate::cli::System;
use crate::project::Project;

/// URL of this version's release files, based on the project's URL from Cargo.toml.
pub(super) const RELEASE: &str =
    concat!(env!("CARGO_PKG_REPOSITORY"), "/releases/download/v", env!("CARGO_PKG_VERSION"));
/// File name of the release archive, without its extension.
const ARCHIVE: &str = concat!("pgfresh-", env!("CARGO_PKG_VERSION"), "-x86_64-linux");
/// Command that prints a digest of the pgfresh and PostgreSQL programs, for cache keys. A cached template can't be
/// used with another build of either program, and most CI systems never overwrite a cache with an existing key.
pub(super) const PROGRAMS: &str =
    r#"sha256sum "$(command -v pgfresh)" "$(pgfresh postgres path)/postgres" | sha256sum | cut -c 1-16"#;

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

/// Returns commands that install PostgreSQL from the distribution's packages. If the distribution lacks the major
/// version, the packages come from the PostgreSQL project. CI agents don't need commands, because pgfresh uses the
/// agent's PostgreSQL or downloads one.
pub(super) fn postgres(system: System, major: Option<u32>) -> Vec<String> {
    let sudo = match machine(system) {
        Machine::Container => "",
        Machine::Runner => "sudo ",
        Machine::Agent => return Vec::new(),
    };
    let get = format!("{sudo}apt-get install -qq -y --no-install-recommends");
    let mut commands = vec![format!("{sudo}apt-get update -qq")];
    if let Some(major) = major {
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

/// Returns commands that install pgfresh and the client after verifying their digests.
pub(super) fn pgfresh(system: System, project: &Project) -> Vec<String> {
    let unpack = |sudo: &str, folder: &str| {
        format!("{sudo}tar -xzf {ARCHIVE}.tar.gz -C {folder} --strip-components 1 {ARCHIVE}/pgfresh")
    };
    let mut commands = vec![
        "curl -fsSLO \"$PGFRESH_RELEASE/SHA256SUMS\"".to_owned(),
        "echo \"$PGFRESH_SHA256  SHA256SUMS\" | sha256sum -c -".to_owned(),
    ];
    commands.extend(download(&format!("{ARCHIVE}.tar.gz")));
    match machine(system) {
        Machine::Container => commands.push(unpack("", "/usr/local/bin")),
        Machine::Runner => commands.push(unpack("sudo ", "/usr/local/bin")),
        Machine::Agent => {
            commands.push("mkdir -p .pgfresh-bin".to_owned());
            commands.push(unpack("", ".pgfresh-bin"));
            commands.push("export PATH=\"$PWD/.pgfresh-bin:$PATH\"".to_owned());
        }
    }
    if let Some((file, install)) = client(project) {
        commands.extend(download(file));
        commands.push(install);
    }
    commands
}

/// Returns commands that download the release file whose name matches a basic regular expression, and verify it.
fn download(name: &str) -> [String; 2] {
    [
        format!("curl -fsSLO \"$PGFRESH_RELEASE/$(grep -o '{name}$' SHA256SUMS)\""),
        format!("grep '{name}$' SHA256SUMS | sha256sum -c -"),
    ]
}

/// Returns the release file with the client for the project's language, and the command that installs the client.
/// Returns `None` if no release file contains a client for this language.
fn client(project: &Project) -> Option<(&'static str, String)> {
    let language = project.image.split(':').next();
    match language {
        Some("python") => {
            let prefix = ["uv", "poetry run", "pipenv run"]
                .into_iter()
                .find(|tool| project.command.starts_with(tool.split(' ').next().unwrap_or(tool)));
            let pip = prefix.map_or_else(|| "pip".to_owned(), |prefix| format!("{prefix} pip"));
            Some(("pgfresh-.*linux.*x86_64.whl", format!("{pip} install --no-deps pgfresh-*x86_64.whl")))
        }
        // Unpack the client instead of running a package manager: npm would look for the client's optional packages in
        // npm's registry, and pnpm and Yarn have different commands.
        Some("node") => Some((
            concat!("pgfresh-", env!("CARGO_PKG_VERSION"), ".tgz"),
            concat!(
                "mkdir -p node_modules/pgfresh && tar -xzf pgfresh-",
                env!("CARGO_PKG_VERSION"),
                ".tgz -C node_modules/pgfresh --strip-components 1"
            )
            .to_owned(),
        )),
        _ => None,
    }
}

/// Returns a note for a project whose language may have a client that no release file contains.
pub(super) fn client_note(project: &Project) -> Option<&'static str> {
    client(project).is_none().then_some(
        "the pgfresh client, if your tests use one: no registry has the client, so the job needs a copy of its folder",
    )
}
