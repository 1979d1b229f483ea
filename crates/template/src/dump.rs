//! Writing what a live database has into a file that a template can be made from: its schema and the roles it mentions as
//! SQL, or all of it as a dump. That server is only read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use server::{ConnectionString, ConnectionStringError, Installation, SUPERUSER};
use storage::{Attempt, FileError};

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The connection string cannot be passed on.
    #[error(transparent)]
    Target(#[from] ConnectionStringError),
    /// A program is missing.
    #[error("cannot read the database: {program} is not there")]
    NoProgram {
        /// `pg_dump`.
        program: &'static str,
    },
    /// The program ended with an error.
    #[error("could not read the database: {program} ended with {status}")]
    Failed {
        /// `pg_dump`.
        program: &'static str,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it said.
        answer: String,
    },
    /// The file cannot be written, or the program not be run.
    #[error(transparent)]
    File(#[from] FileError),
}

impl DumpError {
    /// What came back.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Failed { answer, .. } => Some(format!("It said: {answer}")),
            Self::Target(_) | Self::NoProgram { .. } | Self::File(_) => None,
        }
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Target(error) => Some(error.hint()),
            Self::NoProgram { .. } => Some(
                "Install PostgreSQL's client programs (Debian: apt install postgresql-client).".to_owned(),
            ),
            Self::Failed { answer, .. } if answer.contains("version mismatch") => {
                Some("Name a PostgreSQL as new as that server with --postgres.".to_owned())
            }
            Self::Failed { .. } => None,
            Self::File(error) => error.hint(),
        }
    }
}

/// Writes the schema of the database at `url` into `file`, and the server's roles, without passwords, before it where they
/// may be read. Where not, neither owners nor grants are in it, and the reason is returned: what `pg_dumpall` said.
///
/// # Errors
/// `file` is as it was before then.
pub fn import(installation: &Installation, url: &str, file: &Path) -> Result<Option<String>, DumpError> {
    let target = ConnectionString::parse(url)?;
    let found = roles(installation, &target)?;
    let mut options = vec!["--schema-only", "--no-tablespaces", "--no-subscriptions"];
    if found.is_err() {
        options.extend(["--no-owner", "--no-privileges"]);
    }
    let schema = dumped(installation, &options, &target)?;
    let mut text = "-- Imported by pgfresh.\n".to_owned();
    let left_out = found.map(|sql| text.push_str(&sql)).err();
    text.push_str(&String::from_utf8_lossy(&schema));
    staged(file, |staging| Ok(fs::write(staging, text).attempt("write", staging)?))?;
    Ok(left_out)
}

/// Writes all of the database at `url` but its roles into `file`, in `pg_dump`'s custom format.
///
/// # Errors
/// `file` is as it was before then.
pub fn save(installation: &Installation, url: &str, file: &Path) -> Result<(), DumpError> {
    let target = ConnectionString::parse(url)?;
    staged(file, |staging| {
        let to = format!("--file={}", staging.display());
        // Before a server is asked for all that it has.
        fs::write(staging, "").attempt("write", staging)?;
        let options = ["--format=custom", "--no-tablespaces", "--no-subscriptions", &to];
        dumped(installation, &options, &target).map(drop)
    })
}

/// Has `write` write a file beside `file`, which then takes its place; on any error nothing of it is left.
fn staged(file: &Path, write: impl FnOnce(&Path) -> Result<(), DumpError>) -> Result<(), DumpError> {
    let staging = file.with_added_extension("part");
    let written = write(&staging).and_then(|()| Ok(hand_over(&staging, file)?));
    if written.is_err()
        && let Err(error) = fs::remove_file(&staging)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, path = %staging.display(), "could not remove an unfinished dump");
    }
    written
}

/// Gives a finished file the user's usual mode and its name.
fn hand_over(staging: &Path, file: &Path) -> Result<(), FileError> {
    let finished = fs::File::open(staging).attempt("open", staging)?;
    sys::leave_usual_mode(&finished).attempt("change the mode of", staging)?;
    fs::rename(staging, file).attempt("write", file)
}

/// What `pg_dump` gives.
fn dumped(
    installation: &Installation,
    options: &[&str],
    target: &ConnectionString,
) -> Result<Vec<u8>, DumpError> {
    let output = output(installation, "pg_dump", options, target)?;
    if !output.status.success() {
        let (program, status) = ("pg_dump", output.status);
        return Err(DumpError::Failed { program, status, answer: answer(&output) });
    }
    Ok(output.stdout)
}

/// The SQL that makes the server's roles, but for the one that every cluster of ours has; or why there is none.
fn roles(
    installation: &Installation,
    target: &ConnectionString,
) -> Result<Result<String, String>, DumpError> {
    let output = output(installation, "pg_dumpall", &["--roles-only", "--no-role-passwords"], target)?;
    if !output.status.success() {
        return Ok(Err(answer(&output)));
    }
    let ours = format!("CREATE ROLE {SUPERUSER};");
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(Ok(text.split_inclusive('\n').filter(|line| line.trim_end() != ours).collect()))
}

fn output(
    installation: &Installation,
    program: &'static str,
    options: &[&str],
    target: &ConnectionString,
) -> Result<Output, DumpError> {
    let path: PathBuf = installation.client(program).ok_or(DumpError::NoProgram { program })?;
    // pgfresh does not ask for a password: it belongs into the URL, PGPASSWORD or ~/.pgpass.
    let mut command = Command::new(&path);
    command.args(options).arg("--no-password").stdin(Stdio::null());
    target.describe_to(&mut command);
    Ok(command.output().attempt("run", &path)?)
}

/// The last line of what a program said.
fn answer(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("(nothing)").chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_a_file_that_cannot_be_written_or_named() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("schema.sql");
        fs::create_dir_all(directory.join("full")).unwrap();
        let write = |staging: &Path| Ok(fs::write(staging, "half").attempt("write", staging)?);
        assert!(staged(&directory, write).is_err(), "a directory has its name");
        assert!(staged(&folder.path().join("none/schema.sql"), write).is_err());
        let stays: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(stays, [directory]);
    }
}
