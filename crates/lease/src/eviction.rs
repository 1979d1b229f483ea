//! Ends the sessions that keep a database from being copied: those of background workers, and of programs that have not come through
//! the gateway.

use std::thread;
use std::time::{Duration, Instant};

use ::template::end_sessions;
use server::Rows;

use crate::LeaseError;
use crate::admin::AdminPool;

/// Time that sessions may take to end. CREATE DATABASE then waits for another 5 s.
/// Source: `CountOtherDBBackends` in `src/backend/storage/ipc/procarray.c`.
const TIMEOUT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// Ends the sessions of `database`, and waits until they are gone.
pub(crate) fn evict(database: &str, admin: &AdminPool) -> Result<(), LeaseError> {
    let begun = Instant::now();
    let sql = end_sessions(database);
    while !admin.run("end the sessions of a database", &sql)?.is_empty() && begun.elapsed() < TIMEOUT {
        // The server does not announce the end of a session.
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Runs `sql`, which copies `database`; once more, without its sessions, if they are in the way.
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
