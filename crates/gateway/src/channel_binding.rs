//! Computes the certificate digest that clients bind a SCRAM proof to (channel binding type `tls-server-end-point`).

use der::asn1::{AnyRef, BitStringRef};
use der::{Decode, Reader, SliceReader, TagMode, TagNumber};
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use spki::{AlgorithmIdentifierRef, ObjectIdentifier};

/// Hash function that computes the digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hash {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// The signature algorithms that imply a hash function: RSA, then ECDSA.
const SIGNATURES: [(&str, Hash); 11] = [
    // With MD5 and SHA-1.
    ("1.2.840.113549.1.1.4", Hash::Sha256),
    ("1.2.840.113549.1.1.5", Hash::Sha256),
    ("1.2.840.113549.1.1.11", Hash::Sha256),
    ("1.2.840.113549.1.1.12", Hash::Sha384),
    ("1.2.840.113549.1.1.13", Hash::Sha512),
    ("1.2.840.113549.1.1.14", Hash::Sha224),
    // With SHA-1.
    ("1.2.840.10045.4.1", Hash::Sha256),
    ("1.2.840.10045.4.3.1", Hash::Sha224),
    ("1.2.840.10045.4.3.2", Hash::Sha256),
    ("1.2.840.10045.4.3.3", Hash::Sha384),
    ("1.2.840.10045.4.3.4", Hash::Sha512),
];
/// The signature algorithm RSA-PSS, whose parameters specify the hash function.
const RSA_PSS: &str = "1.2.840.113549.1.1.10";
/// The hash functions that RSA-PSS can specify. The first is SHA-1.
const OF_RSA_PSS: [(&str, Hash); 5] = [
    ("1.3.14.3.2.26", Hash::Sha256),
    ("2.16.840.1.101.3.4.2.1", Hash::Sha256),
    ("2.16.840.1.101.3.4.2.2", Hash::Sha384),
    ("2.16.840.1.101.3.4.2.3", Hash::Sha512),
    ("2.16.840.1.101.3.4.2.4", Hash::Sha224),
];

/// Computes a certificate's digest. Returns `None` if the standard doesn't define a digest for this certificate.
///
/// The digest uses the hash function of the certificate's own signature, but SHA-256 in place of MD5 and SHA-1.
/// Signatures without a hash function (such as Ed25519) don't have a digest, so libpq can connect only if the gateway
/// doesn't offer channel binding. Source: RFC 5929, section 4.1.
pub(crate) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let digest = match Hash::of_signature(signature_algorithm(certificate).ok()?)? {
        Hash::Sha224 => Sha224::digest(certificate).to_vec(),
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    };
    Some(digest)
}

/// Returns the certificate's signature algorithm, skipping the signed part of the certificate.
fn signature_algorithm(certificate: &[u8]) -> der::Result<AlgorithmIdentifierRef<'_>> {
    AnyRef::from_der(certificate)?.sequence(|fields: &mut SliceReader<'_>| {
        let _to_be_signed: AnyRef<'_> = fields.decode()?;
        let algorithm = fields.decode()?;
        let _signature: BitStringRef<'_> = fields.decode()?;
        Ok(algorithm)
    })
}

impl Hash {
    /// Returns the hash function of a signature algorithm.
    ///
    /// For RSA-PSS, the hash function is in the parameters, as in libpq (`X509_get_signature_info`,
    /// since 15.3, 14.8 and 13.11). Source: RFC 4055, section 3.1.
    fn of_signature(algorithm: AlgorithmIdentifierRef<'_>) -> Option<Self> {
        if algorithm.oid.to_string() == RSA_PSS {
            return Self::of_pss(algorithm.parameters?).ok()?;
        }
        find(&SIGNATURES, algorithm.oid)
    }

    /// Returns the hash function specified in RSA-PSS parameters. The default is SHA-1.
    fn of_pss(parameters: AnyRef<'_>) -> der::Result<Option<Self>> {
        parameters.sequence(|fields: &mut SliceReader<'_>| {
            let hash: Option<AlgorithmIdentifierRef<'_>> =
                fields.context_specific(TagNumber(0), TagMode::Explicit)?;
            // Skip the mask, the length of the salt and the trailer.
            while !fields.is_finished() {
                let _other: AnyRef<'_> = fields.decode()?;
            }
            Ok(hash.map_or(Some(Self::Sha256), |hash| find(&OF_RSA_PSS, hash.oid)))
        })
    }
}

fn find(functions: &[(&str, Hash)], name: ObjectIdentifier) -> Option<Hash> {
    let name = name.to_string();
    functions.iter().find(|(known, _)| *known == name).map(|(_, hash)| *hash)
}

#[cfg(test)]
mod tests {
    use der::{Encode, Tag};
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair};
    use spki::AlgorithmIdentifier;

    use super::*;

    #[test]
    fn binding_digest_uses_hash_of_certificate_signature() {
        for (algorithm, length) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, Some(32)),
            (&rcgen::PKCS_ECDSA_P384_SHA384, Some(48)),
            (&rcgen::PKCS_ED25519, None),
        ] {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let certificate =
                CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
            assert_eq!(end_point(certificate.der()).map(|digest| digest.len()), length);
        }
    }

    fn oid(text: &str) -> ObjectIdentifier {
        ObjectIdentifier::new(text).unwrap()
    }

    fn sequence(content: &[u8]) -> Vec<u8> {
        AnyRef::new(Tag::Sequence, content).unwrap().to_der().unwrap()
    }

    /// Returns the digest's length for a certificate that contains only a signature algorithm.
    fn length(name: &str, parameters: Option<AnyRef<'_>>) -> Option<usize> {
        let algorithm = AlgorithmIdentifier { oid: oid(name), parameters }.to_der().unwrap();
        let signature = BitStringRef::from_bytes(&[]).unwrap().to_der().unwrap();
        end_point(&sequence(&[sequence(&[]), algorithm, signature].concat())).map(|digest| digest.len())
    }

    /// libpq 15 computed the expected digests with OpenSSL 3.0, from a real certificate of each type.
    #[test]
    fn binding_digest_equals_that_of_libpq() {
        assert_eq!(length("1.2.840.10045.4.1", None), Some(32), "ECDSA with SHA-1");
        assert_eq!(length("1.3.101.112", None), None, "Ed25519");
        for (number, digest) in [
            (1, None),
            (4, Some(32)),
            (5, Some(32)),
            (11, Some(32)),
            (12, Some(48)),
            (13, Some(64)),
            (14, Some(28)),
        ] {
            let rsa = format!("1.2.840.113549.1.1.{number}");
            assert_eq!(length(&rsa, Some(AnyRef::NULL)), digest, "{number}");
        }
        for (number, digest) in [(1, 28), (2, 32), (3, 48), (4, 64)] {
            assert_eq!(length(&format!("1.2.840.10045.4.3.{number}"), None), Some(digest), "{number}");
        }
    }

    #[test]
    fn rsa_pss_names_hash_in_its_parameters() {
        const PSS: &str = "1.2.840.113549.1.1.10";
        let with_hash = |name: &str| {
            let hash = AlgorithmIdentifier { oid: oid(name), parameters: Some(AnyRef::NULL) };
            let tagged = |number, content: &[u8]| {
                let tag = Tag::ContextSpecific { constructed: true, number: TagNumber(number) };
                AnyRef::new(tag, content).unwrap().to_der().unwrap()
            };
            let salt = 32_u8.to_der().unwrap();
            let fields = [tagged(0, &hash.to_der().unwrap()), tagged(2, &salt)].concat();
            length(PSS, Some(AnyRef::new(Tag::Sequence, &fields).unwrap()))
        };
        assert_eq!(length(PSS, Some(AnyRef::new(Tag::Sequence, &[]).unwrap())), Some(32), "the default");
        assert_eq!(with_hash("1.3.14.3.2.26"), Some(32), "SHA-1");
        for (number, digest) in [(1, Some(32)), (2, Some(48)), (3, Some(64)), (4, Some(28)), (8, None)] {
            assert_eq!(with_hash(&format!("2.16.840.1.101.3.4.2.{number}")), digest, "{number}");
        }
        assert_eq!(length(PSS, None), None);
    }

    proptest! {
        #[test]
        fn arbitrary_certificate_bytes_cause_no_panic(bytes: Vec<u8>, place: prop::sample::Index) {
            let _ = end_point(&bytes);
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::default().self_signed(&key).unwrap();
            let mut damaged = certificate.der().to_vec();
            let place = place.index(damaged.len());
            damaged.splice(place.., bytes);
            let _ = end_point(&damaged);
        }
    }
}
