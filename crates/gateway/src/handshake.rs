//! Connection handshake: detects the client's protocol, negotiates TLS, and authenticates the client.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgwire::{
    ENCRYPTED, ErrorResponse, NOT_ENCRYPTED, PASSWORD_REQUEST, Startup, StartupPacket, SupportedProtocols,
    Verifier, negotiation, password, sasl_request, sasl_response, unsupported_protocol,
};
use server::Major;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::Access;
use crate::certificate::ServerCertificate;
use crate::error_message;
use crate::faults::{Delayed, FaultEffect, FaultScope, HitConnection};
use crate::session_settings::SessionSettings;
use crate::state::GatewayState;
use crate::stream::{Socket, Stream};
use crate::tls::TlsSocket;

/// First byte of a TLS connection, which is the type of a handshake record. Source: RFC 8446, section 5.1.
pub(crate) const TLS_HANDSHAKE: u8 = 0x16;

/// A client's request.
pub(crate) enum ClientRequest {
    Http(Stream),
    Cancel(Stream, Vec<u8>),
    Session(Stream, PendingSession),
}

/// An authenticated client waiting for a session.
pub(crate) struct PendingSession {
    pub(crate) startup: Startup,
    pub(crate) settings: SessionSettings,
    /// Whether the gateway has sent the client a `NegotiateProtocolVersion` message. If so, the gateway must not
    /// forward the server's own message of this type.
    pub(crate) version_negotiated: bool,
    /// When the client's startup message arrived.
    pub(crate) since: Instant,
    /// Rate limit in bytes per second for each direction. `None` means no limit.
    pub(crate) bandwidth: Option<u64>,
}

/// Reason why a handshake failed.
pub(crate) enum HandshakeError {
    /// The client disconnected or took too long.
    Disconnected,
    /// The gateway refuses the client and sends it this message.
    Refused(Stream, Vec<u8>),
    /// A fault ends the connection.
    Hit(HitConnection),
}

/// PostgreSQL's error message for a client that starts TLS directly without announcing the protocol.
const DIRECT_WITHOUT_ALPN: &str =
    "received direct SSL connection request without ALPN protocol negotiation extension";

/// Timeout for a client's handshake, equal to the default of PostgreSQL's `authentication_timeout`.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_mins(1);

/// The first message of a client.
enum FirstMessage {
    Startup(Stream, Startup, SessionSettings),
    Other(ClientRequest),
}

/// Reads a client's request. Authenticates the client if it requests a session. A fault's delay doesn't count toward
/// the timeout.
pub(crate) async fn read_request(
    stream: Stream,
    state: &GatewayState,
) -> Result<ClientRequest, HandshakeError> {
    let begun = Instant::now();
    let first = timeout(AUTHENTICATION_TIMEOUT, read_first(stream, state)).await;
    let (stream, startup, settings) = match first.unwrap_or(Err(HandshakeError::Disconnected))? {
        FirstMessage::Startup(stream, startup, settings) => (stream, startup, settings),
        FirstMessage::Other(request) => return Ok(request),
    };
    let left = AUTHENTICATION_TIMEOUT.saturating_sub(begun.elapsed());
    let (stream, bandwidth) = admit(stream, &startup.database, state).await?;
    let authenticated = timeout(left, authenticate(stream, startup, settings, bandwidth, state)).await;
    authenticated.unwrap_or(Err(HandshakeError::Disconnected))
}

async fn read_first(mut stream: Stream, state: &GatewayState) -> Result<FirstMessage, HandshakeError> {
    let mut bytes = Vec::with_capacity(512);
    // Whether the client starts TLS without asking first, as HTTPS and libpq's `sslnegotiation=direct` do.
    let mut is_direct = false;
    loop {
        if let Err(error) = read_some(&mut stream, &mut bytes).await {
            tracing::debug!(%error, "a client left before it said what it wants");
            return Err(HandshakeError::Disconnected);
        }
        let certificate = state.access.certificate().filter(|_| matches!(stream.socket(), Socket::Tcp(_)));
        // A startup packet is much shorter than 2²⁴ bytes, so the first byte of its length is 0. An HTTP method begins
        // with a capital letter.
        match (bytes[0], certificate) {
            (0, _) => {}
            (b'A'..=b'Z', _) if may_use_http(stream.socket()) => {
                return Ok(FirstMessage::Other(ClientRequest::Http(stream.with_unread(bytes))));
            }
            (TLS_HANDSHAKE, Some(certificate)) => {
                stream = stream.encrypted(certificate, &bytes).map_err(|_| HandshakeError::Disconnected)?;
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
            // Without ALPN this could be an attack: a web page can make a browser send arbitrary bytes over TLS, but
            // not announce the PostgreSQL protocol.
            _ if is_direct && !stream.tls().is_some_and(TlsSocket::announced_postgresql) => {
                return Err(refused(stream, &ErrorResponse::violation(DIRECT_WITHOUT_ALPN)));
            }
            StartupPacket::Cancel(key) => {
                return Ok(FirstMessage::Other(ClientRequest::Cancel(stream, key)));
            }
            StartupPacket::Startup(startup) => {
                bytes.drain(..length);
                let settings = match SessionSettings::read(&startup.params) {
                    Ok(settings) => settings,
                    Err(error) => return Err(refused(stream, &error)),
                };
                return Ok(FirstMessage::Startup(stream.with_unread(bytes), startup, settings));
            }
            StartupPacket::Unsupported(version) => {
                let message = unsupported_protocol(version, supported_protocols(state));
                return Err(HandshakeError::Refused(stream, message));
            }
        }
    }
}

/// Returns true if the client may use HTTP. HTTP over the unix socket needs no token, but the PostgreSQL server's
/// account can also open this socket, and that account's programs (such as database sessions) must not control pgfresh.
fn may_use_http(socket: &Socket) -> bool {
    match socket {
        Socket::Unix(stream) => sys::is_from_our_user(stream),
        Socket::Tcp(_) | Socket::Tls(_) => true,
    }
}

/// Returns the protocol versions supported by the server itself.
fn supported_protocols(state: &GatewayState) -> SupportedProtocols {
    let major = Major(state.leases.major());
    SupportedProtocols { two: major.has_old_protocol(), newest: major.newest_protocol() }
}

/// Responds to a client's encryption request, and starts TLS if there is a certificate.
pub(crate) async fn encrypt(
    mut stream: Stream,
    certificate: Option<&Arc<ServerCertificate>>,
    goes_on: bool,
) -> Result<Stream, HandshakeError> {
    // Refuse bytes that follow the request: they are unencrypted, so an attacker may have inserted them
    // (CVE-2021-23222).
    if goes_on {
        let error = ErrorResponse::violation("received unencrypted data after encryption request");
        return Err(refused(stream, &error));
    }
    let answer = if certificate.is_some() { ENCRYPTED } else { NOT_ENCRYPTED };
    stream.write_all(answer).await.map_err(|_| HandshakeError::Disconnected)?;
    match certificate {
        Some(certificate) => stream.encrypted(certificate, &[]).map_err(|_| HandshakeError::Disconnected),
        None => Ok(stream),
    }
}

fn refused(stream: Stream, error: &ErrorResponse) -> HandshakeError {
    HandshakeError::Refused(stream, error.to_bytes())
}

/// Returns the client's connection and its rate limit in bytes per second for each direction, unless a fault ends the
/// connection. `database` is the database name.
async fn admit(
    client: Stream,
    database: &str,
    state: &GatewayState,
) -> Result<(Stream, Option<u64>), HandshakeError> {
    let Some((effect, faults)) = state.faults.admit(database, &state.leases) else {
        return Ok((client, None));
    };
    let name = database.to_owned();
    let scope = FaultScope { registry: Arc::clone(&state.faults), leases: state.leases.clone(), name };
    let hit = HitConnection { client, effect, faults, scope };
    match hit.effect {
        FaultEffect::Bandwidth(rate) => Ok((hit.client, Some(rate))),
        FaultEffect::Delay(time) => match hit.delay(time).await {
            Delayed::Over(client) => Ok((client, None)),
            Delayed::LeaseEnded(client) => Err(refused(client, &error_message::closed())),
            Delayed::ClientLeft => Err(HandshakeError::Disconnected),
        },
        _ => Err(HandshakeError::Hit(hit)),
    }
}

/// Authenticates the client. Clients of the unix socket need no password, because other users can't enter the socket's
/// directory.
async fn authenticate(
    mut stream: Stream,
    startup: Startup,
    settings: SessionSettings,
    bandwidth: Option<u64>,
    state: &GatewayState,
) -> Result<ClientRequest, HandshakeError> {
    let since = Instant::now();
    let mut pending = PendingSession { startup, settings, version_negotiated: false, since, bandwidth };
    if matches!(stream.socket(), Socket::Unix(_)) {
        return Ok(ClientRequest::Session(stream, pending));
    }
    // Negotiate the protocol version before anything else, as a PostgreSQL server does.
    let negotiation = negotiation(&pending.startup.params, supported_protocols(state).newest);
    pending.version_negotiated = negotiation.is_some();
    stream.write_all(&negotiation.unwrap_or_default()).await.map_err(|_| HandshakeError::Disconnected)?;
    let access = &state.access;
    let mut bytes = Vec::new();
    let admitted = match access.verifier(stream.is_encrypted()) {
        None => ask_for_password(&mut stream, &mut bytes, access).await,
        Some(verifier) => authenticate_with_scram(&mut stream, &mut bytes, verifier).await,
    };
    let error = match admitted {
        Ok(true) => {
            return Ok(ClientRequest::Session(stream.with_unread(bytes), pending));
        }
        Ok(false) => ErrorResponse::fatal("28P01", "password authentication failed").hint(
            "The password is in the URL that pgfresh printed, and in PGPASSWORD of the command that it runs.",
        ),
        Err(Some(error)) => error,
        Err(None) => return Err(HandshakeError::Disconnected),
    };
    Err(refused(stream, &error))
}

/// Asks for the password and returns true if it is the secret. Any bytes sent after the password remain in `bytes`.
///
/// # Errors
///
/// Returns an error message for the client if it violates the protocol, or `None` if the client has disconnected.
async fn ask_for_password(
    stream: &mut Stream,
    bytes: &mut Vec<u8>,
    access: &Access,
) -> Result<bool, Option<ErrorResponse>> {
    stream.write_all(PASSWORD_REQUEST).await.map_err(|_| None)?;
    Ok(access.is_secret(&read_response(stream, bytes, password).await?))
}

/// Authenticates with SCRAM instead of a password, so that the secret is never sent. See [`ask_for_password`].
async fn authenticate_with_scram(
    stream: &mut Stream,
    bytes: &mut Vec<u8>,
    verifier: &Verifier,
) -> Result<bool, Option<ErrorResponse>> {
    let certificate = stream.tls().and_then(TlsSocket::certificate_digest).map(<[u8]>::to_vec);
    stream.write_all(&sasl_request(certificate.is_some())).await.map_err(|_| None)?;
    let first = read_response(stream, bytes, sasl_response).await?;
    let nonce = Access::random_secret().map_err(|_| None)?;
    let (exchange, ours) = verifier.begin(&first, &nonce, certificate.as_deref())?;
    stream.write_all(&ours).await.map_err(|_| None)?;
    let Some(proof) = exchange.finish(&read_response(stream, bytes, sasl_response).await?)? else {
        return Ok(false);
    };
    stream.write_all(&proof).await.map_err(|_| None)?;
    Ok(true)
}

/// Reads the client's next message and extracts its content with `read`.
async fn read_response(
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
