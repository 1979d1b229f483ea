//! Downloads packages of the Debian or Ubuntu release that the machine runs, and unpacks them into a directory, without
//! root.
//!
//! apt uses the system's sources and keys and checks the signatures. Its lists, cache and state are in a run directory,
//! so it doesn't take the system's locks or change the system. pgfresh unpacks the packages without running their
//! scripts.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use storage::{Attempt, RunDirectory};

use crate::error::FetchError;
use crate::package_tool::{held_output, last_lines, plain_command};

/// The package lists that the system's `apt-get update` fetched.
const SYSTEM_LISTS: &str = "/var/lib/apt/lists";
/// The packages that the system has installed.
const SYSTEM_STATUS: &str = "/var/lib/dpkg/status";

/// Options that keep apt in a run directory. Each has a path relative to that directory. They can't be in apt's
/// configuration file, because that file has no escape for a double quote in a path.
const DIRECTORIES: [(&str, &str); 4] = [
    ("Dir::State::status", "status"),
    ("Dir::State::extended_states", "extended"),
    ("Dir::Cache", "cache"),
    ("Dir::Log", "log"),
];
/// Settings that make apt refuse unsigned packages, and that remove the system's hooks.
const SETTINGS: &str = "Debug::NoLocking \"true\";\n\
    APT::Sandbox::User \"\";\nAPT::Get::AllowUnauthenticated \"false\";\n\
    Acquire::AllowInsecureRepositories \"false\";\nAcquire::Languages \"none\";\nAcquire::Retries \"3\";\n\
    #clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n\
    #clear APT::Update::Post-Invoke-Success;\n#clear DPkg::Pre-Invoke;\n#clear DPkg::Post-Invoke;\n\
    #clear DPkg::Pre-Install-Pkgs;\n";

/// Returns true if the system has Debian's package tools.
pub(crate) fn is_installed() -> bool {
    ["/usr/bin/apt-get", "/usr/bin/dpkg-deb", SYSTEM_STATUS].iter().all(|path| Path::new(path).exists())
}

/// Unpacks `package` and its dependencies into `tree`, except for the server and for packages that the system has
/// installed. Returns false if none of apt's sources has the package.
pub(crate) fn unpack(package: &str, major: u32, tree: &Path, run: &RunDirectory) -> Result<bool, FetchError> {
    let apt = Apt::prepare(package, major, run)?;
    let has_lists = fs::read_dir(SYSTEM_LISTS).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
    });
    let mut output = None;
    if has_lists {
        output = Some(apt.download(SYSTEM_LISTS)?);
    }
    // Either the system has no lists, as in most containers, or the lists name files that the mirror no longer has.
    // Fetch new lists.
    if output.as_ref().is_none_or(|output| !output.status.success() && !is_unknown(output)) {
        let lists = run.path().join("apt/lists");
        let lists = lists.to_string_lossy();
        apt.expect(&apt.run(&["update"], &lists)?)?;
        output = Some(apt.download(&lists)?);
    }
    let Some(output) = output.filter(|output| !is_unknown(output)) else { return Ok(false) };
    apt.expect(&output)?;
    let archives = run.path().join("apt/cache/archives");
    for entry in fs::read_dir(&archives).attempt("read", &archives)?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "deb") {
            let mut command = plain_command("/usr/bin/dpkg-deb");
            command.arg("--extract").arg(entry.path()).arg(tree);
            apt.expect(&apt.output(command)?)?;
        }
    }
    Ok(true)
}

fn is_unknown(output: &Output) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    said.contains("Unable to locate package") || said.contains("has no installation candidate")
}

/// Runs apt with its own lists, cache and state.
struct Apt<'a> {
    package: &'a str,
    run: &'a RunDirectory,
}

impl<'a> Apt<'a> {
    fn prepare(package: &'a str, major: u32, run: &'a RunDirectory) -> Result<Self, FetchError> {
        let folder = run.path().join("apt");
        for path in ["lists/partial", "cache/archives/partial", "log"] {
            let path = folder.join(path);
            fs::create_dir_all(&path).attempt("create", &path)?;
        }
        // Tell apt that the server is installed, because pgfresh adds the extensions to its own server of the same
        // major version.
        let status = Path::new(SYSTEM_STATUS);
        let mut text = String::from_utf8_lossy(&fs::read(status).attempt("read", status)?).into_owned();
        let server = format!("postgresql-{major}");
        if !text.contains(&format!("Package: {server}\n")) {
            text.push_str(&format!(
                "\nPackage: {server}\nStatus: install ok installed\nArchitecture: {}\nVersion: {major}.999\n\
                 Provides: {server}-jit-llvm (= 999)\nMaintainer: none\nDescription: server\n",
                debian_architecture(),
            ));
        }
        let own = folder.join("status");
        fs::write(&own, text).attempt("write", &own)?;
        let settings = folder.join("settings");
        fs::write(&settings, SETTINGS).attempt("write", &settings)?;
        Ok(Self { package, run })
    }

    fn download(&self, lists: &str) -> Result<Output, FetchError> {
        self.run(&["install", "--download-only", "--no-install-recommends", "--yes", self.package], lists)
    }

    /// Runs apt-get with the package lists in `lists`.
    fn run(&self, arguments: &[&str], lists: &str) -> Result<Output, FetchError> {
        let mut command = plain_command("/usr/bin/apt-get");
        let folder = self.run.path().join("apt");
        command.arg("--config-file").arg(folder.join("settings")).arg("--quiet=2");
        for (option, path) in DIRECTORIES {
            command.arg("--option").arg(format!("{option}={}/{path}", folder.display()));
        }
        command.arg("--option").arg(format!("Dir::State::lists={lists}")).args(arguments);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command.env("TMPDIR", folder);
        self.output(command)
    }

    fn output(&self, mut command: Command) -> Result<Output, FetchError> {
        held_output(&mut command, self.run)?.map_err(|words| self.failed(words))
    }

    fn expect(&self, output: &Output) -> Result<(), FetchError> {
        if output.status.success() { Ok(()) } else { Err(self.failed(last_lines(output))) }
    }

    fn failed(&self, output: String) -> FetchError {
        FetchError::Client { package: self.package.to_owned(), client: "apt", output }
    }
}

/// Returns the name that Debian uses for this machine's architecture.
fn debian_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
