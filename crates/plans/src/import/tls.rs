//! Encrypts the connection, with the same modes and certificates as libpq.
//!
//! Source: `initialize_SSL` in `src/interfaces/libpq/fe-secure-openssl.c`.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;

use super::error::ImportError;

/// Certificate authorities to trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Authorities {
    /// The operating system's authorities.
    System,
    /// The certificates in a PEM file.
    File(PathBuf),
}

/// How to check the server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verification {
    /// Don't check it. The connection is encrypted, but an impostor could have accepted it.
    None,
    /// Require that a trusted authority issued it (`verify-ca`).
    Authority(Authorities),
    /// Require that a trusted authority issued it for the server's name (`verify-full`).
    Name(Authorities),
}

/// Opens encrypted connections.
#[derive(Debug, Clone)]
pub(super) struct Encryption {
    config: Arc<ClientConfig>,
}

impl Encryption {
    pub(super) fn new(verification: &Verification) -> Result<Self, ImportError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (authorities, checks_name) = match verification {
            Verification::None => (None, false),
            Verification::Authority(authorities) => (Some(Trusted::read(authorities)?), false),
            Verification::Name(authorities) => (Some(Trusted::read(authorities)?), true),
        };
        let verifier = Verifier { authorities, checks_name, provider: Arc::clone(&provider) };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| ImportError::Url(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        // Required for sslnegotiation=direct.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Self { config: Arc::new(config) })
    }
}

/// Trusted certificates.
#[derive(Debug)]
struct Trusted {
    roots: RootCertStore,
    /// All certificates in the file. A server may present any of them as its own certificate, even if it is an
    /// authority's certificate.
    certificates: Vec<CertificateDer<'static>>,
}

impl Trusted {
    fn read(authorities: &Authorities) -> Result<Self, ImportError> {
        let (certificates, path) = match authorities {
            Authorities::System => (rustls_native_certs::load_native_certs().certs, Path::new("system")),
            Authorities::File(path) => (read_certificates(path)?, path.as_path()),
        };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.iter().cloned());
        if roots.is_empty() {
            let reason = "it contains no certificate".to_owned();
            return Err(ImportError::File { path: path.to_owned(), reason });
        }
        Ok(Self { roots, certificates })
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ImportError> {
    let failed = |reason: String| ImportError::File { path: path.to_owned(), reason };
    let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    certificates.map_err(|_| failed("it is not a file of certificates in PEM format".to_owned()))
}

#[derive(Debug)]
struct Verifier {
    /// Trusted authorities. `None` accepts every certificate.
    authorities: Option<Trusted>,
    checks_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(trusted) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        let certificate = ParsedCertificate::try_from(end_entity)?;
        if !trusted.certificates.contains(end_entity) {
            let algorithms = self.provider.signature_verification_algorithms.all;
            let roots = &trusted.roots;
            verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)?;
        }
        if self.checks_name {
            verify_server_name(&certificate, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        // Without authorities, a valid signature doesn't prove anything. Skip the check, because it fails for
        // certificate versions that can't be parsed.
        if self.authorities.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if self.authorities.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl<S> MakeTlsConnect<S> for Encryption
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = EncryptedStream<S>;
    type TlsConnect = Handshake;
    type Error = Infallible;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, Infallible> {
        Ok(Handshake { config: Arc::clone(&self.config), host: host.to_owned() })
    }
}

pub(super) struct Handshake {
    config: Arc<ClientConfig>,
    host: String,
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = EncryptedStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            Ok(EncryptedStream(TlsConnector::from(self.config).connect(name, stream).await?))
        })
    }
}

pub(super) struct EncryptedStream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for EncryptedStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for EncryptedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EncryptedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
