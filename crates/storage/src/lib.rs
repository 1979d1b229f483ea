//! Where data directories live, how they are copied, and the cache they come from.
//!
//! Makes a [`Place`] (a directory in RAM or on disk with room to spare), a [`RunDirectory`] in it (private, locked,
//! swept when its owner is gone), and copies of [`Entry`]s of the [`Cache`] (immutable, published by one rename). It
//! knows nothing of `PostgreSQL`: a data directory is a tree of regular files.
//!
//! ```text
//! CACHE/images/FINGERPRINT/manifest      what the entry holds; written last
//! CACHE/images/FINGERPRINT/data/…        the files
//! CACHE/images/FINGERPRINT.lock          held while it is built
//! CACHE/images/FINGERPRINT.staging/      half-made; whoever holds the lock removes it
//! PLACE/pgfresh-UID/ID/owner.lock        held by the owner and its guard
//! PLACE/pgfresh-UID/ID/server.lock       held by the server's processes
//! PLACE/pgfresh-UID/ID/{data/,log}       and the server's socket
//! ```

mod account;
mod attempt;
mod cache;
mod copy;
mod manifest;
mod place;
mod private;
mod run;

pub use account::{Account, AccountError};
pub use attempt::{Attempt, FileError};
pub use cache::{Building, Cache, CacheError, Entry};
pub use copy::{Copied, CopyError, Copying, Method};
pub use place::{Place, PlaceError, Wish};
pub use run::{Abandoned, RunDirectory, remove_kept, run_roots};

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
