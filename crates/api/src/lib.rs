//! Serves the HTTP API on the gateway's port, for clients that need more than a connection string can express.
//!
//! The API offers leases (rights to use a database under a name) as JSON, integresql's REST API, metrics, and a live
//! page. Each gateway has one [`Api`], which serves any number of connections. Only two things are stored here: the
//! templates and numbers of integresql's clients, and the holders (clients that lose their leases when they
//! disconnect). All other state is in [`Leases`].
//!
//! ```text
//! connection ── guard: host, origin, secret ── routes ┬─ leases ────── Leases
//!                                                     ├─ integresql ── Leases
//!                                                     └─ status: JSON, events, metrics; page
//! ```

mod blocking;
mod compare;
mod deliver;
mod faults;
mod guard;
mod holders;
mod integresql;
mod invitation;
mod json;
mod leases;
mod measured;
mod metrics;
mod page;
mod path;
mod problem;
mod render;
mod replica;
mod routes;
mod status;
mod templates;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::{Extension, Router};
use gateway::{
    Access, DisconnectWatcher, EventSource, Faults, HttpService, StatementHistory, StatementRecorder, Stream,
};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use lease::Leases;
use tokio::time::sleep;

use self::guard::Ends;
use self::holders::Holders;
pub use self::invitation::invite;
use self::templates::IntegresqlTemplates;

/// Timeout for a request's head, including the time before its first byte, and for its body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a request's head and of its body, in bytes. Requests contain names, not data.
const LONGEST_HEAD: usize = 64 << 10;
const LONGEST_BODY: usize = 1 << 20;

/// How long a client that has closed its writing side can take to disconnect, before it counts as one that only stopped
/// sending. On a busy machine, the client's thread might lose the processor while it closes its socket.
const CLOSING: Duration = Duration::from_millis(50);

/// Determines what happens to the database of a failed test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Release the database, as after a successful test.
    #[default]
    Release,
    /// Keep the database and list it in the [`StatementHistory`].
    Keep,
    /// Keep the database and send its URL to the client that released it. This makes sense if the server outlives the
    /// test run.
    KeepAndTell,
}

/// The HTTP API of one gateway.
#[derive(Debug)]
pub struct Api {
    router: Router,
}

/// State shared by all routes.
#[derive(Debug)]
struct ApiState {
    leases: Leases,
    access: Arc<Access>,
    /// Templates of integresql's clients.
    templates: IntegresqlTemplates,
    holders: Holders,
    on_failure: OnFailure,
    /// Statements and kept databases. `None` if pgfresh doesn't keep the databases of failed tests.
    history: Option<Arc<StatementHistory>>,
    /// Event log that the API writes the ends of tests to.
    events: EventSource,
    /// Recorder for the statements of leases.
    recorder: Arc<StatementRecorder>,
    /// Faults of leases.
    faults: Arc<Faults>,
    since: Instant,
}

impl ApiState {
    /// Forgets kept databases that no longer exist and returns the history.
    fn history(&self) -> Option<&StatementHistory> {
        let history = self.history.as_deref()?;
        history.remove_missing_databases(&self.leases);
        Some(history)
    }
}

/// Gives handlers access to the shared state.
type SharedState = State<Arc<ApiState>>;

impl Api {
    /// Creates the API for a gateway with the secret and addresses in `access`.
    #[must_use]
    pub fn new(
        leases: Leases,
        access: Arc<Access>,
        on_failure: OnFailure,
        history: Option<Arc<StatementHistory>>,
        events: EventSource,
        recorder: Arc<StatementRecorder>,
        faults: Arc<Faults>,
    ) -> Self {
        leases.issue(templates::is_ours);
        let state = ApiState {
            leases,
            access: Arc::clone(&access),
            templates: IntegresqlTemplates::default(),
            holders: Holders::default(),
            on_failure,
            history,
            events,
            recorder,
            faults,
            since: Instant::now(),
        };
        Self { router: routes::guarded(routes::table().with_state(Arc::new(state)), access) }
    }
}

impl HttpService for Api {
    fn serve(self: Arc<Self>, stream: Stream) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let encrypted = stream.is_encrypted();
        let ends = stream.tcp_ends().map(|(local, remote)| Ends { local, remote, encrypted });
        let service = TowerToHyperService::new(self.router.clone().layer(Extension(ends)));
        let departure = stream.disconnect_watcher();
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // Don't close the connection when the client stops sending: `departure` is better at telling whether the
            // client is gone.
            .half_close(true)
            .header_read_timeout(REQUEST_TIMEOUT)
            .max_buf_size(LONGEST_HEAD)
            .serve_connection(TokioIo::new(stream), service);
        Box::pin(async move {
            let departure = match departure {
                Ok(departure) => departure,
                Err(error) => return tracing::debug!(%error, "could not watch an HTTP connection"),
            };
            // The client didn't send valid HTTP. hyper has sent an error response if possible.
            if let Some(Err(error)) = until_gone(connection, &departure).await {
                tracing::debug!(%error, "an HTTP connection ended early");
            }
        })
    }
}

/// Runs `connection` until it closes or the client disconnects, which drops the current request. Checking for this
/// before each response prevents leases that no client knows about.
async fn until_gone<T>(connection: impl Future<Output = T>, departure: &DisconnectWatcher) -> Option<T> {
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        () = departure.writing_side_closed() => {}
        ended = &mut connection => return Some(ended),
    }
    // While the client is closing its socket, the socket still looks open for a moment.
    tokio::select! {
        () = departure.disconnected() => return None,
        () = sleep(CLOSING) => {}
    }
    tokio::select! {
        biased;
        () = departure.disconnected() => None,
        ended = connection => Some(ended),
    }
}
