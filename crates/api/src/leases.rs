//! Begins, resets and ends leases over HTTP, and makes templates from leased databases.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use contract::{
    DatabaseDescription, EndOfTest, ErrorCode, LeaseRequest, LeaseResponse, Remedy, ReplicaRequest,
    ResetRequest, SnapshotRequest, SnapshotResponse,
};
use gateway::{Budget, KeptDatabase};
use lease::{Isolation, LeaseError, LeaseStatus, ParseIsolationError, ServerAction};
use tokio::task::spawn_blocking;

use crate::blocking::{blocking, release_abandoned};
use crate::deliver::deliver;
use crate::guard::Reached;
use crate::json::Json;
use crate::problem::Problem;
use crate::{ApiState, OnFailure, SharedState, measured, path, replica, templates};

/// Maximum length of a test's name in characters. Longer names are truncated.
const LONGEST_TEST: usize = 1000;

/// `POST /v1/databases`: leases a database.
pub(crate) async fn lease(
    State(api): SharedState,
    Extension(reached): Extension<Reached>,
    Json(LeaseRequest { template, name, isolation, holder, record }): Json<LeaseRequest>,
) -> Result<(StatusCode, Json<LeaseResponse>), Problem> {
    let isolation = match isolation {
        None => api.leases.default_isolation(),
        Some(word) => word.parse().map_err(|error| no_isolation(&word, error))?,
    };
    if let Some(name) = name.as_deref().map(lease::cut).filter(|name| templates::is_ours(name)) {
        let why = "names of this form are reserved for integresql's API";
        return Err(LeaseError::Name { name: name.to_owned(), why }.into());
    }
    let (name, template) = leased(&api, isolation, name, template, holder.is_some()).await?;
    if let Some(holder) = holder {
        let noted = api.holders.note(&holder, &name);
        if noted.is_err() {
            let name = name.clone();
            blocking(&api.leases, move |leases| leases.release(&name)).await?;
        }
        noted?;
    }
    if record {
        api.recorder.record(&name, &api.leases);
    }
    // If a lease ends before it gets a database, the fault registry doesn't notice the end.
    api.faults.test_ended(&name, false);
    let access = &api.access;
    let address = access.address_for(reached.0.as_ref(), &name);
    let leased = LeaseResponse {
        url: address.url(),
        jdbc_url: address.jdbc_url(),
        replica_url: access.replica_address_for(reached.0.as_ref(), &name).map(|address| address.url()),
        socket_url: access.socket_address_of(&name).unwrap_or(address).url(),
        template,
        recorded: record || api.recorder.records_all(),
        name,
    };
    Ok((StatusCode::CREATED, Json(leased)))
}

fn no_isolation(word: &str, error: ParseIsolationError) -> Problem {
    let what = format!("cannot lease with isolation \"{word}\": {error}");
    Problem::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidValue, what)
        .hint(Remedy::CorrectValue, "Leave it out to use the server's default isolation.")
}

/// Leases a database. Returns the names of the database and its template.
///
/// If the client disconnects in the meantime, the new lease ends immediately in two cases. Either pgfresh generated the
/// name, which no client will ever learn, or the lease should end with a holder.
async fn leased(
    api: &ApiState,
    isolation: Isolation,
    name: Option<String>,
    template: Option<String>,
    held: bool,
) -> Result<(String, String), Problem> {
    let ends = held || name.is_none();
    let leases = api.leases.clone();
    let worker = leases.clone();
    let lease = async move {
        blocking(&worker, move |leases| leases.lease(isolation, name.as_deref(), template.as_deref())).await
    };
    let undo = move |(name, _template): (String, String)| async move {
        if ends {
            spawn_blocking(move || release_abandoned(&leases, &name));
        }
    };
    deliver(lease, undo).await
}

/// Returns the lease `name`, or `None` if it doesn't exist.
pub(crate) async fn find(api: &ApiState, name: &str) -> Result<Option<LeaseStatus>, Problem> {
    let status = crate::status::look(api).await?;
    Ok(status.leases.into_iter().find(|lease| lease.database == lease::cut(name)))
}

/// `GET /v1/databases/NAME`: describes a database.
pub(crate) async fn look(
    State(api): SharedState,
    Path(name): Path<String>,
) -> Result<Json<DatabaseDescription>, Problem> {
    let name = lease::cut(&name).to_owned();
    let lease = find(&api, &name).await?;
    let recent = api.history();
    let kept = recent.and_then(|recent| recent.kept_database(&name));
    let statements = match (kept, &lease) {
        (Some(kept), _) => Some(kept.statements),
        (None, Some(lease)) => recent.map(|recent| recent.of(&name, lease.since)),
        (None, None) => return Err(LeaseError::NotLeased(name).into()),
    };
    Ok(Json(DatabaseDescription {
        name,
        sessions: lease.as_ref().map(|lease| lease.sessions),
        age_seconds: lease.as_ref().map(|lease| lease.age.as_secs_f64()),
        template: lease.map(|lease| lease.template),
        statements,
    }))
}

/// Returns true if the client reports a failed test with `?failed=true`.
fn has_failed(uri: &Uri) -> Result<bool, Problem> {
    match path::query(uri, "failed").as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(Problem::invalid("failed", other, "Write true or false.")),
    }
}

/// Truncates a test's name. Keeps all characters, so that programs can compare the name with their runner's.
fn truncated(test: &str) -> String {
    test.chars().take(LONGEST_TEST).collect()
}

/// `DELETE /v1/databases/NAME`: ends a lease, or keeps the database if the test failed and pgfresh is configured to
/// keep the databases of failed tests.
pub(crate) async fn release(
    State(api): SharedState,
    Extension(reached): Extension<Reached>,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let failed = has_failed(&uri)?;
    if !failed && release_inherited(&api, &name).await? {
        return Ok(measured::answer(EndOfTest::default()));
    }
    let budget = measured::budget_of(&uri)?;
    let test = path::query_lossily(&uri, "test");
    let over = measured::beyond(&api, &name, &budget)?;
    let is_reported = test.is_some() || !budget.is_empty();
    let test = test.filter(|test| !test.is_empty());
    let shown = test.as_deref().map(truncated);
    api.events.test_ended(&name, shown.as_deref());
    let lagging_statements =
        if failed { replica::lagging_statements(&api, &name, shown.as_deref()).await? } else { Vec::new() };
    let leased = name.clone();
    // Do this before the lease ends, because another client can lease a database with this name afterwards.
    api.holders.forget(&name);
    let ended = EndOfTest {
        unfired_faults: api.faults.test_ended(&name, true),
        measurement: over.map(measured::described),
        lagging_statements,
        url: None,
    };
    if failed && api.on_failure != OnFailure::Release {
        let lease = find(&api, &name).await?;
        let since = lease.as_ref().map(|lease| lease.since);
        let template = lease.map(|lease| lease.template);
        let recent = api.history();
        let statements = recent.zip(since).map_or_else(Vec::new, |(recent, since)| recent.of(&name, since));
        let is_named = shown.is_some();
        let shown = shown.unwrap_or_else(|| truncated(&name));
        let kept = blocking(&api.leases, move |leases| leases.keep(&name, test.as_deref())).await?;
        api.recorder.test_ended(&leased, is_reported, false);
        let Some(kept) = kept else { return Ok(measured::answer(ended)) };
        tracing::info!(database = %kept, test = %server::printable(&shown), "kept the database of a failed test");
        if let Some(recent) = recent {
            if is_named {
                release_former(&api, recent.kept_databases_of_test(&shown));
            }
            recent.add_kept_database(KeptDatabase {
                name: kept.clone(),
                test: shown,
                template,
                inherited: false,
                statements,
            });
        }
        let url = (api.on_failure == OnFailure::KeepAndTell)
            .then(|| api.access.address_for(reached.0.as_ref(), &kept).url());
        return Ok(measured::answer(EndOfTest { url, ..ended }));
    }
    blocking(&api.leases, move |leases| leases.release(&name)).await?;
    api.recorder.test_ended(&leased, is_reported, false);
    Ok(measured::answer(ended))
}

/// Removes the database if this server inherited it from an earlier server. Otherwise returns false.
async fn release_inherited(api: &ApiState, name: &str) -> Result<bool, Problem> {
    let Some(recent) = api.history() else { return Ok(false) };
    if !recent.kept_database(name).is_some_and(|kept| kept.inherited) {
        return Ok(false);
    }
    let leased = name.to_owned();
    blocking(&api.leases, move |leases| leases.drop_inherited(&leased)).await?;
    recent.remove_kept_database(name);
    Ok(true)
}

/// Removes the databases of a test's earlier failures, because one database is enough to see why the test fails.
fn release_former(api: &ApiState, former: Vec<String>) {
    let leases = api.leases.clone();
    // Don't make the test wait for the removal.
    spawn_blocking(move || former.iter().for_each(|name| release_abandoned(&leases, name)));
}

/// `POST /v1/databases/NAME/reset`: resets a database.
pub(crate) async fn reset(
    State(api): SharedState,
    Path(name): Path<String>,
    Json(ResetRequest { close_sessions, test, statements, n_plus_one, time }): Json<ResetRequest>,
) -> Result<Response, Problem> {
    let budget = Budget { statements, n_plus_one, time: measured::time(time.as_deref())? };
    let over = measured::beyond(&api, &name, &budget)?;
    let shown = test.as_deref().filter(|test| !test.is_empty()).map(truncated);
    api.events.test_ended(&name, shown.as_deref());
    let resetting = name.clone();
    blocking(&api.leases, move |leases| leases.reset(&resetting, close_sessions)).await?;
    if let Some(recent) = &api.history {
        recent.clear(&name);
    }
    api.recorder.test_ended(&name, test.is_some() || !budget.is_empty(), true);
    let unfired_faults = api.faults.test_ended(&name, true);
    let measurement = over.map(measured::described);
    Ok(measured::answer(EndOfTest { unfired_faults, measurement, ..EndOfTest::default() }))
}

/// `POST /v1/databases/NAME/restart`, `stop`, `crash` and `promote`: restarts, stops or crashes a lease's own server
/// (isolation `server`), or promotes its replica.
pub(crate) async fn act(
    State(api): SharedState,
    Path(name): Path<String>,
    action: ServerAction,
) -> Result<StatusCode, Problem> {
    blocking(&api.leases, move |leases| leases.act(&name, action)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/databases/NAME/replica`: makes the replica of a lease's own server lag.
pub(crate) async fn set_replica(
    State(api): SharedState,
    Path(name): Path<String>,
    Json(ReplicaRequest { lag }): Json<ReplicaRequest>,
) -> Result<StatusCode, Problem> {
    let lag = replica::parse_lag(&lag)?;
    blocking(&api.leases, move |leases| leases.act(&name, ServerAction::Lag(lag))).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/databases/NAME/snapshot`: makes a new template from a database.
pub(crate) async fn snapshot(
    State(api): SharedState,
    Path(name): Path<String>,
    Json(SnapshotRequest { template, close_sessions }): Json<SnapshotRequest>,
) -> Result<(StatusCode, Json<SnapshotResponse>), Problem> {
    let answer = SnapshotResponse { template: template.clone() };
    blocking(&api.leases, move |leases| leases.snapshot(&name, &template, close_sessions)).await?;
    Ok((StatusCode::CREATED, Json(answer)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn test_name_is_truncated_but_not_escaped() {
        assert_eq!(truncated("a\nb\t\x1b[31m\u{202e}\0 é"), "a\nb\t\x1b[31m\u{202e}\0 é");
        assert_eq!(truncated(&"é".repeat(10_000)), "é".repeat(LONGEST_TEST));
    }

    proptest! {
        #[test]
        fn query_lossily_reads_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let sent: String = percent_encoding::percent_encode(&bytes, percent_encoding::NON_ALPHANUMERIC).to_string();
            let uri: Uri = format!("/v1/databases/a?failed=true&test={sent}").parse().unwrap();
            prop_assert_eq!(path::query_lossily(&uri, "test").unwrap(), String::from_utf8_lossy(&bytes));
        }
    }
}
