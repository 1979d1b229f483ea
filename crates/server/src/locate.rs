//! Finds an installation. The search covers the user's directory, PATH, `pg_config` and the usual
//! directories.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use storage::{Account, Attempt, Cache};

use crate::error::InstallationError;
use crate::fetch::downloaded_directories;
use crate::installation::{Installation, note_name, output_of, run_in};
use crate::shim::{is_own_program, resolve_server};
use crate::version::VersionRequest;

/// An installation and where it was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// The binaries.
    pub installation: Installation,
    /// "PATH", "`pg_config`", or the pattern of one of the usual directories.
    pub source: String,
}

/// Directories where packages install several major versions side by side. `*` matches any text.
const USUAL_DIRECTORIES: [&str; 10] = [
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
    "/Library/PostgreSQL/*/bin",
    "/opt/local/lib/postgresql*/bin",
    "/usr/lib/postgresql*/bin",
    "/usr/local/pgsql/bin",
];

/// Finds the requested installation.
///
/// # Errors
/// Returns `NotFound` with the searched locations if no installation matches. If installations match but
/// none of them works, returns the first one's error.
pub fn find(
    wanted: &VersionRequest,
    cache: &Cache,
    account: &Account,
) -> Result<Installation, InstallationError> {
    let installation = match wanted {
        VersionRequest::Bin(bin) => {
            // The user can also pass the binary itself, or the parent directory of bin.
            let inner = bin.join("bin");
            let bin = if inner.join("postgres").exists() { &inner } else { bin };
            // pgfresh runs the programs in a different directory, so the path must be absolute.
            let bin = std::path::absolute(bin).attempt("resolve", bin)?;
            let postgres = bin.join("postgres");
            let starts = |folder| resolve_server(&postgres, Path::new(folder));
            // If this is a script that always starts the same server, continue to use the script, because it might
            // prepare something that the server needs.
            if is_own_program(&postgres) || starts(".") == starts("/") {
                Installation::probe(&bin, cache)?
            } else {
                probe_in_current_directory(&bin, cache)?
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

/// Finds out which server `bin/postgres` starts in the current directory, and examines that server's installation. A
/// version manager's script on PATH starts different versions in different directories. Since pgfresh starts servers in
/// `/`, such a script might start the wrong version.
fn probe_in_current_directory(bin: &Path, cache: &Cache) -> Result<Installation, InstallationError> {
    let postgres = bin.join("postgres");
    if is_own_program(&postgres) {
        return Installation::probe(bin, cache);
    }
    let Some(server) = resolve_server(&postgres, Path::new(".")) else {
        run_in(Path::new("."), &postgres, "--version")?;
        return Installation::probe(bin, cache);
    };
    match server.parent().filter(|real| real.join("postgres").is_file() && real.join("initdb").is_file()) {
        // Without the script, the server might lack something that the script prepares.
        Some(real) => Installation::probe(real, cache).or_else(|_| Installation::probe(bin, cache)),
        None => Installation::probe(bin, cache),
    }
}

fn search(wanted: &VersionRequest, cache: &Cache) -> Result<Installation, InstallationError> {
    let mut failure = None;
    let mut best: Option<Installation> = None;
    for (bin, source) in candidates(cache) {
        match probe_in_current_directory(&bin, cache) {
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
            searched: searched_locations(),
            others: majors(cache),
        }),
    }
}

/// Returns all working installations in the order of `candidates`. Each installation occurs only once.
#[must_use]
pub fn list(cache: &Cache) -> Vec<Found> {
    let found = candidates(cache).into_iter().filter_map(|(bin, source)| {
        Some(Found { installation: probe_in_current_directory(&bin, cache).ok()?, source })
    });
    // A version manager's script can lead to one of the usual directories, so the same installation can occur
    // more than once.
    let mut seen = HashSet::new();
    found.filter(|found| seen.insert(found.installation.bin().to_owned())).collect()
}

fn majors(cache: &Cache) -> Vec<u32> {
    let mut majors: Vec<_> = list(cache).iter().map(|found| found.installation.version().major).collect();
    majors.sort_unstable();
    majors.dedup();
    majors
}

/// Returns the locations that [`candidates`] searches, as text.
fn searched_locations() -> String {
    format!("PATH, \"pg_config --bindir\", {}", USUAL_DIRECTORIES.join(", "))
}

/// Returns the directories that contain both `postgres` and `initdb`, each with its source. Each directory occurs only
/// once.
fn candidates(cache: &Cache) -> Vec<(PathBuf, String)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<_> = std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    let mut all: Vec<(PathBuf, String)> =
        on_path.iter().map(|folder| (folder.clone(), "PATH".to_owned())).collect();
    let usual: Vec<_> = USUAL_DIRECTORIES
        .iter()
        .flat_map(|pattern| expand(pattern).into_iter().map(|bin| (bin, (*pattern).to_owned())))
        .collect();
    if let Some(program) = on_path.iter().map(|folder| folder.join("pg_config")).find(|path| path.is_file()) {
        let bin = ask_pg_config(&program, &usual, cache);
        all.extend(bin.map(|bin| (bin, "pg_config".to_owned())));
    }
    all.extend(usual);
    all.extend(
        downloaded_directories(cache).into_iter().map(|bin| (bin, "pgfresh postgres install".to_owned())),
    );
    let mut seen = HashSet::new();
    all.retain_mut(|(bin, _)| {
        let complete = ["postgres", "initdb"].iter().all(|program| bin.join(program).is_file());
        // If the program on PATH is a link, follow it to the directory that also contains the libraries.
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

/// Returns the directory that `pg_config` prints. The output is cached if `pg_config` is a binary or Debian's
/// script, which takes 3 ms. The output of other scripts isn't cached, because such a script may belong to a
/// version manager.
fn ask_pg_config(program: &Path, usual: &[(PathBuf, String)], cache: &Cache) -> Option<PathBuf> {
    // Debian's script runs the newest `pg_config` in the usual directories, where development packages
    // install these programs.
    let others = usual.iter().map(|(bin, _)| bin.join("pg_config")).filter(|path| path.exists());
    let others: Vec<_> = others.map(|path| path.display().to_string()).collect();
    let note = note_name("pg_config-1", program, &fs::metadata(program).ok()?, &others.join("\0"));
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
        // If this fails, pgfresh runs the program again next time.
        if let Err(error) = cache.remember(&note, answer.trim()) {
            tracing::debug!(%error, program = %program.display(), "could not save where a program's binaries are");
        }
    }
    bin.is_absolute().then(|| bin.to_owned())
}

/// Returns the directories that match a pattern, which contains at most one `*`.
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
    fn version_request_parses_major_or_path() {
        assert_eq!("17".parse(), Ok(VersionRequest::Major(17)));
        assert_eq!("/opt/pg/bin".parse(), Ok(VersionRequest::Bin("/opt/pg/bin".into())));
        assert_eq!("19".parse(), Ok(VersionRequest::Major(19)));
        assert!("12".parse::<VersionRequest>().is_err());
        assert!("1810".parse::<VersionRequest>().is_err());
        assert!("latest".parse::<VersionRequest>().is_err());
    }

    #[test]
    fn pattern_expands_to_matching_directories() {
        let folder = tempfile::tempdir().unwrap();
        for major in ["pg-15", "pg-16", "other"] {
            fs::create_dir_all(folder.path().join(major).join("bin")).unwrap();
        }
        let pattern = format!("{}/pg-*/bin", folder.path().display());
        let found: Vec<_> = expand(&pattern);
        assert_eq!(found, ["pg-15", "pg-16"].map(|major| folder.path().join(major).join("bin")));
    }

    /// Expands the patterns below a temporary directory, which stands in for the root.
    #[test]
    fn installers_on_a_mac_have_a_pattern() {
        let root = tempfile::tempdir().unwrap();
        for (bin, installer) in [
            ("/opt/homebrew/opt/postgresql@17/bin", "Homebrew on Apple silicon"),
            ("/usr/local/opt/postgresql@17/bin", "Homebrew on Intel"),
            ("/Applications/Postgres.app/Contents/Versions/17/bin", "Postgres.app"),
            ("/Library/PostgreSQL/17/bin", "EnterpriseDB's installer"),
            ("/opt/local/lib/postgresql17/bin", "MacPorts"),
        ] {
            let bin = root.path().join(bin.trim_start_matches('/'));
            fs::create_dir_all(&bin).unwrap();
            let found = USUAL_DIRECTORIES
                .iter()
                .flat_map(|pattern| expand(&format!("{}{pattern}", root.path().display())));
            assert_eq!(found.filter(|found| *found == bin).count(), 1, "{installer}");
        }
    }
}
