//! Provides the certificates that clients use to verify the gateway. The gateway's own authority issues them, or the
//! user supplies one.
//!
//! The authority exists as long as the gateway, and its private key never leaves memory. A client that trusts the root
//! certificate therefore trusts this gateway and nothing else. The authority issues a certificate for each name on
//! first use, so clients can use any of the gateway's names and addresses.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection};

use crate::channel_binding::end_point;

/// Maximum number of cached certificates.
const MAX_CACHED_CERTIFICATES: usize = 64;
/// Protocols that clients can request with ALPN: `PostgreSQL` (libpq does so since version 17) or HTTP.
const PROTOCOLS: [&[u8]; 2] = [POSTGRESQL, b"http/1.1"];
/// ALPN name of the `PostgreSQL` protocol. Source: the manual's "SSL Session Encryption".
pub(crate) const POSTGRESQL: &[u8] = b"postgresql";

/// Source of the certificates for TLS clients: the user's files, or the gateway's own authority, which issues a
/// certificate for each name.
pub struct ServerCertificate {
    provider: Arc<CryptoProvider>,
    source: Source,
}

enum Source {
    Authority(Box<Authority>),
    Files(Arc<IssuedCertificate>),
}

/// Reason why the gateway has no usable certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The authority couldn't issue a certificate.
    #[error("could not make a certificate")]
    Issue(#[from] rcgen::Error),
    /// The file can't be read or doesn't contain the expected item.
    #[error("could not read a {what} from \"{}\"", path.display())]
    Read {
        /// The expected item: a certificate or a private key.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Cause of the error.
        source: pem::Error,
    },
    /// The certificate and the key don't match, or rustls doesn't support their type.
    #[error("cannot use the certificate in \"{}\" with the key in \"{}\"", certificate.display(), key.display())]
    Unusable {
        /// Path of the certificate file.
        certificate: PathBuf,
        /// Path of the key file.
        key: PathBuf,
        /// Cause of the error.
        source: rustls::Error,
    },
}

impl CertificateError {
    /// Returns advice for the user, if there is any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Issue(_) => None,
            Self::Read { .. } => Some(
                "Name files in PEM, which begin with \"-----BEGIN\"; a key must not be encrypted.".to_owned(),
            ),
            Self::Unusable { .. } => Some("Name the key that the certificate was made for.".to_owned()),
        }
    }
}

impl ServerCertificate {
    /// Creates a new certificate authority.
    ///
    /// # Errors
    /// Returns [`CertificateError`] if no key or certificate could be generated.
    pub fn generate() -> Result<Self, CertificateError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = named("pgfresh root");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let root = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let authority = Authority { root, host: sys::host_name(), leaves: Mutex::default() };
        Ok(Self { provider: provider(), source: Source::Authority(Box::new(authority)) })
    }

    /// Reads the user's two PEM files: the certificate with its chain up to the root, and the private key.
    ///
    /// # Errors
    /// Returns [`CertificateError::Read`] if a file can't be read or has no PEM item of its kind. Returns
    /// [`CertificateError::Unusable`] if the key doesn't belong to the certificate.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| CertificateError::Read { what, path, source }
        };
        let chain =
            CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let chain = chain
            .and_then(|chain| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) })
            .map_err(failed("certificate", certificate))?;
        let secret = PrivateKeyDer::from_pem_file(key).map_err(failed("private key", key))?;
        let provider = provider();
        let certified = CertifiedKey::from_der(chain, secret, &provider).map_err(|source| {
            CertificateError::Unusable { certificate: certificate.to_owned(), key: key.to_owned(), source }
        })?;
        Ok(Self { provider, source: Source::Files(Arc::new(IssuedCertificate::new(certified))) })
    }

    /// Returns the root certificate of the gateway's own authority in PEM format, which clients need to verify the
    /// gateway. Returns `None` if the user supplied the certificate.
    #[must_use]
    pub fn root(&self) -> Option<String> {
        match &self.source {
            Source::Authority(authority) => Some(authority.root.pem()),
            Source::Files(_) => None,
        }
    }

    /// Starts the server's side of TLS for a client that connected to the local address `local`.
    pub(crate) fn accept(
        self: &Arc<Self>,
        local: IpAddr,
    ) -> io::Result<(ServerConnection, Arc<CertificateChoice>)> {
        let choice = Arc::new(CertificateChoice {
            certificate: Arc::clone(self),
            local: local.to_canonical(),
            leaf: OnceLock::new(),
        });
        let config = ServerConfig::builder_with_provider(Arc::clone(&self.provider));
        let config = config.with_safe_default_protocol_versions().map_err(io::Error::other)?;
        let resolver: Arc<CertificateChoice> = Arc::clone(&choice);
        let mut config = config.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        // PostgreSQL clients never resume a TLS session.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok((ServerConnection::new(Arc::new(config)).map_err(io::Error::other)?, choice))
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::CommonName, name);
    named
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Omits private keys, so that they never appear in a log.
impl fmt::Debug for ServerCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_ours = matches!(self.source, Source::Authority(_));
        formatter.debug_struct("ServerCertificate").field("is_ours", &is_ours).finish_non_exhaustive()
    }
}

/// A certificate and its digest, which clients bind a SCRAM proof to.
struct IssuedCertificate {
    key: Arc<CertifiedKey>,
    digest: Option<Vec<u8>>,
}

impl IssuedCertificate {
    fn new(key: CertifiedKey) -> Self {
        let digest = key.cert.first().and_then(|certificate| end_point(certificate));
        Self { key: Arc::new(key), digest }
    }
}

/// Cache key of a certificate: the name requested by the client (SNI) and the address it connected to.
type CertificateName = (Option<String>, IpAddr);

/// Issues certificates for the names and addresses used by clients.
struct Authority {
    root: CertifiedIssuer<'static, KeyPair>,
    /// Host name of this machine. `None` if the system doesn't report one.
    host: Option<String>,
    leaves: Mutex<HashMap<CertificateName, Arc<IssuedCertificate>>>,
}

impl Authority {
    /// Returns the certificate for clients that connect to the address `local` and request `name`. (Not every client
    /// requests a name.)
    fn certificate_for(
        &self,
        provider: &CryptoProvider,
        name: Option<&str>,
        local: IpAddr,
    ) -> Option<Arc<IssuedCertificate>> {
        let mut leaves = sys::lock(&self.leaves);
        let place = (name.map(str::to_owned), local);
        if let Some(leaf) = leaves.get(&place) {
            return Some(Arc::clone(leaf));
        }
        let leaf = match self.issue(provider, name, local) {
            Ok(leaf) => Arc::new(leaf),
            Err(error) => {
                tracing::warn!(%error, ?name, "could not issue a certificate");
                return None;
            }
        };
        // Limit the cache, because even clients without the secret can request any number of names.
        if leaves.len() < MAX_CACHED_CERTIFICATES {
            leaves.insert(place, Arc::clone(&leaf));
        }
        Some(leaf)
    }

    fn issue(
        &self,
        provider: &CryptoProvider,
        name: Option<&str>,
        local: IpAddr,
    ) -> Result<IssuedCertificate, Box<dyn Error>> {
        let mut names: Vec<String> = ["localhost".to_owned()].into();
        // Certificates can contain only ASCII names, so omit a host name that isn't ASCII rather than giving up TLS.
        names.extend(self.host.clone().filter(|host| host.is_ascii()));
        names.extend(name.map(str::to_owned));
        for address in [local, Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
            names.push(address.to_string());
        }
        names.sort_unstable();
        names.dedup();
        let mut params = CertificateParams::new(names)?;
        // The subject must differ from the issuer's name; otherwise, the certificate would look self-signed.
        params.distinguished_name = named("pgfresh");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.root)?;
        let secret = PrivatePkcs8KeyDer::from(key.serialize_der());
        let chain = vec![certificate.der().clone(), self.root.der().clone()];
        Ok(IssuedCertificate::new(CertifiedKey::from_der(chain, secret.into(), provider)?))
    }
}

/// Selects the certificate for one connection.
pub(crate) struct CertificateChoice {
    certificate: Arc<ServerCertificate>,
    local: IpAddr,
    leaf: OnceLock<Arc<IssuedCertificate>>,
}

impl CertificateChoice {
    /// Returns the certificate's digest for SCRAM channel binding. Returns `None` if the standard doesn't define a
    /// digest for this certificate, or if the TLS handshake hasn't selected a certificate yet.
    pub(crate) fn digest(&self) -> Option<&[u8]> {
        self.leaf.get()?.digest.as_deref()
    }
}

impl fmt::Debug for CertificateChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Choice").field("local", &self.local).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for CertificateChoice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let ServerCertificate { provider, source } = &*self.certificate;
        let leaf = match source {
            Source::Authority(authority) => {
                authority.certificate_for(provider, hello.server_name(), self.local)?
            }
            Source::Files(leaf) => Arc::clone(leaf),
        };
        Some(Arc::clone(&self.leaf.get_or_init(|| leaf).key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_one_certificate_in_bounded_cache() {
        let ServerCertificate { provider, source } = ServerCertificate::generate().unwrap();
        let Source::Authority(authority) = source else { panic!("not our own") };
        let local = Ipv4Addr::LOCALHOST.into();
        let leaf = |name: &str| authority.certificate_for(&provider, Some(name), local).unwrap();
        assert!(Arc::ptr_eq(&leaf("one.example"), &leaf("one.example")));
        assert!(!Arc::ptr_eq(&leaf("one.example"), &leaf("other.example")));
        for number in 0..2 * MAX_CACHED_CERTIFICATES {
            leaf(&format!("host{number}.example"));
        }
        assert_eq!(authority.leaves.lock().unwrap().len(), MAX_CACHED_CERTIFICATES);
    }
}
