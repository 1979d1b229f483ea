//! The live page: one file that asks for nothing from anywhere else.

use std::sync::atomic::{AtomicU64, Ordering};

use hyper::Response;
use hyper::header::{self, HeaderMap, HeaderValue};

use crate::answer::{Body, typed};
use crate::guard;
use gateway::Access;

const PAGE: &str = include_str!("page.html");
/// Stands in the file where the nonce goes.
const NONCE: &str = "{nonce}";

/// The page, with a cookie by which it may look on without the secret in its address.
pub(crate) fn page(access: &Access) -> Response<Body> {
    let nonce = nonce(access);
    let mut response = typed("text/html; charset=utf-8", Body::Whole(PAGE.replace(NONCE, &nonce).into()));
    let headers = response.headers_mut();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    set(headers, header::CONTENT_SECURITY_POLICY, &policy);
    set(
        headers,
        header::SET_COOKIE,
        &format!("{}; Path=/; HttpOnly; SameSite=Strict", guard::cookie(access)),
    );
    response
}

fn set(headers: &mut HeaderMap, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Another one for each response, which nobody can guess who has not the secret.
fn nonce(access: &Access) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let key = blake3::derive_key("pgfresh 2026 nonce of the live page", access.secret().as_bytes());
    let serial = NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    blake3::keyed_hash(&key, &serial).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_its_policy_strict() {
        let access = Access::new("secret".into(), "127.0.0.1:5433".parse().unwrap(), None, "/run".into());
        let response = page(&access);
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
        let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
        assert!(cookie.starts_with("pgfresh_5433=") && !cookie.contains("=secret"), "{cookie}");
        let Body::Whole(text) = response.into_body() else { panic!("a stream") };
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(!text.contains(NONCE) && !text.contains("://"), "something of elsewhere");
        assert!(
            !text.contains(" style=\"") && !text.contains(" onclick="),
            "inline, which the policy forbids"
        );
        assert_ne!(nonce(&access), nonce(&access));
    }
}
