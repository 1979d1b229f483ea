//! Defines the server that pgfresh observes and connects to it.

use std::str::FromStr;
use std::time::{Duration, Instant};

use postgres::config::{Host, SslMode};
use postgres::{Client, Config, NoTls};
use server::{SUPERUSER, Server};

use crate::ProfileError;

/// Timeout for connecting, if the URL doesn't set one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Statement timeout of pgfresh's own sessions. A sample only takes about a millisecond, so this timeout is generous.
const STATEMENT_TIMEOUT: &str = "-c statement_timeout=10s";
/// How long a server may leave TCP packets unacknowledged before pgfresh considers it gone.
const GONE_TIMEOUT: Duration = Duration::from_secs(30);
/// `application_name` of all of pgfresh's own sessions.
pub(crate) const APPLICATION_NAME: &str = "pgfresh";

/// The server to observe, with the options for connecting to it.
#[derive(Debug, Clone)]
pub struct Target {
    config: Config,
    /// True if pgfresh started the server.
    is_own_server: bool,
}

impl Target {
    /// Returns the target for a server that pgfresh started. The connection uses the server's own socket.
    #[must_use]
    pub fn of(server: &Server) -> Self {
        let mut config = Config::new();
        config.host_path(server.run().socket_directory()).user(SUPERUSER).dbname("postgres");
        Self { config: config.clone(), is_own_server: true }.with_defaults()
    }

    /// Returns the target for a server that pgfresh didn't start.
    ///
    /// # Errors
    ///
    /// Returns an error if the text isn't a valid URL or if the URL requires encryption.
    pub fn from_url(url: &str) -> Result<Self, ProfileError> {
        let mut config = Config::from_str(url).map_err(ProfileError::Url)?;
        if config.get_ssl_mode() == SslMode::Require {
            return Err(ProfileError::Encryption);
        }
        // Read the password from the environment, as libpq does. As a program argument, it would be visible
        // to all users.
        if let (None, Ok(password)) = (config.get_password(), std::env::var("PGPASSWORD")) {
            config.password(password);
        }
        if config.get_user().is_none() {
            config.user(SUPERUSER);
        }
        Ok(Self { config, is_own_server: false }.with_defaults())
    }

    fn with_defaults(mut self) -> Self {
        // If an option occurs twice, the last one wins.
        let theirs = self.config.get_options().map(|theirs| format!("{theirs} "));
        let options = theirs.unwrap_or_default() + STATEMENT_TIMEOUT;
        self.config.application_name(APPLICATION_NAME).options(&options);
        if self.config.get_connect_timeout().is_none() {
            self.config.connect_timeout(CONNECT_TIMEOUT);
        }
        if self.config.get_tcp_user_timeout().is_none() {
            self.config.tcp_user_timeout(GONE_TIMEOUT);
        }
        self
    }

    /// Returns true if pgfresh started the server.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.is_own_server
    }

    /// Returns the server's host and port, or its Unix socket's directory.
    #[must_use]
    pub fn location(&self) -> String {
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

    /// Opens and closes a session. Returns the seconds until the session was ready, or `None` if it couldn't be opened.
    #[must_use]
    pub fn measure_session_start(&self) -> Option<f64> {
        let begun = Instant::now();
        let session = self.connect().ok()?;
        let took = begun.elapsed();
        drop(session);
        Some(took.as_secs_f64())
    }
}

/// Returns true if `pid`, as reported by the server, is a PostgreSQL backend on this machine and in pgfresh's PID
/// namespace.
pub(crate) fn is_visible(pid: i32) -> bool {
    u32::try_from(pid).is_ok_and(|pid| sys::command_line(pid).starts_with(b"postgres: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_keeps_options_of_url() {
        let of = |url: &str| Target::from_url(url).unwrap().config.get_options().unwrap().to_owned();
        assert_eq!(of("postgresql://localhost/x"), "-c statement_timeout=10s");
        let url = "postgresql://localhost/x?options=-c%20role%3Dreader";
        assert_eq!(of(url), "-c role=reader -c statement_timeout=10s");
    }
}
