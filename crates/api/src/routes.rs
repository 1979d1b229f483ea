//! Table of all routes, and the layers through which every request passes first.

use std::future::ready;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRef, Request};
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn, map_request, map_request_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use contract::{ErrorCode, Remedy};
use gateway::Access;
use lease::ServerAction;

use crate::problem::Problem;
use crate::{
    ApiState, LONGEST_BODY, compare, guard, holders, integresql, json, leases, measured, metrics, page, path,
    render, status,
};

/// Returns all routes. Source of integresql's: its `internal/api/templates/routes.go` and `admin/routes.go`, 1.1.0.
pub(crate) fn table<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<ApiState>: FromRef<S>,
{
    let detached = Router::new()
        .route("/api/v1/templates/{hash}", put(integresql::finalize).delete(integresql::discard))
        .route("/api/v1/templates/{hash}/tests/{id}", delete(integresql::give_back))
        .route("/api/v1/templates/{hash}/tests/{id}/recreate", post(integresql::give_back))
        .route("/api/v1/templates/{hash}/tests/{id}/unlock", post(integresql::give_back))
        .route("/api/v1/admin/templates", delete(integresql::discard_all))
        .layer(from_fn(integresql::detach))
        .layer(map_request(json::ignore_body));
    Router::new()
        .route("/", get(page::page))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/status", get(status::once))
        .route("/v1/events", get(status::events))
        .route("/v1/openapi.json", get(async || ([(CONTENT_TYPE, "application/json")], contract::OPENAPI)))
        .route("/v1/hold", get(holders::hold))
        .route("/v1/databases", post(leases::lease))
        .route("/v1/databases/{name}", get(leases::look).delete(leases::release))
        .route("/v1/databases/{name}/statements", get(measured::statements))
        .route("/v1/databases/{name}/diff", get(compare::diff))
        .route("/v1/databases/{name}/reset", post(leases::reset))
        .route("/v1/databases/{name}/snapshot", post(leases::snapshot))
        .route(
            "/v1/databases/{name}/restart",
            post(|api, name| leases::act(api, name, ServerAction::Restart)),
        )
        .route("/v1/databases/{name}/stop", post(|api, name| leases::act(api, name, ServerAction::Stop)))
        .route("/v1/databases/{name}/crash", post(|api, name| leases::act(api, name, ServerAction::Crash)))
        .route("/api/v1/templates", post(integresql::initialize))
        .route("/api/v1/templates/{hash}/tests", get(integresql::take).layer(map_request(json::ignore_body)))
        .merge(detached)
        .fallback(async |uri: Uri| {
            Problem::new(
                StatusCode::NOT_FOUND,
                ErrorCode::NoPath,
                format!("nothing is at \"{}\"", uri.path()),
            )
        })
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
}

/// Wraps `routes` in the layers for all requests. A request passes through the last layer first.
pub(crate) fn guarded(routes: Router, access: Arc<Access>) -> Router {
    Router::new()
        .fallback_service(routes)
        .layer(from_fn(refuse_other_methods))
        .layer(map_request(path::check))
        .layer(map_request_with_state(access, guard::admit))
        .layer(from_fn(render::render))
        .layer(map_request(|request| ready(path::normalize(guard::take_secret(request)))))
}

/// If the path doesn't support the request's method, answers with the methods that it supports.
async fn refuse_other_methods(mut request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    // The router would call GET's handler for HEAD, and some of these handlers lease databases. No route supports
    // OPTIONS.
    if method == Method::HEAD {
        *request.method_mut() = Method::OPTIONS;
    }
    let response = next.run(request).await;
    if response.status() != StatusCode::METHOD_NOT_ALLOWED {
        return response;
    }
    let known = response.headers().get(ALLOW).and_then(|known| known.to_str().ok()).unwrap_or_default();
    let known = known.split(',').filter(|method| *method != "HEAD").collect::<Vec<_>>().join(", ");
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        ErrorCode::NotSupported,
        format!("cannot {method} \"{path}\""),
    )
    .hint(Remedy::OtherMethod, format!("It knows {known}."))
    .header(ALLOW, known)
    .into_response()
}

#[cfg(test)]
mod tests {
    use axum::Extension;
    use axum::body::{Body, to_bytes};
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use proptest::prelude::*;

    use super::*;
    use crate::guard::Ends;

    /// A state without a server. A handler that extracts it panics, which shows that a request has reached it.
    #[derive(Clone)]
    struct Reached;

    impl FromRef<Reached> for Arc<ApiState> {
        fn from_ref(_: &Reached) -> Self {
            std::panic::resume_unwind(Box::new(Reached))
        }
    }

    /// Returns the response to a program on the unix socket. Returns `None` if the request reached a handler. (A
    /// handler's panic in a spawned task shows as an internal error.)
    async fn asked(method: &str, uri: &str) -> Option<Response> {
        let access = Access::new("secret".into(), "127.0.0.1:5433".parse().unwrap(), None);
        let router = guarded(table().with_state(Reached), Arc::new(access)).layer(Extension(None::<Ends>));
        let request = Request::builder().method(method).uri(uri).header("host", "localhost");
        let answer = TowerToHyperService::new(router).call(request.body(Body::empty()).unwrap());
        match tokio::spawn(answer).await {
            Ok(answer) => answer.ok().filter(|answer| answer.status() != StatusCode::INTERNAL_SERVER_ERROR),
            Err(end) => {
                assert!(end.into_panic().is::<Reached>(), "{method} {uri} makes it panic");
                None
            }
        }
    }

    /// Paths, and the methods that each supports.
    const PATHS: [(&str, &str); 20] = [
        ("/", "GET"),
        ("/metrics", "GET"),
        ("/v1/status", "GET"),
        ("/v1/events", "GET"),
        ("/v1/hold", "GET"),
        ("/v1/databases", "POST"),
        ("/v1/databases/a", "GET, DELETE"),
        ("/v1/databases/%2F%40%3A%3F%23%25%20%C3%A9/reset", "POST"),
        ("/v1/databases/a/diff", "GET"),
        ("/v1/databases/a/snapshot", "POST"),
        ("/v1/databases/a/restart", "POST"),
        ("/v1/databases/a/stop", "POST"),
        ("/v1/databases/a/crash", "POST"),
        ("/api/v1/templates", "POST"),
        ("/api/v1/templates/3f9a", "PUT, DELETE"),
        ("/api/v1/templates/3f9a/tests", "GET"),
        ("/api/v1/templates/3f9a/tests/7", "DELETE"),
        ("/api/v1/templates/3f9a/tests/7/unlock", "POST"),
        ("/api/v1/templates/3f9a/tests/7/recreate", "POST"),
        ("/api/v1/admin/templates", "DELETE"),
    ];

    #[tokio::test]
    async fn path_rejects_other_methods_with_allow_header() {
        for (path, allowed) in PATHS {
            for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
                let answer = asked(method, path).await;
                if allowed.split(", ").any(|known| known == method) {
                    assert!(answer.is_none(), "{method} {path}: {answer:?}");
                    continue;
                }
                let answer = answer.unwrap();
                assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
                assert_eq!(answer.headers()[ALLOW], allowed, "{method} {path}");
                let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
                let error = &serde_json::from_slice::<serde_json::Value>(&body).unwrap()["error"];
                assert_eq!(error["message"], format!("cannot {method} \"{path}\""));
                assert_eq!(error["hint"], format!("It knows {allowed}."));
            }
        }
    }

    #[tokio::test]
    async fn other_paths_are_refused_in_words() {
        for (path, status) in [
            ("/favicon.ico", StatusCode::NOT_FOUND),
            ("/v1", StatusCode::NOT_FOUND),
            ("//", StatusCode::NOT_FOUND),
            ("*", StatusCode::NOT_FOUND),
            ("/token/secret", StatusCode::NOT_FOUND),
            ("/token/secret/v2", StatusCode::NOT_FOUND),
            ("/v1/databases/a/b", StatusCode::NOT_FOUND),
            ("/v1/databases/%ff", StatusCode::BAD_REQUEST),
            ("/v1/databases/%4", StatusCode::BAD_REQUEST),
            ("/v1/databases/a%00b", StatusCode::BAD_REQUEST),
            ("/v1/databases/%00/reset", StatusCode::BAD_REQUEST),
            ("/api/v1/templates/3f%00", StatusCode::BAD_REQUEST),
        ] {
            let answer = asked("GET", path).await.unwrap();
            assert_eq!(
                (answer.status(), &answer.headers()["cache-control"] == "no-store"),
                (status, true),
                "{path}"
            );
        }
        assert!(asked("GET", "/token/any/v1/status?a=b").await.is_none());
    }

    #[tokio::test]
    async fn routes_decode_percent_encoded_path_segments() {
        for (path, allowed) in PATHS {
            let encoded: Vec<_> = path.split('/').map(every_letter_encoded).collect();
            let path = encoded.join("/");
            let method = allowed.split(", ").next().unwrap();
            assert!(asked(method, &path).await.is_none(), "{method} {path}");
            assert_eq!(asked("BREW", &path).await.unwrap().headers()[ALLOW], allowed, "{path}");
        }
        // An encoded slash does not separate path segments.
        assert_eq!(asked("GET", "/v1%2Fstatus").await.unwrap().status(), StatusCode::NOT_FOUND);
        assert!(asked("GET", "/token/any/v1/st%61tus?a=b").await.is_none());
    }

    fn every_letter_encoded(part: &str) -> String {
        if part.contains('%') {
            return part.to_ascii_lowercase();
        }
        part.bytes().flat_map(|byte| format!("%{byte:02x}").into_bytes()).map(char::from).collect()
    }

    proptest! {
        #[test]
        fn no_path_makes_it_panic(method in "[A-Z]{1,7}", path in "(/(v1|api|token|databases|[ -~é]{0,4}|%[0-9a-g]{0,2}))*/?") {
            let Ok(uri) = path.parse::<Uri>() else { return Ok(()) };
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let answer = runtime.block_on(asked(&method, &uri.to_string()));
            prop_assert!(answer.is_none_or(|answer| answer.status().is_client_error()), "{method} {path}");
        }
    }
}
