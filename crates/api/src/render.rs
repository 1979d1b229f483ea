//! Renders errors and adds headers to every response, as the outermost layer for all requests.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use contract::ErrorBody;
use report::{escape_html, page};

use crate::json::Json;
use crate::path;
use crate::problem::Problem;

/// Headers added to every response, to prevent caching, content sniffing and use by other web sites' pages.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Renders errors as JSON or as a page and adds [`HEADERS`] to all responses.
pub(crate) async fn render(request: Request, next: Next) -> Response {
    let plain = path::is_integresql(request.uri().path());
    let is_page = request.uri().path() == "/" && accepts_html(request.headers());
    let mut response = next.run(request).await;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = if is_page { on_a_page(&problem) } else { error_response(&problem, plain) };
    }
    (HEADERS, response).into_response()
}

/// Renders an error as JSON. With `plain`, also puts the message at the top level, where integresql's clients expect
/// it.
fn error_response(problem: &Problem, plain: bool) -> Response {
    let error = problem.description.clone();
    let body = ErrorBody { message: plain.then(|| error.message.clone()), error };
    (problem.status, problem.header.clone().map(|header| [*header]), Json(body)).into_response()
}

/// Returns true if the client is a browser requesting a page.
fn accepts_html(headers: &HeaderMap) -> bool {
    headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.contains("text/html"))
}

/// Renders an error as a page, which a browser shows in place of the live page.
fn on_a_page(problem: &Problem) -> Response {
    let message = escape_html(&problem.description.message);
    let main = format!(
        "<p>This page cannot be shown: {message}.</p>\n\
         <p><code>pgfresh status</code> prints its address, token included.</p>\n"
    );
    let text = page::plain_page("pgfresh", &main);
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (header::CONTENT_SECURITY_POLICY, page::content_policy("") + "; frame-ancestors 'none'"),
    ];
    (problem.status, problem.header.clone().map(|header| [*header]), headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use contract::ErrorCode;
    use lease::LeaseError;

    use super::*;

    async fn text(response: Response) -> String {
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn lease_error_response_keeps_message_and_sqlstate() {
        let error = LeaseError::UnknownTemplate { name: "shop".into(), known: vec!["base".into()] };
        let response = error_response(&Problem::from(error), false);
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(
            text(response).await,
            r#"{"error":{"code":"3D000","message":"template \"shop\" does not exist","detail":"This server has base.","hint":"To have several templates in one server, start it with --template NAME,NAME.","remedy":"serve_template"}}"#
        );
    }

    #[tokio::test]
    async fn integresql_finds_the_message_where_it_looks() {
        let problem = Problem::new(StatusCode::LOCKED, ErrorCode::InUse, "template is already initialized");
        assert_eq!(
            text(error_response(&problem, true)).await,
            r#"{"error":{"code":"55006","message":"template is already initialized"},"message":"template is already initialized"}"#
        );
    }

    #[tokio::test]
    async fn browser_error_page_escapes_message_and_names_command() {
        let problem =
            Problem::new(StatusCode::UNAUTHORIZED, ErrorCode::Unauthorized, "host \"<script>\" & co");
        let response = on_a_page(&problem);
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
        let page = text(response).await;
        assert!(page.contains("&lt;script&gt;&quot; &amp; co") && page.contains("pgfresh status"), "{page}");
        let mut headers = HeaderMap::new();
        assert!(!accepts_html(&headers));
        headers.insert(header::ACCEPT, "text/html,application/xhtml+xml,*/*;q=0.8".parse().unwrap());
        assert!(accepts_html(&headers));
    }
}
