//! The binaries of one version of `PostgreSQL`, with their version and the names of their settings. pgfresh
//! asks the binaries for both only once and caches the responses.

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

use crate::downloads::added_libraries;
use crate::error::{InstallationError, StartError};
use crate::major::MAJORS;
use crate::preset;
use crate::shim::is_own_program;
use crate::version::Version;

/// The text that precedes the name in a server's error about an unknown setting.
pub(crate) const UNKNOWN_SETTING: &str = "unrecognized configuration parameter";
/// Variable that lists the directories where the dynamic linker searches first (ld.so(8)).
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Timeout for a program to report its version or settings.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A directory with binaries, together with their version and settings.
#[derive(Debug, Clone)]
pub struct Installation {
    bin: PathBuf,
    version: Version,
    digest: String,
    settings: BTreeSet<String>,
}

impl Installation {
    /// Asks the binaries in the directory `bin` for their version and settings, or uses the cached responses
    /// if the file `postgres` hasn't changed. A script is always asked again, because even an unchanged
    /// script may start a different server now.
    ///
    /// # Errors
    /// Returns [`InstallationError::File`] if `postgres` or `initdb` is missing,
    /// [`InstallationError::NotPostgres`] or [`InstallationError::Unsupported`] for other programs and older
    /// versions, and [`InstallationError::Refused`] or [`InstallationError::Silent`] if a program fails or
    /// doesn't respond.
    pub fn probe(bin: &Path, cache: &Cache) -> Result<Self, InstallationError> {
        let postgres = bin.join("postgres");
        let meta = fs::metadata(&postgres).attempt("examine", &postgres)?;
        let initdb = bin.join("initdb");
        fs::metadata(&initdb).attempt("examine", &initdb)?;
        if !is_own_program(&postgres) {
            return Self::query_binaries(bin, &postgres);
        }
        let note = note_name("installation-1", &postgres, &meta, &presets_text());
        if let Some(installation) = cache.recall(&note).and_then(|text| Self::from_note(bin, &text)) {
            return Ok(installation);
        }
        let installation = Self::query_binaries(bin, &postgres)?;
        cache.remember(&note, &installation.to_note())?;
        Ok(installation)
    }

    fn query_binaries(bin: &Path, postgres: &Path) -> Result<Self, InstallationError> {
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
            remove_refused(postgres, &mut settings)?;
        }
        let mut digest = blake3::Hasher::new();
        digest.update(&fs::read(postgres).attempt("read", postgres)?);
        if !is_own_program(postgres) {
            // A script can start a different server without changing itself. Its responses show which server it is, so
            // include them in the digest.
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

    /// Returns the directory that contains the binaries.
    #[must_use]
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// Appends the binaries' directory to the `PATH` of `command`, where the user's own programs take
    /// precedence. Does nothing if the directory's name contains a colon, because `PATH` can't contain such a
    /// name.
    pub fn append_to_path(&self, command: &mut Command) {
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

    /// Returns the BLAKE3 digest of the `postgres` binary in hex, so that a different build counts as a different
    /// installation. If `postgres` is a script, the digest also covers the responses of the server that it starts.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns true if this server has a setting called `name`.
    #[must_use]
    pub fn has_setting(&self, name: &str) -> bool {
        self.settings.contains(name)
    }

    /// Checks that the server has a setting with each of these names. Names with a dot are skipped, because
    /// they can belong to extensions.
    ///
    /// # Errors
    /// Returns [`StartError::UnknownSetting`] for the first unknown name.
    pub fn expect_settings<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<(), StartError> {
        let postgres = self.bin.join("postgres");
        for name in names.into_iter().filter(|name| !self.has_setting(name) && !name.contains('.')) {
            // The server's list is incomplete, so ask the server about this name.
            let mut command = Command::new(&postgres);
            command.args(["-C", name, "-D", "/", "-c", "config_file=/dev/null"]).env("LC_ALL", "C");
            let said = output_of(&mut command).attempt("run", &postgres)?.map(|output| output.stderr);
            if String::from_utf8_lossy(&said.unwrap_or_default()).contains(UNKNOWN_SETTING) {
                return Err(self.unknown_setting(name));
            }
        }
        Ok(())
    }

    /// Returns the error for a setting that the server doesn't have.
    pub(crate) fn unknown_setting(&self, name: &str) -> StartError {
        let nearest = self.nearest_setting(name).map(ToOwned::to_owned);
        StartError::UnknownSetting { name: name.to_owned(), major: self.version.major, nearest }
    }

    /// Returns the setting whose name is closest to `name`, if one is similar enough.
    fn nearest_setting(&self, name: &str) -> Option<&str> {
        let name = name.to_ascii_lowercase();
        let distance = |known: &&String| strsim::osa_distance(known, &name);
        self.settings
            .iter()
            .min_by_key(distance)
            .filter(|known| distance(known) * 3 <= name.len())
            .map(String::as_str)
    }

    /// Returns the path of a client program such as `psql` or `pg_dump`. This installation takes precedence
    /// over PATH, which is searched because some packages contain only the server.
    #[must_use]
    pub fn client(&self, name: &str) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::iter::once(self.bin.join(name))
            .chain(std::env::split_paths(&path).map(|folder| folder.join(name)))
            .find(|candidate| candidate.is_file())
    }

    /// Returns a command for one of the programs. It runs under `account` and outside the current directory,
    /// without environment variables that would change its behavior.
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
            sys::run_in_user_namespace(&mut command, uid, gid);
        }
        command
    }

    /// Returns a command for the server itself, with the environment variables in [`preset::ENVIRONMENT`].
    /// Variables that the user has already set retain the user's values.
    pub(crate) fn postmaster(&self, account: &Account) -> Command {
        let mut command = self.command("postgres", account);
        command.envs(preset::ENVIRONMENT.into_iter().filter(|(name, _)| std::env::var_os(name).is_none()));
        if let Some(libraries) = added_libraries(&self.bin) {
            let others = env::var_os(LIBRARY_PATH).unwrap_or_default();
            let folders = std::iter::once(libraries).chain(env::split_paths(&others));
            command.envs(env::join_paths(folders).ok().map(|path| (LIBRARY_PATH, path)));
        }
        command
    }
}

/// Returns the key under which the cache stores a response of `program`. The key depends on `more` and
/// changes when the file's metadata changes.
pub(crate) fn note_name(kind: &str, program: &Path, meta: &fs::Metadata, more: &str) -> String {
    let (program, size, inode) = (program.display(), meta.size(), meta.ino());
    let identity = format!("{program}\0{size}\0{}\0{}\0{inode}\0{more}", meta.mtime(), meta.mtime_nsec());
    format!("{kind}-{}", &blake3::hash(identity.as_bytes()).to_hex()[..24])
}

/// Returns the presets as text, for the key of a cached response. The cached list of settings depends on the
/// server's binary and on the presets.
fn presets_text() -> String {
    preset::presets().flat_map(|(name, value)| [name, "=", value, "\0"]).collect()
}

/// Removes those of pgfresh's own settings from `settings` whose values the server rejects. A server newer
/// than this program may reject some of them. All settings are tested together first, and separately only if
/// that fails.
fn remove_refused(postgres: &Path, settings: &mut BTreeSet<String>) -> Result<(), InstallationError> {
    let ours: Vec<_> = preset::presets().filter(|(name, _)| settings.contains(*name)).collect();
    // If a binary fails even without any settings, keep the list. The binary will report its error when it is
    // started.
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

/// Returns true if the server accepts all of these settings. This check doesn't need a cluster.
fn accepts(postgres: &Path, settings: &[(&str, &str)]) -> Result<bool, InstallationError> {
    let mut command = Command::new(postgres);
    // Put -C first, otherwise the server refuses to run as root.
    command.args(["-C", "fsync", "-D", "/", "-c", "config_file=/dev/null"]);
    for (name, value) in settings {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    let output = output_of(&mut command).attempt("run", postgres)?;
    Ok(output.is_some_and(|output| output.status.success()))
}

/// Runs a server program in `/`, where pgfresh also starts the server later. In that directory, it doesn't
/// load any files of the user's project.
fn run(postgres: &Path, argument: &str) -> Result<String, InstallationError> {
    run_in(Path::new("/"), postgres, argument)
}

pub(crate) fn run_in(folder: &Path, postgres: &Path, argument: &str) -> Result<String, InstallationError> {
    let mut command = Command::new(postgres);
    command.current_dir(folder);
    let output = output_of(command.arg(argument)).attempt("run", postgres)?;
    let Some(output) = output else {
        let (path, argument) = (postgres.to_owned(), argument.to_owned());
        return Err(InstallationError::Silent { path, argument, after: RESPONSE_TIMEOUT });
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

/// Returns a program's output, or `None` if the program had to be terminated after [`RESPONSE_TIMEOUT`].
pub(crate) fn output_of(command: &mut Command) -> io::Result<Option<Output>> {
    output_within(command, RESPONSE_TIMEOUT)
}

/// Returns a program's output, or `None` if the program had to be terminated after `timeout`.
pub(crate) fn output_within(command: &mut Command, timeout: Duration) -> io::Result<Option<Output>> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let handle = ProcessHandle::of(&child)?;
    let (sender, receiver) = mpsc::channel();
    let reader = thread::Builder::new().spawn(move || sender.send(child.wait_with_output()));
    if let Err(error) = reader {
        handle.kill();
        return Err(error);
    }
    let Ok(output) = receiver.recv_timeout(timeout) else {
        handle.kill();
        return Ok(None);
    };
    output.map(Some)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("(nothing)").chars().take(200).collect()
}

/// Parses text such as `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`. A pre-release such as
/// `19beta1` has minor version 0.
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
    fn version_parser_accepts_all_vendors() {
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
