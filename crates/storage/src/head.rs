//! Writes, signs and verifies the head of an exported entry. The head contains the entry's
//! fingerprint and the digests of its texts, so that one small signature covers all files.
//!
//! ```text
//! pgfresh template 1
//! fingerprint c50c4d91…
//! manifest DIGEST
//! about DIGEST
//! signed 1700000000
//! ```
//! Each digest is the hex BLAKE3 digest of the file with that name. The manifest in turn contains the digests
//! of all data files. The last line is the signing time, in seconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::signing::{self, Signed, SigningKey, TrustError, TrustedKey};

const HEADER: &str = "pgfresh template 1";

/// The content that a signature covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) fingerprint: String,
    manifest: blake3::Hash,
    about: blake3::Hash,
    /// When the entry was signed, in seconds since 1970.
    pub(crate) signed: u64,
}

impl Head {
    /// Creates a head for the manifest and the description, with the current time.
    pub(crate) fn new(fingerprint: &str, manifest: &str, about: &str) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            fingerprint: fingerprint.to_owned(),
            manifest: blake3::hash(manifest.as_bytes()),
            about: blake3::hash(about.as_bytes()),
            signed: now.as_secs(),
        }
    }

    pub(crate) fn to_text(&self) -> String {
        let Self { fingerprint, manifest, about, signed } = self;
        format!("{HEADER}\nfingerprint {fingerprint}\nmanifest {manifest}\nabout {about}\nsigned {signed}\n")
    }

    /// Returns the signature of [`Self::to_text`] in minisign's format.
    pub(crate) fn sign(&self, key: &SigningKey) -> String {
        key.sign(self.to_text().as_bytes(), &format!("template {}", self.fingerprint))
    }

    /// Parses the output of [`Self::to_text`]. Returns `None` for any other text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(HEADER)?.strip_prefix("\nfingerprint ")?;
        let (fingerprint, rest) = rest.split_once("\nmanifest ")?;
        let (manifest, rest) = rest.split_once("\nabout ")?;
        let (about, signed) = rest.split_once("\nsigned ")?;
        let head = Self {
            fingerprint: fingerprint.to_owned(),
            manifest: blake3::Hash::from_hex(manifest).ok()?,
            about: blake3::Hash::from_hex(about).ok()?,
            signed: signed.trim_end().parse().ok()?,
        };
        (head.to_text() == text).then_some(head)
    }

    /// Returns the name of the first text (manifest or description) that differs from the signed one, or
    /// `None` if both match.
    pub(crate) fn changed_text(&self, manifest: &str, about: &str) -> Option<&'static str> {
        let other = |text: &str, digest| blake3::hash(text.as_bytes()) != digest;
        if other(manifest, self.manifest) {
            return Some("manifest");
        }
        other(about, self.about).then_some("about")
    }
}

/// A head's text and its signature in minisign's format.
#[derive(Debug, Clone, Copy)]
pub struct SignedHead<'a> {
    /// The text that the signature covers.
    pub text: &'a str,
    /// The content of the signature file.
    pub signature: &'a str,
}

/// Returns the head of the entry `fingerprint` if a `trusted` key signed it.
pub(crate) fn verify(
    fingerprint: &str,
    SignedHead { text, signature }: SignedHead<'_>,
    trusted: &[TrustedKey],
) -> Result<(Head, Signed), TrustError> {
    let key = signing::trusted_signer(text.as_bytes(), signature, trusted)?;
    let head = Head::parse(text).ok_or(TrustError::NewerFormat)?;
    if head.fingerprint != fingerprint {
        return Err(TrustError::OtherTemplate(head.fingerprint));
    }
    let time = head.signed;
    Ok((head, Signed { key, time }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_parses_only_its_exact_text() {
        let head = Head::new("abc", "a manifest", "about it");
        let text = head.to_text();
        assert_eq!(Head::parse(&text), Some(head.clone()));
        assert_eq!(head.changed_text("a manifest", "about it"), None);
        assert_eq!(head.changed_text("another", "about it"), Some("manifest"));
        assert_eq!(head.changed_text("a manifest", ""), Some("about"));
        for at in 0..text.len() {
            assert_eq!(Head::parse(&text[..at]), None, "{at}");
        }
        for (one, other) in [("signed ", "signed +"), ("\nabout", "\n\nabout"), ("template 1", "template 2")]
        {
            assert_eq!(Head::parse(&text.replacen(one, other, 1)), None, "{other}");
        }
        assert_eq!(Head::parse(&format!("{text}\n")), None);
    }
}
