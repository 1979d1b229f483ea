//! Making a new cluster smaller: what every copy would carry along and no server needs.
//!
//! Of the 28 MB and 966 files that initdb of version 15 leaves, 8 MB and 116 files go, a fifth of the work of a copy.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use storage::{Account, Attempt, FileError};

use crate::error::InitdbError;
use crate::{Installation, Ward, log};

/// What becomes of clusters here; it belongs into their fingerprints.
pub(crate) const TRIMMED: &str = "without WAL and free space maps";

/// Trims the cluster in the run directory of `ward`, which was shut down cleanly and holds nothing of a user's.
pub(crate) fn trim(
    installation: &Installation,
    account: &Account,
    ward: &Ward<'_>,
) -> Result<(), InitdbError> {
    remove_free_space_maps(&ward.run().data())?;
    reset_wal(installation, account, ward)
}

/// Removes `*_fsm`: the server looks for free space without them, and writes them again as it finds some.
fn remove_free_space_maps(folder: &Path) -> Result<(), FileError> {
    for entry in fs::read_dir(folder).attempt("read", folder)?.flatten() {
        let path = entry.path();
        if entry.file_type().attempt("examine", &path)?.is_dir() {
            remove_free_space_maps(&path)?;
        } else if path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.ends_with("_fsm")) {
            fs::remove_file(&path).attempt("remove", &path)?;
        }
    }
    Ok(())
}

/// Leaves one segment with nothing but a checkpoint in it: the rest is zeros, so holes in the cache.
fn reset_wal(installation: &Installation, account: &Account, ward: &Ward<'_>) -> Result<(), InitdbError> {
    let program = installation.bin().join("pg_resetwal");
    if !program.exists() {
        return Ok(());
    }
    let run = ward.run();
    let output = run.create_file("log", account)?;
    let mut command = ward.command(installation, "pg_resetwal", account)?;
    command.arg("-D").arg(run.data()).stdout(Stdio::null()).stderr(Stdio::from(output));
    let status = command.status().attempt("run", &program)?;
    let last_words = log::last_words(&run.log()).unwrap_or_else(|| "(nothing)".to_owned());
    fs::remove_file(run.log()).attempt("remove", &run.log())?;
    let program = "pg_resetwal";
    if status.success() { Ok(()) } else { Err(InitdbError::Failed { program, status, last_words }) }
}
