//! A connection from its first byte on: what it speaks, who it is, and the backend it gets.

use std::future::{pending, poll_fn};
use std::io;
use std::ops::{ControlFlow, Range};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lease::{
    Backend, ConnectRequest, Connected, Entered, Isolation, LeaseError, Leases, MaintenanceGuard,
    SessionGuard,
};
use pgwire::{
    Conversation, DISCARD_ALL, ErrorResponse, NOT_ENCRYPTED, PASSWORD_REQUEST, SessionTraces, Startup,
    StartupPacket, Verifier, negotiation, password, sasl_request, sasl_response, unsupported_protocol,
    without_negotiation,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::Access;
use crate::cancel::{Key, Keys};
use crate::connections::ConnectionCount;
use crate::forward::{End, Forward};
use crate::http::HttpService;
use crate::refusal;
use crate::request::SessionSettings;
use crate::rollback::{self, Gate, Machine};
use crate::stream::{Socket, Stream};
use crate::tap::Taps;
use crate::workers::Workers;

/// How long a client may take to say who it is. Source: `authentication_timeout`.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long a client may take to hear why it is refused.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long a backend may take to forget its session.
const FORGET: Duration = Duration::from_secs(5);
/// Databases from which others are dropped by SQL.
const MAINTENANCE: [&str; 2] = ["postgres", "template1"];

/// What all sessions share.
#[derive(Debug)]
pub(crate) struct GatewayState {
    pub(crate) leases: Leases,
    pub(crate) access: Arc<Access>,
    /// What serves HTTP, if anything does.
    pub(crate) http: Option<Arc<dyn HttpService>>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) connections: ConnectionCount,
    pub(crate) taps: Arc<Taps>,
}

/// True once the gateway closes.
pub(crate) type Closing = watch::Receiver<bool>;

/// What a client wants, once that is known.
enum Wanted {
    Http(Stream),
    Cancel(Stream, Vec<u8>),
    Session(Stream, Visitor),
}

/// A client that may have a session.
struct Visitor {
    startup: Startup,
    settings: SessionSettings,
    /// It has heard already which protocol is spoken: the server's greeting need not say so again.
    negotiated: bool,
    /// When it asked for one.
    since: Instant,
}

/// Why there is none.
enum Failed {
    /// The client is gone, or took too long.
    Gone,
    /// It is to hear this.
    Refused(Stream, Vec<u8>),
}

/// Serves one connection until it ends or the gateway closes.
pub(crate) async fn serve(socket: Socket, state: Arc<GatewayState>, mut closing: Closing) {
    let Ok(stream) = Stream::new(socket, Vec::new()) else { return };
    let until_closing = closing.clone();
    let serve = async {
        match timeout(PATIENCE, meet(stream, &state)).await.unwrap_or(Err(Failed::Gone)) {
            Ok(Wanted::Http(stream)) => {
                if let Some(http) = &state.http {
                    Arc::clone(http).serve(stream).await;
                }
            }
            // Whether it worked, the protocol has no words for; the end of the connection says that it is over.
            Ok(Wanted::Cancel(_stream, key)) => drop(state.keys.cancel(&key).await),
            Ok(Wanted::Session(stream, visitor)) => {
                let state = Arc::clone(&state);
                let (socket, unread) = stream.into_parts();
                // It has panicked if it is an error, and the client is gone with it.
                let handed = tokio::task::spawn_blocking(move || {
                    hand_over(&state, socket, unread, visitor, until_closing);
                });
                let _ = handed.await;
            }
            Err(Failed::Refused(stream, words)) => say_and_close(stream, &words).await,
            Err(Failed::Gone) => {}
        }
    };
    tokio::select! {
        () = serve => {}
        () = closed(&mut closing) => {}
    }
}

/// Waits until the gateway closes.
pub(crate) async fn closed(closing: &mut Closing) {
    if closing.wait_for(|closing| *closing).await.is_err() {
        pending::<()>().await;
    }
}

/// Learns what the client wants, and that it may.
async fn meet(mut stream: Stream, state: &GatewayState) -> Result<Wanted, Failed> {
    let mut bytes = Vec::with_capacity(512);
    loop {
        if read_some(&mut stream, &mut bytes).await.is_err() {
            return Err(Failed::Gone);
        }
        // The length of a packet is far less than 2²⁴; a method of HTTP is in capital letters.
        match bytes[0] {
            0 => {}
            b'A'..=b'Z' => return Ok(Wanted::Http(stream.preceded_by(bytes))),
            _ => return Err(refused(stream, &ErrorResponse::violation("neither PostgreSQL nor HTTP"))),
        }
        let (what, length) = match StartupPacket::read(&bytes) {
            Ok(Some(packet)) => packet,
            Ok(None) => continue,
            Err(error) => return Err(refused(stream, &error)),
        };
        match what {
            // Whatever came behind the request came unencrypted, perhaps from somebody else (CVE-2021-23222).
            StartupPacket::Encryption if bytes.len() > length => {
                let error = ErrorResponse::violation("received unencrypted data after encryption request");
                return Err(refused(stream, &error));
            }
            StartupPacket::Encryption => {
                bytes.clear();
                stream.write_all(NOT_ENCRYPTED).await.map_err(|_| Failed::Gone)?;
            }
            StartupPacket::Cancel(key) => return Ok(Wanted::Cancel(stream, key)),
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
                return Err(Failed::Refused(stream, words));
            }
        }
    }
}

fn refused(stream: Stream, error: &ErrorResponse) -> Failed {
    Failed::Refused(stream, error.to_bytes())
}

/// Asks for the secret, unless the client has come through a directory that is closed to others.
async fn authenticate(
    mut stream: Stream,
    startup: Startup,
    settings: SessionSettings,
    state: &GatewayState,
) -> Result<Wanted, Failed> {
    let mut visitor = Visitor { startup, settings, negotiated: false, since: Instant::now() };
    if matches!(stream.socket(), Socket::Unix(_)) {
        return Ok(Wanted::Session(stream, visitor));
    }
    // As a server would, before anything else.
    let negotiation = negotiation(&visitor.startup.params, state.leases.major());
    visitor.negotiated = negotiation.is_some();
    stream.write_all(&negotiation.unwrap_or_default()).await.map_err(|_| Failed::Gone)?;
    let access = &state.access;
    let mut bytes = Vec::new();
    let admitted = match access.verifier() {
        None => ask_for_password(&mut stream, &mut bytes, access).await,
        Some(verifier) => exchange(&mut stream, &mut bytes, verifier).await,
    };
    let error = match admitted {
        Ok(true) => {
            return Ok(Wanted::Session(stream.preceded_by(bytes), visitor));
        }
        Ok(false) => ErrorResponse::fatal("28P01", "password authentication failed")
            .hint("The password is in the URL that pgfresh has printed, and in PGPASSWORD of its command."),
        Err(Some(error)) => error,
        Err(None) => return Err(Failed::Gone),
    };
    Err(refused(stream, &error))
}

/// Whether the client knows the secret. What it says too early stays in `bytes`.
///
/// # Errors
/// What to tell a client that does not speak the protocol; nothing if it is gone.
async fn ask_for_password(
    stream: &mut Stream,
    bytes: &mut Vec<u8>,
    access: &Access,
) -> Result<bool, Option<ErrorResponse>> {
    stream.write_all(PASSWORD_REQUEST).await.map_err(|_| None)?;
    Ok(access.admits(&answer(stream, bytes, password).await?))
}

/// The same over a network: neither side says the secret.
async fn exchange(
    stream: &mut Stream,
    bytes: &mut Vec<u8>,
    verifier: &Verifier,
) -> Result<bool, Option<ErrorResponse>> {
    stream.write_all(&sasl_request()).await.map_err(|_| None)?;
    let first = answer(stream, bytes, sasl_response).await?;
    let nonce = Access::random_secret().map_err(|_| None)?;
    let (exchange, ours) = verifier.begin(&first, &nonce)?;
    stream.write_all(&ours).await.map_err(|_| None)?;
    let Some(proof) = exchange.finish(&answer(stream, bytes, sasl_response).await?)? else {
        return Ok(false);
    };
    stream.write_all(&proof).await.map_err(|_| None)?;
    Ok(true)
}

/// The content of the client's next message, as `read` finds it.
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

/// Gets a backend and passes the session on to a worker. Blocks for as long as that takes.
fn hand_over(state: &Arc<GatewayState>, socket: Socket, unread: Vec<u8>, visitor: Visitor, closing: Closing) {
    let Visitor { startup: Startup { params, database, replication }, settings, negotiated, since } = visitor;
    let told = |greeting| if negotiated { without_negotiation(greeting) } else { greeting };
    let maintenance = MAINTENANCE.contains(&database.as_str()).then(|| state.leases.maintenance_session());
    let request = ConnectRequest {
        database: &database,
        template: settings.template.as_deref(),
        isolation: settings.isolation,
        linger: settings.linger,
        reset: settings.reset,
        params: &params,
        client: socket.link(),
    };
    let entered = match enter(state, &request, replication) {
        Ok(entered) => entered,
        Err(error) => {
            state.workers.spawn(move || async move {
                if let Ok(stream) = Stream::new(socket, unread) {
                    say_and_close(stream, &refusal::words(error)).await;
                }
            });
            return;
        }
    };
    if let Some(history) = state.taps.history.as_ref().filter(|_| settings.reset) {
        history.forget(&database);
    }
    // Sessions that wait in databases are in the way of whoever drops these by SQL.
    if state.leases.has_maintenance_sessions() {
        state.leases.vacate();
    }
    let workers = Arc::clone(&state.workers);
    match entered {
        Entered::Plain(connected) => {
            let Connected { backend: Backend { stream, greeting }, guard } = connected;
            let observed = (Conversation::new(replication), SessionTraces::of_session(&greeting));
            let mut words = told(greeting.clone());
            let Ok(key) = state.keys.issue(&mut words, &stream, None) else { return };
            let tap = state.taps.tap(&database, key.as_ref(), since).filter(|_| !replication);
            let leases = state.leases.clone();
            let session = Session { state: Arc::clone(state), greeting, key, guard, maintenance };
            greet(&workers, socket, unread, stream, words, |client, server, words| async move {
                session.run(Forward::new(client, server, observed, leases, tap, words), closing).await;
            });
        }
        Entered::Transaction(mut lease) => {
            let Some((stream, greeting, transaction)) = lease.lend() else { return };
            let mut words = told(greeting);
            let gate = Arc::new(Gate::new());
            let machine = Machine::new(transaction, &words);
            let Ok(key) = state.keys.issue(&mut words, &stream, Some(Arc::clone(&gate))) else { return };
            let tap = state.taps.tap(&database, key.as_ref(), since);
            let session = rollback::Session { lease, key, gate, machine, tap };
            greet(&workers, socket, unread, stream, words, |client, server, words| {
                session.run(client, server, words, closing)
            });
        }
    }
}

/// Gets a session in the isolation that is asked for, or that the lease has, or else the server's.
fn enter(
    state: &GatewayState,
    request: &ConnectRequest<'_>,
    replication: bool,
) -> Result<Entered, LeaseError> {
    let leases = &state.leases;
    let isolation = request.isolation.or_else(|| leases.isolation(request.database));
    let rolls_back = isolation.unwrap_or_else(|| leases.default_isolation()) == Isolation::Rollback;
    if replication && rolls_back && !Leases::is_always_there(request.database) {
        return Err(LeaseError::Replication);
    }
    leases.connect(request)
}

/// Tells the client what the server said, and has a worker go on.
fn greet<F: Future<Output = ()> + Send + 'static>(
    workers: &Workers,
    client: Socket,
    unread: Vec<u8>,
    server: UnixStream,
    mut words: Vec<u8>,
    run: impl FnOnce(Stream, Stream, Vec<u8>) -> F + Send + 'static,
) {
    let Ok(server) = Socket::unix(server) else { return };
    // Straight from here: the client is already at its first query when the worker takes over.
    let sent = client.send(&words).unwrap_or(0);
    words.drain(..sent);
    workers.spawn(move || async move {
        if let (Ok(client), Ok(server)) = (Stream::new(client, unread), Stream::new(server, Vec::new())) {
            run(client, server, words).await;
        }
    });
}

/// What a session holds besides its two connections.
struct Session {
    state: Arc<GatewayState>,
    greeting: Vec<u8>,
    key: Option<Key>,
    guard: SessionGuard,
    maintenance: Option<MaintenanceGuard>,
}

impl Session {
    /// Forwards until one of the ends ends, or the gateway closes.
    async fn run(self, mut forward: Forward, mut closing: Closing) {
        let end = tokio::select! {
            biased;
            end = forward.run() => Some(end),
            () = closed(&mut closing) => None,
        };
        let Forward { client, server, conversation, .. } = forward;
        let words = match end {
            Some(End::Idle) => return self.give_back(server).await,
            Some(End::Client) => return,
            // A server that says nothing more has not chosen to go.
            Some(End::Server) | None if conversation.ends_in_error() => Vec::new(),
            // What is no protocol a server does not answer either.
            Some(End::Server) if conversation.is_malformed() => Vec::new(),
            Some(End::Server) => {
                ErrorResponse::fatal("57P02", "terminating connection because the server went away")
                    .hint("The log of the server says why.")
                    .to_bytes()
            }
            None => ErrorResponse::fatal("57P01", "terminating connection because pgfresh is shutting down")
                .to_bytes(),
        };
        drop((server, self));
        if conversation.may_interject() {
            say_and_close(client, &words).await;
        }
    }

    /// Has the backend forget the session, and gives it to whoever comes next.
    async fn give_back(self, mut server: Stream) {
        let Self { state, greeting, key, guard, maintenance: _maintenance } = self;
        // A signal may still be on its way, or somebody needs all backends to go.
        let wanted = || !state.leases.has_maintenance_sessions();
        if key.is_some_and(Key::withdraw) || !wanted() {
            return;
        }
        let forgotten = matches!(timeout(FORGET, forget(&mut server)).await, Ok(Ok(true)));
        if let (Socket::Unix(stream), unread) = server.into_parts()
            && forgotten
            && wanted()
            && unread.is_empty()
            && stream.set_nonblocking(false).is_ok()
        {
            guard.give_back(Backend { stream, greeting });
        }
    }
}

/// Whether the backend has forgotten all that its session told it, and is idle.
async fn forget(server: &mut Stream) -> io::Result<bool> {
    let mut conversation = Conversation::new(false);
    conversation.client_says(DISCARD_ALL, |_| ());
    server.write_all(DISCARD_ALL).await?;
    let mut chunk = [0; 1024];
    while !conversation.is_idle() {
        let count = server.read(&mut chunk).await?;
        conversation.server_says(&chunk[..count]);
        if count == 0 || conversation.has_failed() {
            return Ok(false);
        }
    }
    // Nothing may follow: it would be the first that the next client reads.
    let more = poll_fn(|context| match server.poll_receive(context, &mut chunk) {
        std::task::Poll::Pending => std::task::Poll::Ready(ControlFlow::Continue(())),
        std::task::Poll::Ready(_) => std::task::Poll::Ready(ControlFlow::Break(())),
    });
    Ok(more.await.is_continue())
}

/// Says the last words, and waits for a moment until the client has read them.
pub(crate) async fn say_and_close(mut stream: Stream, words: &[u8]) {
    let farewell = async {
        stream.write_all(words).await?;
        stream.shutdown().await?;
        // Closing with bytes unread would reset the connection, and what it has not read yet is lost to the client.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    let _ = timeout(FAREWELL, farewell).await;
}
