//! Leases over HTTP: made, ended, reset, and kept as templates.

use gateway::{ExecutedStatement, KeptDatabase};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use lease::{Isolation, LeaseError, LeaseStatus, ServerAction};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::Api;
use crate::OnFailure;
use crate::answer::{Body, Problem, json, no_content};
use crate::blocking::blocking;
use crate::path;
use crate::request::parse;

/// How a database is wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaseRequest {
    template: Option<String>,
    name: Option<String>,
    isolation: Option<String>,
    /// Who has it, if it shall end with them: see `GET /v1/hold`.
    holder: Option<String>,
}

/// A leased database.
#[derive(Debug, Serialize)]
struct Leased {
    name: String,
    url: String,
    jdbc_url: String,
    socket_url: String,
    template: String,
}

/// A database, and what is known of it; nothing that whoever may only look could get in with.
#[derive(Debug, Serialize)]
struct Look {
    name: String,
    /// These while it is leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<f64>,
    /// What it has run last, where databases of failed tests are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    statements: Option<Vec<ExecutedStatement>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reset {
    #[serde(default)]
    close_sessions: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Snapshot {
    template: String,
    #[serde(default)]
    close_sessions: bool,
}

/// `POST /v1/databases`
pub(crate) async fn lease(api: &Api, body: &[u8]) -> Result<Response<Body>, Problem> {
    let LeaseRequest { template, name, isolation, holder } = parse(body)?;
    let isolation = match isolation {
        None => api.leases.default_isolation(),
        Some(word) => word.parse().map_err(|why: String| no_isolation(&word, &why))?,
    };
    let (name, template) = leased(api, isolation, name, template).await?;
    if let Some(holder) = holder {
        let noted = api.holders.note(&holder, &name);
        if noted.is_err() {
            let name = name.clone();
            blocking(&api.leases, move |leases| leases.release(&name)).await?;
        }
        noted?;
    }
    let access = &api.access;
    let leased = Leased {
        url: access.address_of(&name).url(),
        jdbc_url: access.address_of(&name).jdbc_url(),
        socket_url: access.socket_address_of(&name, api.leases.directory(&name).as_deref()).url(),
        template,
        name,
    };
    Ok(json(StatusCode::CREATED, &leased))
}

fn no_isolation(word: &str, why: &str) -> Problem {
    let what = format!("cannot lease with isolation \"{word}\": {why}");
    Problem::new(StatusCode::BAD_REQUEST, "22023", what).hint("Leave it out for the server's own.")
}

/// Leases a database; returns its name and its template's.
///
/// If the request is dropped meanwhile, so is a lease whose name nobody will ever learn.
async fn leased(
    api: &Api,
    isolation: Isolation,
    name: Option<String>,
    template: Option<String>,
) -> Result<(String, String), Problem> {
    let (answer, answered) = oneshot::channel();
    let leases = api.leases.clone();
    spawn_blocking(move || {
        let made = leases.lease(isolation, name.as_deref(), template.as_deref());
        if let (Err(Ok((made_up, _))), None) = (answer.send(made), name) {
            let _ = leases.release(&made_up);
        }
    });
    Ok(answered.await.map_err(|_| Problem::defect())??)
}

/// The lease of that name, if it is one.
async fn find(api: &Api, name: &str) -> Result<Option<LeaseStatus>, Problem> {
    let status = crate::status::look(api).await?;
    Ok(status.leases.into_iter().find(|lease| lease.database == name))
}

/// `GET /v1/databases/NAME`
pub(crate) async fn look(api: &Api, name: String) -> Result<Response<Body>, Problem> {
    let lease = find(api, &name).await?;
    let recent = api.history.as_ref();
    let kept = recent.and_then(|recent| recent.kept().into_iter().find(|kept| kept.name == name));
    let statements = match (kept, &lease) {
        (Some(kept), _) => Some(kept.statements),
        (None, Some(lease)) => recent.map(|recent| recent.of(&name, lease.age)),
        (None, None) => return Err(LeaseError::NotLeased(name).into()),
    };
    let seen = Look {
        name,
        sessions: lease.as_ref().map(|lease| lease.sessions),
        age_seconds: lease.as_ref().map(|lease| lease.age.as_secs_f64()),
        template: lease.map(|lease| lease.template),
        statements,
    };
    Ok(json(StatusCode::OK, &seen))
}

/// Whether the holder says that its test failed: `?failed=true`.
pub(crate) fn has_failed(parts: &Parts) -> Result<bool, Problem> {
    match path::query(parts, "failed").as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => {
            let what = format!("invalid value for \"failed\": \"{other}\"");
            Err(Problem::new(StatusCode::BAD_REQUEST, "22023", what).hint("It is true or false."))
        }
    }
}

/// `DELETE /v1/databases/NAME`
pub(crate) async fn release(api: &Api, name: String, failed: bool) -> Result<Response<Body>, Problem> {
    // What is in a transaction goes with it, and what is in a server of its own with that.
    let of_itself = !matches!(api.leases.isolation(&name), None | Some(Isolation::Clone));
    if failed && api.on_failure != OnFailure::Release && !of_itself {
        api.holders.forget(&name);
        let age = find(api, &name).await?.map(|lease| lease.age);
        let recent = api.history.as_ref();
        let statements = recent.zip(age).map_or_else(Vec::new, |(recent, age)| recent.of(&name, age));
        let kept = blocking(&api.leases, move |leases| leases.keep(&name)).await?;
        if let Some(recent) = recent {
            recent.keep(KeptDatabase { name: kept.clone(), statements });
        }
        return Ok(match api.on_failure {
            OnFailure::KeepAndTell => {
                json(StatusCode::OK, &serde_json::json!({ "url": api.access.address_of(&kept).url() }))
            }
            OnFailure::Keep | OnFailure::Release => no_content(),
        });
    }
    blocking(&api.leases, move |leases| leases.release(&name)).await?;
    Ok(no_content())
}

/// `POST /v1/databases/NAME/reset`
pub(crate) async fn reset(api: &Api, name: String, body: &[u8]) -> Result<Response<Body>, Problem> {
    let Reset { close_sessions } = parse(body)?;
    let resetting = name.clone();
    blocking(&api.leases, move |leases| leases.reset(&resetting, close_sessions)).await?;
    if let Some(recent) = &api.history {
        recent.forget(&name);
    }
    Ok(no_content())
}

/// `POST /v1/databases/NAME/restart`, `stop` and `crash`
pub(crate) async fn act(api: &Api, name: String, action: ServerAction) -> Result<Response<Body>, Problem> {
    blocking(&api.leases, move |leases| leases.act(&name, action)).await?;
    Ok(no_content())
}

/// `POST /v1/databases/NAME/snapshot`
pub(crate) async fn snapshot(api: &Api, name: String, body: &[u8]) -> Result<Response<Body>, Problem> {
    let made: Snapshot = parse(body)?;
    let template = made.template.clone();
    blocking(&api.leases, move |leases| leases.snapshot(&name, &template, made.close_sessions)).await?;
    Ok(json(StatusCode::CREATED, &serde_json::json!({ "template": made.template })))
}
