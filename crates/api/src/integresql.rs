//! integresql's REST API, version 1, for its clients: templates that they fill themselves, and test databases by number.
//!
//! ```text
//! POST   /templates {hash}              lease an empty database, to be filled            200, 423 if there is one
//! PUT    /templates/HASH                snapshot it as a template, end the lease         204, 404
//! GET    /templates/HASH/tests          wait until then; lease a copy, under a number    200, 404, 410 if discarded
//! DELETE /templates/HASH/tests/ID       end that lease; the number is free               204, 404
//! DELETE /templates/HASH                forget the template, end its leases              204, 404
//! ```
//! A database that comes back is dropped, whatever its holder says about its state; the next one of that number is new.
//! Source: `internal/api/templates/templates.go` of integresql 1.1.0, and its clients for Go, Node and Rust.

use std::sync::Arc;
use std::time::Duration;

use hyper::{Response, StatusCode};
use lease::{Isolation, LeaseError, Leases};
use serde::{Deserialize, Serialize};
use server::SUPERUSER;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::answer::{Body, Problem, json, no_content};
use crate::blocking::blocking;
use crate::guard::Ends;
use crate::templates::{PREFIX, Phase, Template, no_template};
use crate::{Api, request};

/// How long a test waits for its template to be filled. Source: integresql's default.
const TEMPLATE_TIMEOUT: Duration = Duration::from_mins(1);
/// The template that has nothing in it but what the server's own has.
const EMPTY: &str = "template1";
/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    Initialize,
    Finalize(String),
    Discard(String),
    Take(String),
    GiveBack(String, String),
    DiscardAll,
}

#[derive(Deserialize)]
struct Initialize {
    #[serde(default)]
    hash: String,
}

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
    database: Database<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Database<'a> {
    template_hash: &'a str,
    config: Config<'a>,
}

#[derive(Serialize)]
struct Config<'a> {
    host: String,
    port: u16,
    username: &'a str,
    password: &'a str,
    database: &'a str,
}

/// Answers a call of a client that reached us at `ends`.
pub(crate) async fn answer(
    api: &Arc<Api>,
    call: Call,
    body: &[u8],
    ends: Option<Ends>,
) -> Result<Response<Body>, Problem> {
    match call {
        Call::Initialize => {
            let Initialize { hash } = request::parse(body)?;
            let (template, name) = initialize(api, hash).await?;
            Ok(found(api, ends, &template.hash, &name, None))
        }
        Call::Take(hash) => {
            let (id, name) = take(api, &hash).await?;
            Ok(found(api, ends, &hash, &name, Some(id)))
        }
        Call::Finalize(hash) => detached(api, |api| finalize(api, hash)).await,
        Call::Discard(hash) => detached(api, |api| discard(api, hash)).await,
        Call::GiveBack(hash, id) => detached(api, |api| give_back(api, hash, id)).await,
        Call::DiscardAll => detached(api, discard_all).await,
    }
}

/// Runs what changes templates to its end, even if the client goes away in the middle of it.
async fn detached<F>(api: &Arc<Api>, call: impl FnOnce(Arc<Api>) -> F) -> Result<Response<Body>, Problem>
where
    F: Future<Output = Result<(), Problem>> + Send + 'static,
{
    let task = tokio::spawn(call(Arc::clone(api)));
    task.await.map_err(|_| Problem::defect())??;
    Ok(no_content())
}

/// How to reach a database: where the client reached us.
fn found(api: &Api, ends: Option<Ends>, hash: &str, name: &str, id: Option<usize>) -> Response<Body> {
    let address = ends.map_or(api.access.address(), |ends| ends.local);
    let config = Config {
        host: address.ip().to_canonical().to_string(),
        port: address.port(),
        username: SUPERUSER,
        password: api.access.secret(),
        database: name,
    };
    json(StatusCode::OK, &Answer { id, database: Database { template_hash: hash, config } })
}

async fn initialize(api: &Arc<Api>, hash: String) -> Result<(Arc<Template>, String), Problem> {
    if hash.is_empty() {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "22023", "hash is required"));
    }
    if hash.contains('\0') {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "22021", "hash has a zero byte"));
    }
    let template = api.templates.add(&hash).ok_or_else(|| {
        Problem::new(StatusCode::LOCKED, "55006", "template is already initialized")
            .hint("Ask for test databases; they wait until it is finalized.")
    })?;
    let name = template.building();
    let (answer, answered) = oneshot::channel();
    let (owner, made) = (Arc::clone(api), Arc::clone(&template));
    tokio::spawn(async move {
        let name = made.building();
        let leased =
            blocking(&owner.leases, move |leases| leases.lease(Isolation::Clone, Some(&name), Some(EMPTY)))
                .await;
        let failed = leased.is_err();
        // A client that went away has nobody to fill its template.
        if answer.send(leased).is_err() || failed {
            let _ = discard(owner, made.hash.clone()).await;
        }
    });
    answered.await.map_err(|_| Problem::defect())??;
    Ok((template, name))
}

async fn finalize(api: Arc<Api>, hash: String) -> Result<(), Problem> {
    let template = api.templates.get(&hash)?;
    let _changing = template.changing.lock().await;
    match *template.phase.borrow() {
        Phase::Filling => {}
        Phase::Ready => return Ok(()),
        Phase::Discarded => return Err(no_template()),
    }
    let (from, to) = (template.building(), template.name.clone());
    blocking(&api.leases, move |leases| {
        leases.snapshot(&from, &to, true)?;
        leases.release(&from)
    })
    .await?;
    template.phase.send_replace(Phase::Ready);
    Ok(())
}

/// Returns the number and the name of a fresh database.
async fn take(api: &Arc<Api>, hash: &str) -> Result<(usize, String), Problem> {
    let template = api.templates.get(hash)?;
    let mut phase = template.phase.subscribe();
    let phase = timeout(TEMPLATE_TIMEOUT, phase.wait_for(|phase| *phase != Phase::Filling)).await;
    match phase.map(|phase| phase.map(|phase| *phase)) {
        Ok(Ok(Phase::Ready)) => {}
        Ok(_) => return Err(Problem::new(StatusCode::GONE, "3D000", "template was just discarded")),
        Err(_) => {
            let message = format!("template is not finalized after {} s", TEMPLATE_TIMEOUT.as_secs());
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "55000", message);
            return Err(problem.hint("Whoever initialized it has to finalize or discard it."));
        }
    }
    let (answer, answered) = oneshot::channel();
    let owner = Arc::clone(api);
    tokio::spawn(async move {
        let id = template.number();
        let (name, from) = (template.test(id), template.name.clone());
        let leased = blocking(&owner.leases, move |leases| lease(leases, &name, &from)).await;
        let failed = leased.is_err();
        if failed {
            template.free(id);
        }
        // A client that went away will never give it back.
        if answer.send(leased.map(|name| (id, name))).is_err() && !failed {
            let _ = give_back(owner, template.hash.clone(), id.to_string()).await;
        }
    });
    answered.await.map_err(|_| Problem::defect())?
}

async fn give_back(api: Arc<Api>, hash: String, id: String) -> Result<(), Problem> {
    let id =
        id.parse().map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "22023", "invalid test database ID"))?;
    let template = api.templates.get(&hash)?;
    let name = template.test(id);
    if !template.has(id) {
        return Err(Problem::new(StatusCode::NOT_FOUND, "3D000", "test database not found"));
    }
    blocking(&api.leases, move |leases| end(leases, &name)).await?;
    template.free(id);
    Ok(())
}

async fn discard(api: Arc<Api>, hash: String) -> Result<(), Problem> {
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
    .await
}

async fn discard_all(api: Arc<Api>) -> Result<(), Problem> {
    for hash in api.templates.hashes() {
        // Somebody else may have discarded it meanwhile; that is as well.
        match discard(Arc::clone(&api), hash).await {
            Err(problem) if problem.status != StatusCode::NOT_FOUND => return Err(problem),
            _ => {}
        }
    }
    Ok(())
}

/// Leases a test database, if need be at the cost of another one: clients need not give theirs back, and few do.
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

/// Ends a lease, if it has not ended by itself.
fn end(leases: &Leases, name: &str) -> Result<(), LeaseError> {
    match leases.release(name) {
        Err(LeaseError::NotLeased(_)) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_shape_that_clients_read() {
        let config = Config {
            host: "127.0.0.1".into(),
            port: 5433,
            username: "postgres",
            password: "s",
            database: "d",
        };
        let database = Database { template_hash: "3f9a", config };
        let config =
            r#"{"host":"127.0.0.1","port":5433,"username":"postgres","password":"s","database":"d"}"#;
        let mut answer = Answer { id: None, database };
        let text = format!(r#"{{"database":{{"templateHash":"3f9a","config":{config}}}}}"#);
        assert_eq!(serde_json::to_string(&answer).unwrap(), text);
        answer.id = Some(0);
        assert_eq!(serde_json::to_string(&answer).unwrap(), text.replacen('{', r#"{"id":0,"#, 1));
    }
}
