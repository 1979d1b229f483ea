//! Client of the HTTP API.

use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use contract::{ErrorBody, HoldResponse};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::config::ConfigBuilder;
use ureq::http::{Method, Request, Response, StatusCode};
use ureq::typestate::AgentScope;
use ureq::{Agent, BodyReader};

use crate::error::Error;
use crate::trust::Trust;

/// Timeout for a response. The timeouts in pgfresh itself are shorter.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(2);

/// Timeout for a connection to another machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Hints for requests without a response: from a server on this machine, from a server on another machine, and from a
/// server whose certificate can't be verified.
const GONE: &str = "If its server was stopped, start the tests again. If PGFRESH_CONTROL names a run that is over, unset it.";

const UNREACHABLE: &str =
    "Check the host and the port in PGFRESH_CONTROL, and that \"pgfresh serve --listen\" runs there.";
const UNTRUSTED: &str = "PGSSLROOTCERT must name the file of the server's root certificate. pgfresh makes a new one at each start.";

/// Address of a server, and the secret that authorizes requests.
pub(crate) struct Api {
    /// `HOST:PORT`.
    address: String,
    secret: String,
    /// Certificates to trust, for `https`. None for `http`.
    trust: Option<Trust>,
    agent: Agent,
}

/// Open response that has named a holder. The holder ends when this response is closed.
pub(crate) type Lifeline = BufReader<BodyReader<'static>>;

impl Api {
    /// Returns a client that ignores proxy variables in the environment, and doesn't follow redirects or reuse
    /// connections. The server closes idle connections, and if a request fails because of that, a client can't
    /// determine whether the server processed it.
    pub(crate) fn new(address: &str, secret: &str, trust: Option<Trust>) -> Self {
        let config = configuration(trust.as_ref()).timeout_global(Some(RESPONSE_TIMEOUT));
        let agent = config.build().new_agent();
        Self { address: address.to_owned(), secret: secret.to_owned(), trust, agent }
    }

    /// If the client verifies the server, makes drivers do so, too: adds parameters to the database URL.
    pub(crate) fn verify(&self, url: &mut String) {
        if let Some(trust) = &self.trust {
            trust.add_to(url);
        }
    }

    /// Returns the name of a new holder, and the response that must stay open until the holder is to end.
    pub(crate) fn hold(&self) -> Result<(String, Lifeline), Error> {
        let config = configuration(self.trust.as_ref()).timeout_recv_response(Some(RESPONSE_TIMEOUT));
        let agent = config.build().new_agent();
        let mut response = self.run(&agent, Method::GET, "/v1/hold", Vec::new())?;
        if response.status().as_u16() >= 300 {
            return Err(refusal(&mut response));
        }
        let mut lifeline = BufReader::new(response.into_body().into_reader());
        let mut line = String::new();
        lifeline.read_line(&mut line).map_err(|error| self.unreadable(&error))?;
        let HoldResponse { holder } = serde_json::from_str(&line).map_err(|error| self.unreadable(&error))?;
        Ok((holder, lifeline))
    }

    /// Sends a request and decodes the response. Returns None for a response without content.
    pub(crate) fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Option<T>, Error> {
        let content =
            body.map(|body| serde_json::to_vec(body).expect("strings are JSON")).unwrap_or_default();
        let mut response = self.run(&self.agent, method, path, content)?;
        if response.status().as_u16() >= 300 {
            return Err(refusal(&mut response));
        }
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        let text = response.body_mut().read_to_vec().map_err(|error| self.lost(&error))?;
        serde_json::from_slice(&text).map(Some).map_err(|error| self.unreadable(&error))
    }

    /// Sends a request and decodes the response, which must have content.
    pub(crate) fn send_for_answer<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Error> {
        self.send(method, path, body)?.ok_or_else(|| self.unreadable(&"it is empty"))
    }

    fn run(
        &self,
        agent: &Agent,
        method: Method,
        path: &str,
        content: Vec<u8>,
    ) -> Result<Response<ureq::Body>, Error> {
        let scheme = if self.trust.is_some() { "https" } else { "http" };
        let request = Request::builder()
            .method(method)
            .uri(format!("{scheme}://{}{path}", self.address))
            .header("Authorization", format!("Bearer {}", self.secret))
            .body(content)
            .map_err(|error| self.lost(&error.into()))?;
        agent.run(request).map_err(|error| self.lost(&error))
    }

    /// Returns the error for a request without a response.
    fn lost(&self, error: &ureq::Error) -> Error {
        let text = error.to_string();
        let hint = match &self.trust {
            None => GONE,
            Some(_) if text.contains("invalid peer certificate") => UNTRUSTED,
            Some(_) => UNREACHABLE,
        };
        Error::new(format!("could not talk to pgfresh at {}: {text}", self.address)).hint(hint)
    }

    fn unreadable(&self, error: &dyn std::fmt::Display) -> Error {
        Error::new(format!("could not read the response of pgfresh at {}: {error}", self.address))
    }
}

fn configuration(trust: Option<&Trust>) -> ConfigBuilder<AgentScope> {
    let config = Agent::config_builder()
        .max_idle_connections(0)
        .max_redirects(0)
        .proxy(None)
        .http_status_as_error(false);
    match trust {
        Some(trust) => trust.configure(config.timeout_connect(Some(CONNECT_TIMEOUT))),
        None => config,
    }
}

/// Returns the error in the response body. If the body has no error, the returned error contains the status.
fn refusal(response: &mut Response<ureq::Body>) -> Error {
    let body = response.body_mut().read_to_vec().ok().and_then(|text| serde_json::from_slice(&text).ok());
    match body {
        Some(ErrorBody { error, .. }) => error.into(),
        None => Error::new(format!("pgfresh answered with status {}", response.status().as_u16())),
    }
}
