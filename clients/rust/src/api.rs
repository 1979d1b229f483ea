//! Client of the HTTP API.

use std::time::Duration;

use contract::ErrorBody;
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::Agent;
use ureq::http::{Method, Request, Response, StatusCode};

use crate::error::Error;

/// Timeout for a response. The timeouts of pgfresh itself are shorter.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(2);

/// Hint if there is no response.
const GONE: &str = "If its server was stopped, start the tests again. If PGFRESH_CONTROL names a run that is over, unset it.";

/// Address of a server, and the secret that requests carry.
pub(crate) struct Api {
    /// `HOST:PORT`.
    address: String,
    secret: String,
    agent: Agent,
}

impl Api {
    /// Returns a client that ignores the proxies of the environment and keeps no connections. The server closes idle ones, and
    /// a client cannot tell whether the server has processed a request that fails for this reason.
    pub(crate) fn new(address: &str, secret: &str) -> Self {
        let agent = Agent::config_builder()
            .timeout_global(Some(RESPONSE_TIMEOUT))
            .max_idle_connections(0)
            .proxy(None)
            .http_status_as_error(false)
            .build()
            .new_agent();
        Self { address: address.to_owned(), secret: secret.to_owned(), agent }
    }

    /// Sends a request and decodes the response. Returns None for a response without content.
    pub(crate) fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Option<T>, Error> {
        let unreachable = |error: ureq::Error| {
            Error::new(format!("could not talk to pgfresh at {}: {error}", self.address)).hint(GONE)
        };
        let content =
            body.map(|body| serde_json::to_vec(body).expect("strings are JSON")).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("Authorization", format!("Bearer {}", self.secret))
            .body(content)
            .map_err(|error| unreachable(error.into()))?;
        let mut response = self.agent.run(request).map_err(unreachable)?;
        if response.status().as_u16() >= 300 {
            return Err(refusal(&mut response));
        }
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        let text = response.body_mut().read_to_vec().map_err(unreachable)?;
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            Error::new(format!("could not read the answer of pgfresh at {}: {error}", self.address))
        })
    }
}

/// Returns the error in the body, or one with the status if the body has none.
fn refusal(response: &mut Response<ureq::Body>) -> Error {
    let body = response.body_mut().read_to_vec().ok().and_then(|text| serde_json::from_slice(&text).ok());
    match body {
        Some(ErrorBody { error, .. }) => error.into(),
        None => Error::new(format!("pgfresh answered with status {}", response.status().as_u16())),
    }
}
