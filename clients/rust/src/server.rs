//! Where databases come from: the server of `pgfresh run`, or else the one that pgfresh finds or starts for us.

use std::collections::HashMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use ureq::http::Method;

use crate::Options;
use crate::api::{Api, Facts};
use crate::error::Error;
use crate::statements::{Limits, Measurement};

/// What pgfresh is asked for.
const SERVE: &[&str] = &["serve", "--shared", "--json"];

/// The variables of a process.
pub(crate) type Environment = HashMap<OsString, OsString>;

/// Hands out databases.
pub(crate) struct Server {
    api: Api,
    /// Whom its databases belong to.
    holder: Option<String>,
    /// pgfresh ends when its standard input does: when this is dropped, or with this process, when the kernel closes it.
    /// None if somebody else started the server.
    _process: Option<Child>,
}

/// The line that pgfresh prints.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Failed { error: Error },
    Ready(Place),
}

/// Where its server is.
#[derive(Deserialize)]
struct Place {
    http_url: String,
    password: String,
    holder: Option<String>,
}

impl Server {
    /// All calls return the same server, or the reason why there is none.
    pub(crate) fn of_this_process() -> Result<Arc<Self>, Error> {
        static JOINED: OnceLock<Result<Arc<Server>, Error>> = OnceLock::new();
        JOINED.get_or_init(|| Self::join(&env::vars_os().collect()).map(Arc::new)).clone()
    }

    /// Finds or starts a server, as these variables say.
    pub(crate) fn join(environment: &Environment) -> Result<Self, Error> {
        let variable = |name: &str| environment.get(OsStr::new(name)).filter(|value| !value.is_empty());
        match variable("PGFRESH_CONTROL") {
            Some(control) => {
                let holder = variable("PGFRESH_HOLDER").map(|holder| holder.to_string_lossy().into_owned());
                Self::existing(&control.to_string_lossy(), holder)
            }
            None => Self::start(variable("PGFRESH_BIN").map(OsString::as_os_str), environment),
        }
    }

    /// The server that somebody else started. No message has the text of `control`, for the secret is in it.
    fn existing(control: &str, holder: Option<String>) -> Result<Self, Error> {
        let parts =
            control.strip_prefix("http://:").and_then(|rest| rest.trim_end_matches('/').split_once('@'));
        let parts = parts
            .and_then(|(secret, address)| Some((percent_decode_str(secret).decode_utf8().ok()?, address)));
        let (secret, address) = parts
            .ok_or_else(|| Error::new("cannot read PGFRESH_CONTROL: it is not http://:SECRET@HOST:PORT"))?;
        Ok(Self { api: Api::new(address, &secret), holder, _process: None })
    }

    /// Runs pgfresh and waits for the line that says where its server is. It may have a template to build first, which
    /// takes as long as the migrations do. What it does and what goes wrong, it says itself.
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
            let status = process.wait().map_err(|error| could_not(&error))?;
            let how = status.code().map_or_else(|| status.to_string(), |code| format!("exit code {code}"));
            return Err(Error::new(format!("pgfresh ended with {how} before it was ready"))
                .hint("Its own message is on standard error."));
        }
        let place = match serde_json::from_str(&line) {
            Ok(Line::Ready(place)) => place,
            Ok(Line::Failed { error }) => {
                // It has said all. This closes its standard input.
                process.wait().map_err(|error| could_not(&error))?;
                return Err(error.in_rust());
            }
            Err(_) => {
                return Err(
                    Error::new(format!("could not read what \"{}\" printed", binary.display())).hint(CHECK)
                );
            }
        };
        let address = place.http_url.trim_start_matches("http://").trim_end_matches('/');
        let api = Api::new(address, &place.password);
        Ok(Self { api, holder: place.holder, _process: Some(process) })
    }

    pub(crate) fn lease(&self, options: &Options) -> Result<Facts, Error> {
        let Options { template, name, isolation, record, limits } = options;
        let record = *record || !limits.is_empty();
        let wishes = Wishes { template, name, isolation, holder: &self.holder, record };
        let facts = self.api.send(Method::POST, "/v1/databases", Some(&wishes))?;
        facts.ok_or_else(|| Error::new("pgfresh answered without a database"))
    }

    /// Resets a database, which ends a test. Returns what to print if that exceeded its budget; pgfresh tells only if a
    /// test or a limit is given.
    pub(crate) fn reset(
        &self,
        name: &str,
        close_sessions: bool,
        test: Option<&str>,
        limits: &Limits,
    ) -> Result<Option<String>, Error> {
        let path = format!("{}/reset", path(name));
        let body = Reset { close_sessions, test: test.map(first), limits };
        let answer = self.api.send::<Ended>(Method::POST, &path, Some(&body))?;
        Ok(answer.and_then(|ended| ended.message))
    }

    /// What has run in a database since it was leased or reset, and whether that exceeds a budget.
    pub(crate) fn measure(&self, name: &str, limits: &Limits) -> Result<Measurement, Error> {
        let path = with_query(format!("{}/statements", path(name)), &limits.query());
        let measurement = self.api.send(Method::GET, &path, None::<&()>)?;
        measurement.ok_or_else(|| Error::new("pgfresh answered without the statements"))
    }

    /// Ends a lease, that of this test. Returns the URL of the database if that was kept.
    pub(crate) fn release(
        &self,
        name: &str,
        failed: bool,
        test: Option<&str>,
    ) -> Result<Option<String>, Error> {
        let failed = failed.then(|| "failed=true".to_owned());
        let test = test.map(|test| format!("test={}", encode(&first(test))));
        let query: Vec<String> = failed.into_iter().chain(test).collect();
        let ended = self.api.send::<Ended>(Method::DELETE, &with_query(path(name), &query), None::<&()>)?;
        Ok(ended.and_then(|ended| ended.url))
    }
}

/// The answer when a test is over.
#[derive(Deserialize)]
struct Ended {
    /// Where the database was kept, if it was.
    url: Option<String>,
    /// What to print if the test exceeded its budget.
    message: Option<String>,
}

/// The body of a request for a database.
#[derive(Serialize)]
struct Wishes<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    template: &'a Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: &'a Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    isolation: &'a Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: &'a Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    record: bool,
}

/// The body of a request for a reset.
#[derive(Serialize)]
struct Reset<'a> {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    close_sessions: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<String>,
    #[serde(flatten)]
    limits: &'a Limits,
}

/// As much of the name of a test as pgfresh keeps.
fn first(test: &str) -> String {
    test.chars().take(1000).collect()
}

fn with_query(path: String, query: &[String]) -> String {
    if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
}

fn path(name: &str) -> String {
    format!("/v1/databases/{}", encode(name))
}

fn encode(text: &str) -> PercentEncode<'_> {
    /// What stands for itself in a URL (RFC 3986, 2.3).
    const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, UNRESERVED)
}

/// What to do where the binary is another one.
const SET: &str = "Set PGFRESH_BIN to where pgfresh is, or unset it.";
const CHECK: &str = "Check that it is pgfresh, in the version of this client. PGFRESH_BIN sets another one.";

/// There is no such program.
fn not_found(named: Option<&OsStr>) -> Error {
    match named {
        Some(named) => Error::new(format!("cannot find \"{}\", which PGFRESH_BIN names", named.display()))
            .hint(SET),
        None => Error::new("cannot find \"pgfresh\"").hint(
            "Install it with the script of its release, sh pgfresh-install.sh, or set PGFRESH_BIN to where it is.",
        ),
    }
}
