//! Computes and parses the content addresses of blobs.
//!
//! Like a registry, a remote stores each blob under the SHA-256 of its bytes. Readers can therefore verify the bytes
//! they receive, and templates can share identical blobs.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// The SHA-256 of a blob's bytes, displayed in hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlobDigest([u8; 32]);

/// A blob's digest and its size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Blob {
    pub(crate) digest: BlobDigest,
    pub(crate) bytes: u64,
}

impl BlobDigest {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for BlobDigest {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        parse_hex(text).map(Self).ok_or("it is not a SHA-256 digest")
    }
}

/// Parses 32 bytes in lower-case hex. Returns `None` for any other text.
pub(crate) fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let is_upper = text.bytes().any(|letter| letter.is_ascii_uppercase());
    blake3::Hash::from_hex(text).ok().filter(|_| !is_upper).map(blake3::Hash::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_parses_only_its_canonical_text() {
        let digest = BlobDigest::of(b"");
        let text = digest.to_string();
        assert_eq!(text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(text.parse(), Ok(digest));
        for wrong in [&text[1..], &text.to_uppercase(), &format!("{text}0"), "", &text.replace('e', "../")] {
            assert!(wrong.parse::<BlobDigest>().is_err(), "{wrong}");
        }
    }
}
