//! Makes libpq inside a server connect to that same server instead of a different server on the machine. `dblink`,
//! `postgres_fdw`, subscriptions, and programs started by SQL use libpq in this way.
//!
//! If SQL doesn't specify a host, libpq uses the machine's default socket, which may belong to another
//! server. A server's environment therefore specifies the run directory, where two symbolic links point to
//! one socket. The name of one link contains the port that `SHOW port` returns, and the name of the other
//! contains [`DEFAULT_PORT`]. Initially, both links point to the server's own socket. Later, [`link_to`]
//! makes them point to the gateway's socket.
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

/// The default port inside the server. No program listens on this port, so SQL that specifies `localhost`
/// without a port can't reach another server. Source: IANA's registry of ports, `tcpmux`.
const DEFAULT_PORT: u16 = 1;
/// A path where no file can exist. The environment points to it instead of to files that could contain other
/// servers, users and passwords.
const MISSING_FILE: &str = "/dev/null/none";

/// Sets environment variables of a server's `command`. They make libpq in the server's processes connect to the
/// server in `run`. The command must not have other libpq variables.
pub(crate) fn describe_to(run: &RunDirectory, command: &mut Command) {
    command.env("PGHOST", run.address()).env("PGPORT", DEFAULT_PORT.to_string()).env("PGUSER", SUPERUSER);
    for name in ["PGPASSFILE", "PGSERVICEFILE", "PGSYSCONFDIR"] {
        command.env(name, MISSING_FILE);
    }
}

/// Makes both links point to the server's own socket, unless they already exist.
pub(crate) fn link_to_server(run: &RunDirectory) -> Result<(), FileError> {
    let own = run.socket_directory().join(SOCKET);
    for name in link_paths(run) {
        match symlink(&own, &name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.attempt("create", &name)?,
        }
    }
    Ok(())
}

/// Makes both links point to `socket` and allows the server's `account` to connect to it.
pub(crate) fn link_to(run: &RunDirectory, socket: &Path, account: &Account) -> Result<(), FileError> {
    if account.foreign {
        // This is safe because pgfresh owns the directory, so the account can't replace the socket.
        lchown(socket, Some(account.uid), Some(account.gid)).attempt("change the owner of", socket)?;
    }
    for name in link_paths(run) {
        let new = name.with_extension("new");
        symlink(socket, &new).attempt("create", &new)?;
        fs::rename(&new, &name).attempt("rename", &new)?;
    }
    Ok(())
}

fn link_paths(run: &RunDirectory) -> [PathBuf; 2] {
    [DEFAULT_PORT, PORT].map(|port| run.path().join(format!(".s.PGSQL.{port}")))
}
