//! Runs the package tools npm and pip with the user's configuration, but without the current project's files.
//!
//! Downloading PostgreSQL must not run any code of the project in the current folder. Each tool therefore
//! runs in `/`, which contains no `pip.py`, `sitecustomize.py` or `.npmrc`, and Python runs with `-I`.
//! Environment variables that make a tool load code or change its behavior are removed, but those that
//! configure access to a registry remain.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde::Deserialize;
use storage::{Account, Attempt, FileError, RunDirectory};

use crate::error::FetchError;
use crate::installation::output_within;
use crate::package::{Package, PackageTool, Wheel};

/// Timeout for a package tool, which downloads tens of megabytes, possibly over a slow connection.
const CLIENT_TIMEOUT: Duration = Duration::from_mins(10);

/// Prefixes of environment variables that configure a tool. pgfresh removes these variables, except for those
/// listed with each prefix, which only configure access to a registry.
const TOOL_PREFIXES: [(&str, &[&str]); 2] = [
    (
        "PIP_",
        &[
            "INDEX_URL",
            "EXTRA_INDEX_URL",
            "NO_INDEX",
            "FIND_LINKS",
            "TRUSTED_HOST",
            "PROXY",
            "CERT",
            "CLIENT_CERT",
            "DEFAULT_TIMEOUT",
            "TIMEOUT",
            "RETRIES",
            "CONFIG_FILE",
            "CACHE_DIR",
        ],
    ),
    (
        "NPM_CONFIG_",
        &[
            "REGISTRY",
            "PROXY",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "NOPROXY",
            "NO_PROXY",
            "CA",
            "CAFILE",
            "CERT",
            "KEY",
            "STRICT_SSL",
            "USERCONFIG",
            "CACHE",
        ],
    ),
];

/// Prefixes of environment variables that make interpreters, the dynamic linker or libraries load code.
const CODE_LOADING_PREFIXES: [&str; 10] = [
    "APT_CONFIG",
    "PYTHON",
    "NODE_OPTIONS",
    "NODE_PATH",
    "LD_PRELOAD",
    "LD_AUDIT",
    "OPENSSL_CONF",
    "OPENSSL_MODULES",
    "OPENSSL_ENGINES",
    "BASH_ENV",
];

impl PackageTool {
    /// Returns true if the tool is installed.
    pub(crate) fn is_installed(self) -> bool {
        let output = output_within(self.command().arg("--version"), CLIENT_TIMEOUT);
        output.is_ok_and(|output| output.is_some_and(|output| output.status.success()))
    }

    /// Downloads the file of `package` to the empty directory `folder` and returns the file's path, without
    /// unpacking anything. The process holds one of `run`'s locks, so that the guard can terminate it.
    pub(crate) fn download(
        self,
        package: &Package,
        folder: &Path,
        run: &RunDirectory,
    ) -> Result<PathBuf, FetchError> {
        let target = folder.join("file");
        fs::create_dir(&target).attempt("create", &target)?;
        let mut command = self.command();
        match self {
            Self::Pip => {
                // In this format, pip checks the file's digest before reading the file.
                let wanted = folder.join("requirements.txt");
                let line =
                    format!("{}=={} --hash=sha512:{}\n", package.name, package.version, package.sha512);
                fs::write(&wanted, line).attempt("write", &wanted)?;
                command.args(["download", "--no-input", "--disable-pip-version-check", "--no-deps"]);
                command.args(wheel_options(package)).arg("--require-hashes");
                command.arg("--dest").arg(&target).arg("--requirement").arg(wanted);
            }
            Self::Npm => {
                command.args(["pack", "--ignore-scripts", "--no-update-notifier", "--pack-destination"]);
                command.arg(&target).arg(format!("{}@{}", package.name, package.version));
            }
        }
        self.run(package, command, run)?;
        let mut files = fs::read_dir(&target).attempt("read", &target)?.flatten().map(|entry| entry.path());
        match (files.next(), files.next()) {
            (Some(file), None) => Ok(file),
            _ => Err(self.failed(package, "it did not download one file".to_owned())),
        }
    }

    /// Unpacks `file`, whose digest has been checked, into `staging`. The tool has no access to a registry
    /// and doesn't run the package's scripts. The process holds one of `run`'s locks, so that the guard can
    /// terminate it.
    pub(crate) fn unpack(
        self,
        package: &Package,
        file: &Path,
        staging: &Path,
        run: &RunDirectory,
    ) -> Result<(), FetchError> {
        let mut command = self.command();
        match self {
            Self::Pip => {
                command.args(["install", "--no-input", "--disable-pip-version-check", "--no-deps"]);
                command.args(wheel_options(package)).args(["--no-index", "--no-compile"]);
                command.arg("--target").arg(staging).arg(file);
            }
            Self::Npm => {
                command.args(["install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund"]);
                command.args(["--no-save", "--no-package-lock", "--no-update-notifier", "--prefix"]);
                command.arg(staging).arg(file);
            }
        }
        self.run(package, command, run)?;
        if self == Self::Npm {
            make_links(&staging.join("node_modules").join(&package.name))?;
        }
        Ok(())
    }

    /// Returns the command for this tool. Neither the project nor the environment can make it load code.
    fn command(self) -> Command {
        let mut command = match self {
            Self::Pip => {
                let mut command = plain_command("python3");
                command.args(["-I", "-m", "pip"]);
                command
            }
            Self::Npm => plain_command("npm"),
        };
        if self == Self::Npm && home_directory().is_none() && !Account::ours().has_name() {
            // Without a home directory, npm can't even print its version.
            command.env("HOME", "/");
        }
        command
    }

    /// Runs the command and waits for it to exit. If pgfresh exits first, the guard of `run` terminates the
    /// command.
    fn run(self, package: &Package, mut command: Command, run: &RunDirectory) -> Result<(), FetchError> {
        if self == Self::Npm && !npm_can_cache() {
            command.env("npm_config_cache", run.path().join("npm-cache"));
        }
        let output = held_output(&mut command, run)?.map_err(|words| self.failed(package, words))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        if self == Self::Pip && said.contains("DO NOT MATCH THE HASHES") {
            let got = said.lines().find_map(|line| line.trim().strip_prefix("Got"));
            let found = got.map_or("another", str::trim).to_owned();
            return Err(FetchError::Digest { package: Box::new(package.clone()), found });
        }
        Err(self.failed(package, last_lines(&output)))
    }

    fn failed(self, package: &Package, words: String) -> FetchError {
        let package = format!("{} {}", package.name, package.version);
        FetchError::Client { package, client: self.name(), output: words }
    }
}

/// Returns a command for a package tool in `/`, without the environment variables that make it load code.
pub(crate) fn plain_command(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if !can_stay(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
    command.env("PATH", absolute_path()).current_dir("/");
    command
}

/// Runs a command that holds one of `run`'s locks. If pgfresh exits first, the guard of `run` terminates the command.
/// The inner error explains why there is no output.
pub(crate) fn held_output(
    command: &mut Command,
    run: &RunDirectory,
) -> Result<Result<Output, String>, FileError> {
    let lock = run.helper_lock()?.descriptor().attempt("duplicate", run.path())?;
    sys::inherit(command, vec![lock]);
    // The server's account must be able to read the new files, regardless of pgfresh's umask.
    sys::allow_others_to_read(command);
    Ok(match output_within(command, CLIENT_TIMEOUT) {
        Ok(Some(output)) => Ok(output),
        Ok(None) => Err(format!("nothing for {} minutes", CLIENT_TIMEOUT.as_secs() / 60)),
        Err(error) => Err(error.to_string()),
    })
}

/// Returns the last lines of a tool's error output.
pub(crate) fn last_lines(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join("\n    ")
}

/// Returns the pip options that select the wheel with the digest in the table, regardless of the installed
/// Python version.
fn wheel_options(package: &Package) -> Vec<&str> {
    let Some(Wheel { python, platform }) = &package.wheel else { return Vec::new() };
    vec!["--only-binary", ":all:", "--python-version", python, "--platform", platform]
}

/// Returns true if a variable can remain in the environment of a package tool.
fn can_stay(name: &str) -> bool {
    if name == "ENV" || CODE_LOADING_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return false;
    }
    let upper = name.to_ascii_uppercase();
    TOOL_PREFIXES.iter().all(|(prefix, kept)| {
        // The variable contains credentials for a single registry, for example
        // npm_config_//registry.example/:_authToken.
        upper.strip_prefix(prefix).is_none_or(|rest| rest.starts_with("//") || kept.contains(&rest))
    })
}

/// Returns the user's home directory from the environment.
fn home_directory() -> Option<PathBuf> {
    env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

/// Returns true if npm can write to its cache. In a container, the user might have no home directory, or the
/// home directory might be `/`.
fn npm_can_cache() -> bool {
    let configured =
        |(name, _): (OsString, OsString)| name.to_string_lossy().eq_ignore_ascii_case("npm_config_cache");
    if env::vars_os().any(configured) {
        return true;
    }
    // Without `HOME`, npm uses the home directory in `/etc/passwd`.
    let Some(home) = home_directory() else { return Account::ours().has_name() };
    let cache = home.join(".npm");
    sys::expect_usable(if cache.exists() { &cache } else { &home }).is_ok()
}

/// Returns `PATH` without its relative entries.
fn absolute_path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    env::join_paths(folders).unwrap_or_default()
}

/// A symbolic link in a package. Because npm doesn't extract links, the package lists them in a file instead.
#[derive(Deserialize)]
struct Link {
    /// The link's target, relative to the package's root directory.
    source: String,
    target: String,
}

fn make_links(package: &Path) -> Result<(), FileError> {
    let list = package.join("native/pg-symlinks.json");
    let text = fs::read_to_string(&list).unwrap_or_default();
    for Link { source, target } in serde_json::from_str::<Vec<Link>>(&text).unwrap_or_default() {
        let (name, link) = (Path::new(&source).file_name().unwrap_or_default(), package.join(&target));
        if link.symlink_metadata().is_err() {
            symlink(name, &link).attempt("create", &link)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::can_stay;

    #[test]
    fn only_registry_access_variables_stay() {
        for name in [
            "PATH",
            "HOME",
            "https_proxy",
            "SSL_CERT_FILE",
            "NODE_EXTRA_CA_CERTS",
            "NODE_AUTH_TOKEN",
            "NPM_TOKEN",
            "PIP_INDEX_URL",
            "npm_config_registry",
            "NPM_CONFIG_USERCONFIG",
            "npm_config_//registry.example/:_authToken",
        ] {
            assert!(can_stay(name), "{name}");
        }
        for name in [
            "PYTHONPATH",
            "PYTHONHOME",
            "PYTHONSTARTUP",
            "PIP_PYTHON",
            "PIP_TARGET",
            "PIP_REQUIREMENT",
            "NODE_OPTIONS",
            "NODE_PATH",
            "npm_config_prefix",
            "npm_config_node_options",
            "NPM_CONFIG_SCRIPT_SHELL",
            "npm_config_globalconfig",
            "LD_PRELOAD",
            "OPENSSL_CONF",
            "BASH_ENV",
            "APT_CONFIG",
            "ENV",
        ] {
            assert!(!can_stay(name), "{name}");
        }
    }
}
