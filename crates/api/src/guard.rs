//! Determines whether a request is allowed.
//!
//! Any web page can make a browser send requests to this server, so the guard checks each request's host and origin. It
//! also checks that the request contains the secret in one of several forms.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::uri::{Authority, PathAndQuery};
use axum::http::{Method, Request, StatusCode, Uri};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use contract::{ErrorCode, Remedy};
use gateway::{Access, Advertised};

use crate::problem::Problem;
use crate::{invitation, path};

/// The headers that describe a request's origin, sent by browsers. Source: W3C Fetch Metadata Request Headers.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// Prefix of paths that contain the secret, for clients whose users can configure only a base URL.
const IN_PATH: &str = "/token/";

/// The two addresses of a TCP connection. Unix socket connections have none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Whether the connection uses TLS.
    pub(crate) encrypted: bool,
}

impl Ends {
    fn are_here(self) -> bool {
        self.remote.ip().to_canonical().is_loopback()
    }

    /// Returns the scheme of the connection's URL and this scheme's default port.
    fn scheme(self) -> (&'static str, u16) {
        if self.encrypted { ("https", 443) } else { ("http", 80) }
    }
}

/// The secret found at the start of the path.
#[derive(Clone)]
struct SecretInPath(String);

/// Removes the secret from a path `/token/SECRET/…`, so that the routes see only the rest of the path.
pub(crate) fn take_secret<B>(mut request: Request<B>) -> Request<B> {
    if let Some((secret, uri)) = split(request.uri()) {
        request.extensions_mut().insert(secret);
        *request.uri_mut() = uri;
    }
    request
}

fn split(uri: &Uri) -> Option<(SecretInPath, Uri)> {
    let rest = uri.path().strip_prefix(IN_PATH)?;
    let secret = &rest[..rest.find('/')?];
    let meant = &uri.path_and_query()?.as_str()[IN_PATH.len() + secret.len()..];
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(meant.parse::<PathAndQuery>().ok()?);
    Some((SecretInPath(secret.to_owned()), Uri::from_parts(parts).ok()?))
}

/// Host that the client used to reach the gateway, for the URLs in responses. `None` without TLS: the client is then on
/// this machine and can use the gateway's own address.
#[derive(Debug, Clone)]
pub(crate) struct Reached(pub(crate) Option<Advertised>);

impl Reached {
    /// Reads the host, which [`check`] has found to be valid.
    fn at(host: &str, ends: Option<Ends>) -> Self {
        let ends = ends.filter(|ends| ends.encrypted);
        Self(ends.and_then(|ends| {
            let authority = host.parse::<Authority>().ok()?;
            let port = authority.port_u16().unwrap_or(ends.scheme().1);
            format!("{}:{port}", authority.host()).parse().ok()
        }))
    }
}

/// Accepts or rejects a request.
///
/// # Errors
///
/// Returns 401 if the secret is missing or wrong, and 403 in three cases:
///
/// - The request comes from another machine without TLS.
/// - The header `Host` contains a foreign name. An attacker might have pointed this name at this server.
/// - The request comes from another web site's page.
pub(crate) async fn admit(
    State(access): State<Arc<Access>>,
    Extension(ends): Extension<Option<Ends>>,
    mut request: Request<Body>,
) -> Result<Request<Body>, Problem> {
    let reached = check(&request, &access, ends)?;
    request.extensions_mut().insert(reached);
    Ok(request)
}

fn check<B>(request: &Request<B>, access: &Access, ends: Option<Ends>) -> Result<Reached, Problem> {
    if ends.is_some_and(|ends| !ends.are_here() && !ends.encrypted) {
        let problem = Problem::new(
            StatusCode::FORBIDDEN,
            ErrorCode::Forbidden,
            "HTTP without TLS is allowed only from the same machine",
        );
        return Err(
            problem.hint(Remedy::UseTls, "The secret would cross the network unencrypted: use https.")
        );
    }
    let host = host(request, ends)?;
    own_page(request, host, ends)?;
    // Clients of the unix socket need no secret, just as they need no password for SQL.
    let known = ends.is_none()
        || request.extensions().get::<SecretInPath>().is_some_and(|secret| admits(access, &secret.0))
        || request.headers().get(header::AUTHORIZATION).is_some_and(|value| authorises(access, value))
        || path::query(request.uri(), "token").is_some_and(|secret| admits(access, &secret))
        || *request.method() == Method::GET && has_cookie(request.headers(), access)
        || is_invited(request, access, ends)
        || path::is_integresql(request.uri().path()) && is_neighbour(request, ends);
    if known {
        return Ok(Reached::at(host, ends));
    }
    let problem =
        Problem::new(StatusCode::UNAUTHORIZED, ErrorCode::Unauthorized, "the token is missing or wrong");
    let hint = "Send \"Authorization: Bearer SECRET\", or open the page with \"?token=SECRET\"; the secret is the \
                password in the URL that pgfresh printed.";
    Err(problem.hint(Remedy::SendSecret, hint).header(header::WWW_AUTHENTICATE, "Bearer realm=\"pgfresh\""))
}

/// Returns true if the request comes from the same user's browser, with a valid invitation to the page.
fn is_invited<B>(request: &Request<B>, access: &Access, ends: Option<Ends>) -> bool {
    *request.method() == Method::GET
        && request.uri().path() == "/"
        && path::query(request.uri(), "invitation").is_some_and(|given| invitation::admits(access, &given))
        && ends.is_some_and(|ends| sys::is_own_loopback_peer(ends.remote, ends.local))
}

/// Returns the live page's cookie, which lets a browser read over HTTP but isn't a password for SQL.
///
/// Since browsers send one port's cookies to all ports on the host, the name contains the port and the value isn't the
/// secret itself.
pub(crate) fn cookie(access: &Access) -> String {
    let value = blake3::derive_key("pgfresh 2026 cookie of the live page", access.secret().as_bytes());
    let value = blake3::Hash::from_bytes(value).to_hex();
    format!("pgfresh_{}={value}", access.address().port())
}

/// Returns the client's `Host` header if it names this server.
fn host<B>(request: &Request<B>, ends: Option<Ends>) -> Result<&str, Problem> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().unwrap_or_default(),
        _ => "",
    };
    let ours = |authority: &Authority| match ends {
        None => authority.host().eq_ignore_ascii_case("localhost"),
        // Clients on other machines can use any name for this server, but they need the secret.
        Some(ends) if !ends.are_here() => true,
        Some(ends) => {
            authority.port_u16().unwrap_or(ends.scheme().1) == ends.local.port()
                && is_ours(authority.host(), ends.local.ip())
        }
    };
    let named = host.parse::<Authority>().is_ok_and(|authority| !host.contains('@') && ours(&authority));
    if named && request.uri().authority().is_none_or(ours) {
        return Ok(host);
    }
    let problem = Problem::new(
        StatusCode::FORBIDDEN,
        ErrorCode::Forbidden,
        format!("host \"{host}\" is not an address of this server"),
    );
    Err(match ends {
        Some(ends) => {
            problem.hint(Remedy::AskThisServer, format!("Use \"{}://{}\".", ends.scheme().0, ends.local))
        }
        None => problem.hint(Remedy::AskThisServer, "Use \"http://localhost\"."),
    })
}

fn is_ours(name: &str, local: IpAddr) -> bool {
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let local = local.to_canonical();
    match address {
        Ok(address) => address.to_canonical() == local || address.is_loopback() && local.is_loopback(),
        Err(_) => name.eq_ignore_ascii_case("localhost") && local.is_loopback(),
    }
}

/// Rejects requests that a browser makes on behalf of other web sites' pages. However, any page can link to the live
/// page.
fn own_page<B>(request: &Request<B>, host: &str, ends: Option<Ends>) -> Result<(), Problem> {
    let scheme = ends.map_or("http", |ends| ends.scheme().0);
    let origin = request.headers().get(header::ORIGIN);
    let same = |origin: &HeaderValue| {
        let origin = origin.to_str().ok().and_then(|origin| origin.strip_prefix(scheme)?.strip_prefix("://"));
        origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
    };
    let says = |name: &HeaderName| request.headers().get(name).map(HeaderValue::as_bytes);
    let near = matches!(says(&FETCH_SITE), None | Some(b"same-origin" | b"none"));
    let visit = *request.method() == Method::GET
        && request.uri().path() == "/"
        && says(&FETCH_MODE) == Some(b"navigate");
    if origin.is_none_or(same) && (near || visit) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        ErrorCode::Forbidden,
        "cannot serve requests from a page of a different origin",
    ))
}

fn admits(access: &Access, secret: &str) -> bool {
    access.is_secret(secret.as_bytes())
}

/// Returns true if the header contains the secret, either as `Bearer SECRET` or as any user's password in `Basic`.
fn authorises(access: &Access, value: &HeaderValue) -> bool {
    let Some((scheme, rest)) = value.to_str().ok().and_then(|value| value.split_once(' ')) else {
        return false;
    };
    if scheme.eq_ignore_ascii_case("bearer") {
        return access.is_secret(rest.trim().as_bytes());
    }
    let decoded = BASE64_STANDARD.decode(rest.trim()).unwrap_or_default();
    let password = decoded.iter().position(|byte| *byte == b':').map(|colon| &decoded[colon + 1..]);
    scheme.eq_ignore_ascii_case("basic") && password.is_some_and(|password| access.is_secret(password))
}

fn has_cookie(headers: &HeaderMap, access: &Access) -> bool {
    let right = blake3::hash(cookie(access).as_bytes());
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    // Comparing digests takes constant time.
    cookies.flat_map(|value| value.split(';')).any(|pair| blake3::hash(pair.trim().as_bytes()) == right)
}

/// Returns true if the client isn't a browser but a program that the same user runs on this machine. This check
/// replaces the token, which integresql's clients don't send. Other users must not see the responses, because these
/// contain the secret.
fn is_neighbour<B>(request: &Request<B>, ends: Option<Ends>) -> bool {
    let from_page =
        request.headers().contains_key(header::ORIGIN) || request.headers().contains_key(FETCH_SITE);
    !from_page && ends.is_some_and(|ends| sys::is_own_loopback_peer(ends.remote, ends.local))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        Access::new("secret".into(), "127.0.0.1:5433".parse().unwrap(), None)
    }

    /// Returns the addresses of a nonexistent connection. The kernel associates no user with it, so only the secret
    /// counts.
    fn far() -> Ends {
        Ends {
            local: "192.0.2.1:5433".parse().unwrap(),
            remote: "127.0.0.1:999".parse().unwrap(),
            encrypted: false,
        }
    }

    #[test]
    fn the_secret_is_not_taken_from_other_machines() {
        let ends = Ends { remote: "192.0.2.2:999".parse().unwrap(), ..far() };
        let headers = [("host", "192.0.2.1:5433"), ("authorization", "Bearer secret")];
        assert_eq!(asked("GET", "/v1/status", &headers, Some(ends)), Some(StatusCode::FORBIDDEN));
        assert_eq!(asked("GET", "/v1/status", &headers, Some(far())), None);
        // With TLS, the server accepts any host name but still rejects requests without the secret.
        let ends = Ends { encrypted: true, ..ends };
        for host in ["192.0.2.1:5433", "balancer.example", "evil.example:5433"] {
            let asked =
                |secret| asked("GET", "/v1/status", &[("host", host), ("authorization", secret)], Some(ends));
            assert_eq!(asked("Bearer secret"), None);
            assert_eq!(asked("Bearer guess"), Some(StatusCode::UNAUTHORIZED));
        }
    }

    fn near() -> Ends {
        Ends {
            local: "127.0.0.1:5433".parse().unwrap(),
            remote: "127.0.0.1:999".parse().unwrap(),
            encrypted: false,
        }
    }

    fn asked(method: &str, uri: &str, headers: &[(&str, &str)], ends: Option<Ends>) -> Option<StatusCode> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = take_secret(request.body(()).unwrap());
        check(&request, &access(), ends).err().map(|problem| problem.status)
    }

    #[test]
    fn the_secret_comes_in_many_forms() {
        let cookie = cookie(&access());
        let host = ("host", "192.0.2.1:5433");
        for (method, uri, header, expected) in [
            ("POST", "/v1/databases", ("authorization", "Bearer secret"), None),
            ("POST", "/v1/databases", ("authorization", "bearer secret"), None),
            ("POST", "/v1/databases", ("authorization", "Basic YW55OnNlY3JldA=="), None),
            ("POST", "/v1/databases", ("authorization", "Basic OnNlY3JldA=="), None),
            ("GET", "/?a=b&token=s%65cret", ("accept", "*/*"), None),
            ("POST", "/token/secret/api/v1/templates", ("accept", "*/*"), None),
            ("GET", "/v1/events", ("cookie", &format!("a=b; {cookie}")), None),
            ("DELETE", "/v1/databases/a", ("cookie", &cookie), Some(StatusCode::UNAUTHORIZED)),
            ("GET", "/v1/events", ("cookie", "pgfresh_5433=secret"), Some(StatusCode::UNAUTHORIZED)),
            ("GET", "/", ("authorization", "Bearer Secret"), Some(StatusCode::UNAUTHORIZED)),
            ("GET", "/", ("authorization", "Bearer"), Some(StatusCode::UNAUTHORIZED)),
            ("GET", "/", ("authorization", "Basic c2VjcmV0"), Some(StatusCode::UNAUTHORIZED)),
            ("GET", "/?token=", ("accept", "*/*"), Some(StatusCode::UNAUTHORIZED)),
            ("GET", "/token/secret", ("accept", "*/*"), Some(StatusCode::UNAUTHORIZED)),
            ("GET", "/api/v1/templates/a/tests", ("accept", "*/*"), Some(StatusCode::UNAUTHORIZED)),
        ] {
            assert_eq!(
                asked(method, uri, &[host, header], Some(far())),
                expected,
                "{method} {uri} {header:?}"
            );
        }
    }

    #[test]
    fn foreign_hosts_are_refused_even_with_the_secret() {
        let token = ("authorization", "Bearer secret");
        for (host, ends, welcome) in [
            ("127.0.0.1:5433", Some(near()), true),
            ("localhost:5433", Some(near()), true),
            ("LOCALHOST:5433", Some(near()), true),
            ("[::1]:5433", Some(near()), true),
            ("192.0.2.1:5433", Some(far()), true),
            ("localhost", None, true),
            ("evil.example", None, false),
            ("127.0.0.1", Some(near()), false),
            ("127.0.0.1:5434", Some(near()), false),
            ("192.0.2.1:5433", Some(near()), false),
            ("localhost:5433", Some(far()), false),
            ("evil.example:5433", Some(near()), false),
            ("localhost@127.0.0.1:5433", Some(near()), false),
            ("", Some(near()), false),
        ] {
            let refused = asked("GET", "/", &[("host", host), token], ends);
            assert_eq!(refused, (!welcome).then_some(StatusCode::FORBIDDEN), "{host} at {ends:?}");
        }
        let twice = [("host", "127.0.0.1:5433"), ("host", "127.0.0.1:5433"), token];
        assert_eq!(asked("GET", "/", &twice, Some(near())), Some(StatusCode::FORBIDDEN));
        let absolute = asked("GET", "http://evil.example:5433/", &twice[1..], Some(near()));
        assert_eq!(absolute, Some(StatusCode::FORBIDDEN));
    }

    #[test]
    fn foreign_origins_are_refused_but_navigation_is_allowed() {
        let same = [("host", "127.0.0.1:5433"), ("authorization", "Bearer secret")];
        let refused = Some(StatusCode::FORBIDDEN);
        for (uri, header, expected) in [
            ("/v1/events", ("origin", "http://127.0.0.1:5433"), None),
            ("/v1/events", ("origin", "http://127.0.0.1:8080"), refused),
            ("/v1/events", ("origin", "https://127.0.0.1:5433"), refused),
            ("/v1/events", ("origin", "null"), refused),
            ("/v1/events", ("sec-fetch-site", "same-origin"), None),
            ("/v1/events", ("sec-fetch-site", "same-site"), refused),
            ("/v1/events", ("sec-fetch-site", "cross-site"), refused),
            ("/", ("sec-fetch-site", "none"), None),
            ("/", ("sec-fetch-site", "cross-site"), refused),
        ] {
            let headers = [same[0], same[1], header];
            assert_eq!(asked("GET", uri, &headers, Some(near())), expected, "{uri} {header:?}");
        }
        let encrypted = Ends { encrypted: true, ..near() };
        for (origin, expected) in [("https://127.0.0.1:5433", None), ("http://127.0.0.1:5433", refused)] {
            let headers = [same[0], same[1], ("origin", origin)];
            assert_eq!(asked("GET", "/v1/events", &headers, Some(encrypted)), expected, "{origin}");
        }
        let usual = Ends { local: "127.0.0.1:443".parse().unwrap(), ..encrypted };
        assert_eq!(asked("GET", "/v1/events", &[("host", "localhost"), same[1]], Some(usual)), None);
        let foreign = [("host", "evil.example:5433"), same[1]];
        assert_eq!(asked("GET", "/v1/events", &foreign, Some(encrypted)), refused);
        let visit = [same[0], same[1], ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        assert_eq!(asked("GET", "/", &visit, Some(near())), None);
        assert_eq!(asked("GET", "/v1/status", &visit, Some(near())), refused);
    }
}
