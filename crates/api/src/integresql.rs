//! Implements integresql's REST API (version 1). Existing integresql clients work with pgfresh unchanged.
//!
//! A client fills a template itself and then receives numbered test databases.
//!
//! ```text
//! POST   /templates {hash}              lease an empty database, to be filled            200, 423 if there is one
//! PUT    /templates/HASH                snapshot it as a template, end the lease         204, 404
//! GET    /templates/HASH/tests          wait for the snapshot; lease a numbered copy     200, 404, 410 if discarded
//! DELETE /templates/HASH/tests/ID       end that lease; the number is free               204, 404
//! DELETE /templates/HASH                forget the template, end its leases              204, 404
//! ```
//! pgfresh drops each returned database, regardless of what the client reports about its state. The next database with
//! this number is a new one.
//!
//! Source: `internal/api/templates/templates.go` of integresql 1.1.0, and its clients for Go, Node and Rust.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use contract::{
    ErrorCode, InitializeRequest, IntegresqlConfig, IntegresqlDatabase, IntegresqlResponse, Remedy,
};
use lease::{Isolation, LeaseError, Leases};
use server::SUPERUSER;
use tokio::time::timeout;

use crate::blocking::blocking;
use crate::deliver::deliver;
use crate::guard::Ends;
use crate::json::Json;
use crate::problem::Problem;
use crate::templates::{PREFIX, Phase, Template, no_template};
use crate::{ApiState, SharedState};

/// How long a test waits for another client to fill the template. Source: integresql's default.
const TEMPLATE_TIMEOUT: Duration = Duration::from_mins(1);
/// A template that contains only the contents of the server's own `template1`.
const EMPTY: &str = "template1";

/// Returns a response with a database's address. The address contains the host and port that the client itself used.
fn found(api: &ApiState, ends: Option<Ends>, hash: &str, name: &str, id: Option<usize>) -> Response {
    let address = ends.map_or(api.access.address(), |ends| ends.local);
    let config = IntegresqlConfig {
        host: address.ip().to_canonical().to_string(),
        port: address.port(),
        username: SUPERUSER.to_owned(),
        password: api.access.secret().to_owned(),
        database: name.to_owned(),
    };
    let database = IntegresqlDatabase { template_hash: hash.to_owned(), config };
    Json(IntegresqlResponse { id, database }).into_response()
}

/// `POST /templates`: leases an empty database, to be filled by the client.
pub(crate) async fn initialize(
    State(api): SharedState,
    Extension(ends): Extension<Option<Ends>>,
    Json(InitializeRequest { hash }): Json<InitializeRequest>,
) -> Result<Response, Problem> {
    if hash.is_empty() {
        return Err(Problem::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidValue, "hash is required"));
    }
    if hash.contains('\0') {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            ErrorCode::InvalidText,
            "hash contains a zero byte",
        ));
    }
    let template = api.templates.add(&hash).ok_or_else(|| {
        Problem::new(StatusCode::LOCKED, ErrorCode::InUse, "template is already initialized").hint(
            Remedy::TakeTests,
            "Request test databases: the requests wait until the template is finalized.",
        )
    })?;
    let empty = Empty { api, template, hash };
    let Empty { api, template, hash } = deliver(empty.lease(), Empty::give_up).await?;
    Ok(found(&api, ends, &hash, &template.building(), None))
}

/// The empty database of a new template, which the client must fill.
#[derive(Clone)]
struct Empty {
    api: Arc<ApiState>,
    template: Arc<Template>,
    hash: String,
}

impl Empty {
    /// Leases the database. If this fails, discards the template.
    async fn lease(self) -> Result<Self, Problem> {
        match self.try_lease().await {
            Ok(()) => Ok(self),
            Err(problem) => {
                self.give_up().await;
                Err(problem)
            }
        }
    }

    async fn try_lease(&self) -> Result<(), Problem> {
        let name = self.template.building();
        let lease =
            move |leases: &Leases| leases.lease(Isolation::Clone, Some(&name), Some(EMPTY)).map(|_| ());
        blocking(&self.api.leases, lease).await?;
        unless_discarded(&self.api, &self.template, self.template.building()).await
    }

    /// Discards a template that no client will fill, unless another client has already done so.
    async fn give_up(self) {
        let is_discarded = *self.template.phase.borrow() == Phase::Discarded;
        if !is_discarded {
            undone(discard(State(self.api), Path(self.hash)).await);
        }
    }
}

/// Ends the new lease and returns an error if a client has discarded the template in the meantime.
async fn unless_discarded(api: &ApiState, template: &Template, name: String) -> Result<(), Problem> {
    let _changing = template.changing.lock().await;
    if *template.phase.borrow() != Phase::Discarded {
        return Ok(());
    }
    blocking(&api.leases, move |leases| end(leases, &name)).await?;
    Err(discarded())
}

fn discarded() -> Problem {
    Problem::new(StatusCode::GONE, ErrorCode::NotFound, "template was just discarded")
}

/// Logs an error if a disconnected client's request couldn't be reverted. It isn't an error if another client has
/// already done so.
fn undone(result: Result<StatusCode, Problem>) {
    // If the server has shut down, there is nothing left to undo.
    if let Err(problem) = result.or_else(unless_gone).or_else(Problem::unless_closed) {
        tracing::warn!(?problem, "could not undo an unfinished request");
    }
}

/// Treats a missing template or database as a successful removal.
fn unless_gone(problem: Problem) -> Result<StatusCode, Problem> {
    if problem.status == StatusCode::NOT_FOUND { Ok(StatusCode::NO_CONTENT) } else { Err(problem) }
}

/// `PUT /templates/HASH`: makes a template from the database filled by the client.
pub(crate) async fn finalize(
    State(api): SharedState,
    Path(hash): Path<String>,
) -> Result<StatusCode, Problem> {
    let template = api.templates.get(&hash)?;
    let _changing = template.changing.lock().await;
    match *template.phase.borrow() {
        Phase::Filling => {}
        Phase::Ready => return Ok(StatusCode::NO_CONTENT),
        Phase::Discarded => return Err(no_template()),
    }
    let (from, to) = (template.building(), template.name.clone());
    blocking(&api.leases, move |leases| leases.snapshot(&from, &to, true)).await?;
    // The template is ready even if its source database can't be released.
    template.phase.send_replace(Phase::Ready);
    let from = template.building();
    blocking(&api.leases, move |leases| end(leases, &from)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /templates/HASH/tests`: waits until the template and a copy are ready, and leases the copy.
pub(crate) async fn take(
    State(api): SharedState,
    Extension(ends): Extension<Option<Ends>>,
    Path(hash): Path<String>,
) -> Result<Response, Problem> {
    let template = api.templates.get(&hash)?;
    let mut phase = template.phase.subscribe();
    let phase = timeout(TEMPLATE_TIMEOUT, phase.wait_for(|phase| *phase != Phase::Filling)).await;
    match phase.map(|phase| phase.map(|phase| *phase)) {
        Ok(Ok(Phase::Ready)) => {}
        Ok(_) => return Err(discarded()),
        Err(_) => {
            let message = format!("template was not finalized within {} s", TEMPLATE_TIMEOUT.as_secs());
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::WrongState, message);
            return Err(problem.hint(
                Remedy::FinalizeTemplate,
                "The client that initialized the template must finalize or discard it.",
            ));
        }
    }
    let returned = (Arc::clone(&api), Arc::clone(&template));
    let owner = Arc::clone(&api);
    let work = async move {
        let of = Arc::clone(&template);
        let id = blocking(&owner.leases, move |leases| lease_test(leases, &of)).await?;
        unless_discarded(&owner, &template, template.test(id)).await?;
        Ok((id, template.test(id)))
    };
    // If the client has disconnected, it will never return the database.
    let undo = move |(id, _name)| async move {
        let (api, template) = returned;
        undone(take_back(&api, &template, id).await);
    };
    let (id, name) = deliver(work, undo).await?;
    Ok(found(&api, ends, &hash, &name, Some(id)))
}

/// `DELETE /templates/HASH/tests/ID`, or a `POST` to the same path with `unlock` or `recreate` appended.
pub(crate) async fn give_back(
    State(api): SharedState,
    Path((hash, id)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let id = id.parse().map_err(|_| {
        Problem::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidValue, "invalid test database ID")
    })?;
    take_back(&api, &*api.templates.get(&hash)?, id).await
}

/// Ends the lease of a test database.
async fn take_back(api: &ApiState, template: &Template, id: usize) -> Result<StatusCode, Problem> {
    if !template.take_back(id) {
        return Err(Problem::new(StatusCode::NOT_FOUND, ErrorCode::NotFound, "test database not found"));
    }
    let name = template.test(id);
    let ended = blocking(&api.leases, move |leases| end(leases, &name)).await;
    match &ended {
        Ok(()) => template.free(id),
        Err(_) => template.hand_out(id),
    }
    ended.map(|()| StatusCode::NO_CONTENT)
}

/// `DELETE /templates/HASH`: discards a template and ends all its leases.
pub(crate) async fn discard(
    State(api): SharedState,
    Path(hash): Path<String>,
) -> Result<StatusCode, Problem> {
    let template = api.templates.remove(&hash)?;
    let _changing = template.changing.lock().await;
    let (phase, template) = (template.phase.send_replace(Phase::Discarded), Arc::clone(&template));
    blocking(&api.leases, move |leases| {
        if phase == Phase::Filling {
            return end(leases, &template.building());
        }
        for id in template.take_all() {
            end(leases, &template.test(id))?;
        }
        leases.remove_template(&template.name)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /admin/templates`: discards all templates.
pub(crate) async fn discard_all(State(api): SharedState) -> Result<StatusCode, Problem> {
    for hash in api.templates.hashes() {
        // It makes no difference if another client has discarded the template in the meantime.
        discard(State(Arc::clone(&api)), Path(hash)).await.or_else(unless_gone)?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Leases a test database with the lowest free number and returns this number. If a user has already created a database
/// of this name with SQL, leaves the number reserved and tries the next one.
fn lease_test(leases: &Leases, template: &Template) -> Result<usize, LeaseError> {
    loop {
        let id = template.number();
        match lease(leases, &template.test(id), &template.name) {
            Ok(_) => {
                template.hand_out(id);
                return Ok(id);
            }
            Err(LeaseError::Leased(_)) => {}
            Err(error) => {
                template.free(id);
                return Err(error);
            }
        }
    }
}

/// Leases a test database. If the pool is full, ends the oldest lease without sessions first, because most clients
/// never return their databases.
fn lease(leases: &Leases, name: &str, template: &str) -> Result<String, LeaseError> {
    let begin = || leases.lease(Isolation::Clone, Some(name), Some(template)).map(|(name, _)| name);
    match begin() {
        Err(full @ LeaseError::Full { .. }) => {
            let status = leases.status();
            let idle = status
                .leases
                .into_iter()
                .filter(|lease| lease.sessions == 0 && lease.template.starts_with(PREFIX));
            let oldest = idle.max_by_key(|lease| lease.age).ok_or(full)?;
            end(leases, &oldest.database)?;
            begin()
        }
        other => other,
    }
}

/// Ends a lease unless it has already ended.
fn end(leases: &Leases, name: &str) -> Result<(), LeaseError> {
    match leases.release(name) {
        Err(LeaseError::NotLeased(_)) => Ok(()),
        other => other,
    }
}
