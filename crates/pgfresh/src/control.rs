//! Talking to a pgfresh that runs: its HTTP API, from within a command that it has started.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::http::{Method, Request};

use crate::failure::Failure;

/// Where the control API is and its secret: `http://:SECRET@127.0.0.1:PORT`.
pub(crate) const VARIABLE: &str = "PGFRESH_CONTROL";
/// How long an answer may take: a copy of a large template is the longest.
const PATIENCE: Duration = Duration::from_mins(10);

/// A pgfresh that runs.
#[derive(Debug)]
pub(crate) struct Control {
    agent: Agent,
    base: String,
    authorization: String,
}

impl Control {
    /// The one that has started us.
    pub(crate) fn find() -> Result<Self, Failure> {
        let Some(text) = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty()) else {
            let failure = Failure::new("no server of pgfresh to talk to");
            return Err(failure
                .detail(format!("{VARIABLE} is not set."))
                .hint("Call it from within \"pgfresh run -- COMMAND\", which sets it.".to_owned()));
        };
        let parts = text.strip_prefix("http://:").and_then(|rest| rest.rsplit_once('@'));
        let (secret, address) = parts.ok_or_else(|| {
            Failure::new(format!("cannot read {VARIABLE}: it is not http://:SECRET@HOST:PORT"))
        })?;
        let config =
            Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false).build();
        Ok(Self {
            agent: config.into(),
            base: format!("http://{address}"),
            authorization: format!("Bearer {secret}"),
        })
    }

    /// Sends a request and reads its answer; nothing is `Null`.
    pub(crate) fn call(&self, method: &Method, path: &str, body: &Value) -> Result<Value, Failure> {
        let failed = |what: String| Failure::new(format!("could not talk to the server of pgfresh: {what}"));
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("Authorization", &self.authorization)
            .header("Content-Type", "application/json")
            .body(if body.is_null() { String::new() } else { body.to_string() })
            .map_err(|error| failed(error.to_string()))?;
        let mut response = self.agent.run(request).map_err(|error| failed(error.to_string()))?;
        let text = response.body_mut().read_to_string().map_err(|error| failed(error.to_string()))?;
        let value: Value = if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?
        };
        if response.status().is_success() {
            return Ok(value);
        }
        let word = |name: &str| value["error"][name].as_str().map(str::to_owned);
        let message = word("message").unwrap_or_else(|| response.status().to_string());
        Err(Failure::new(message).detail(word("detail")).hint(word("hint")))
    }
}

/// A database's place in the API.
pub(crate) fn path_of(database: &str, action: &str) -> String {
    let mut path = String::from("/v1/databases/");
    for byte in database.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => path.push(byte.into()),
            _ => {
                let _ = write!(path, "%{byte:02X}");
            }
        }
    }
    path + action
}
