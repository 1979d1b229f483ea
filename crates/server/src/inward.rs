//! Keeps libpq inside a server in this run: that of `dblink`, `postgres_fdw` and subscriptions, and of programs that SQL starts.
//!
//! libpq takes the machine's default socket where SQL names no host. That socket may be another server's. The environment of a
//! server therefore names the run directory, in which two symbolic links lead to one socket. One link has the port that `SHOW port`
//! shows. The other has the default port, [`NOWHERE`]. Both lead to the server's own socket until [`lead_to`] gives them the gateway's.
//!
//! ```text
//! pgfresh-UID/1a2b3c4d/.s.PGSQL.1     -> socket/.s.PGSQL.5432, later the gateway's socket
//! pgfresh-UID/1a2b3c4d/.s.PGSQL.5432  -> the same
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::{lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use storage::{Account, Attempt, FileError, RunDirectory};

use crate::address::{PORT, SOCKET, SUPERUSER};

/// Default port inside the server. No server listens on it, so SQL that names `localhost` and no port reaches nothing.
/// Source: IANA's registry of ports, `tcpmux`.
const NOWHERE: u16 = 1;
/// Path of no file, in place of files that would name other servers, users and passwords.
const NO_FILE: &str = "/dev/null/none";

/// Tells libpq in the processes of `command`, a server, how to reach the server of `run`. No other variable of libpq's may be set.
pub(crate) fn describe_to(run: &RunDirectory, command: &mut Command) {
    command.env("PGHOST", run.address()).env("PGPORT", NOWHERE.to_string()).env("PGUSER", SUPERUSER);
    for name in ["PGPASSFILE", "PGSERVICEFILE", "PGSYSCONFDIR"] {
        command.env(name, NO_FILE);
    }
}

/// Leads both names to the server's own socket, unless they exist.
pub(crate) fn lead_to_server(run: &RunDirectory) -> Result<(), FileError> {
    let own = run.socket_directory().join(SOCKET);
    for name in names(run) {
        match symlink(&own, &name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.attempt("create", &name)?,
        }
    }
    Ok(())
}

/// Leads both names to `socket`, which `account`, the server's, may connect to from then on.
pub(crate) fn lead_to(run: &RunDirectory, socket: &Path, account: &Account) -> Result<(), FileError> {
    if account.foreign {
        // pgfresh owns the directory, so the account cannot replace the socket.
        lchown(socket, Some(account.uid), Some(account.gid)).attempt("change the owner of", socket)?;
    }
    for name in names(run) {
        let new = name.with_extension("new");
        symlink(socket, &new).attempt("create", &new)?;
        fs::rename(&new, &name).attempt("rename", &new)?;
    }
    Ok(())
}

fn names(run: &RunDirectory) -> [PathBuf; 2] {
    [NOWHERE, PORT].map(|port| run.path().join(format!(".s.PGSQL.{port}")))
}
