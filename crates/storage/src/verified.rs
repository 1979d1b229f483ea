//! Remembers when an entry was last compared with its manifest. Thanks to this record, most copies don't have
//! to read and compare all of the entry's bytes.
//!
//! ```text
//! CACHE/images/FINGERPRINT/verified: BOOT NANOSECONDS
//! ```
//! If a file's change time (ctime) is later than the recorded time, the next copy compares the file again. A
//! process can set a file's modification time to the past, but not its ctime. Since a disk can lose bits over
//! time, the record is valid only until the next boot.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::replace::replace_file;

/// Safety margin: the recorded time is this much earlier than the start of the comparison, because the file
/// system's clock is coarse and can differ from ours.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// The `verified` record of one entry, as it was at the start of a copy.
#[derive(Debug)]
pub(crate) struct Verified {
    note: PathBuf,
    boot: String,
    /// Recorded time, in nanoseconds since 1970. All files with an earlier ctime have been compared.
    before: i64,
    /// The time to write into the next record, in nanoseconds since 1970.
    begun: i64,
}

impl Verified {
    /// Reads the record of the entry at `directory`.
    pub(crate) fn of(directory: &Path) -> Self {
        let note = directory.join("verified");
        let boot = sys::boot_id();
        let text = fs::read_to_string(&note).unwrap_or_default();
        let noted = text.trim_end().split_once(' ').filter(|(noted, _)| *noted == boot);
        let before = noted.and_then(|(_, time)| time.parse().ok()).unwrap_or(i64::MIN);
        let begun = SystemTime::now()
            .checked_sub(CLOCK_TOLERANCE)
            .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let begun = begun.and_then(|begun| i64::try_from(begun.as_nanos()).ok()).unwrap_or(i64::MIN);
        Self { note, boot, before, begun }
    }

    /// Returns true if the file described by `meta` was compared after its last change.
    pub(crate) fn is_verified(&self, meta: &Metadata) -> bool {
        let changed = meta.ctime().saturating_mul(1_000_000_000).saturating_add(meta.ctime_nsec());
        changed < self.before
    }

    /// Records that all files match their digests. If this fails, the next copy compares the files again.
    pub(crate) fn record_now(&self) {
        if let Err(error) = replace_file(&self.note, &format!("{} {}\n", self.boot, self.begun)) {
            tracing::debug!(%error, "could not record that a template is undamaged");
        }
    }
}
