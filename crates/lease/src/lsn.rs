//! Represents, parses and formats positions in the write-ahead log.

use std::fmt;
use std::str::FromStr;

/// A position in the log, in bytes. Its text form looks like `0/1A2B3C8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

/// Error for a text that isn't a log position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a position in the write-ahead log")]
pub struct LsnError(String);

impl FromStr for Lsn {
    type Err = LsnError;

    fn from_str(text: &str) -> Result<Self, LsnError> {
        let half = |digits: &str| {
            let valid = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            valid.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
        };
        text.split_once('/')
            .and_then(|(high, low)| Some((u64::from(half(high)?) << 32) | u64::from(half(low)?)))
            .map(Self)
            .ok_or_else(|| LsnError(text.to_owned()))
    }
}
