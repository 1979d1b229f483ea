//! Time of the last comparison of an entry with its manifest. It spares most copies a comparison of all bytes.
//!
//! ```text
//! CACHE/images/FINGERPRINT/verified: BOOT NANOSECONDS
//! ```
//! A copy compares a file again if its ctime is later than the note. No process can set a ctime back, unlike the
//! modification time. After a boot the note no longer counts, because a disk may lose bits over time.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::replace::replace;

/// Time subtracted from the start of a comparison, because the file system's clock is coarse and may differ from ours.
const MARGIN: Duration = Duration::from_secs(1);

/// Note about one entry, as read when a copy begins.
#[derive(Debug)]
pub(crate) struct Verified {
    note: PathBuf,
    boot: String,
    /// Files with an earlier ctime were compared; in ns since 1970.
    before: i64,
    /// Time for the next note.
    begun: i64,
}

impl Verified {
    /// Reads the note of the entry at `directory`.
    pub(crate) fn of(directory: &Path) -> Self {
        let note = directory.join("verified");
        let boot = sys::boot_id();
        let text = fs::read_to_string(&note).unwrap_or_default();
        let noted = text.trim_end().split_once(' ').filter(|(noted, _)| *noted == boot);
        let before = noted.and_then(|(_, time)| time.parse().ok()).unwrap_or(i64::MIN);
        let begun = SystemTime::now()
            .checked_sub(MARGIN)
            .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let begun = begun.and_then(|begun| i64::try_from(begun.as_nanos()).ok()).unwrap_or(i64::MIN);
        Self { note, boot, before, begun }
    }

    /// Whether the file with metadata `meta` was compared since its last change.
    pub(crate) fn covers(&self, meta: &Metadata) -> bool {
        let changed = meta.ctime().saturating_mul(1_000_000_000).saturating_add(meta.ctime_nsec());
        changed < self.before
    }

    /// Records that all files match their digests. If this fails, the next copy compares them again.
    pub(crate) fn renew(&self) {
        if let Err(error) = replace(&self.note, &format!("{} {}\n", self.boot, self.begun)) {
            tracing::debug!(%error, "could not note that a template is undamaged");
        }
    }
}
