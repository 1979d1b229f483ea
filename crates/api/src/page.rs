//! Serves the live page, a single file that doesn't load other resources.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::State;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, SET_COOKIE};
use axum::response::{IntoResponse, Response};
use gateway::Access;
use report::page::STYLE_SHEET;

use crate::{SharedState, guard};

const PAGE: &str = include_str!("page.html");
/// Placeholder for the nonce in the file.
const NONCE: &str = "{nonce}";
/// Placeholder for the style sheet, which the reports share.
const STYLE: &str = "{style}";

/// `GET /`: returns the page and sets a cookie that lets the page read the status, so that its address need not contain
/// the secret.
pub(crate) async fn page(State(api): SharedState) -> Response {
    render(&api.access)
}

fn render(access: &Access) -> Response {
    let nonce = nonce(access);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (CONTENT_SECURITY_POLICY, policy),
        (SET_COOKIE, format!("{}; Path=/; HttpOnly; SameSite=Strict", guard::cookie(access))),
    ];
    (headers, PAGE.replace(NONCE, &nonce).replace(STYLE, STYLE_SHEET)).into_response()
}

/// Returns a new nonce for each response, which clients can't guess without the secret.
fn nonce(access: &Access) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let key = blake3::derive_key("pgfresh 2026 nonce of the live page", access.secret().as_bytes());
    let serial = NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    blake3::keyed_hash(&key, &serial).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_page_is_whole_and_its_policy_strict() {
        let access = Access::new("secret".into(), "127.0.0.1:5433".parse().unwrap(), None);
        let response = render(&access);
        let policy = response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
        let cookie = response.headers()[SET_COOKIE].to_str().unwrap().to_owned();
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
        assert!(cookie.starts_with("pgfresh_5433=") && !cookie.contains("=secret"), "{cookie}");
        let text = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(
            !text.contains(NONCE) && !text.contains(STYLE) && !text.contains("://"),
            "something of elsewhere"
        );
        assert!(
            !text.contains(" style=\"") && !text.contains(" onclick="),
            "inline, which the policy forbids"
        );
        assert_ne!(nonce(&access), nonce(&access));
    }
}
