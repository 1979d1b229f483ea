//! Finds an installation: in the user's directory, on PATH, by `pg_config`, or in the usual directories.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use storage::{Account, Attempt, Cache};

use crate::error::InstallationError;
use crate::fetch::fetched;
use crate::installation::{Installation, note, output_of, run_in};
use crate::shim::{is_own_program, server_behind};
use crate::version::VersionRequest;

/// Installation and the place in which pgfresh found it.
#[derive(Debug, Clone)]
pub struct Found {
    /// The binaries.
    pub installation: Installation,
    /// "PATH", "`pg_config`", or the pattern of the usual directories.
    pub source: String,
}

/// Directories in which packagers put majors side by side; `*` stands for any text.
const USUAL: [&str; 8] = [
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
    "/usr/lib/postgresql*/bin",
    "/usr/local/pgsql/bin",
];

/// Finds the requested installation.
///
/// # Errors
/// `NotFound` with the searched places if there is no such installation. The error of the first one that does not work, if no
/// other one does.
pub fn find(
    wanted: &VersionRequest,
    cache: &Cache,
    account: &Account,
) -> Result<Installation, InstallationError> {
    let installation = match wanted {
        VersionRequest::Bin(bin) => {
            // The user may also name the binary itself, or the prefix above bin.
            let inner = bin.join("bin");
            let bin = if inner.join("postgres").exists() { &inner } else { bin };
            // pgfresh runs the programs in another directory.
            let bin = std::path::absolute(bin).attempt("resolve", bin)?;
            let postgres = bin.join("postgres");
            let starts = |folder| server_behind(&postgres, Path::new(folder));
            // A script that starts one server everywhere may prepare what the server needs: it stays.
            if is_own_program(&postgres) || starts(".") == starts("/") {
                Installation::probe(&bin, cache)?
            } else {
                probe_here(&bin, cache)?
            }
        }
        VersionRequest::Any | VersionRequest::Major(_) => search(wanted, cache)?,
    };
    if account.can_reach(installation.bin()) {
        Ok(installation)
    } else {
        Err(InstallationError::OutOfReach { bin: installation.bin().to_owned(), uid: account.uid })
    }
}

/// Examines the installation whose server `postgres` in `bin` starts in our directory. Version managers put programs on
/// PATH that start another version in another directory, and pgfresh starts servers in `/`.
fn probe_here(bin: &Path, cache: &Cache) -> Result<Installation, InstallationError> {
    let postgres = bin.join("postgres");
    if is_own_program(&postgres) {
        return Installation::probe(bin, cache);
    }
    let Some(server) = server_behind(&postgres, Path::new(".")) else {
        run_in(Path::new("."), &postgres, "--version")?;
        return Installation::probe(bin, cache);
    };
    match server.parent().filter(|real| real.join("postgres").is_file() && real.join("initdb").is_file()) {
        // Without the script, the server may lack what the script prepares.
        Some(real) => Installation::probe(real, cache).or_else(|_| Installation::probe(bin, cache)),
        None => Installation::probe(bin, cache),
    }
}

fn search(wanted: &VersionRequest, cache: &Cache) -> Result<Installation, InstallationError> {
    let mut failure = None;
    let mut best: Option<Installation> = None;
    for (bin, source) in candidates(cache) {
        match probe_here(&bin, cache) {
            Ok(installation) => {
                let major = installation.version().major;
                if matches!(wanted, VersionRequest::Major(wanted) if *wanted != major) {
                    continue;
                }
                if source == "PATH" {
                    return Ok(installation);
                }
                if best.as_ref().is_none_or(|best| best.version() < installation.version()) {
                    best = Some(installation);
                }
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match (best, failure) {
        (Some(best), _) => Ok(best),
        (None, Some(error)) if matches!(wanted, VersionRequest::Any) => Err(error),
        (None, _) => Err(InstallationError::NotFound {
            wanted: wanted.clone(),
            looked_at: looked_at(),
            others: majors(cache),
        }),
    }
}

/// Returns all installations that work, each once, in the order of [`candidates`].
#[must_use]
pub fn list(cache: &Cache) -> Vec<Found> {
    let found = candidates(cache)
        .into_iter()
        .filter_map(|(bin, source)| Some(Found { installation: probe_here(&bin, cache).ok()?, source }));
    // A version manager may lead to one of the usual directories.
    let mut seen = HashSet::new();
    found.filter(|found| seen.insert(found.installation.bin().to_owned())).collect()
}

fn majors(cache: &Cache) -> Vec<u32> {
    let mut majors: Vec<_> = list(cache).iter().map(|found| found.installation.version().major).collect();
    majors.sort_unstable();
    majors.dedup();
    majors
}

/// Returns the places that [`candidates`] searches, as text.
fn looked_at() -> String {
    format!("PATH, \"pg_config --bindir\", {}", USUAL.join(", "))
}

/// Returns directories with a `postgres` and an `initdb`, each once, with the place that led there.
fn candidates(cache: &Cache) -> Vec<(PathBuf, String)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<_> = std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    let mut all: Vec<(PathBuf, String)> =
        on_path.iter().map(|folder| (folder.clone(), "PATH".to_owned())).collect();
    let usual: Vec<_> = USUAL
        .iter()
        .flat_map(|pattern| expand(pattern).into_iter().map(|bin| (bin, (*pattern).to_owned())))
        .collect();
    if let Some(program) = on_path.iter().map(|folder| folder.join("pg_config")).find(|path| path.is_file()) {
        let bin = ask_pg_config(&program, &usual, cache);
        all.extend(bin.map(|bin| (bin, "pg_config".to_owned())));
    }
    all.extend(usual);
    all.extend(fetched(cache).into_iter().map(|bin| (bin, "pgfresh postgres install".to_owned())));
    let mut seen = HashSet::new();
    all.retain_mut(|(bin, _)| {
        let complete = ["postgres", "initdb"].iter().all(|program| bin.join(program).is_file());
        // A link on PATH leads to the directory that also has the libraries.
        match (complete, bin.join("postgres").canonicalize()) {
            (true, Ok(real)) => {
                if let Some(folder) = real.parent().filter(|folder| folder.join("initdb").is_file()) {
                    folder.clone_into(bin);
                }
                seen.insert(bin.clone())
            }
            _ => false,
        }
    });
    all
}

/// Returns the directory that `pg_config` names. The cache has the answer of a program and of Debian's script, which takes 3 ms;
/// any other script may be a version manager's.
fn ask_pg_config(program: &Path, usual: &[(PathBuf, String)], cache: &Cache) -> Option<PathBuf> {
    // Debian's script asks the newest of those that packages for developers have put into the usual directories.
    let others = usual.iter().map(|(bin, _)| bin.join("pg_config")).filter(|path| path.exists());
    let others: Vec<_> = others.map(|path| path.display().to_string()).collect();
    let note = note("pg_config-1", program, &fs::metadata(program).ok()?, &others.join("\0"));
    let constant = is_own_program(program) || program.starts_with("/usr/bin");
    if let Some(bin) = cache.recall(&note).filter(|_| constant) {
        return Some(bin.into());
    }
    let mut command = Command::new(program);
    if constant {
        command.current_dir("/");
    }
    let output = output_of(command.arg("--bindir"));
    let answer = String::from_utf8(output.ok()??.stdout).ok()?;
    let bin = Path::new(answer.trim());
    if constant && bin.is_absolute() {
        // If this fails, pgfresh asks the program again next time.
        if let Err(error) = cache.remember(&note, answer.trim()) {
            tracing::debug!(%error, program = %program.display(), "could not note where a program's binaries are");
        }
    }
    bin.is_absolute().then(|| bin.to_owned())
}

/// Returns the directories that match a pattern with at most one `*`.
fn expand(pattern: &str) -> Vec<PathBuf> {
    let Some((before, after)) = pattern.split_once('*') else { return vec![pattern.into()] };
    let (folder, prefix) = before.rsplit_once('/').unwrap_or(("", before));
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| Path::new(&format!("{}{after}", entry.path().display())).to_owned())
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_major_or_path() {
        assert_eq!("17".parse(), Ok(VersionRequest::Major(17)));
        assert_eq!("/opt/pg/bin".parse(), Ok(VersionRequest::Bin("/opt/pg/bin".into())));
        assert_eq!("19".parse(), Ok(VersionRequest::Major(19)));
        assert!("12".parse::<VersionRequest>().is_err());
        assert!("1810".parse::<VersionRequest>().is_err());
        assert!("latest".parse::<VersionRequest>().is_err());
    }

    #[test]
    fn a_pattern_finds_what_lies_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        for major in ["pg-15", "pg-16", "other"] {
            fs::create_dir_all(folder.path().join(major).join("bin")).unwrap();
        }
        let pattern = format!("{}/pg-*/bin", folder.path().display());
        let found: Vec<_> = expand(&pattern);
        assert_eq!(found, ["pg-15", "pg-16"].map(|major| folder.path().join(major).join("bin")));
    }
}
