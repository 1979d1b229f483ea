//! Reads a live database into a file, so that users can build a template from it. [`import`] writes the server's roles
//! and the database's schema as SQL. [`save`] writes the whole database as a dump. Neither function changes the server.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use server::{ConnectionString, ConnectionStringError, Installation, SUPERUSER};
use storage::{Attempt, FileError};

use crate::database_properties::{self, DatabaseProperty};

/// First line of every file written by [`import`].
const IMPORT_HEADER: &str = "-- Imported by pgfresh.\n";
/// First bytes of every dump in the custom format.
const DUMP_MAGIC: &[u8] = b"PGDMP";

/// Reasons why pgfresh couldn't write a dump.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The connection string has an error.
    #[error(transparent)]
    Target(#[from] ConnectionStringError),
    /// A program is missing.
    #[error("cannot read the database: {program} is missing")]
    NoProgram {
        /// Name of the program.
        program: &'static str,
    },
    /// A program returned an error.
    #[error("could not read the database: {program} ended with {status}")]
    Failed {
        /// Name of the program.
        program: &'static str,
        /// Exit status of the program.
        status: std::process::ExitStatus,
        /// Output of the program.
        output: String,
    },
    /// A file that pgfresh didn't write already exists at the path, so pgfresh doesn't overwrite it.
    #[error("\"{}\" already exists", path.display())]
    Occupied {
        /// Path of the file.
        path: PathBuf,
    },
    /// pgfresh can't write the file or run the program.
    #[error(transparent)]
    File(#[from] FileError),
}

impl DumpError {
    /// Returns details of the error, such as the program's output.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Failed { output: answer, .. } => Some(format!("Output: {answer}")),
            Self::Target(_) | Self::NoProgram { .. } | Self::Occupied { .. } | Self::File(_) => None,
        }
    }

    /// Returns advice for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Target(error) => Some(error.hint()),
            Self::NoProgram { .. } => Some(
                "Install PostgreSQL's client programs (Debian: apt install postgresql-client).".to_owned(),
            ),
            Self::Failed { output: answer, .. } if answer.contains("version mismatch") => {
                Some("Use --postgres to select a PostgreSQL at least as new as that server.".to_owned())
            }
            Self::Occupied { .. } => Some("Choose another name, or remove the file first.".to_owned()),
            Self::Failed { .. } => None,
            Self::File(error) => error.hint(),
        }
    }
}

/// An output file that isn't complete yet. Any existing file at its path remains until the new one is complete.
#[derive(Debug)]
pub struct DumpFile {
    path: PathBuf,
    staging: PathBuf,
}

impl DumpFile {
    /// Creates an output file for [`import`].
    ///
    /// # Errors
    /// Returns an error if the file can't be written, or if a file
    /// that wasn't written by an import already exists at the path.
    pub fn for_schema(path: &Path) -> Result<Self, DumpError> {
        Self::create(path, IMPORT_HEADER.as_bytes())
    }

    /// Creates an output file for [`save`].
    ///
    /// # Errors
    /// Returns an error if the file can't be written, or if a file that isn't a dump already exists at the path.
    pub fn for_dump(path: &Path) -> Result<Self, DumpError> {
        Self::create(path, DUMP_MAGIC)
    }

    /// Creates an output file for `path`. Files from earlier runs begin with `mark`. If any
    /// other file already exists at the path, returns an error instead of replacing that file.
    fn create(path: &Path, mark: &[u8]) -> Result<Self, DumpError> {
        if let Some(head) = Self::head(path, mark.len()).attempt_given("write", path)?
            && head != mark
        {
            return Err(DumpError::Occupied { path: path.to_owned() });
        }
        let staging = path.with_added_extension("part");
        // Write something now. If the folder isn't writable, pgfresh should find out before it reads the whole
        // database.
        fs::write(&staging, "").attempt_given("write", path)?;
        Ok(Self { path: path.to_owned(), staging })
    }

    /// Returns the first bytes of a file, `None` if the file doesn't exist, or an empty list for a socket or a device.
    fn head(path: &Path, bytes: usize) -> io::Result<Option<Vec<u8>>> {
        let there = match path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            there => there?,
        };
        let mut head = vec![0; bytes];
        let count = if there.is_file() || there.is_dir() { File::open(path)?.read(&mut head)? } else { 0 };
        head.truncate(count);
        Ok(Some(head))
    }

    /// Moves the finished file to its final path and sets the mode that the user's umask allows.
    fn publish(self) -> Result<(), FileError> {
        let finished = File::open(&self.staging).attempt_given("open", &self.staging)?;
        sys::apply_original_mask(&finished).attempt_given("change the mode of", &self.staging)?;
        fs::rename(&self.staging, &self.path).attempt_given("write", &self.path)
    }
}

impl Drop for DumpFile {
    /// Removes the file if it is unfinished.
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.staging)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %self.staging.display(), "could not remove an unfinished dump");
        }
    }
}

/// Writes the server's roles (without passwords) and the schema of the database at `url` into `file`. If the server
/// refuses to reveal the roles, owners and grants are omitted and the output of `pg_dumpall` is returned.
///
/// # Errors
/// Returns an error if the dump fails. An existing file is then unchanged.
pub fn import(installation: &Installation, url: &str, file: DumpFile) -> Result<Option<String>, DumpError> {
    let target = ConnectionString::parse(url)?;
    let found = roles(installation, &target)?;
    let to = format!("--file={}", file.staging.display());
    run_pg_dump(installation, &["--format=custom", "--schema-only", "--no-subscriptions", &to], &target)?;
    let options: &[&str] = match found {
        Roles::Found(_) => &["--no-tablespaces"],
        Roles::Refused(_) => &["--no-tablespaces", "--no-owner", "--no-privileges"],
    };
    let program = "pg_restore";
    let pg_restore = installation.client(program).ok_or(DumpError::NoProgram { program })?;
    let schema = Command::new(&pg_restore).args(options).arg("--file=-").arg(&file.staging).output();
    let schema = output_if_successful(program, schema.attempt("run", &pg_restore)?)?;
    let properties = database_properties::read(&pg_restore, options, &file.staging);
    let properties = properties.attempt("run", &pg_restore)?.map_err(|output| failed(program, &output))?;
    let mut text = IMPORT_HEADER.to_owned();
    let refusal = match found {
        Roles::Found(sql) => {
            text.push_str(&sql);
            None
        }
        Roles::Refused(output) => Some(output),
    };
    text.push_str(&String::from_utf8_lossy(&schema));
    text.extend(properties.iter().map(DatabaseProperty::for_current_database));
    fs::write(&file.staging, text).attempt_given("write", &file.path)?;
    file.publish()?;
    Ok(refusal)
}

/// Writes the whole database at `url`, without roles, into `file` in `pg_dump`'s custom format.
///
/// # Errors
/// Returns an error if the dump fails. An existing file is then unchanged.
pub fn save(installation: &Installation, url: &str, file: DumpFile) -> Result<(), DumpError> {
    let target = ConnectionString::parse(url)?;
    let to = format!("--file={}", file.staging.display());
    let options = ["--format=custom", "--no-tablespaces", "--no-subscriptions", &to];
    run_pg_dump(installation, &options, &target)?;
    Ok(file.publish()?)
}

/// Runs `pg_dump` and returns its output.
fn run_pg_dump(
    installation: &Installation,
    options: &[&str],
    target: &ConnectionString,
) -> Result<Vec<u8>, DumpError> {
    output_if_successful("pg_dump", output(installation, "pg_dump", options, target)?)
}

/// Returns the output of a program if it succeeded.
fn output_if_successful(program: &'static str, output: Output) -> Result<Vec<u8>, DumpError> {
    if output.status.success() { Ok(output.stdout) } else { Err(failed(program, &output)) }
}

fn failed(program: &'static str, output: &Output) -> DumpError {
    DumpError::Failed { program, status: output.status, output: error_line(output) }
}

/// Outcome of reading a server's roles.
enum Roles {
    /// SQL that creates the roles, but not the role that is pgfresh's superuser.
    Found(String),
    /// The server refuses to show the roles. The value is the error line of `pg_dumpall`.
    Refused(String),
}

fn roles(installation: &Installation, target: &ConnectionString) -> Result<Roles, DumpError> {
    let output = output(installation, "pg_dumpall", &["--roles-only", "--no-role-passwords"], target)?;
    if !output.status.success() {
        return Ok(Roles::Refused(error_line(&output)));
    }
    let ours = format!("CREATE ROLE {SUPERUSER};");
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(Roles::Found(text.split_inclusive('\n').filter(|line| line.trim_end() != ours).collect()))
}

fn output(
    installation: &Installation,
    program: &'static str,
    options: &[&str],
    target: &ConnectionString,
) -> Result<Output, DumpError> {
    let path: PathBuf = installation.client(program).ok_or(DumpError::NoProgram { program })?;
    // pgfresh doesn't ask for a password. Users pass it in the URL, in PGPASSWORD or in ~/.pgpass.
    let mut command = Command::new(&path);
    command.args(options).arg("--no-password").stdin(Stdio::null());
    target.describe_to(&mut command);
    Ok(command.output().attempt("run", &path)?)
}

/// Returns the line of a program's stderr that contains the cause: the first line with "error: ", or else the first
/// line.
fn error_line(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let mut lines = said.lines().filter(|line| !line.trim().is_empty());
    let first = lines.clone().next().unwrap_or("(nothing)");
    lines.find(|line| line.contains("error: ")).unwrap_or(first).trim().chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dump_replaces_only_files_of_earlier_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("schema.sql");
        let as_schema = || DumpFile::for_schema(&path).map(drop).map_err(|error| error.to_string());
        let as_dump = || DumpFile::for_dump(&path).map(drop).map_err(|error| error.to_string());
        let occupied = Err(format!("\"{}\" already exists", path.display()));
        assert_eq!((as_schema(), as_dump()), (Ok(()), Ok(())));
        for (text, schema, dump) in [
            ("-- Mine.\n", occupied.clone(), occupied.clone()),
            ("", occupied.clone(), occupied.clone()),
            ("-- Imported by pgfresh.\nCREATE", Ok(()), occupied.clone()),
            ("PGDMP\x01", occupied.clone(), Ok(())),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!((as_schema(), as_dump()), (schema, dump), "{text}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn failed_dump_leaves_no_file_behind() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("schema.sql");
        let file = DumpFile::for_schema(&directory).unwrap();
        fs::create_dir_all(directory.join("full")).unwrap();
        assert!(file.publish().is_err(), "a directory has its name by now");
        assert!(DumpFile::for_schema(&directory).is_err());
        let missing = folder.path().join("none/schema.sql");
        let error = DumpFile::for_schema(&missing).unwrap_err().to_string();
        assert_eq!(error, format!("could not write \"{}\"", missing.display()));
        let stays: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(stays, [directory]);
    }
}
