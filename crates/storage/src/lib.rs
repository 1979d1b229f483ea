//! Stores data directories: the cache of templates, and the copies that servers run on. Copying
//! must be fast, and a copy must not outlive its owner, the pgfresh process that created the copy.
//!
//! A [`Place`] is a directory in RAM or on disk with enough free space. It contains one [`RunDirectory`] per server.
//! A run directory is private and locked, so a sweep can tell when the owner is gone and remove the directory. The
//! files are copies of an [`Entry`] in the [`Cache`]. Entries are immutable, and each is published with a single
//! rename. This crate doesn't depend on PostgreSQL and treats a data directory as a tree of regular files.
//!
//! ```text
//! CACHE/images/FINGERPRINT/manifest      list of files, written last (its mtime is the time of the last use)
//! CACHE/images/FINGERPRINT/about         the builder's description
//! CACHE/images/FINGERPRINT/data/…        the files
//! CACHE/images/FINGERPRINT/verified      time of the last comparison with the manifest
//! CACHE/images/FINGERPRINT/NAME          text that one process saved for later processes
//! CACHE/images/FINGERPRINT.lock          locked by the builder
//! CACHE/images/FINGERPRINT.staging/      incomplete entry, which the process with the lock removes
//! PLACE/pgfresh-UID/ID/owner.lock        locked by the owner
//! PLACE/pgfresh-UID/ID/server.lock       locked by the server's processes
//! PLACE/pgfresh-UID/ID/helper.lock       locked by other processes that work for the owner
//! PLACE/pgfresh-UID/ID/{data/,socket/}   owned by the server's account, unlike everything else
//! PLACE/pgfresh-UID/ID/log               the server's stderr
//! ```

mod abandoned;
mod account;
mod cache;
mod cancel;
mod copy;
mod copy_directory;
mod copy_file;
mod download;
mod entry;
mod error;
mod export;
mod file_error;
mod head;
mod manifest;
mod persistent;
mod place;
mod private;
mod publish;
mod recordings;
mod removal;
mod replace;
mod run;
mod signing;
mod tree;
mod unchecked_entry;
mod verified;

pub use abandoned::{Abandoned, remove_kept};
pub use account::{Account, AccountError};
pub use cache::Cache;
pub use copy::{BackgroundCopy, Deferred};
pub use copy_directory::DirectoryCopier;
pub use copy_file::{Copied, Method};
pub use download::{Description, EntryDownload, FileDescription, SignedManifest, TrustedHead};
pub use entry::Entry;
pub use error::{CacheError, CopyError};
pub use export::{exported_entries, sign, verify};
pub use file_error::{Attempt, FileError};
pub use head::SignedHead;
pub use persistent::PersistentData;
pub use place::{ParsePlaceError, Place, PlaceError, PlaceRequest};
pub use publish::Building;
pub use removal::BackgroundRemoval;
pub use run::{RunDirectory, run_roots};
pub use signing::{
    KeyError, ParseTrustedKeyError, Signed, SigningKey, TrustError, TrustedKey, trusted_signer,
};

/// Formats a number of bytes with two or three digits and a decimal unit, e.g. "1.5 GB".
#[must_use]
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut unit = 0;
    #[allow(clippy::cast_precision_loss)]
    let mut value = bytes as f64;
    while value >= 999.5 && unit < UNITS.len() - 1 {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 || value >= 9.95 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// Parses a size with a unit, e.g. "500 MB", "1.5GB", "10GiB" or "4096B". Returns `None` for a bare number or
/// an unknown unit.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * factor;
    // An f64 represents whole numbers up to 2^53 exactly, and no cache is larger than that.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    (bytes < 9e15).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_sizes_parse_with_common_units() {
        assert_eq!(parse_bytes(" 1.5 GB"), Some(1_500_000_000));
        assert_eq!(parse_bytes("10kib"), Some(10_240));
        assert_eq!(parse_bytes("4096B"), Some(4096));
        for wrong in ["", "GB", "4096", "-1GB", "1 GX", "1e9", "1.2.3MB"] {
            assert_eq!(parse_bytes(wrong), None, "{wrong}");
        }
    }
}
