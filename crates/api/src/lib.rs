//! HTTP on the gateway's port: leases as JSON, integresql's REST API, metrics, and a live page.
//!
//! Makes an [`Api`], one for each gateway, and serves with it the requests of any number of connections. It keeps nothing
//! but what integresql's clients were told; all else is asked of [`Leases`].
//!
//! ```text
//! connection ── guard: host, origin, secret ── routes ┬─ leases ────── Leases
//!                                                     ├─ integresql ── Leases
//!                                                     └─ status: JSON, events, metrics; page
//! ```

mod blocking;
mod compare;
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
mod routes;
mod status;
mod templates;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::{Extension, Router};
use gateway::{Access, Departure, EventSource, HttpService, StatementHistory, StatementRecorder, Stream};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use lease::Leases;
use tokio::time::sleep;

use self::guard::Ends;
use self::holders::Holders;
pub use self::invitation::invite;
use self::templates::IntegresqlTemplates;

/// How long a client may take for the head of a request, the wait for it included, and again for its body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that the head of a request may have, and its body: names, not data.
const LONGEST_HEAD: usize = 64 << 10;
const LONGEST_BODY: usize = 1 << 20;

/// How long a client that says nothing more may be about to be gone: on a busy machine its thread may lose the processor while it
/// closes the connection.
const CLOSING: Duration = Duration::from_millis(50);

/// What becomes of the database of a failed test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The same as of all others.
    #[default]
    Release,
    /// It stays, and the [`StatementHistory`] names it.
    Keep,
    /// The same, and who released it hears where it is: this server is going to last.
    KeepAndTell,
}

/// The HTTP side of one gateway.
#[derive(Debug)]
pub struct Api {
    router: Router,
}

/// What its routes share.
#[derive(Debug)]
struct ApiState {
    leases: Leases,
    access: Arc<Access>,
    /// What integresql's clients have made.
    templates: IntegresqlTemplates,
    holders: Holders,
    on_failure: OnFailure,
    /// There where databases of failed tests are kept.
    history: Option<Arc<StatementHistory>>,
    /// Hears of the ends of tests.
    events: EventSource,
    /// What leases have run.
    recorder: Arc<StatementRecorder>,
    since: Instant,
}

impl ApiState {
    /// What is known of databases of failed tests that are still there.
    fn history(&self) -> Option<&StatementHistory> {
        let history = self.history.as_deref()?;
        history.forget_gone(&self.leases);
        Some(history)
    }
}

/// How handlers get at it.
type SharedState = State<Arc<ApiState>>;

impl Api {
    /// One for the gateway whose addresses `access` has.
    #[must_use]
    pub fn new(
        leases: Leases,
        access: Arc<Access>,
        on_failure: OnFailure,
        history: Option<Arc<StatementHistory>>,
        events: EventSource,
        recorder: Arc<StatementRecorder>,
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
        let departure = stream.departure();
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // Whether a client that says nothing more is gone, `departure` knows better.
            .half_close(true)
            .header_read_timeout(REQUEST_TIMEOUT)
            .max_buf_size(LONGEST_HEAD)
            .serve_connection(TokioIo::new(stream), service);
        Box::pin(async move {
            let departure = match departure {
                Ok(departure) => departure,
                Err(error) => return tracing::debug!(%error, "could not watch an HTTP connection"),
            };
            // The client sent no HTTP: hyper has told it what it could be told.
            if let Some(Err(error)) = until_gone(connection, &departure).await {
                tracing::debug!(%error, "an HTTP connection ended early");
            }
        })
    }
}

/// Runs `connection` to its end, unless the client is gone before: what it has asked for ends with it. That is looked at before
/// each answer, or a lease that no client knows of would stay.
async fn until_gone<T>(connection: impl Future<Output = T>, departure: &Departure) -> Option<T> {
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        () = departure.silence() => {}
        ended = &mut connection => return Some(ended),
    }
    // A socket that is being closed seems to be open for a moment longer.
    tokio::select! {
        () = departure.end() => return None,
        () = sleep(CLOSING) => {}
    }
    tokio::select! {
        biased;
        () = departure.end() => None,
        ended = connection => Some(ended),
    }
}
