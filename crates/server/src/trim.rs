//! Shrinks a new cluster by removing files that the server doesn't need. Otherwise, each copy would contain
//! these files.
//!
//! For example, after initdb of version 15 this removes 232 of 966 files and 9 of 28 MB, which saves a
//! quarter of the work of each copy.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use storage::{Account, Attempt, FileError};
use sys::{Directory, FileKind};

use crate::error::InitdbError;
use crate::{Guard, Installation, log};

/// Name of the changes that trimming makes to a cluster. It is part of the cluster's fingerprint.
pub(crate) const CHANGES_NAME: &str = "with relation caches, without WAL, maps and statistics";

/// Directory where a server stores its statistics when it is shut down.
const STATISTICS: &str = "pg_stat";

/// Trims the cluster of `guard`, which must have been shut down cleanly and must not contain any user data.
///
/// # Errors
/// Returns [`InitdbError::File`] if a file can't be removed, and the other variants of [`InitdbError`] if
/// `pg_resetwal` fails. The cluster is unusable in both cases.
pub fn trim(installation: &Installation, account: &Account, guard: &Guard) -> Result<(), InitdbError> {
    let data = guard.run().data();
    let folder = Directory::open(&data).attempt("open", &data)?;
    remove_maps(&folder).attempt("remove the maps of", &data)?;
    discard_statistics(guard)?;
    reset_wal(installation, account, guard)
}

/// Removes the statistics that the server collected about its databases. The server must have been shut down
/// cleanly. Autovacuum relies on these statistics: with them, it would process databases in a copy of the
/// data that no client has used.
///
/// # Errors
/// Returns an error if a file can't be removed.
pub fn discard_statistics(guard: &Guard) -> Result<(), FileError> {
    let path = guard.run().data().join(STATISTICS);
    let remove = || -> io::Result<()> {
        let folder = Directory::open(&path)?;
        for (name, kind) in folder.entries()? {
            if kind != FileKind::Directory {
                folder.remove_file(&name)?;
            }
        }
        Ok(())
    };
    remove().attempt("remove the statistics in", &path)
}

/// Removes the free space maps and the visibility maps. The server doesn't need them and creates new ones.
fn remove_maps(folder: &Directory) -> io::Result<()> {
    for (name, kind) in folder.entries()? {
        let is_map = |suffix: &[u8]| name.as_bytes().ends_with(suffix);
        if kind == FileKind::Directory {
            remove_maps(&folder.directory(&name)?)?;
        } else if is_map(b"_fsm") || is_map(b"_vm") {
            folder.remove_file(&name)?;
        }
    }
    Ok(())
}

/// Replaces the WAL with a single segment that contains only a checkpoint. The rest of the segment is zeros,
/// which become holes in the cache.
fn reset_wal(installation: &Installation, account: &Account, guard: &Guard) -> Result<(), InitdbError> {
    let program = installation.bin().join("pg_resetwal");
    if !program.exists() {
        return Ok(());
    }
    let (run, guarded) = (guard.run(), guard.guarded_command()?);
    let output = run.create_file("log", account)?;
    let mut command = guarded.command(installation, "pg_resetwal", account)?;
    command.arg("-D").arg(run.data()).stdout(Stdio::null()).stderr(Stdio::from(output));
    let child = command.spawn().attempt("run", &program)?;
    drop((command, guarded));
    log::wait("pg_resetwal", child, run)
}
