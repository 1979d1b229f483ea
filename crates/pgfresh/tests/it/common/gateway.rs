//! Running `pgfresh serve` with a template, and direct access to its PostgreSQL server.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::connection::{Address, Connection, Rows, SqlError};
use super::serve::Serve;
use super::{Scene, User, WAIT_TIMEOUT, ground, postgres, wait_until};

/// State of a listening socket. Source: `TCP_LISTEN` in `include/net/tcp_states.h`.
const LISTENS: &str = "0A";

/// Running `pgfresh serve`. Dropping it stops it and proves that it leaves nothing.
pub(crate) struct Gateway {
    pub(crate) serve: Serve,
    pub(crate) major: u32,
}

impl Gateway {
    /// Starts a gateway with PostgreSQL `major`, a template from `sql`, and `options`.
    pub(crate) fn start(major: u32, sql: &str, options: &[&str]) -> Self {
        Self::start_in(Scene::new(User::Ourselves), major, sql, options)
    }

    /// Like [`Self::start`], but with a cache in which no earlier server has left notes.
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

    /// Returns the address of the gateway.
    pub(crate) fn address(&self) -> Address {
        Address::Tcp { address: self.serve.address(), password: self.serve.secret().to_owned() }
    }

    /// Returns the fields of the kernel's table for each connection that the gateway has accepted over TCP, or will accept:
    /// among them 3, the state, and 4, the lengths of the queues. Source: proc(5), `/proc/net/tcp`.
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

    /// Returns the address of the server itself.
    pub(crate) fn server(&self) -> Address {
        Address::Unix(self.socket_directory().join(".s.PGSQL.5432"))
    }

    /// Returns the directory of the server's socket.
    pub(crate) fn socket_directory(&self) -> PathBuf {
        Path::new(self.serve.ready["log"].as_str().unwrap()).with_file_name("socket")
    }

    /// Opens a session with `database` and these `options`.
    pub(crate) fn connect(&self, database: &str, options: &str) -> Result<Connection, SqlError> {
        let parameters = [("options", options)];
        let used = if options.is_empty() { &parameters[..0] } else { &parameters[..] };
        Connection::open(&self.address(), database, used)
    }

    /// Connects like [`Self::connect`], repeatedly until it succeeds, which it must within the timeout.
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

    /// Waits until the server accepts connections, as after a crash.
    pub(crate) fn wait_for_server(&self) {
        wait_until("the server to take connections", || self.direct("postgres", "SELECT 1").is_ok());
    }

    /// Sends an HTTP request. Returns status code and body.
    pub(crate) fn http(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        self.try_http(method, path, body).unwrap()
    }

    /// Sends an HTTP request to a gateway that may have ended.
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

    /// Returns the body of `/v1/status`.
    pub(crate) fn status(&self) -> Value {
        self.http("GET", "/v1/status", "").1
    }

    /// Returns why databases were dropped instead of reset, with counts. Leaves out sessions that took too long to
    /// exit, because they do so on any busy machine.
    pub(crate) fn dropped(&self) -> Value {
        let mut dropped = self.status()["dropped"].take();
        dropped.as_object_mut().unwrap().remove("a session did not end");
        dropped
    }
}
