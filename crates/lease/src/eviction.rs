//! Ends the sessions that keep the server from copying a database, for example those of background workers.
//!
//! Clients of the gateway are closed elsewhere. The sessions here belong to background workers, or to programs that have connected
//! without the gateway.

use std::thread;
use std::time::{Duration, Instant};

use ::template::end_sessions;
use server::Rows;

use crate::LeaseError;
use crate::admin::AdminPool;

/// Time for the sessions to end. If some are left, CREATE DATABASE waits for another 5 s. Source: `CountOtherDBBackends` in
/// `src/backend/storage/ipc/procarray.c`.
const TIMEOUT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// Ends the sessions of `database`, and waits until they are gone or the timeout is over.
pub(crate) fn evict(database: &str, admin: &AdminPool) -> Result<(), LeaseError> {
    let begun = Instant::now();
    let sql = end_sessions(database);
    while !admin.run("end the sessions of a database", &sql)?.is_empty() && begun.elapsed() < TIMEOUT {
        // The server does not announce the end of a session.
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Runs `sql`, which copies `database`. If sessions prevent the copy, ends them and retries once.
pub(crate) fn copy_without_sessions(
    database: &str,
    sql: &str,
    admin: &AdminPool,
) -> Result<Rows, LeaseError> {
    match admin.run_once("copy a database", sql) {
        Err(error) if error.sqlstate() == "55006" => {
            evict(database, admin)?;
            admin.run_once("copy a database", sql)
        }
        copied => copied,
    }
}
