//! Importing the schema of a live database, and the roles it mentions, as one file of SQL. That server is only read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use server::{Installation, SUPERUSER};
use storage::{Attempt, FileError};

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A program is missing.
    #[error("cannot import: {program} is not there")]
    NoProgram {
        /// `pg_dump`.
        program: &'static str,
    },
    /// The program ended with an error.
    #[error("could not read the schema: {program} ended with {status}")]
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

impl ImportError {
    /// What came back.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Failed { answer, .. } => Some(format!("It said: {answer}")),
            Self::NoProgram { .. } | Self::File(_) => None,
        }
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
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

/// Whether the roles are in the file too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roles {
    /// All of the server's, without passwords.
    Included,
    /// None, and neither owners nor grants: the reason is what `pg_dumpall` said.
    LeftOut(String),
}

/// Writes the schema of the database at `url` into `file`, and the server's roles before it where they may be read.
///
/// # Errors
/// `file` is as it was before then.
pub fn import(installation: &Installation, url: &str, file: &Path) -> Result<Roles, ImportError> {
    let dumped = roles(installation, url)?;
    let mut options = vec!["--schema-only", "--no-tablespaces", "--no-subscriptions"];
    if dumped.is_err() {
        options.extend(["--no-owner", "--no-privileges"]);
    }
    let schema = output(installation, "pg_dump", &options, url)?;
    if !schema.status.success() {
        let (program, status) = ("pg_dump", schema.status);
        return Err(ImportError::Failed { program, status, answer: answer(&schema) });
    }
    let mut text = "-- Imported by pgfresh.\n".to_owned();
    let roles = match dumped {
        Ok(sql) => {
            text.push_str(&sql);
            Roles::Included
        }
        Err(why) => Roles::LeftOut(why),
    };
    text.push_str(&String::from_utf8_lossy(&schema.stdout));
    let staging = file.with_added_extension("part");
    fs::write(&staging, text).attempt("write", &staging)?;
    fs::rename(&staging, file).attempt("write", file)?;
    Ok(roles)
}

/// The SQL that makes the server's roles, but for the one that every cluster of ours has; or why there is none.
fn roles(installation: &Installation, url: &str) -> Result<Result<String, String>, ImportError> {
    let output = output(installation, "pg_dumpall", &["--roles-only", "--no-role-passwords"], url)?;
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
    url: &str,
) -> Result<Output, ImportError> {
    let path: PathBuf = installation.client(program).ok_or(ImportError::NoProgram { program })?;
    // Nobody is asked for a password: it belongs into the URL, PGPASSWORD or ~/.pgpass.
    let mut command = Command::new(&path);
    command.args(options).arg("--no-password").arg(format!("--dbname={url}")).stdin(Stdio::null());
    Ok(command.output().attempt("run", &path)?)
}

/// The last line of what a program said.
fn answer(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("(nothing)").chars().take(300).collect()
}
