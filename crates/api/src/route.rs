//! Which request means what: the whole table in one place.

use hyper::header::{self, HeaderValue};
use hyper::{Method, StatusCode};
use lease::ServerAction;

use crate::answer::Problem;
use crate::integresql::Call;
use crate::path::decode;

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// The live page.
    Page,
    /// The status, once.
    Status,
    /// The status, each second.
    Events,
    /// The status, for Prometheus.
    Metrics,
    /// Be a holder, for as long as the connection lasts.
    Hold,
    /// Lease a database.
    Lease,
    /// What there is to say of that database.
    Look(String),
    /// End that lease.
    Release(String),
    /// Restart, stop or crash the server that is that lease's own.
    Act(String, ServerAction),
    /// Return that database to its template's state.
    Reset(String),
    /// Make a template of that database.
    Snapshot(String),
    /// As integresql does it.
    Integresql(Call),
}

/// Finds the route of a method and a path.
///
/// # Errors
/// 404 for an unknown path, 405 for another method than those it has, 400 for a path that cannot be read.
pub(crate) fn find(method: &Method, path: &str) -> Result<Route, Problem> {
    let segments = path.split('/').skip(1).map(decode).collect::<Option<Vec<_>>>();
    let unreadable =
        |why| Problem::new(StatusCode::BAD_REQUEST, "22021", format!("cannot read the path: it {why}"));
    let segments = segments.ok_or_else(|| unreadable("is not percent-encoded UTF-8"))?;
    if segments.iter().any(|segment| segment.contains('\0')) {
        return Err(unreadable("has a zero byte").hint("No name in PostgreSQL can have one."));
    }
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let known = match segments.as_slice() {
        [""] => vec![(Method::GET, Route::Page)],
        ["metrics"] => vec![(Method::GET, Route::Metrics)],
        ["v1", rest @ ..] => control(rest),
        ["api", "v1", rest @ ..] => {
            integresql(rest).into_iter().map(|(method, call)| (method, Route::Integresql(call))).collect()
        }
        _ => Vec::new(),
    };
    if known.is_empty() {
        return Err(Problem::new(StatusCode::NOT_FOUND, "42704", format!("nothing is at \"{path}\"")));
    }
    let methods = known.iter().map(|(method, _)| method.as_str()).collect::<Vec<_>>().join(", ");
    let found = known.into_iter().find(|(known, _)| known == method);
    found.map(|(_, route)| route).ok_or_else(|| {
        let problem =
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "0A000", format!("cannot {method} \"{path}\""));
        let allow = HeaderValue::from_str(&methods).unwrap_or_else(|_| HeaderValue::from_static(""));
        problem.hint(format!("It knows {methods}.")).header(header::ALLOW, allow)
    })
}

/// Our own API, behind `/v1/`.
fn control(segments: &[&str]) -> Vec<(Method, Route)> {
    match *segments {
        ["status"] => vec![(Method::GET, Route::Status)],
        ["events"] => vec![(Method::GET, Route::Events)],
        ["hold"] => vec![(Method::GET, Route::Hold)],
        ["databases"] => vec![(Method::POST, Route::Lease)],
        ["databases", name] => {
            vec![
                (Method::GET, Route::Look(name.to_owned())),
                (Method::DELETE, Route::Release(name.to_owned())),
            ]
        }
        ["databases", name, "reset"] => vec![(Method::POST, Route::Reset(name.to_owned()))],
        ["databases", name, "restart"] => {
            vec![(Method::POST, Route::Act(name.to_owned(), ServerAction::Restart))]
        }
        ["databases", name, "stop"] => vec![(Method::POST, Route::Act(name.to_owned(), ServerAction::Stop))],
        ["databases", name, "crash"] => {
            vec![(Method::POST, Route::Act(name.to_owned(), ServerAction::Crash))]
        }
        ["databases", name, "snapshot"] => vec![(Method::POST, Route::Snapshot(name.to_owned()))],
        _ => Vec::new(),
    }
}

/// integresql's, behind `/api/v1/`. Source: its `internal/api/templates/routes.go` and `admin/routes.go`, 1.1.0.
fn integresql(segments: &[&str]) -> Vec<(Method, Call)> {
    match *segments {
        ["templates"] => vec![(Method::POST, Call::Initialize)],
        ["templates", hash] => {
            vec![
                (Method::PUT, Call::Finalize(hash.to_owned())),
                (Method::DELETE, Call::Discard(hash.to_owned())),
            ]
        }
        ["templates", hash, "tests"] => vec![(Method::GET, Call::Take(hash.to_owned()))],
        ["templates", hash, "tests", id] => {
            vec![(Method::DELETE, Call::GiveBack(hash.to_owned(), id.to_owned()))]
        }
        ["templates", hash, "tests", id, "recreate" | "unlock"] => {
            vec![(Method::POST, Call::GiveBack(hash.to_owned(), id.to_owned()))]
        }
        ["admin", "templates"] => vec![(Method::DELETE, Call::DiscardAll)],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_its_route() {
        let name = || "a b".to_owned();
        let hash = || "3f9a".to_owned();
        for (method, path, route) in [
            (Method::GET, "/", Route::Page),
            (Method::GET, "/metrics", Route::Metrics),
            (Method::GET, "/v1/status", Route::Status),
            (Method::GET, "/v1/events", Route::Events),
            (Method::GET, "/v1/hold", Route::Hold),
            (Method::POST, "/v1/databases", Route::Lease),
            (Method::GET, "/v1/databases/a%20b", Route::Look(name())),
            (Method::DELETE, "/v1/databases/a%20b", Route::Release(name())),
            (Method::POST, "/v1/databases/a%20b/reset", Route::Reset(name())),
            (Method::POST, "/v1/databases/a%20b/snapshot", Route::Snapshot(name())),
            (Method::POST, "/v1/databases/a%20b/crash", Route::Act(name(), ServerAction::Crash)),
            (Method::POST, "/api/v1/templates", Route::Integresql(Call::Initialize)),
            (Method::PUT, "/api/v1/templates/3f9a", Route::Integresql(Call::Finalize(hash()))),
            (Method::DELETE, "/api/v1/templates/3f9a", Route::Integresql(Call::Discard(hash()))),
            (Method::GET, "/api/v1/templates/3f9a/tests", Route::Integresql(Call::Take(hash()))),
            (
                Method::DELETE,
                "/api/v1/templates/3f9a/tests/7",
                Route::Integresql(Call::GiveBack(hash(), "7".into())),
            ),
            (
                Method::POST,
                "/api/v1/templates/3f9a/tests/7/unlock",
                Route::Integresql(Call::GiveBack(hash(), "7".into())),
            ),
            (Method::DELETE, "/api/v1/admin/templates", Route::Integresql(Call::DiscardAll)),
        ] {
            assert_eq!(find(&method, path).as_ref(), Ok(&route), "{method} {path}");
        }
    }

    #[test]
    fn others_are_refused_in_words() {
        for (method, path, status) in [
            (Method::GET, "/favicon.ico", StatusCode::NOT_FOUND),
            (Method::GET, "/v1", StatusCode::NOT_FOUND),
            (Method::GET, "//", StatusCode::NOT_FOUND),
            (Method::GET, "*", StatusCode::NOT_FOUND),
            (Method::GET, "/v1/databases", StatusCode::METHOD_NOT_ALLOWED),
            (Method::DELETE, "/v1/databases/%ff", StatusCode::BAD_REQUEST),
            (Method::DELETE, "/v1/databases/%4", StatusCode::BAD_REQUEST),
            (Method::GET, "/v1/databases/a%00b", StatusCode::BAD_REQUEST),
            (Method::POST, "/v1/databases/%00/reset", StatusCode::BAD_REQUEST),
            (Method::PUT, "/api/v1/templates/3f%00", StatusCode::BAD_REQUEST),
            (Method::GET, "/api/v1/templates/3f9a", StatusCode::METHOD_NOT_ALLOWED),
        ] {
            assert_eq!(find(&method, path).map_err(|problem| problem.status), Err(status), "{method} {path}");
        }
        let response = find(&Method::GET, "/api/v1/templates/3f9a").unwrap_err().response(true);
        assert_eq!(response.headers()[header::ALLOW], "PUT, DELETE");
    }
}
