//! Client for the control API of a running pgfresh. Commands use the client both within a run and outside of one.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use contract::{ErrorBody, HoldResponse, LeaseRequest, LeaseResponse, Remedy};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use server::{Address, percent_encode};
use ureq::Agent;
use ureq::config::ConfigBuilder;
use ureq::http::{Method, Request};
use ureq::typestate::AgentScope;

use crate::failure::Failure;

/// Variable that contains the URL of the control API, including its secret: `http://:SECRET@127.0.0.1:PORT`.
pub(crate) const VARIABLE: &str = "PGFRESH_CONTROL";
/// Timeout for a request, long enough for copying a large template.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(10);
/// Maximum response size in bytes, large enough for the rows in a diff.
const LONGEST_ANSWER: u64 = 64 << 20;

/// A client for the control API of a running pgfresh.
#[derive(Debug)]
pub(crate) struct Control {
    agent: Agent,
    address: SocketAddr,
    secret: String,
    /// True if the server's address came from [`VARIABLE`].
    is_named: bool,
    _visit: Option<TcpStream>,
}

impl Control {
    /// Returns the server of the `pgfresh run` that started this process, or `None` outside of a run.
    pub(crate) fn of_this_run() -> Result<Option<Self>, Failure> {
        let text = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
        text.map(|text| Ok(Self { is_named: true, ..Self::at(&text)? })).transpose()
    }

    /// Returns this run's server. Outside of a run, calls `other` to find a server.
    pub(crate) fn of_this_run_or(other: impl FnOnce() -> Result<Self, Failure>) -> Result<Self, Failure> {
        Self::of_this_run()?.map_or_else(other, Ok)
    }

    /// Parses a control URL: `http://:SECRET@127.0.0.1:PORT`.
    pub(crate) fn at(text: &str) -> Result<Self, Failure> {
        let unreadable =
            || Failure::new(format!("cannot read {VARIABLE}: expected http://:SECRET@HOST:PORT"));
        let (address, secret) = Address::parse_control_url(text).ok_or_else(unreadable)?;
        let config = direct().timeout_global(Some(ANSWER_TIMEOUT)).http_status_as_error(false).build();
        Ok(Self { agent: config.into(), address, secret, is_named: false, _visit: None })
    }

    /// Opens a connection without sending anything. The server counts this process as a client until the returned value
    /// is dropped.
    pub(crate) fn visit(self) -> io::Result<Self> {
        Ok(Self { _visit: Some(TcpStream::connect(self.address)?), ..self })
    }

    /// Returns the address of `database` on this server.
    pub(crate) fn address(&self, database: &str) -> Address {
        Address::at(self.address, Some(self.secret.clone()), database)
    }

    /// Returns a browser URL for the live page `page`. The URL doesn't contain the secret.
    pub(crate) fn invite(&self, page: &str) -> String {
        api::invite(page, &self.secret)
    }

    /// Sets the variable that [`Control::of_this_run`] reads in `command`'s environment.
    pub(crate) fn describe_to(&self, command: &mut Command) {
        command.env(VARIABLE, self.address("").control_url());
    }

    /// Registers this process as a lease holder. Its leases end as soon as the returned reader is dropped.
    pub(crate) fn hold(&self) -> Result<(String, impl Read + Send + use<>), Failure> {
        let config = direct()
            .timeout_connect(Some(ANSWER_TIMEOUT))
            .timeout_recv_response(Some(ANSWER_TIMEOUT))
            .build();
        let request = Agent::from(config).get(format!("http://{}/v1/hold", self.address));
        let request = request.header("Authorization", format!("Bearer {}", self.secret));
        let response = request.call().map_err(|error| self.unreachable(error))?;
        let mut reader = BufReader::new(response.into_body().into_reader());
        let mut line = String::new();
        reader.read_line(&mut line).map_err(failed)?;
        let HoldResponse { holder } = serde_json::from_str(&line).map_err(failed)?;
        Ok((holder, reader))
    }

    /// Leases a database.
    pub(crate) fn lease(&self, request: &LeaseRequest) -> Result<LeaseResponse, Failure> {
        self.send(&Method::POST, "/v1/databases", request)
    }

    /// Sends a request and returns the response. An empty response body becomes `Null`.
    pub(crate) fn call(&self, method: &Method, path: &str, body: &Value) -> Result<Value, Failure> {
        let text = self.exchange(method, path, body)?;
        if text.is_empty() { Ok(Value::Null) } else { serde_json::from_str(&text).map_err(failed) }
    }

    /// Sends a request and deserializes the response, treating an empty response body as an empty object.
    pub(crate) fn send<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let text = self.exchange(method, path, &serde_json::to_value(body).map_err(failed)?)?;
        serde_json::from_str(if text.is_empty() { "{}" } else { &text }).map_err(failed)
    }

    /// Sends a request and returns the response's body.
    fn exchange(&self, method: &Method, path: &str, body: &Value) -> Result<String, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("Authorization", format!("Bearer {}", self.secret))
            .header("Content-Type", "application/json")
            .body(if body.is_null() { String::new() } else { body.to_string() })
            .map_err(failed)?;
        let mut response = self.agent.run(request).map_err(|error| self.unreachable(error))?;
        let text =
            response.body_mut().with_config().limit(LONGEST_ANSWER).read_to_string().map_err(failed)?;
        if response.status().is_success() {
            return Ok(text);
        }
        let error = serde_json::from_str(&text).map(|body: ErrorBody| Failure::from(body.error));
        Err(error.unwrap_or_else(|_| Failure::new(response.status().to_string())))
    }

    /// Returns true if the server has a leased or kept database with this `name`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.call(&Method::GET, &path_of(name, ""), &Value::Null).is_ok()
    }

    /// Builds the failure for a request that got no response.
    fn unreachable(&self, error: ureq::Error) -> Failure {
        let ureq::Error::Io(error) = error else { return failed(error) };
        let is_over = self.is_named && error.kind() == io::ErrorKind::ConnectionRefused;
        failed(error)
            .hint(is_over.then(|| format!("The run that set {VARIABLE} is over; unset the variable.")))
    }
}

/// Configures an HTTP agent without a proxy, since the server is on this machine or at an address chosen by the user.
fn direct() -> ConfigBuilder<AgentScope> {
    Agent::config_builder().proxy(None)
}

fn failed(what: impl Display) -> Failure {
    Failure::new(format!("could not communicate with the pgfresh server: {what}"))
}

/// Returns the API path for an action on a database.
pub(crate) fn path_of(database: &str, action: &str) -> String {
    format!("/v1/databases/{}{action}", percent_encode(database))
}

/// Replaces the API's hint about open sessions, which mentions a key of the HTTP request, with the command
/// line's `hint`.
pub(crate) fn instead_of_closing(failure: Failure, hint: &str) -> Failure {
    if failure.has_remedy(Remedy::CloseSessions) { failure.hint(hint.to_owned()) } else { failure }
}

/// Returns a JSON string's text, or an empty text for any other value.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_explains_control_variable_of_ended_run() {
        // No process listens on port 1.
        let control = Control { is_named: true, ..Control::at("http://:secret@127.0.0.1:1").unwrap() };
        let failure = control.call(&Method::GET, "/v1/status", &Value::Null).unwrap_err().to_string();
        let expected = "pgfresh: could not communicate with the pgfresh server: Connection refused\n\
            HINT:  The run that set PGFRESH_CONTROL is over; unset the variable.\n";
        assert_eq!(failure, expected);
    }
}
