//! Where data directories live, how they are copied, and the cache they come from.
//!
//! Makes a [`Place`] (a directory in RAM or on disk with room to spare), a [`RunDirectory`] in it (private, locked,
//! swept when its owner is gone), and copies of [`Entry`]s of the [`Cache`] (immutable, published by one rename). It
//! knows nothing of `PostgreSQL`: a data directory is a tree of regular files.
//!
//! ```text
//! CACHE/images/FINGERPRINT/manifest      what the entry holds; written last; its time is that of the last use
//! CACHE/images/FINGERPRINT/about         what its maker says of it
//! CACHE/images/FINGERPRINT/data/…        the files
//! CACHE/images/FINGERPRINT/verified      when they were last compared with the manifest
//! CACHE/images/FINGERPRINT/NOTE          what its users have left for the next one
//! CACHE/images/FINGERPRINT.lock          held while it is built
//! CACHE/images/FINGERPRINT.staging/      half-made; whoever holds the lock removes it
//! PLACE/pgfresh-UID/ID/owner.lock        held by the owner
//! PLACE/pgfresh-UID/ID/server.lock       held by the server's processes
//! PLACE/pgfresh-UID/ID/helper.lock       held by other processes that work for the owner
//! PLACE/pgfresh-UID/ID/{data/,socket/}   the server account's, and nothing else is
//! PLACE/pgfresh-UID/ID/log               what the server says
//! ```

mod account;
mod arrival;
mod attempt;
mod cache;
mod cancel;
mod carry;
mod copy;
mod copy_directory;
mod copy_file;
mod entry;
mod error;
mod head;
mod manifest;
mod persistent;
mod place;
mod private;
mod publish;
mod received;
mod removal;
mod replace;
mod run;
mod signing;
mod tree;
mod verified;

pub use account::{Account, AccountError};
pub use attempt::{Attempt, FileError};
pub use cache::Cache;
pub use carry::{carried, sign, verify};
pub use copy::{Copying, Deferred};
pub use copy_directory::DirectoryCopier;
pub use copy_file::{Copied, Method};
pub use entry::Entry;
pub use error::{CacheError, CopyError};
pub use persistent::PersistentData;
pub use place::{Place, PlaceError, PlaceRequest};
pub use publish::Building;
pub use received::{Announced, Description, FileDescription, Receiving, TrustedHead};
pub use removal::Removing;
pub use run::{Abandoned, RunDirectory, remove_kept, run_roots};
pub use signing::{KeyError, Signed, SigningKey, TrustedKey, signer};

/// Writes a number of bytes as people read it: two or three digits and a unit of 1000.
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

/// Reads a number of bytes with its unit: "500 MB", "1.5GB", "10GiB", "4096B".
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
    // Up to 2^53 every whole number is one; a cache is smaller.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    (bytes < 9e15).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(parse_bytes(" 1.5 GB"), Some(1_500_000_000));
        assert_eq!(parse_bytes("10kib"), Some(10_240));
        assert_eq!(parse_bytes("4096B"), Some(4096));
        for wrong in ["", "GB", "4096", "-1GB", "1 GX", "1e9", "1.2.3MB"] {
            assert_eq!(parse_bytes(wrong), None, "{wrong}");
        }
    }
}
