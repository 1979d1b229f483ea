//! Streaming replication between a primary and one standby, whose data directories start as copies of the same files.

use std::path::Path;

use storage::FileError;

use crate::address::{PORT, SUPERUSER};
use crate::boot::StartOptions;
use crate::{Guard, Settings};

/// File that makes a server start as a standby.
const STANDBY_SIGNAL: &str = "standby.signal";

/// Settings of a primary. A commit returns once the standby shows it, as long as `synchronous_standby_names` names the
/// standby.
const PRIMARY: [(&str, &str); 1] = [("synchronous_commit", "remote_apply")];

/// Settings of a standby. The time until it connects again is short, because commits wait for it after a restart of
/// the primary.
const STANDBY: [(&str, &str); 2] = [("hot_standby", "on"), ("wal_retrieve_retry_interval", "100ms")];

impl Settings {
    /// Adds the settings of a primary.
    #[must_use]
    pub fn for_primary(self) -> Self {
        self.with(PRIMARY.map(|(name, value)| (name, value.to_owned())))
    }

    /// Adds the settings of a standby. The primary's socket is in `directory`, and its replication slot is `slot`.
    #[must_use]
    pub fn for_standby(self, directory: &Path, slot: &str) -> Self {
        let host = directory.display().to_string().replace('\\', "\\\\").replace('\'', "\\'");
        let primary = format!("host='{host}' port={PORT} user={SUPERUSER}");
        self.with(STANDBY.map(|(name, value)| (name, value.to_owned())))
            .with([("primary_conninfo", primary), ("primary_slot_name", slot.to_owned())])
    }
}

impl Guard {
    /// Makes the next server on this guard's data start as a standby.
    ///
    /// # Errors
    /// Returns the error of the file system.
    pub fn make_standby(&self, order: &StartOptions<'_>) -> Result<(), FileError> {
        self.run().rewrite(STANDBY_SIGNAL, "", order.account)
    }
}
