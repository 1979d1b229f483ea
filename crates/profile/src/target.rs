//! The server that is watched, and sessions of our own with it.

use std::str::FromStr;
use std::time::{Duration, Instant};

use postgres::config::{Host, SslMode};
use postgres::{Client, Config, NoTls};
use server::{SUPERUSER, Server};

use crate::ProfileError;

/// How long it may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The bound that the server has for each of our questions; a look takes a millisecond.
const ANSWER: &str = "-c statement_timeout=10s";
/// What was sent is acknowledged within this time, or the server is gone.
const GONE_TIMEOUT: Duration = Duration::from_secs(30);
/// What our sessions are called: those of other parts of pgfresh too.
pub(crate) const OURSELVES: &str = "pgfresh";

/// How to reach the server that is to be watched.
#[derive(Debug, Clone)]
pub struct Target {
    config: Config,
    /// Whether it was started by us.
    ours: bool,
}

impl Target {
    /// A server of ours, straight through its own socket.
    #[must_use]
    pub fn of(server: &Server) -> Self {
        let mut config = Config::new();
        config.host_path(server.run().socket_directory()).user(SUPERUSER).dbname("postgres");
        Self { config: config.clone(), ours: true }.prepared()
    }

    /// A server that pgfresh did not start.
    ///
    /// # Errors
    /// It is no URL, or asks for encryption.
    pub fn at(url: &str) -> Result<Self, ProfileError> {
        let mut config = Config::from_str(url).map_err(ProfileError::Url)?;
        if config.get_ssl_mode() == SslMode::Require {
            return Err(ProfileError::Encryption);
        }
        // As libpq does: it is not among the arguments then, which all users can read.
        if let (None, Ok(password)) = (config.get_password(), std::env::var("PGPASSWORD")) {
            config.password(password);
        }
        if config.get_user().is_none() {
            config.user(SUPERUSER);
        }
        Ok(Self { config, ours: false }.prepared())
    }

    fn prepared(mut self) -> Self {
        // What comes last counts.
        let theirs = self.config.get_options().map(|theirs| format!("{theirs} "));
        let options = theirs.unwrap_or_default() + ANSWER;
        self.config.application_name(OURSELVES).options(&options);
        if self.config.get_connect_timeout().is_none() {
            self.config.connect_timeout(CONNECT_TIMEOUT);
        }
        if self.config.get_tcp_user_timeout().is_none() {
            self.config.tcp_user_timeout(GONE_TIMEOUT);
        }
        self
    }

    /// Whether it was started by us.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.ours
    }

    /// Host and port, or the folder of its socket.
    #[must_use]
    pub fn place(&self) -> String {
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => format!("{host}:{port}"),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => "localhost".to_owned(),
        }
    }

    pub(crate) fn connect(&self) -> Result<Client, ProfileError> {
        self.config.connect(NoTls).map_err(ProfileError::Connect)
    }

    /// How long it takes a client to begin a session, in seconds; `None` if it cannot.
    #[must_use]
    pub fn time_of_a_session(&self) -> Option<f64> {
        let begun = Instant::now();
        let session = self.connect().ok()?;
        let took = begun.elapsed();
        drop(session);
        Some(took.as_secs_f64())
    }
}

/// Whether process `pid`, as the server knows it, is that backend to us as well, so that we can look at it.
pub(crate) fn is_visible(pid: i32) -> bool {
    u32::try_from(pid).is_ok_and(|pid| sys::command_line(pid).starts_with(b"postgres: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_url_stay() {
        let of = |url: &str| Target::at(url).unwrap().config.get_options().unwrap().to_owned();
        assert_eq!(of("postgresql://localhost/x"), "-c statement_timeout=10s");
        let url = "postgresql://localhost/x?options=-c%20role%3Dreader";
        assert_eq!(of(url), "-c role=reader -c statement_timeout=10s");
    }
}
