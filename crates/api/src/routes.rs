//! Defines the table of all routes, and the layers that every request passes through first.

use std::future::ready;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRef, Request};
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn, map_request, map_request_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post, put};
use contract::{ErrorCode, Remedy};
use gateway::Access;
use lease::ServerAction;

use crate::deliver::detach;
use crate::problem::Problem;
use crate::{
    ApiState, LONGEST_BODY, compare, faults, guard, holders, integresql, json, leases, measured, metrics,
    page, path, render, status,
};

/// Returns the router for all requests.
pub(crate) fn table<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<ApiState>: FromRef<S>,
{
    let router = Router::new();
    let router = routes().into_iter().fold(router, |router, (path, methods)| router.route(path, methods));
    router
        .fallback(async |uri: Uri| {
            Problem::new(
                StatusCode::NOT_FOUND,
                ErrorCode::NoPath,
                format!("there is no resource at \"{}\"", uri.path()),
            )
        })
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
}

/// Returns all paths with the handlers of their methods. [`contract::OPENAPI`] describes every one of these routes.
fn routes<S>() -> Vec<(&'static str, MethodRouter<S>)>
where
    S: Clone + Send + Sync + 'static,
    Arc<ApiState>: FromRef<S>,
{
    let mut routes = vec![
        ("/", get(page::page)),
        ("/metrics", get(metrics::metrics)),
        ("/v1/openapi.json", get(async || ([(CONTENT_TYPE, "application/json")], contract::OPENAPI))),
        ("/v1/status", get(status::once)),
        ("/v1/events", get(status::events)),
        ("/v1/hold", get(holders::hold)),
        ("/v1/databases", post(leases::lease)),
        ("/v1/databases/{name}", get(leases::look).delete(leases::release).layer(from_fn(detach))),
        ("/v1/databases/{name}/statements", get(measured::statements)),
        ("/v1/databases/{name}/diff", get(compare::diff)),
        ("/v1/databases/{name}/faults", get(faults::list).post(faults::add)),
        ("/v1/databases/{name}/reset", post(leases::reset).layer(from_fn(detach))),
        ("/v1/databases/{name}/snapshot", post(leases::snapshot)),
        ("/v1/databases/{name}/restart", post(|api, name| leases::act(api, name, ServerAction::Restart))),
        ("/v1/databases/{name}/stop", post(|api, name| leases::act(api, name, ServerAction::Stop))),
        ("/v1/databases/{name}/crash", post(|api, name| leases::act(api, name, ServerAction::Crash))),
        ("/v1/databases/{name}/replica", post(leases::set_replica)),
        ("/v1/databases/{name}/promote", post(|api, name| leases::act(api, name, ServerAction::Promote))),
        ("/api/v1/templates", post(integresql::initialize)),
        ("/api/v1/templates/{hash}/tests", get(integresql::take).layer(map_request(json::ignore_body))),
    ];
    // Source: `internal/api/templates/routes.go` and `admin/routes.go` of integresql 1.1.0.
    let detached = [
        ("/api/v1/templates/{hash}", put(integresql::finalize).delete(integresql::discard)),
        ("/api/v1/templates/{hash}/tests/{id}", delete(integresql::give_back)),
        ("/api/v1/templates/{hash}/tests/{id}/recreate", post(integresql::give_back)),
        ("/api/v1/templates/{hash}/tests/{id}/unlock", post(integresql::give_back)),
        ("/api/v1/admin/templates", delete(integresql::discard_all)),
    ];
    let layers =
        |methods: MethodRouter<S>| methods.layer(from_fn(detach)).layer(map_request(json::ignore_body));
    routes.extend(detached.map(|(path, methods)| (path, layers(methods))));
    routes
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

/// Rejects methods that the path doesn't support, with a response that lists the supported ones.
async fn refuse_other_methods(mut request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    // Reject HEAD here by turning it into OPTIONS, which no route supports. Otherwise the router would call the GET
    // handler, and some GET handlers lease databases.
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
    .hint(Remedy::OtherMethod, format!("Allowed methods: {known}."))
    .header(ALLOW, known)
    .into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use axum::Extension;
    use axum::body::{Body, to_bytes};
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use proptest::prelude::*;

    use super::*;
    use crate::guard::Ends;

    /// A state without a server. A handler that extracts this state panics, which shows that a request has reached it.
    #[derive(Clone)]
    struct Reached;

    impl FromRef<Reached> for Arc<ApiState> {
        fn from_ref(_: &Reached) -> Self {
            std::panic::resume_unwind(Box::new(Reached))
        }
    }

    /// Returns the response to a client of the unix socket, or `None` if the request reached a handler. If a handler
    /// panics in a spawned task, the response is an internal error.
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

    /// Returns each path in the `OpenAPI` document with its methods, in order.
    fn documented() -> BTreeMap<String, String> {
        let document: serde_json::Value = serde_json::from_str(contract::OPENAPI).unwrap();
        let paths = document["paths"].as_object().unwrap().iter();
        let methods = |operations: &serde_json::Value| {
            let mut methods: Vec<_> = operations.as_object().unwrap().keys().cloned().collect();
            methods.sort();
            methods.join(", ").to_uppercase()
        };
        paths.map(|(path, operations)| (path.clone(), methods(operations))).collect()
    }

    /// Replaces a path's parameters with example values.
    fn example(path: &str) -> String {
        let name = "%2F%40%3A%3F%23%25%20%C3%A9";
        path.replace("{name}", name).replace("{hash}", "3f9a").replace("{id}", "7")
    }

    async fn allowed(path: &str) -> String {
        let answer = asked("BREW", &example(path)).await.unwrap();
        let mut methods: Vec<_> = answer.headers()[ALLOW].to_str().unwrap().split(", ").collect();
        methods.sort_unstable();
        methods.join(", ")
    }

    #[tokio::test]
    async fn document_describes_exactly_the_routes() {
        let mut routed = BTreeMap::new();
        for (path, _) in routes::<Reached>() {
            routed.insert(path.to_owned(), allowed(path).await);
        }
        assert_eq!(documented(), routed);
    }

    #[tokio::test]
    async fn path_rejects_other_methods_with_allow_header() {
        for (path, methods) in documented() {
            let (path, known) = (example(&path), allowed(&path).await);
            for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
                let answer = asked(method, &path).await;
                // This route needs no server, because it only returns the document.
                if path == "/v1/openapi.json" && method == "GET" {
                    assert_eq!(answer.unwrap().status(), StatusCode::OK);
                    continue;
                }
                if methods.split(", ").any(|known| known == method) {
                    assert!(answer.is_none(), "{method} {path}: {answer:?}");
                    continue;
                }
                let answer = answer.unwrap();
                assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
                let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
                let error = &serde_json::from_slice::<serde_json::Value>(&body).unwrap()["error"];
                assert_eq!(error["message"], format!("cannot {method} \"{path}\""));
                assert_eq!(error["remedy"], "other_method", "{known}");
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
        for (path, methods) in documented() {
            let path = example(&path);
            let encoded: Vec<_> = path.split('/').map(every_letter_encoded).collect();
            assert_eq!(allowed(&encoded.join("/")).await, methods, "{path}");
        }
        // An encoded slash doesn't separate path segments.
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
