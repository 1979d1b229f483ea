//! Shell commands that install PostgreSQL and pgfresh in a job.

use crate::cli::System;

/// URL of this version's release files, based on the project's URL from Cargo.toml.
pub(super) const RELEASE: &str =
    concat!(env!("CARGO_PKG_REPOSITORY"), "/releases/download/v", env!("CARGO_PKG_VERSION"));
/// File name of the release archive, without its extension.
pub(super) const ARCHIVE: &str = concat!("pgfresh-", env!("CARGO_PKG_VERSION"), "-x86_64-linux");

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

/// Returns commands that verify the release binary's digest and install the binary.
pub(super) fn pgfresh(system: System) -> Vec<String> {
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
