//! Names templates by fingerprint, a digest of everything that influences a template's contents. Since equal inputs
//! give equal names, pgfresh knows a template's name before building it and can look it up in the cache.
//!
//! ```text
//! BLAKE3("pgfresh fingerprint 1" then for each part: length of name, name, length of value, value)
//! ```
//! Lengths are 8 bytes, little-endian, so different lists of parts never yield the same bytes. A fingerprint consists
//! of the first 32 of the 64 hex digits, because 128 bits are enough to rule out accidental collisions.

use std::fmt;

/// A template's name in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Starts a fingerprint for a kind of template.
    #[must_use]
    pub fn of(kind: &str) -> Builder {
        let mut builder = Builder(blake3::Hasher::new());
        builder.0.update(b"pgfresh fingerprint 1");
        builder.part("kind", kind);
        builder
    }

    /// Returns all digits. These also serve as a file name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Shows only the first digits, because people rarely compare all of them.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0[..8])
    }
}

/// A fingerprint that is still being computed.
#[derive(Debug)]
pub struct Builder(blake3::Hasher);

impl Builder {
    /// Adds a part to the fingerprint.
    pub fn part(&mut self, name: &str, value: impl AsRef<[u8]>) -> &mut Self {
        for bytes in [name.as_bytes(), value.as_ref()] {
            self.0.update(&(bytes.len() as u64).to_le_bytes());
            self.0.update(bytes);
        }
        self
    }

    /// Returns the fingerprint of all parts added so far.
    #[must_use]
    pub fn finish(&self) -> Fingerprint {
        let mut digits = self.0.finalize().to_string();
        digits.truncate(32);
        Fingerprint(digits)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(parts: &[(String, Vec<u8>)]) -> Fingerprint {
        let mut builder = Fingerprint::of("test");
        for (name, value) in parts {
            builder.part(name, value);
        }
        builder.finish()
    }

    fn parts() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
        prop::collection::vec(("[a-c]{0,3}", prop::collection::vec(97u8..100, 0..4)), 0..5)
    }

    proptest! {
        // Without the lengths in the digest, such short parts with so few letters would collide all the time.
        #[test]
        fn only_equal_parts_have_equal_fingerprints(one in parts(), other in parts()) {
            prop_assert_eq!(of(&one) == of(&other), one == other);
        }
    }
}
