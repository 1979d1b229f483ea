//! Connects to the server that leases databases: the one that `pgfresh run` has started, or the background server,
//! which the binary joins or starts.

use std::collections::HashMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, BufReader, ErrorKind};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use contract::{
    EndOfTest, ErrorBody, FaultDescription, FaultList, FaultRequest, LeaseRequest, LeaseResponse,
    Measurement, ReplicaRequest, ResetRequest,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, utf8_percent_encode};
use serde::Deserialize;
use ureq::http::Method;

use crate::Options;
use crate::api::{Api, Lifeline};
use crate::error::Error;
use crate::statements::Limits;
use crate::trust::Trust;

/// Arguments of the binary.
const SERVE: &[&str] = &["serve", "--shared", "--json"];

/// How long the binary may take to end after its standard input closes.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Environment variables of a process.
pub(crate) type Environment = HashMap<OsString, OsString>;

/// Server that leases databases.
pub(crate) struct Server {
    api: Api,
    /// Process whose databases pgfresh releases when the process ends. None within `pgfresh run`.
    holder: Option<String>,
    /// Connection to a server on another machine. The holder ends when this connection closes.
    _lifeline: Option<Mutex<Lifeline>>,
    /// The binary, which ends when its standard input closes: when this field is dropped, or when this process ends.
    /// None if a parent process started the server.
    _process: Option<Child>,
}

/// Line that the binary prints.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Failed(ErrorBody),
    Ready(ServerInfo),
}

/// Address and password of a server.
#[derive(Deserialize)]
struct ServerInfo {
    http_url: String,
    password: String,
    holder: Option<String>,
}

impl Server {
    /// Returns the server of this process. All calls return the same server or the same error.
    pub(crate) fn of_this_process() -> Result<Arc<Self>, Error> {
        static JOINED: OnceLock<Result<Arc<Server>, Error>> = OnceLock::new();
        JOINED.get_or_init(|| Self::join(&env::vars_os().collect()).map(Arc::new)).clone()
    }

    /// Returns the server that `environment` names, or starts the binary.
    pub(crate) fn join(environment: &Environment) -> Result<Self, Error> {
        let variable = |name: &str| environment.get(OsStr::new(name)).filter(|value| !value.is_empty());
        match variable("PGFRESH_CONTROL") {
            Some(control) => {
                let holder = variable("PGFRESH_HOLDER").map(|holder| holder.to_string_lossy().into_owned());
                let root = variable("PGSSLROOTCERT").map(OsString::as_os_str);
                Self::existing(&control.to_string_lossy(), holder, root)
            }
            None => Self::start(variable("PGFRESH_BIN").map(OsString::as_os_str), environment),
        }
    }

    /// Returns the server at `control`, which a parent process has started or which runs on another machine. The error
    /// doesn't quote `control`, because it contains the secret.
    fn existing(control: &str, holder: Option<String>, root: Option<&OsStr>) -> Result<Self, Error> {
        let unreadable = || Error::new("cannot read PGFRESH_CONTROL: it is not http[s]://:SECRET@HOST:PORT");
        let (scheme, rest) = control.split_once("://:").ok_or_else(unreadable)?;
        let (secret, address) = rest.trim_end_matches('/').split_once('@').ok_or_else(unreadable)?;
        let secret = percent_decode_str(secret).decode_utf8().map_err(|_| unreadable())?;
        if secret.is_empty() || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(unreadable());
        }
        let trust = match scheme {
            "http" => None,
            "https" => Some(Trust::read(root)?),
            _ => return Err(unreadable()),
        };
        let begins_hold = trust.is_some() && holder.is_none();
        let server = Self { api: Api::new(address, &secret, trust), holder, _lifeline: None, _process: None };
        if !begins_hold {
            return Ok(server);
        }
        let (holder, lifeline) = server.api.hold()?;
        Ok(Self { holder: Some(holder), _lifeline: Some(Mutex::new(lifeline)), ..server })
    }

    /// Runs the binary and waits for the line with the address of the server. The binary may build a template first,
    /// which takes as long as the migrations. The binary reports progress and errors on standard error.
    fn start(named: Option<&OsStr>, environment: &Environment) -> Result<Self, Error> {
        let binary = named.unwrap_or(OsStr::new("pgfresh"));
        let could_not = |error: &dyn std::fmt::Display| {
            Error::new(format!("cannot run \"{}\": {error}", binary.display())).hint(SET)
        };
        let mut process = Command::new(binary)
            .args(SERVE)
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => not_found(named),
                _ => could_not(&error),
            })?;
        let mut line = String::new();
        let output = process.stdout.take().expect("it is a pipe");
        BufReader::new(output).read_line(&mut line).map_err(|error| could_not(&error))?;
        if line.is_empty() {
            let status = end(&mut process).map_err(|error| could_not(&error))?;
            let how = status.code().map_or_else(|| status.to_string(), |code| format!("exit code {code}"));
            return Err(Error::new(format!("pgfresh ended with {how} before it was ready"))
                .hint("Its own message is on standard error."));
        }
        let server = match serde_json::from_str(&line) {
            Ok(Line::Ready(server)) => server,
            Ok(Line::Failed(ErrorBody { error, .. })) => {
                end(&mut process).map_err(|error| could_not(&error))?;
                return Err(error.into());
            }
            Err(_) => {
                end(&mut process).map_err(|error| could_not(&error))?;
                return Err(
                    Error::new(format!("could not read what \"{}\" printed", binary.display())).hint(CHECK)
                );
            }
        };
        let address = server.http_url.trim_start_matches("http://").trim_end_matches('/');
        let api = Api::new(address, &server.password, None);
        Ok(Self { api, holder: server.holder, _lifeline: None, _process: Some(process) })
    }

    pub(crate) fn lease(&self, options: &Options) -> Result<LeaseResponse, Error> {
        let Options { template, name, isolation, record, limits } = options;
        let record = *record || !limits.is_empty();
        let request = LeaseRequest {
            template: template.clone(),
            name: name.clone(),
            isolation: isolation.clone(),
            holder: self.holder.clone(),
            record,
        };
        let mut leased: LeaseResponse =
            self.api.send_for_answer(Method::POST, "/v1/databases", Some(&request))?;
        self.api.verify(&mut leased.url);
        self.api.verify(&mut leased.jdbc_url);
        leased.replica_url.iter_mut().for_each(|url| self.api.verify(url));
        Ok(leased)
    }

    /// Resets a database, which ends a test. pgfresh checks the budget only if the request has a `test` or a limit.
    pub(crate) fn reset(
        &self,
        name: &str,
        close_sessions: bool,
        test: Option<&str>,
        limits: &Limits,
    ) -> Result<EndOfTest, Error> {
        let path = format!("{}/reset", path(name));
        let Limits { statements, n_plus_one, time } = limits.clone();
        let body = ResetRequest { close_sessions, test: test.map(shortened), statements, n_plus_one, time };
        Ok(self.api.send(Method::POST, &path, Some(&body))?.unwrap_or_default())
    }

    /// Makes the replica of a database lag.
    pub(crate) fn set_replica_lag(&self, name: &str, lag: &str) -> Result<(), Error> {
        let path = format!("{}/replica", path(name));
        let body = ReplicaRequest { lag: lag.to_owned() };
        self.api.send::<()>(Method::POST, &path, Some(&body)).map(drop)
    }

    /// Promotes the replica of a database.
    pub(crate) fn promote_replica(&self, name: &str) -> Result<(), Error> {
        let path = format!("{}/promote", path(name));
        self.api.send::<()>(Method::POST, &path, None::<&()>).map(drop)
    }

    /// Requests a fault of a database.
    pub(crate) fn fault(&self, name: &str, request: &FaultRequest) -> Result<(), Error> {
        let path = format!("{}/faults", path(name));
        self.api.send::<FaultDescription>(Method::POST, &path, Some(request)).map(|_| ())
    }

    /// Returns the faults requested since the lease or the last reset.
    pub(crate) fn faults(&self, name: &str) -> Result<FaultList, Error> {
        let path = format!("{}/faults", path(name));
        self.api.send_for_answer(Method::GET, &path, None::<&()>)
    }

    /// Returns the statements that ran since the lease or the last reset, with a message if they exceed `limits`.
    pub(crate) fn measure(&self, name: &str, limits: &Limits) -> Result<Measurement, Error> {
        let path = with_query(format!("{}/statements", path(name)), &limits.query());
        self.api.send_for_answer(Method::GET, &path, None::<&()>)
    }

    /// Ends a lease.
    pub(crate) fn release(&self, name: &str, failed: bool, test: Option<&str>) -> Result<EndOfTest, Error> {
        let failed = failed.then(|| "failed=true".to_owned());
        let test = test.map(|test| format!("test={}", encode(&shortened(test))));
        let query: Vec<String> = failed.into_iter().chain(test).collect();
        let path = with_query(path(name), &query);
        let mut ended: EndOfTest = self.api.send(Method::DELETE, &path, None::<&()>)?.unwrap_or_default();
        if let Some(url) = &mut ended.url {
            self.api.verify(url);
        }
        Ok(ended)
    }
}

/// Closes the standard input of a program and waits for its end. Kills a program that doesn't end in time, because
/// `PGFRESH_BIN` may name a program that isn't pgfresh.
fn end(process: &mut Child) -> io::Result<ExitStatus> {
    drop(process.stdin.take());
    let deadline = Instant::now() + END_TIMEOUT;
    while Instant::now() < deadline {
        if let Some(status) = process.try_wait()? {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(5));
    }
    process.kill()?;
    process.wait()
}

/// Returns the first 1000 characters of a test name, because pgfresh doesn't store longer names.
fn shortened(test: &str) -> String {
    test.chars().take(1000).collect()
}

fn with_query(path: String, query: &[String]) -> String {
    if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
}

fn path(name: &str) -> String {
    format!("/v1/databases/{}", encode(name))
}

/// Characters to escape: all except the unreserved characters (RFC 3986, 2.3).
pub(crate) const UNRESERVED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn encode(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, UNRESERVED)
}

/// Hint for a binary that is missing or can't run.
const SET: &str = "Set PGFRESH_BIN to where pgfresh is, or unset it.";
/// Hint for a binary that isn't pgfresh.
const CHECK: &str = "Check that it is pgfresh, in the version of this client. PGFRESH_BIN sets another one.";

/// Returns the error for a missing binary.
fn not_found(named: Option<&OsStr>) -> Error {
    match named {
        Some(named) => {
            Error::new(format!("cannot find \"{}\", which PGFRESH_BIN names", named.display())).hint(SET)
        }
        None => Error::new("cannot find \"pgfresh\"").hint(&install_hint(std::env::consts::OS)),
    }
}

/// Returns the hint for a missing binary. `system` is a value of `std::env::consts::OS`. "make install" isn't for
/// macOS, because its scripts need a newer bash than macOS has.
fn install_hint(system: &str) -> String {
    let command = match system {
        "linux" => "make install",
        "macos" => "cargo install --locked --path crates/pgfresh",
        _ => {
            return format!(
                "pgfresh runs on Linux and macOS, not on {system}. \
                 Run the tests in WSL 2, or set PGFRESH_CONTROL to a server on another machine."
            );
        }
    };
    format!("Run \"{command}\" in a checkout of pgfresh, or set PGFRESH_BIN to where it is.")
}

#[cfg(test)]
mod tests {
    use super::install_hint;

    #[test]
    fn missing_binary_has_a_hint_for_the_system() {
        for (system, command) in [("linux", "make install"), ("macos", "cargo install ")] {
            assert!(install_hint(system).starts_with(&format!("Run \"{command}")), "{system}");
        }
        let hint = install_hint("windows");
        assert!(
            hint.starts_with("pgfresh runs on Linux and macOS, not on windows. Run the tests in WSL 2"),
            "{hint}"
        );
    }
}
