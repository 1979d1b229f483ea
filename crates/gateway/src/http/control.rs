//! Leases over HTTP: made, ended, reset, and kept as templates.

use std::sync::PoisonError;

use database::{DatabaseError, Databases};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use super::Control;
use super::answer::{Body, Problem, json, no_content};
use super::request::parse;
use crate::Failed;

/// How a database is wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
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
pub(super) async fn lease(control: &Control, body: &[u8]) -> Result<Response<Body>, Problem> {
    let Wish { template, name, isolation, holder } = parse(body)?;
    if let Some(isolation) = isolation.filter(|isolation| isolation != "clone") {
        return Err(no_isolation(&isolation));
    }
    let (name, template) = leased(&control.databases, name, template).await?;
    if let Some(holder) = holder {
        let noted = control.holders.note(&holder, &name);
        if noted.is_err() {
            let name = name.clone();
            blocking(&control.databases, move |databases| databases.release(&name)).await?;
        }
        noted?;
    }
    let access = &control.access;
    let leased = Leased {
        url: access.url(&name),
        jdbc_url: access.jdbc_url(&name),
        socket_url: access.socket_url(&name),
        template,
        name,
    };
    Ok(json(StatusCode::CREATED, &leased))
}

fn no_isolation(isolation: &str) -> Problem {
    let problem = |code, why| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            code,
            format!("cannot lease with isolation \"{isolation}\": {why}"),
        )
    };
    match isolation {
        "rollback" => problem("0A000", "it belongs to a session")
            .hint("Connect with options='-c pgfresh.isolation=rollback'."),
        _ => problem("22023", "there is none of that name").hint("Leave it out, or say \"clone\"."),
    }
}

/// Leases a database; returns its name and its template's.
///
/// If the request is dropped meanwhile, so is a lease whose name nobody will ever learn.
async fn leased(
    databases: &Databases,
    name: Option<String>,
    template: Option<String>,
) -> Result<(String, String), Problem> {
    let (answer, answered) = oneshot::channel();
    let databases = databases.clone();
    spawn_blocking(move || {
        let leased = databases.lease(name.as_deref(), template.as_deref()).map(|leased| {
            let leases = databases.status().leases;
            let found = leases.into_iter().find(|lease| lease.database == leased);
            (leased, found.map(|lease| lease.template).or(template).unwrap_or_default())
        });
        if let (Err(Ok((made_up, _))), None) = (answer.send(leased), name) {
            let _ = databases.release(&made_up);
        }
    });
    Ok(answered.await.map_err(|_| Problem::defect())??)
}

/// Whether the holder says that its test failed: `?failed=true`.
pub(super) fn has_failed(parts: &Parts) -> Result<bool, Problem> {
    let mut pairs = parts.uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    match pairs.find(|(name, _)| *name == "failed").map(|(_, value)| value) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => {
            let what = format!("invalid value for \"failed\": \"{other}\"");
            Err(Problem::new(StatusCode::BAD_REQUEST, "22023", what).hint("It is true or false."))
        }
    }
}

/// `DELETE /v1/databases/NAME`
pub(super) async fn release(
    control: &Control,
    name: String,
    failed: bool,
) -> Result<Response<Body>, Problem> {
    if failed && control.failing != Failed::Release {
        let kept = name.clone();
        blocking(&control.databases, move |databases| databases.keep(&kept)).await?;
        control.holders.forget(&name);
        control.failed.lock().unwrap_or_else(PoisonError::into_inner).push(name.clone());
        return Ok(match control.failing {
            Failed::KeepAndTell => {
                json(StatusCode::OK, &serde_json::json!({ "url": control.access.url(&name) }))
            }
            Failed::Keep | Failed::Release => no_content(),
        });
    }
    blocking(&control.databases, move |databases| databases.release(&name)).await?;
    Ok(no_content())
}

/// `POST /v1/databases/NAME/reset`
pub(super) async fn reset(control: &Control, name: String, body: &[u8]) -> Result<Response<Body>, Problem> {
    let Reset { close_sessions } = parse(body)?;
    blocking(&control.databases, move |databases| databases.reset(&name, close_sessions)).await?;
    Ok(no_content())
}

/// `POST /v1/databases/NAME/snapshot`
pub(super) async fn snapshot(
    control: &Control,
    name: String,
    body: &[u8],
) -> Result<Response<Body>, Problem> {
    let made: Snapshot = parse(body)?;
    let template = made.template.clone();
    blocking(&control.databases, move |databases| databases.snapshot(&name, &template, made.close_sessions))
        .await?;
    Ok(json(StatusCode::CREATED, &serde_json::json!({ "template": made.template })))
}

/// Runs what waits for the server where waiting harms nobody. It runs to its end, even if the request is dropped.
pub(super) async fn blocking<T: Send + 'static>(
    databases: &Databases,
    call: impl FnOnce(&Databases) -> Result<T, DatabaseError> + Send + 'static,
) -> Result<T, Problem> {
    let databases = databases.clone();
    // A panic is all that can end it otherwise.
    Ok(spawn_blocking(move || call(&databases)).await.map_err(|_| Problem::defect())??)
}
