//! When the bytes of an entry were last compared with its manifest, so that not every copy has to.
//!
//! ```text
//! CACHE/images/FINGERPRINT/verified: BOOT NANOSECONDS
//! ```
//! A file that changed later is read again, also if its time of modification was set back: no process can set the
//! time of the last change of its inode. After a boot all are, because a disk may lose bits while they are not read.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::replace::replace;

/// How much earlier than when it began a comparison counts: the clock of a file system is coarse, and may be another one.
const MARGIN: Duration = Duration::from_secs(1);

/// What is known of one entry when a copy of it begins.
#[derive(Debug)]
pub(crate) struct Verified {
    note: PathBuf,
    boot: String,
    /// Files that changed before were compared; in ns since 1970.
    before: i64,
    /// What the next note says.
    begun: i64,
}

impl Verified {
    /// Of the entry at `directory`.
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

    /// Whether the file of that description was compared since it changed.
    pub(crate) fn covers(&self, meta: &Metadata) -> bool {
        let changed = meta.ctime().saturating_mul(1_000_000_000).saturating_add(meta.ctime_nsec());
        changed < self.before
    }

    /// Takes note that all files are as they should be. Where that is not possible, the next copy compares them again.
    pub(crate) fn renew(&self) {
        if let Err(error) = replace(&self.note, &format!("{} {}\n", self.boot, self.begun)) {
            tracing::debug!(%error, "could not note that a template is undamaged");
        }
    }
}
