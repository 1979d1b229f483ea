//! Provides an HTTP client for object stores that doesn't trust the announced length of a response.
//!
//! Before `object_store` reads a listing, a token or an error body, it allocates as many bytes as the response
//! announces. If a store announced terabytes, the allocation would abort the process, so this client hides the
//! announced length.
//!
//! `object_store`'s default client would also add HTTP/2 to our binary. All stores speak HTTP/1.1, so this client
//! leaves HTTP/2 out.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use object_store::client::{
    ClientConfigKey, ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest,
    HttpResponse, HttpResponseBody, HttpService,
};
use reqwest::{Client, Request, Url};

/// The user agent for all requests.
const USER_AGENT: &str = concat!("pgfresh/", env!("CARGO_PKG_VERSION"));
/// Maximum response size in bytes: eight times the size of a pack. A longer response fails.
const LONGEST_ANSWER: u64 = 256 << 20;
/// Maximum size of an error response's body, in bytes. Anything beyond that is ignored.
const LONGEST_REFUSAL: u64 = 64 << 10;

/// Creates [`BoundedClient`]s. Supports only the options set by this crate and `object_store`.
#[derive(Debug)]
pub(crate) struct BoundedConnector;

impl HttpConnector for BoundedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let text = |key| options.get_config_value(&key).unwrap_or_default();
        let client = Client::builder()
            .user_agent(USER_AGENT)
            .https_only(text(ClientConfigKey::AllowHttp) != "true")
            .default_headers(options.get_default_headers().cloned().unwrap_or_default());
        let client = match seconds(&text(ClientConfigKey::ConnectTimeout)) {
            Some(timeout) => client.connect_timeout(timeout),
            None => client,
        };
        let failed = |error: reqwest::Error| object_store::Error::Generic {
            store: "HTTP client",
            source: Box::new(error),
        };
        Ok(HttpClient::new(BoundedClient(client.build().map_err(failed)?)))
    }
}

/// Parses an option's duration, e.g., `10s`.
fn seconds(text: &str) -> Option<Duration> {
    text.strip_suffix('s')?.parse().ok().map(Duration::from_secs)
}

#[derive(Debug)]
struct BoundedClient(Client);

impl HttpService for BoundedClient {
    fn call<'client, 'future>(
        &'client self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'future>>
    where
        'client: 'future,
        Self: 'future,
    {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let url: Url = parts.uri.to_string().parse().map_err(unknown)?;
            let mut request = Request::new(parts.method, url);
            *request.headers_mut() = parts.headers;
            // Pass on a body in one piece if possible, since only then can it be resent after a redirect.
            let whole = body.as_bytes().cloned().map(reqwest::Body::from);
            *request.body_mut() = Some(whole.unwrap_or_else(|| reqwest::Body::wrap(body)));
            let answer = self.0.execute(request).await.map_err(without_url)?;
            let (parts, body) = http::Response::<reqwest::Body>::from(answer).into_parts();
            let is_cut = !parts.status.is_success();
            let left = if is_cut { LONGEST_REFUSAL } else { LONGEST_ANSWER };
            Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(BoundedBody { body, left, is_cut })))
        })
    }
}

/// Wraps an error so that `object_store` doesn't retry the request. This crate handles retries itself.
fn unknown(error: impl std::error::Error + Send + Sync + 'static) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
}

fn without_url(error: reqwest::Error) -> HttpError {
    unknown(error.without_url())
}

/// A response body without its announced length.
struct BoundedBody {
    body: reqwest::Body,
    /// How many more bytes can arrive before the limit is reached.
    left: u64,
    /// Whether to ignore the rest of a longer body instead of failing.
    is_cut: bool,
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if self.left == 0 && self.is_cut {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            if bytes > self.left && !self.is_cut {
                return Poll::Ready(Some(Err(unknown(std::io::Error::other("the response is too long")))));
            }
            self.left = self.left.saturating_sub(bytes);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(without_url)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};
    use object_store::client::HttpRequestBody;

    use super::*;
    use crate::error::innermost;
    use crate::objects::CONNECT_TIMEOUT;

    #[test]
    fn the_options_are_those_that_were_set() {
        drop(rustls::crypto::ring::default_provider().install_default());
        let options = ClientOptions::new().with_connect_timeout(CONNECT_TIMEOUT);
        let text = options.get_config_value(&ClientConfigKey::ConnectTimeout).unwrap();
        assert_eq!(seconds(&text), Some(CONNECT_TIMEOUT));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (allowed, said) in [(false, "scheme is not allowed"), (true, "connection refused")] {
            let client = BoundedConnector.connect(&options.clone().with_allow_http(allowed)).unwrap();
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.uri_mut() = "http://127.0.0.1:1/secret".parse().unwrap();
            let why = innermost(&runtime.block_on(client.execute(request)).unwrap_err());
            assert!(why.contains(said) && !why.contains("secret"), "{why}");
        }
    }

    /// Reads a body of four pieces of three bytes each. `left` is the limit.
    fn read(left: u64, is_cut: bool) -> Result<Bytes, HttpError> {
        let pieces = stream::iter(["abc"; 4]).map(Ok::<_, std::io::Error>);
        let body = BoundedBody { body: reqwest::Body::wrap_stream(pieces), left, is_cut };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(HttpResponseBody::new(body).bytes())
    }

    #[test]
    fn overlong_response_fails_and_error_text_is_cut() {
        for (left, is_cut, expected) in [
            (12, false, Some("abcabcabcabc")),
            (11, false, None),
            (6, false, None),
            (12, true, Some("abcabcabcabc")),
            (6, true, Some("abcabc")),
            (5, true, Some("abcabc")),
        ] {
            let found = read(left, is_cut);
            assert_eq!(found.ok().as_deref(), expected.map(str::as_bytes), "{left} {is_cut}");
        }
    }
}
