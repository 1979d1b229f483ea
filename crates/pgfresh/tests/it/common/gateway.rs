//! A `pgfresh serve` with a template, reached as clients reach it, and its PostgreSQL server, reached past the gateway.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::connection::{Address, Connection, Rows, SqlError};
use super::serve::Serve;
use super::{Scene, User, WAIT_TIMEOUT, postgres, wait_until};

/// A running `pgfresh serve`. Dropping it ends it and proves that it leaves nothing.
pub(crate) struct Gateway {
    pub(crate) serve: Serve,
    pub(crate) major: u32,
}

impl Gateway {
    /// Starts one with PostgreSQL `major`, a template that `sql` makes, and `options`.
    pub(crate) fn start(major: u32, sql: &str, options: &[&str]) -> Self {
        let scene = Scene::new(User::Ourselves);
        scene.write("template.sql", sql);
        let postgres = postgres(major);
        let words = [&["--postgres", &postgres, "--sql", "template.sql"], options].concat();
        Self { serve: Serve::at(scene, words), major }
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> Address {
        Address::Tcp { address: self.serve.address(), password: self.serve.secret().to_owned() }
    }

    /// Where the server listens.
    pub(crate) fn server(&self) -> Address {
        Address::Unix(self.socket_directory().join(".s.PGSQL.5432"))
    }

    /// Where the server's socket is.
    pub(crate) fn socket_directory(&self) -> PathBuf {
        Path::new(self.serve.ready["log"].as_str().unwrap()).with_file_name("socket")
    }

    /// A session with `database`, with words for its `options`.
    pub(crate) fn connect(&self, database: &str, options: &str) -> Result<Connection, SqlError> {
        let parameters = [("options", options)];
        let used = if options.is_empty() { &parameters[..0] } else { &parameters[..] };
        Connection::open(&self.address(), database, used)
    }

    /// Like [`Self::connect`], again and again until it succeeds, which it must in time.
    pub(crate) fn connect_in_time(&self, database: &str, options: &str) -> Connection {
        let mut opened = None;
        wait_until(&format!("a session with {database}"), || {
            opened = self.connect(database, options).ok();
            opened.is_some()
        });
        opened.unwrap()
    }

    /// Runs `sql` in a new session on `database` that does not go through the gateway.
    pub(crate) fn direct(&self, database: &str, sql: &str) -> Result<Rows, SqlError> {
        let mut connection = Connection::open(&self.server(), database, &[])?;
        let rows = connection.rows(sql);
        connection.close();
        rows
    }

    /// Waits until the server takes connections, as it does some time after a crash.
    pub(crate) fn wait_for_server(&self) {
        wait_until("the server to take connections", || self.direct("postgres", "SELECT 1").is_ok());
    }

    /// What HTTP answers: the status code and the body.
    pub(crate) fn http(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        self.try_http(method, path, body).unwrap()
    }

    /// The same where it may have ended.
    pub(crate) fn try_http(&self, method: &str, path: &str, body: &str) -> Result<(u16, Value), ureq::Error> {
        let url = format!("http://{}{path}", self.serve.address());
        let token = format!("Bearer {}", self.serve.secret());
        let request = ureq::http::Request::builder().method(method).uri(url);
        let request = request.header("authorization", token).header("content-type", "application/json");
        let config =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(WAIT_TIMEOUT));
        let agent: ureq::Agent = config.build().into();
        let mut response = agent.run(request.body(body.to_owned()).unwrap())?;
        let text = response.body_mut().read_to_string()?;
        Ok((response.status().as_u16(), serde_json::from_str(&text).unwrap_or_default()))
    }

    /// Resets `database` over HTTP, closing its sessions.
    pub(crate) fn reset(&self, database: &str) -> (u16, Value) {
        self.http("POST", &format!("/v1/databases/{database}/reset"), r#"{"close_sessions": true}"#)
    }

    /// What `/v1/status` says.
    pub(crate) fn status(&self) -> Value {
        self.http("GET", "/v1/status", "").1
    }
}
