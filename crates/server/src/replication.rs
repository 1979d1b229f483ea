//! Sets up streaming replication between a primary and a standby, whose data directories start as copies of the same
//! files.

use std::path::Path;

use storage::FileError;

use crate::address::{PORT, SUPERUSER};
use crate::boot::StartOptions;
use crate::{Guard, Settings};

/// File that makes a server start as a standby.
const STANDBY_SIGNAL: &str = "standby.signal";

/// Settings of a primary. While `synchronous_standby_names` names the standby, a commit returns only after the standby
/// has replayed it.
const PRIMARY: [(&str, &str); 1] = [("synchronous_commit", "remote_apply")];

/// Settings of a standby that users can't change.
const STANDBY: [(&str, &str); 1] = [("hot_standby", "on")];

/// Settings of a standby that users can change. Because commits wait for the standby, both times are shorter than
/// PostgreSQL's defaults. The first is the time until a disconnected standby reconnects. The second limits how long a
/// transaction on the standby can delay the replay of a change that conflicts with it.
const STANDBY_TIMES: [(&str, &str); 2] =
    [("wal_retrieve_retry_interval", "100ms"), ("max_standby_streaming_delay", "5s")];

impl Settings {
    /// Adds the settings for a primary.
    #[must_use]
    pub fn for_primary(self) -> Self {
        self.with(PRIMARY.map(|(name, value)| (name, value.to_owned())))
    }

    /// Adds the settings for a standby. The primary's socket is in `directory`, and the primary keeps log for the
    /// standby in the replication slot `slot`.
    #[must_use]
    pub fn for_standby(self, directory: &Path, slot: &str) -> Self {
        let host = directory.display().to_string().replace('\\', "\\\\").replace('\'', "\\'");
        let primary = format!("host='{host}' port={PORT} user={SUPERUSER}");
        self.with_missing(STANDBY_TIMES)
            .with(STANDBY.map(|(name, value)| (name, value.to_owned())))
            .with([("primary_conninfo", primary), ("primary_slot_name", slot.to_owned())])
    }
}

impl Guard {
    /// Makes the next server that starts on this guard's data a standby.
    ///
    /// # Errors
    /// Returns an error if the signal file can't be written.
    pub fn make_standby(&self, order: &StartOptions<'_>) -> Result<(), FileError> {
        self.run().rewrite(STANDBY_SIGNAL, "", order.account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standby_keeps_user_times_and_quotes_primary() {
        let mut settings = Settings::default();
        settings.set("max_standby_streaming_delay", "1min").unwrap();
        settings.set("hot_standby", "off").unwrap();
        let settings = settings.for_standby(Path::new(r"/run/it's\here"), "slot");
        let of = |wanted: &str| settings.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value);
        assert_eq!(of("max_standby_streaming_delay"), Some("1min"));
        assert_eq!(of("wal_retrieve_retry_interval"), Some("100ms"));
        assert_eq!(of("hot_standby"), Some("on"));
        let primary = r"host='/run/it\'s\\here' port=5432 user=postgres";
        assert_eq!(of("primary_conninfo"), Some(primary));
    }
}
