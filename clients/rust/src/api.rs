//! pgfresh's HTTP.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use ureq::Agent;
use ureq::http::{Method, Request, Response, StatusCode};

use crate::error::Error;

/// How long an answer may take. What pgfresh itself waits for has shorter bounds.
const PATIENCE: Duration = Duration::from_mins(2);

/// What to do where there is no answer.
const GONE: &str = "If its server was stopped, start the tests again. If PGFRESH_CONTROL names a run that is over, unset it.";

/// What a database is.
#[derive(Debug, Deserialize)]
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) jdbc_url: String,
    pub(crate) socket_url: String,
    pub(crate) template: String,
    #[serde(default)]
    pub(crate) recorded: bool,
}

/// Where requests go, and the secret that they carry.
pub(crate) struct Api {
    /// `HOST:PORT`.
    address: String,
    secret: String,
    agent: Agent,
}

impl Api {
    /// Connections are not kept: the server closes those that are idle, and a request that meets that cannot know whether
    /// it was heard. No proxy of the environment has a part in this.
    pub(crate) fn new(address: &str, secret: &str) -> Self {
        let agent = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .max_idle_connections(0)
            .proxy(None)
            .http_status_as_error(false)
            .build()
            .new_agent();
        Self { address: address.to_owned(), secret: secret.to_owned(), agent }
    }

    /// Sends a request, and reads the answer unless it has no content.
    pub(crate) fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Option<T>, Error> {
        let talk = |error: ureq::Error| {
            Error::new(format!("could not talk to pgfresh at {}: {error}", self.address)).hint(GONE)
        };
        let content =
            body.map(|body| serde_json::to_vec(body).expect("strings are JSON")).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("Authorization", format!("Bearer {}", self.secret))
            .body(content)
            .map_err(|error| talk(error.into()))?;
        let mut response = self.agent.run(request).map_err(talk)?;
        if response.status().as_u16() >= 300 {
            return Err(refusal(&mut response));
        }
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        let text = response.body_mut().read_to_vec().map_err(talk)?;
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            Error::new(format!("could not read the answer of pgfresh at {}: {error}", self.address))
        })
    }
}

/// The error in pgfresh's own words, if that is what the body has.
fn refusal(response: &mut Response<ureq::Body>) -> Error {
    #[derive(Deserialize)]
    struct Refusal {
        error: Error,
    }
    let said = response.body_mut().read_to_vec().ok().and_then(|text| serde_json::from_slice(&text).ok());
    match said {
        Some(Refusal { error }) => error.in_rust(),
        None => Error::new(format!("pgfresh answered with status {}", response.status().as_u16())),
    }
}
