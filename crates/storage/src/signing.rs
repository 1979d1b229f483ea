//! Creates keys, and signs and verifies templates. Keys and signatures use
//! minisign's format, so users can also create and check them with that tool.
//!
//! Secret keys don't have a password, because users store them as secrets in a CI system. Errors and `Debug` output
//! never contain a secret. Source: jedisct1.github.io/minisign, sections "Signature format" and "Secret key format".

use std::fmt;
use std::io;
use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use blake2::digest::consts::U32;
use blake2::{Blake2b, Blake2b512, Digest};
use ed25519_dalek::Signer;
use minisign_verify::{PublicKey, Signature};

/// The first line of a signature file. The signature doesn't cover this line, so pgfresh accepts no other
/// text.
const COMMENT: &str = "untrusted comment: signature of a pgfresh template";
/// The first bytes of a public or secret key.
const ED25519: [u8; 2] = *b"Ed";
/// The first bytes of a signature over a digest.
const PREHASHED: [u8; 2] = *b"ED";
/// The next bytes of a secret key without a password. They also specify `BLAKE2b` for the key's checksum.
const NO_PASSWORD: [u8; 4] = [0, 0, b'B', b'2'];
/// Offsets in a secret key: password parameters, key id, key pair, checksum, end.
const KEY_OFFSETS: [usize; 5] = [6, 54, 62, 126, 158];

/// A public key that the user trusts. pgfresh accepts any template signed with it.
#[derive(Clone)]
pub struct TrustedKey {
    id: [u8; 8],
    base64: String,
    key: PublicKey,
}

/// Error for a text that isn't a public key. It doesn't repeat the
/// text, because the user might have passed the secret key by mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a public key such as \"RWQ…\", as \"pgfresh template keygen\" prints it")]
pub struct ParseTrustedKeyError;

impl FromStr for TrustedKey {
    type Err = ParseTrustedKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let base64 = text.trim();
        let bytes = BASE64_STANDARD.decode(base64).map_err(|_| ParseTrustedKeyError)?;
        let (Ok(key), true) = (PublicKey::from_base64(base64), bytes.starts_with(&ED25519)) else {
            return Err(ParseTrustedKeyError);
        };
        let id = bytes[2..10].try_into().map_err(|_| ParseTrustedKeyError)?;
        Ok(Self { id, base64: base64.to_owned(), key })
    }
}

impl TrustedKey {
    /// Returns the contents of a minisign public key file.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("untrusted comment: minisign public key {}\n{self}\n", format_key_id(self.id))
    }
}

impl PartialEq for TrustedKey {
    fn eq(&self, other: &Self) -> bool {
        self.base64 == other.base64
    }
}

impl fmt::Display for TrustedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base64)
    }
}

impl fmt::Debug for TrustedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrustedKey({self})")
    }
}

/// The signer of an entry and the time of the signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The key id in minisign's notation.
    pub key: String,
    /// The time of the signature, in seconds since 1970.
    pub time: u64,
}

/// A secret key for signing templates.
pub struct SigningKey {
    id: [u8; 8],
    key: ed25519_dalek::SigningKey,
}

/// Reasons why a text can't be used as a secret key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text isn't a secret key, or it was truncated.
    #[error("it is not a secret key")]
    Foreign,
    /// The key has a password, which pgfresh doesn't ask for.
    #[error("it has a password")]
    Locked,
}

impl KeyError {
    /// Returns advice for the user.
    #[must_use]
    pub fn hint(self) -> String {
        match self {
            Self::Foreign => "\"pgfresh template keygen FILE\" generates a key.",
            Self::Locked => {
                "Generate a key without a password: \"pgfresh template keygen FILE\" or \"minisign -G -W\"."
            }
        }
        .to_owned()
    }
}

impl SigningKey {
    /// Generates a new key.
    ///
    /// # Errors
    /// Returns the error of the kernel's random number generator.
    pub fn generate() -> io::Result<Self> {
        let (mut id, mut seed) = ([0; 8], [0; 32]);
        sys::fill_random(&mut id)?;
        sys::fill_random(&mut seed)?;
        Ok(Self { id, key: ed25519_dalek::SigningKey::from_bytes(&seed) })
    }

    /// Parses a secret key file written by [`Self::to_text`] or minisign. Just the last line of such a file
    /// works too.
    ///
    /// # Errors
    /// Returns [`KeyError::Foreign`] if the text isn't a secret key, or is
    /// damaged. Returns [`KeyError::Locked`] if the key has a password.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let line = text.trim().lines().next_back().unwrap_or_default();
        let bytes = BASE64_STANDARD.decode(line.trim()).map_err(|_| KeyError::Foreign)?;
        let [_, number, key, sum, end] = KEY_OFFSETS;
        if bytes.len() != end || bytes[..2] != ED25519 || bytes[4..6] != NO_PASSWORD[2..] {
            return Err(KeyError::Foreign);
        }
        if bytes[2..4] != NO_PASSWORD[..2] {
            return Err(KeyError::Locked);
        }
        let foreign = |_| KeyError::Foreign;
        let id: [u8; 8] = bytes[number..key].try_into().map_err(foreign)?;
        let pair: [u8; 64] = bytes[key..sum].try_into().map_err(foreign)?;
        let pair = ed25519_dalek::SigningKey::from_keypair_bytes(&pair).map_err(|_| KeyError::Foreign)?;
        // If a key doesn't have a password, minisign writes zeros instead of a checksum.
        if bytes[sum..] != [0; 32] && bytes[sum..] != checksum(id, &pair) {
            return Err(KeyError::Foreign);
        }
        Ok(Self { id, key: pair })
    }

    /// Returns the contents of a minisign secret key file, including the secret.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut bytes = ED25519.to_vec();
        bytes.extend(NO_PASSWORD);
        bytes.resize(KEY_OFFSETS[1], 0);
        bytes.extend(self.id);
        bytes.extend(self.key.to_keypair_bytes());
        bytes.extend(checksum(self.id, &self.key));
        let base64 = BASE64_STANDARD.encode(bytes);
        format!("untrusted comment: secret key of pgfresh templates {}\n{base64}\n", format_key_id(self.id))
    }

    /// Returns the public key.
    ///
    /// # Panics
    /// Never panics, because the encoded key can always be parsed.
    #[must_use]
    pub fn public(&self) -> TrustedKey {
        let public = self.key.verifying_key();
        let bytes = [&ED25519, &self.id[..], public.as_bytes()].concat();
        BASE64_STANDARD.encode(bytes).parse().expect("a public key of a pair is one")
    }

    /// Signs `data` and the one-line `comment`. Returns the contents of a minisign signature file.
    #[must_use]
    pub fn sign(&self, data: &[u8], comment: &str) -> String {
        let signature = self.key.sign(&Blake2b512::digest(data)).to_bytes();
        let both = self.key.sign(&[&signature[..], comment.as_bytes()].concat()).to_bytes();
        let signature = BASE64_STANDARD.encode([&PREHASHED, &self.id[..], &signature].concat());
        let both = BASE64_STANDARD.encode(both);
        format!("{COMMENT}\n{signature}\ntrusted comment: {comment}\n{both}\n")
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", format_key_id(self.id))
    }
}

fn checksum(id: [u8; 8], pair: &ed25519_dalek::SigningKey) -> [u8; 32] {
    let sum = Blake2b::<U32>::new().chain_update(ED25519).chain_update(id);
    sum.chain_update(pair.to_keypair_bytes()).finalize().into()
}

/// Formats a key id as minisign does.
fn format_key_id(id: [u8; 8]) -> String {
    format!("{:016X}", u64::from_le_bytes(id))
}

/// Reasons why a signed text can't be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// The signature can't be parsed.
    #[error("its signature is damaged")]
    DamagedSignature,
    /// The user doesn't trust the key with this id.
    #[error("it is signed with key {0}, which is not trusted")]
    UntrustedKey(String),
    /// The signature is for a different text.
    #[error("its signature does not match its content")]
    OtherText,
    /// The text has a format that this version can't read.
    #[error("a newer pgfresh has signed it")]
    NewerFormat,
    /// The signed text belongs to a different template. The value is that template's fingerprint.
    #[error("its signature belongs to template {0}")]
    OtherTemplate(String),
    /// The manifest or the description (the value) isn't the signed one.
    #[error("its {0} is not the one that was signed")]
    OtherPart(&'static str),
    /// The manifest can't be parsed.
    #[error("its manifest is damaged")]
    DamagedManifest,
    /// The manifest names a path twice.
    #[error("its manifest contradicts itself")]
    AmbiguousManifest,
}

/// Returns the id of the trusted key that signed `data`.
///
/// # Errors
/// Returns [`TrustError::DamagedSignature`] if the signature doesn't have the format that pgfresh
/// writes. Returns [`TrustError::UntrustedKey`] if no key in `trusted` made the signature, and
/// [`TrustError::OtherText`] if the signature is for a different text than `data`.
pub fn trusted_signer(data: &[u8], signature: &str, trusted: &[TrustedKey]) -> Result<String, TrustError> {
    let wrong = || TrustError::DamagedSignature;
    let parsed =
        Signature::decode(signature).ok().filter(|_| has_exact_format(signature)).ok_or_else(wrong)?;
    let bytes =
        signature.lines().nth(1).and_then(|line| BASE64_STANDARD.decode(line).ok()).unwrap_or_default();
    let id: [u8; 8] = bytes.get(2..10).and_then(|id| id.try_into().ok()).ok_or_else(wrong)?;
    let mut known = trusted.iter().filter(|key| key.id == id).peekable();
    if known.peek().is_none() {
        return Err(TrustError::UntrustedKey(format_key_id(id)));
    }
    if known.any(|key| key.key.verify(data, &parsed, false).is_ok()) {
        return Ok(format_key_id(id));
    }
    Err(TrustError::OtherText)
}

/// Returns true if the signature file has exactly the format that pgfresh writes. The signature doesn't cover
/// everything in the file (the comment at the top, for example), so this check rejects changes to the rest.
fn has_exact_format(text: &str) -> bool {
    let lines: Vec<_> = text.split('\n').collect();
    let decodes = |line: &str| BASE64_STANDARD.decode(line).is_ok();
    matches!(lines[..], [COMMENT, one, comment, two, ""] if decodes(one) && decodes(two) && !comment.contains('\r'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_read_as_they_were_written() {
        let key = SigningKey::generate().unwrap();
        let text = key.to_text();
        let again = SigningKey::parse(&text).unwrap();
        assert_eq!((again.to_text(), again.public()), (text.clone(), key.public()));
        let line = text.lines().nth(1).unwrap();
        assert_eq!(SigningKey::parse(line).unwrap().public(), key.public());
        let public: TrustedKey = key.public().to_string().parse().unwrap();
        assert_eq!(public, key.public());
        assert!(key.public().to_string().starts_with("RW"));
        assert!(!format!("{key:?}").contains(&line[90..100]));
    }

    #[test]
    fn invalid_key_is_refused_without_showing_it() {
        let secret = SigningKey::generate().unwrap().to_text();
        let line = secret.lines().nth(1).unwrap();
        for text in ["", "RWQ", "secret", line, &"A".repeat(56)] {
            let error = text.parse::<TrustedKey>().unwrap_err().to_string();
            assert!(error.starts_with("expected a public key") && !error.contains("secret"), "{error}");
        }
        let mut bytes = BASE64_STANDARD.decode(line).unwrap();
        for at in [0, 60, 70, 130] {
            bytes[at] ^= 1;
            let text = BASE64_STANDARD.encode(&bytes);
            assert_eq!(SigningKey::parse(&text).unwrap_err(), KeyError::Foreign, "byte {at}");
            bytes[at] ^= 1;
        }
        bytes[2..4].copy_from_slice(b"Sc");
        assert_eq!(SigningKey::parse(&BASE64_STANDARD.encode(&bytes)).unwrap_err(), KeyError::Locked);
        assert_eq!(SigningKey::parse("").unwrap_err(), KeyError::Foreign);
    }

    /// Output of minisign 0.11 for `minisign -G -W` and `minisign -S -W -m data -t "a comment"`, where the
    /// file `data` contains the line "data".
    const SECRET: &str = "RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAHJGPq2Ah4AUm984IyQ4oVwd6rjsj\
        ZcjzOoAQu74sddG4qzK1ReUGSf+cnBSdpzrjFIT8C78UlFKQgLrvPpXVWp+fAnCNohUHAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    const PUBLIC: &str = "RWQckY+rYCHgBf+cnBSdpzrjFIT8C78UlFKQgLrvPpXVWp+fAnCNohUH";
    const SIGNATURE: [&str; 2] = [
        "RUQckY+rYCHgBXC2j8BPNDZOxZUxMAw6T2KRltI0O81PeORGH91Bnz/Ub4/g1BPHca++7qmgaLa94NmTxE5IQc9qhyAi4cQhVgY=",
        "ek0iXLKQWZ2cBsEvGlJnuwrW1q2fyfPr6q9x0XAAQ6QxqYe/rI/n8rZncla1If5ac4IHMW/Kk5GDvpzz4tmJBQ==",
    ];

    #[test]
    fn minisign_keys_and_signature_are_accepted() {
        let key = SigningKey::parse(SECRET).unwrap();
        let public: TrustedKey = PUBLIC.parse().unwrap();
        assert_eq!(key.public(), public);
        let [one, two] = SIGNATURE;
        let text = format!("{COMMENT}\n{one}\ntrusted comment: a comment\n{two}\n");
        assert_eq!(trusted_signer(b"data\n", &text, &[public]), Ok(format_key_id(key.id)));
    }

    proptest! {
        // Ed25519 is slow in unoptimized builds.
        #![proptest_config(ProptestConfig::with_cases(10))]
        #[test]
        fn only_trusted_keys_sign_unchanged_data(data in any::<Vec<u8>>(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let [one, two, other] = [(); 3].map(|()| SigningKey::generate().unwrap());
            let trusted = [one.public(), two.public()];
            for key in [&one, &two] {
                let signature = key.sign(&data, "a comment");
                prop_assert_eq!(trusted_signer(&data, &signature, &trusted), Ok(format_key_id(key.id)));
                let mut bytes = signature.into_bytes();
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
                if let Ok(changed) = String::from_utf8(bytes) {
                    prop_assert!(trusted_signer(&data, &changed, &trusted).is_err(), "{}", changed);
                }
                let mut longer = data.clone();
                longer.push(0);
                prop_assert!(trusted_signer(&longer, &key.sign(&data, "a comment"), &trusted).is_err());
            }
            let foreign = trusted_signer(&data, &other.sign(&data, "a comment"), &trusted).unwrap_err();
            prop_assert_eq!(foreign, TrustError::UntrustedKey(format_key_id(other.id)));
        }

        #[test]
        fn arbitrary_signature_text_causes_no_panic(text in "\\PC*(\n\\PC*){0,5}") {
            let key = SigningKey::generate().unwrap();
            prop_assert!(trusted_signer(b"", &text, &[key.public()]).is_err());
        }
    }
}
