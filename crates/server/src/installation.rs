//! Binaries of one version of `PostgreSQL`, with their version and settings.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use std::{env, fs};

use storage::{Account, Attempt, Cache};
use sys::ProcessHandle;

use crate::error::{InstallationError, StartError};
use crate::preset;
use crate::shim::is_own_program;
use crate::version::{MAJORS, Version};

/// Text before the name, in a server's error about a setting that it does not know.
pub(crate) const UNKNOWN: &str = "unrecognized configuration parameter";
/// Timeout for a program to report its version or settings.
const ANSWER: Duration = Duration::from_secs(10);

/// Directory of binaries whose version and settings pgfresh knows.
#[derive(Debug, Clone)]
pub struct Installation {
    bin: PathBuf,
    version: Version,
    digest: String,
    settings: BTreeSet<String>,
}

impl Installation {
    /// Asks the binaries in directory `bin` for version and settings, or reads their earlier answers from the cache if the file is
    /// unchanged. It asks a script each time: another file may decide which server the script starts.
    pub fn probe(bin: &Path, cache: &Cache) -> Result<Self, InstallationError> {
        let postgres = bin.join("postgres");
        let meta = fs::metadata(&postgres).attempt("examine", &postgres)?;
        let initdb = bin.join("initdb");
        fs::metadata(&initdb).attempt("examine", &initdb)?;
        if !is_own_program(&postgres) {
            return Self::ask(bin, &postgres);
        }
        let note = note("installation-1", &postgres, &meta, &presets_in_words());
        if let Some(installation) = cache.recall(&note).and_then(|text| Self::from_note(bin, &text)) {
            return Ok(installation);
        }
        let installation = Self::ask(bin, &postgres)?;
        cache.remember(&note, &installation.to_note())?;
        Ok(installation)
    }

    fn ask(bin: &Path, postgres: &Path) -> Result<Self, InstallationError> {
        let answer = run(postgres, "--version")?;
        let version = parse_version(&answer).ok_or_else(|| InstallationError::NotPostgres {
            path: postgres.to_owned(),
            answer: first_line(&answer),
        })?;
        if version.major < *MAJORS.start() {
            return Err(InstallationError::Unsupported { path: postgres.to_owned(), version });
        }
        let known = run(postgres, "--describe-config")?;
        let mut settings: BTreeSet<_> =
            known.lines().filter_map(|line| Some(line.split_once('\t')?.0.to_ascii_lowercase())).collect();
        if !settings.contains("fsync") {
            return Err(InstallationError::NotPostgres {
                path: postgres.to_owned(),
                answer: first_line(&known),
            });
        }
        if version.major > *MAJORS.end() {
            drop_refused(postgres, &mut settings)?;
        }
        let mut digest = blake3::Hasher::new();
        digest.update(&fs::read(postgres).attempt("read", postgres)?);
        if !is_own_program(postgres) {
            // A script stays the same when it starts another server. That server's answers do not.
            digest.update(answer.as_bytes()).update(known.as_bytes());
        }
        Ok(Self { bin: bin.to_owned(), version, digest: digest.finalize().to_string(), settings })
    }

    fn to_note(&self) -> String {
        let names: Vec<_> = self.settings.iter().map(String::as_str).collect();
        format!("{} {} {}\n{}\n", self.version.major, self.version.minor, self.digest, names.join(" "))
    }

    fn from_note(bin: &Path, text: &str) -> Option<Self> {
        let (first, names) = text.strip_suffix('\n')?.split_once('\n')?;
        let mut fields = first.split(' ');
        let version = Version { major: fields.next()?.parse().ok()?, minor: fields.next()?.parse().ok()? };
        let digest = fields.next()?.to_owned();
        let settings = names.split(' ').map(str::to_owned).collect();
        Some(Self { bin: bin.to_owned(), version, digest, settings })
    }

    /// Returns the directory with the binaries.
    #[must_use]
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// Appends the binaries to the `PATH` of `command`, so that the user's programs come first. Does nothing if the directory has a
    /// colon in its name, which `PATH` cannot hold.
    pub fn offer_to(&self, command: &mut Command) {
        let path = env::var_os("PATH").filter(|path| !path.is_empty());
        if let Some(mut path) = path.filter(|_| !self.bin.as_os_str().as_bytes().contains(&b':')) {
            path.push(":");
            path.push(&self.bin);
            command.env("PATH", path);
        }
    }

    /// Returns the version that `postgres --version` reports.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the BLAKE3 digest of the `postgres` binary in hex: another build is another installation. The digest of a script covers
    /// the answers of the server that it starts.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Whether this binary has a setting of that name.
    #[must_use]
    pub fn has_setting(&self, name: &str) -> bool {
        self.settings.contains(name)
    }

    /// Checks that the server knows a setting of each of these names. Skips names with a dot, which may be an extension's.
    ///
    /// # Errors
    /// [`StartError::UnknownSetting`] for the first name that the server does not know.
    pub fn expect_settings<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<(), StartError> {
        let postgres = self.bin.join("postgres");
        for name in names.into_iter().filter(|name| !self.has_setting(name) && !name.contains('.')) {
            // The server's list is not complete.
            let mut command = Command::new(&postgres);
            command.args(["-C", name, "-D", "/", "-c", "config_file=/dev/null"]).env("LC_ALL", "C");
            let said = output_of(&mut command).attempt("run", &postgres)?.map(|output| output.stderr);
            if String::from_utf8_lossy(&said.unwrap_or_default()).contains(UNKNOWN) {
                return Err(self.unknown_setting(name));
            }
        }
        Ok(())
    }

    /// Returns the error for a setting that the server does not know.
    pub(crate) fn unknown_setting(&self, name: &str) -> StartError {
        let nearest = self.nearest_setting(name).map(ToOwned::to_owned);
        StartError::UnknownSetting { name: name.to_owned(), major: self.version.major, nearest }
    }

    /// Returns the setting whose name differs least from `name`, if one is similar.
    fn nearest_setting(&self, name: &str) -> Option<&str> {
        let name = name.to_ascii_lowercase();
        let distance = |known: &&String| strsim::osa_distance(known, &name);
        self.settings
            .iter()
            .min_by_key(distance)
            .filter(|known| distance(known) * 3 <= name.len())
            .map(String::as_str)
    }

    /// Returns the path of `psql`, `pg_dump` or another client program: from this installation, else from PATH. Some packages have
    /// only the server.
    #[must_use]
    pub fn client(&self, name: &str) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::iter::once(self.bin.join(name))
            .chain(std::env::split_paths(&path).map(|folder| folder.join(name)))
            .find(|candidate| candidate.is_file())
    }

    /// Returns a command for one of the programs, to run as `account`, outside the current directory, without variables that would
    /// change its behaviour.
    pub(crate) fn command(&self, program: &str, account: &Account) -> Command {
        let mut command = Command::new(self.bin.join(program));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("PG") || text.starts_with("LC_") || text.starts_with("LANG") {
                command.env_remove(name);
            }
        }
        command.env("TZ", "UTC").env("LC_ALL", "C").current_dir("/").stdin(Stdio::null());
        if account.foreign {
            use std::os::unix::process::CommandExt;
            command.uid(account.uid).gid(account.gid);
        } else if let Some((uid, gid)) = account.alias() {
            sys::call_ourselves(&mut command, uid, gid);
        }
        command
    }

    /// Returns a command for the server itself, with the preset's environment. Variables that the user has set stay.
    pub(crate) fn postmaster(&self, account: &Account) -> Command {
        let mut command = self.command("postgres", account);
        command.envs(preset::MEMORY.into_iter().filter(|(name, _)| std::env::var_os(name).is_none()));
        command
    }
}

/// Returns the name under which the cache stores an answer of `program`, which depends on `more`. The name changes with the file's
/// metadata.
pub(crate) fn note(kind: &str, program: &Path, meta: &fs::Metadata, more: &str) -> String {
    let (program, size, inode) = (program.display(), meta.size(), meta.ino());
    let identity = format!("{program}\0{size}\0{}\0{}\0{inode}\0{more}", meta.mtime(), meta.mtime_nsec());
    format!("{kind}-{}", &blake3::hash(identity.as_bytes()).to_hex()[..24])
}

/// Returns the presets as text: the answer of a newer server depends on them and on its binary.
fn presets_in_words() -> String {
    preset::presets().flat_map(|(name, value)| [name, "=", value, "\0"]).collect()
}

/// Removes pgfresh's settings whose values the server refuses, as one that is newer than this program may do. Asks about each
/// setting only if the server refuses some.
fn drop_refused(postgres: &Path, settings: &mut BTreeSet<String>) -> Result<(), InstallationError> {
    let ours: Vec<_> = preset::presets().filter(|(name, _)| settings.contains(*name)).collect();
    // A binary that fails without any setting reports its error when it starts.
    if accepts(postgres, &ours)? || !accepts(postgres, &[])? {
        return Ok(());
    }
    for pair in ours {
        if !accepts(postgres, &[pair])? {
            settings.remove(pair.0);
        }
    }
    Ok(())
}

/// Whether the server accepts these settings, each by itself. This needs no cluster.
fn accepts(postgres: &Path, settings: &[(&str, &str)]) -> Result<bool, InstallationError> {
    let mut command = Command::new(postgres);
    // Only if -C comes first may root run the server.
    command.args(["-C", "fsync", "-D", "/", "-c", "config_file=/dev/null"]);
    for (name, value) in settings {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    let output = output_of(&mut command).attempt("run", postgres)?;
    Ok(output.is_some_and(|output| output.status.success()))
}

/// Runs a server in `/`, where pgfresh will start it and it loads nothing of the project.
fn run(postgres: &Path, argument: &str) -> Result<String, InstallationError> {
    run_in(Path::new("/"), postgres, argument)
}

pub(crate) fn run_in(folder: &Path, postgres: &Path, argument: &str) -> Result<String, InstallationError> {
    let mut command = Command::new(postgres);
    command.current_dir(folder);
    let output = output_of(command.arg(argument)).attempt("run", postgres)?;
    let Some(output) = output else {
        let (path, argument) = (postgres.to_owned(), argument.to_owned());
        return Err(InstallationError::Silent { path, argument, after: ANSWER });
    };
    if !output.status.success() {
        return Err(InstallationError::Refused {
            path: postgres.to_owned(),
            argument: argument.to_owned(),
            status: output.status,
            answer: first_line(&String::from_utf8_lossy(&output.stderr)),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the output of a program, or `None` if pgfresh had to end it after [`ANSWER`].
pub(crate) fn output_of(command: &mut Command) -> io::Result<Option<Output>> {
    output_within(command, ANSWER)
}

/// Returns the output of a program, or `None` if pgfresh had to end it after `patience`.
pub(crate) fn output_within(command: &mut Command, patience: Duration) -> io::Result<Option<Output>> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let handle = ProcessHandle::of(&child)?;
    let (sender, receiver) = mpsc::channel();
    let reader = thread::Builder::new().spawn(move || sender.send(child.wait_with_output()));
    if let Err(error) = reader {
        handle.kill();
        return Err(error);
    }
    let Ok(output) = receiver.recv_timeout(patience) else {
        handle.kill();
        return Ok(None);
    };
    output.map(Some)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("(nothing)").chars().take(200).collect()
}

/// Reads `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`; a pre-release such as `19beta1` has minor 0.
fn parse_version(answer: &str) -> Option<Version> {
    let rest = answer.trim().strip_prefix("postgres (PostgreSQL) ")?;
    let number = rest.split(' ').next()?;
    let major: String = number.chars().take_while(char::is_ascii_digit).collect();
    let minor = number.strip_prefix(&major)?.strip_prefix('.').and_then(|minor| minor.parse().ok());
    Some(Version { major: major.parse().ok()?, minor: minor.unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_all_builders_are_read() {
        for (answer, expected) in [
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", Some((15, 18))),
            ("postgres (PostgreSQL) 18.4", Some((18, 4))),
            ("postgres (PostgreSQL) 19beta1", Some((19, 0))),
            ("psql (PostgreSQL) 15.18", None),
            ("", None),
        ] {
            let version = parse_version(answer).map(|version| (version.major, version.minor));
            assert_eq!(version, expected, "{answer:?}");
        }
    }
}
