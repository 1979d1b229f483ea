//! HTTP on the gateway's port: leases as JSON, integresql's REST API, metrics, and a live page.
//!
//! Makes a [`Control`], one for each gateway, and serves with it the requests of any number of connections. It keeps
//! nothing but what integresql's clients were told; all else is asked of [`Leases`].
//!
//! ```text
//! connection ── guard: host, origin, secret ── route ─┬─ control ───── Databases
//!                                                     ├─ integresql ── Databases
//!                                                     └─ status: JSON, events, metrics; page
//! ```

mod answer;
mod control;
mod guard;
mod holders;
mod integresql;
mod metrics;
mod page;
mod request;
mod route;
mod shelf;
mod status;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
use self::shelf::Shelf;
use crate::stream::Socket;
use crate::tap::Taps;
use crate::{Access, Failed, Stream};

/// How long a client may take for the head of a request, the wait for it included, and again for its body.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that the head of a request may have.
const LONGEST_HEAD: usize = 64 << 10;

/// What every response says: nothing here is for caches, other pages or guessing.
const HEADERS: [(HeaderName, HeaderValue); 4] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
];

/// The HTTP side of one gateway.
#[derive(Debug)]
pub(crate) struct Control {
    leases: Leases,
    access: Arc<Access>,
    /// What integresql's clients have made.
    shelf: Shelf,
    holders: Holders,
    /// What becomes of the databases of failed tests.
    failing: Failed,
    taps: Arc<Taps>,
    since: Instant,
}

impl Control {
    pub(crate) fn new(leases: Leases, access: Arc<Access>, failing: Failed, taps: Arc<Taps>) -> Self {
        Self {
            leases,
            failing,
            taps,
            access,
            shelf: Shelf::default(),
            holders: Holders::default(),
            since: Instant::now(),
        }
    }
}

/// Serves the requests that come over one connection, until either end has had enough.
pub(crate) async fn serve(stream: Stream, control: Arc<Control>) {
    let ends = ends(&stream);
    let service = service_fn(move |request| {
        let control = Arc::clone(&control);
        async move { Ok::<_, Infallible>(handle(&control, request, ends).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(LONGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    // The client went away, or sent no HTTP: hyper has told it what it could be told.
    let _ = connection.await;
}

fn ends(stream: &Stream) -> Option<Ends> {
    match stream.socket() {
        Socket::Tcp(stream) => {
            Some(Ends { local: stream.local_addr().ok()?, remote: stream.peer_addr().ok()? })
        }
        Socket::Unix(_) => None,
    }
}

async fn handle(control: &Arc<Control>, request: Request<Incoming>, ends: Option<Ends>) -> Response<Body> {
    let plain = route::is_integresql(guard::split(request.uri().path()).1);
    let answer = answer(control, request, ends).await;
    let mut response = answer.unwrap_or_else(|problem| problem.response(plain));
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, value);
    }
    response
}

async fn answer(
    control: &Arc<Control>,
    request: Request<Incoming>,
    ends: Option<Ends>,
) -> Result<Response<Body>, Problem> {
    let (parts, body) = request.into_parts();
    guard::admit(&parts, &control.access, ends)?;
    let route = route::find(&parts.method, guard::split(parts.uri.path()).1)?;
    match route {
        Route::Page => Ok(page::page(&control.access)),
        Route::Status => status::once(control).await,
        Route::Events => Ok(status::events(control)),
        Route::Metrics => metrics::metrics(control).await,
        Route::Hold => Ok(holders::hold(control)),
        Route::Lease => control::lease(control, &request::read(body).await?).await,
        Route::Look(name) => control::look(control, name).await,
        Route::Release(name) => control::release(control, name, control::has_failed(&parts)?).await,
        Route::Act(name, action) => control::act(control, name, action).await,
        Route::Reset(name) => control::reset(control, name, &request::read(body).await?).await,
        Route::Snapshot(name) => control::snapshot(control, name, &request::read(body).await?).await,
        Route::Integresql(call) => integresql::answer(control, call, &request::read(body).await?, ends).await,
    }
}
