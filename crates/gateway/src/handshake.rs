//! Connection handshake: detects the protocol, negotiates TLS, authenticates.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use pgwire::{
    ENCRYPTED, ErrorResponse, NOT_ENCRYPTED, PASSWORD_REQUEST, Startup, StartupPacket, Verifier, negotiation,
    password, sasl_request, sasl_response, unsupported_protocol,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::Access;
use crate::certificate::ServerCertificate;
use crate::request::SessionSettings;
use crate::state::GatewayState;
use crate::stream::{Socket, Stream};
use crate::tls::TlsSocket;

/// First byte of TLS: the type of a handshake record. Source: RFC 8446, section 5.1.
pub(crate) const TLS_HANDSHAKE: u8 = 0x16;

/// Request of a client.
pub(crate) enum ClientRequest {
    Http(Stream),
    Cancel(Stream, Vec<u8>),
    Session(Stream, PendingSession),
}

/// Client that may have a session.
pub(crate) struct PendingSession {
    pub(crate) startup: Startup,
    pub(crate) settings: SessionSettings,
    /// Whether the client has got a `NegotiateProtocolVersion` message, so that it need not get the server's, too.
    pub(crate) negotiated: bool,
    /// Moment of the client's startup message.
    pub(crate) since: Instant,
}

/// Reasons why a handshake fails.
pub(crate) enum HandshakeError {
    /// The client has gone, or took too long.
    Gone,
    /// The gateway refuses the client, which gets this message.
    Refused(Stream, Vec<u8>),
}

/// Reads the request of a client, and authenticates a client that asks for a session.
pub(crate) async fn meet(mut stream: Stream, state: &GatewayState) -> Result<ClientRequest, HandshakeError> {
    let mut bytes = Vec::with_capacity(512);
    // TLS without a request for it: sslnegotiation=direct of libpq, and HTTPS.
    let mut is_direct = false;
    loop {
        if let Err(error) = read_some(&mut stream, &mut bytes).await {
            tracing::debug!(%error, "a client left before it said what it wants");
            return Err(HandshakeError::Gone);
        }
        let certificate = state.access.certificate().filter(|_| matches!(stream.socket(), Socket::Tcp(_)));
        // The length of a packet is far below 2²⁴, so its first byte is 0. An HTTP method begins with a capital letter.
        match (bytes[0], certificate) {
            (0, _) => {}
            (b'A'..=b'Z', _) if may_speak_http(stream.socket()) => {
                return Ok(ClientRequest::Http(stream.preceded_by(bytes)));
            }
            (TLS_HANDSHAKE, Some(certificate)) => {
                stream = stream.encrypted(certificate, &bytes).map_err(|_| HandshakeError::Gone)?;
                bytes.clear();
                is_direct = true;
                continue;
            }
            _ => return Err(refused(stream, &ErrorResponse::violation("neither PostgreSQL nor HTTP"))),
        }
        let (what, length) = match StartupPacket::read(&bytes) {
            Ok(Some(packet)) => packet,
            Ok(None) => continue,
            Err(error) => return Err(refused(stream, &error)),
        };
        match what {
            StartupPacket::SslRequest | StartupPacket::GssRequest => {
                let certificate = certificate.filter(|_| what == StartupPacket::SslRequest);
                stream = encrypt(stream, certificate, bytes.len() > length).await?;
                bytes.clear();
            }
            // A web page can make a browser send any bytes by TLS, but not name PostgreSQL as their protocol.
            _ if is_direct && !stream.tls().is_some_and(TlsSocket::speaks_postgresql) => {
                let error = ErrorResponse::violation(
                    "received direct SSL connection request without ALPN protocol negotiation extension",
                );
                return Err(refused(stream, &error));
            }
            StartupPacket::Cancel(key) => return Ok(ClientRequest::Cancel(stream, key)),
            StartupPacket::Startup(startup) => {
                bytes.drain(..length);
                let settings = match SessionSettings::read(&startup.params) {
                    Ok(settings) => settings,
                    Err(error) => return Err(refused(stream, &error)),
                };
                return authenticate(stream.preceded_by(bytes), startup, settings, state).await;
            }
            StartupPacket::Unsupported(version) => {
                let words = unsupported_protocol(version, state.leases.major());
                return Err(HandshakeError::Refused(stream, words));
            }
        }
    }
}

/// Whether the client may use HTTP. HTTP over the unix socket needs no token. The server's account has sessions on that
/// socket, and must not control pgfresh.
fn may_speak_http(socket: &Socket) -> bool {
    match socket {
        Socket::Unix(stream) => sys::is_from_our_user(stream),
        Socket::Tcp(_) | Socket::Tls(_) => true,
    }
}

/// Answers a request for encryption, and begins TLS if there is a certificate.
pub(crate) async fn encrypt(
    mut stream: Stream,
    certificate: Option<&Arc<ServerCertificate>>,
    goes_on: bool,
) -> Result<Stream, HandshakeError> {
    // Bytes after the request are not encrypted: an attacker may have inserted them (CVE-2021-23222).
    if goes_on {
        let error = ErrorResponse::violation("received unencrypted data after encryption request");
        return Err(refused(stream, &error));
    }
    let answer = if certificate.is_some() { ENCRYPTED } else { NOT_ENCRYPTED };
    stream.write_all(answer).await.map_err(|_| HandshakeError::Gone)?;
    match certificate {
        Some(certificate) => stream.encrypted(certificate, &[]).map_err(|_| HandshakeError::Gone),
        None => Ok(stream),
    }
}

fn refused(stream: Stream, error: &ErrorResponse) -> HandshakeError {
    HandshakeError::Refused(stream, error.to_bytes())
}

/// Authenticates the client, unless it has come by the unix socket, whose directory is closed to others.
async fn authenticate(
    mut stream: Stream,
    startup: Startup,
    settings: SessionSettings,
    state: &GatewayState,
) -> Result<ClientRequest, HandshakeError> {
    let mut pending = PendingSession { startup, settings, negotiated: false, since: Instant::now() };
    if matches!(stream.socket(), Socket::Unix(_)) {
        return Ok(ClientRequest::Session(stream, pending));
    }
    // A server negotiates the protocol before anything else, too.
    let negotiation = negotiation(&pending.startup.params, state.leases.major());
    pending.negotiated = negotiation.is_some();
    stream.write_all(&negotiation.unwrap_or_default()).await.map_err(|_| HandshakeError::Gone)?;
    let access = &state.access;
    let mut bytes = Vec::new();
    let admitted = match access.verifier(stream.is_encrypted()) {
        None => ask_for_password(&mut stream, &mut bytes, access).await,
        Some(verifier) => exchange(&mut stream, &mut bytes, verifier).await,
    };
    let error = match admitted {
        Ok(true) => {
            return Ok(ClientRequest::Session(stream.preceded_by(bytes), pending));
        }
        Ok(false) => ErrorResponse::fatal("28P01", "password authentication failed")
            .hint("The password is in the URL that pgfresh has printed, and in PGPASSWORD of its command."),
        Err(Some(error)) => error,
        Err(None) => return Err(HandshakeError::Gone),
    };
    Err(refused(stream, &error))
}

/// Asks for the password. Returns whether it is the secret. Bytes that the client sends too early stay in `bytes`.
///
/// # Errors
///
/// Returns the response for a client that violates the protocol, or `None` if the client has gone.
async fn ask_for_password(
    stream: &mut Stream,
    bytes: &mut Vec<u8>,
    access: &Access,
) -> Result<bool, Option<ErrorResponse>> {
    stream.write_all(PASSWORD_REQUEST).await.map_err(|_| None)?;
    Ok(access.admits(&answer(stream, bytes, password).await?))
}

/// Like [`ask_for_password`], but by SCRAM, so that no side sends the secret.
async fn exchange(
    stream: &mut Stream,
    bytes: &mut Vec<u8>,
    verifier: &Verifier,
) -> Result<bool, Option<ErrorResponse>> {
    let certificate = stream.tls().and_then(TlsSocket::certificate_digest).map(<[u8]>::to_vec);
    stream.write_all(&sasl_request(certificate.is_some())).await.map_err(|_| None)?;
    let first = answer(stream, bytes, sasl_response).await?;
    let nonce = Access::random_secret().map_err(|_| None)?;
    let (exchange, ours) = verifier.begin(&first, &nonce, certificate.as_deref())?;
    stream.write_all(&ours).await.map_err(|_| None)?;
    let Some(proof) = exchange.finish(&answer(stream, bytes, sasl_response).await?)? else {
        return Ok(false);
    };
    stream.write_all(&proof).await.map_err(|_| None)?;
    Ok(true)
}

/// Content of the client's next message, as `read` finds it.
async fn answer(
    stream: &mut Stream,
    bytes: &mut Vec<u8>,
    read: impl Fn(&[u8]) -> Result<Option<(Range<usize>, usize)>, ErrorResponse>,
) -> Result<Vec<u8>, Option<ErrorResponse>> {
    loop {
        if let Some((place, length)) = read(bytes)? {
            let content = bytes[place].to_vec();
            bytes.drain(..length);
            return Ok(content);
        }
        read_some(stream, bytes).await.map_err(|_| None)?;
    }
}

async fn read_some(stream: &mut Stream, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.reserve(512);
    match stream.read_buf(bytes).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}
