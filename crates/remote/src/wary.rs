//! Connections to object stores that do not believe what an answer says of its own length.
//!
//! `object_store` makes room for as many bytes as an answer announces before it collects a list, a token or the words of an
//! error. A store that announces terabytes would end the process.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService, ReqwestConnector,
};

/// The longest answer to a request that failed, in bytes; the rest is cut off.
const LONGEST_REFUSAL: u64 = 64 << 10;

/// Makes such connections.
#[derive(Debug, Default)]
pub(crate) struct WaryConnector(ReqwestConnector);

impl HttpConnector for WaryConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(WaryClient(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct WaryClient(HttpClient);

impl HttpService for WaryClient {
    fn call<'client, 'future>(
        &'client self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'future>>
    where
        'client: 'future,
        Self: 'future,
    {
        Box::pin(async move {
            let (parts, body) = self.0.execute(request).await?.into_parts();
            let left = if parts.status.is_success() { u64::MAX } else { LONGEST_REFUSAL };
            Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(WaryBody { body, left })))
        })
    }
}

/// The bytes of an answer, without a word of how many will come.
struct WaryBody {
    body: HttpResponseBody,
    /// After so many more it ends.
    left: u64,
}

impl Body for WaryBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            self.left = self.left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
        }
        Poll::Ready(frame)
    }
}
