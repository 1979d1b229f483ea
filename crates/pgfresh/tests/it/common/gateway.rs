//! Running `pgfresh serve` with a template, and direct access to its PostgreSQL server.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::connection::{Address, Connection, Rows, SqlError};
use super::serve::Serve;
use super::{Scene, User, WAIT_TIMEOUT, ground, postgres, wait_until};

/// State of a listening socket (`TCP_LISTEN` in `include/net/tcp_states.h`).
const LISTENS: &str = "0A";

/// Running `pgfresh serve`. Dropping it stops pgfresh and checks that it leaves nothing behind.
pub(crate) struct Gateway {
    pub(crate) serve: Serve,
    pub(crate) major: u32,
}

impl Gateway {
    /// Starts a gateway with PostgreSQL `major`, a template built from `sql`, and `options`.
    pub(crate) fn start(major: u32, sql: &str, options: &[&str]) -> Self {
        Self::start_in(Scene::new(User::Ourselves), major, sql, options)
    }

    /// Like [`Self::start`], but with a cache where no earlier server has left notes.
    pub(crate) fn start_without_notes(major: u32, sql: &str, options: &[&str]) -> Self {
        let scene = Scene::with_empty_cache(User::Ourselves);
        ground::copy_base_cache(scene.user, &scene.cache);
        Self::start_in(scene, major, sql, options)
    }

    fn start_in(scene: Scene, major: u32, sql: &str, options: &[&str]) -> Self {
        scene.write("template.sql", sql);
        let postgres = postgres(major);
        let words = [&["--postgres", &postgres, "--sql", "template.sql"], options].concat();
        Self { serve: Serve::at(scene, words), major }
    }

    /// Returns the gateway's address.
    pub(crate) fn address(&self) -> Address {
        Address::Tcp { address: self.serve.address(), password: self.serve.secret().to_owned() }
    }

    /// Returns the kernel's table row for each TCP connection that the gateway has accepted or will accept. Field 3
    /// is the state, and field 4 has the queue lengths (see `/proc/net/tcp` in proc(5)).
    pub(crate) fn connections(&self) -> Vec<Vec<String>> {
        let port = format!(":{:04X}", self.serve.ready["port"].as_u64().unwrap());
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let fields = |line: &str| line.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
        table
            .lines()
            .map(fields)
            .filter(|fields| fields[1].ends_with(&port) && fields[3] != LISTENS)
            .collect()
    }

    /// Returns the PostgreSQL server's address.
    pub(crate) fn server(&self) -> Address {
        Address::Unix(self.socket_directory().join(".s.PGSQL.5432"))
    }

    /// Returns the directory with the server's socket.
    pub(crate) fn socket_directory(&self) -> PathBuf {
        Path::new(self.serve.ready["log"].as_str().unwrap()).with_file_name("socket")
    }

    /// Opens a session with `database` and `options`.
    pub(crate) fn connect(&self, database: &str, options: &str) -> Result<Connection, SqlError> {
        let parameters = [("options", options)];
        let used = if options.is_empty() { &parameters[..0] } else { &parameters[..] };
        Connection::open(&self.address(), database, used)
    }

    /// Repeats [`Self::connect`] until it succeeds. Fails if that takes longer than the timeout.
    pub(crate) fn connect_in_time(&self, database: &str, options: &str) -> Connection {
        let mut opened = None;
        wait_until(&format!("a session with {database}"), || {
            opened = self.connect(database, options).ok();
            opened.is_some()
        });
        opened.unwrap()
    }

    /// Runs `sql` in a new session on `database` that bypasses the gateway.
    pub(crate) fn direct(&self, database: &str, sql: &str) -> Result<Rows, SqlError> {
        let mut connection = Connection::open(&self.server(), database, &[])?;
        let rows = connection.rows(sql);
        connection.close();
        rows
    }

    /// Waits until the server accepts connections, such as after a crash.
    pub(crate) fn wait_for_server(&self) {
        wait_until("the server to take connections", || self.direct("postgres", "SELECT 1").is_ok());
    }

    /// Sends an HTTP request. Returns the status code and the body.
    pub(crate) fn http(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        self.try_http(method, path, body).unwrap()
    }

    /// Sends an HTTP request to a gateway that might have ended.
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

    /// Resets `database` over HTTP, which closes its sessions.
    pub(crate) fn reset(&self, database: &str) -> (u16, Value) {
        self.http("POST", &format!("/v1/databases/{database}/reset"), r#"{"close_sessions": true}"#)
    }

    /// Returns the body of `/v1/status`.
    pub(crate) fn status(&self) -> Value {
        self.http("GET", "/v1/status", "").1
    }

    /// Returns the reasons why databases were dropped instead of reset, with counts. Leaves out sessions that took
    /// too long to exit, because that happens on any busy machine.
    pub(crate) fn dropped(&self) -> Value {
        let mut dropped = self.status()["dropped"].take();
        dropped.as_object_mut().unwrap().remove("a session did not end");
        dropped
    }
}
