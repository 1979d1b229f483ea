//! HTTP on the gateway's port: leases as JSON, integresql's REST API, metrics, and a live page.
//!
//! Makes an [`Api`], one for each gateway, and serves with it the requests of any number of connections. It keeps nothing
//! but what integresql's clients were told; all else is asked of [`Leases`].
//!
//! ```text
//! connection ── guard: host, origin, secret ── route ─┬─ leases ────── Leases
//!                                                     ├─ integresql ── Leases
//!                                                     └─ status: JSON, events, metrics; page
//! ```

mod answer;
mod blocking;
mod guard;
mod holders;
mod integresql;
mod leases;
mod metrics;
mod page;
mod path;
mod request;
mod route;
mod status;
mod templates;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway::{Access, HttpService, StatementHistory, Stream};
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use lease::Leases;

use self::answer::{Body, Problem};
use self::guard::Ends;
use self::holders::Holders;
use self::route::Route;
use self::templates::IntegresqlTemplates;

/// How long a client may take for the head of a request, the wait for it included, and again for its body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that the head of a request may have.
const LONGEST_HEAD: usize = 64 << 10;

/// What every response says: nothing here is for caches, other pages or guessing.
const HEADERS: [(HeaderName, HeaderValue); 4] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
];

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
    leases: Leases,
    access: Arc<Access>,
    /// What integresql's clients have made.
    templates: IntegresqlTemplates,
    holders: Holders,
    on_failure: OnFailure,
    /// There where databases of failed tests are kept.
    history: Option<Arc<StatementHistory>>,
    since: Instant,
}

impl Api {
    /// One for the gateway whose addresses `access` has.
    #[must_use]
    pub fn new(
        leases: Leases,
        access: Arc<Access>,
        on_failure: OnFailure,
        history: Option<Arc<StatementHistory>>,
    ) -> Self {
        Self {
            leases,
            access,
            templates: IntegresqlTemplates::default(),
            holders: Holders::default(),
            on_failure,
            history,
            since: Instant::now(),
        }
    }
}

impl HttpService for Api {
    fn serve(self: Arc<Self>, stream: Stream) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(serve(stream, self))
    }
}

/// Serves the requests that come over one connection, until either end has had enough.
async fn serve(stream: Stream, api: Arc<Api>) {
    let ends = stream.tcp_ends().map(|(local, remote)| Ends { local, remote });
    let service = service_fn(move |request| {
        let api = Arc::clone(&api);
        async move { Ok::<_, Infallible>(handle(&api, request, ends).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(LONGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    // The client went away, or sent no HTTP: hyper has told it what it could be told.
    let _ = connection.await;
}

async fn handle(api: &Arc<Api>, request: Request<Incoming>, ends: Option<Ends>) -> Response<Body> {
    let plain = path::is_integresql(guard::split(request.uri().path()).1);
    let answer = answer(api, request, ends).await;
    let mut response = answer.unwrap_or_else(|problem| problem.response(plain));
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, value);
    }
    response
}

async fn answer(
    api: &Arc<Api>,
    request: Request<Incoming>,
    ends: Option<Ends>,
) -> Result<Response<Body>, Problem> {
    let (parts, body) = request.into_parts();
    guard::admit(&parts, &api.access, ends)?;
    let route = route::find(&parts.method, guard::split(parts.uri.path()).1)?;
    match route {
        Route::Page => Ok(page::page(&api.access)),
        Route::Status => status::once(api).await,
        Route::Events => Ok(status::events(api)),
        Route::Metrics => metrics::metrics(api).await,
        Route::Hold => Ok(holders::hold(api)),
        Route::Lease => leases::lease(api, &request::read(body).await?).await,
        Route::Look(name) => leases::look(api, name).await,
        Route::Release(name) => leases::release(api, name, leases::has_failed(&parts)?).await,
        Route::Act(name, action) => leases::act(api, name, action).await,
        Route::Reset(name) => leases::reset(api, name, &request::read(body).await?).await,
        Route::Snapshot(name) => leases::snapshot(api, name, &request::read(body).await?).await,
        Route::Integresql(call) => integresql::answer(api, call, &request::read(body).await?, ends).await,
    }
}
