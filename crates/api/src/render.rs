//! Last of all: problems are put into words, and every response says what all say.

use axum::extract::Request;
use axum::http::{HeaderName, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::json::Json;
use crate::path;
use crate::problem::Problem;

/// What every response says: nothing here is for caches, other pages or guessing.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A problem as clients see it.
#[derive(Serialize)]
struct Report<'a> {
    error: &'a Problem,
    /// The message again, where integresql's clients look for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

/// Puts problems into words, and what every response says on all responses.
pub(crate) async fn render(request: Request, next: Next) -> Response {
    let plain = path::is_integresql(request.uri().path());
    let mut response = next.run(request).await;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = in_words(&problem, plain);
    }
    (HEADERS, response).into_response()
}

/// As JSON; `plain` repeats the message at the top, as integresql words its errors.
fn in_words(problem: &Problem, plain: bool) -> Response {
    let report = Report { error: problem, message: plain.then_some(&problem.message) };
    (problem.status, problem.header.clone().map(|header| [*header]), Json(report)).into_response()
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use lease::LeaseError;

    use super::*;

    async fn text(response: Response) -> String {
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_database_error_keeps_its_words_and_its_code() {
        let error = LeaseError::UnknownTemplate { name: "shop".into(), known: vec!["base".into()] };
        let response = in_words(&Problem::from(error), false);
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(
            text(response).await,
            r#"{"error":{"code":"3D000","message":"template \"shop\" does not exist","detail":"This server has base."}}"#
        );
    }

    #[tokio::test]
    async fn integresql_finds_the_message_where_it_looks() {
        let problem = Problem::new(StatusCode::LOCKED, "55006", "template is already initialized");
        assert_eq!(
            text(in_words(&problem, true)).await,
            r#"{"error":{"code":"55006","message":"template is already initialized"},"message":"template is already initialized"}"#
        );
    }
}
