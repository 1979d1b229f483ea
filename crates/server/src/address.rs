//! Formats a database's address in the forms that drivers expect: a URL, a JDBC URL or environment variables.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, utf8_percent_encode};

use crate::libpq::MISLEADING;

/// The superuser of every cluster.
pub const SUPERUSER: &str = "postgres";
/// The port number in the name of the server's own socket. The server doesn't listen on any network address.
pub(crate) const PORT: u16 = 5432;
/// File name of the server's own socket, in [`storage::RunDirectory::socket_directory`].
pub const SOCKET: &str = ".s.PGSQL.5432";

/// The address of one database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The directory of a Unix socket, a host name, or an IP address.
    pub host: String,
    /// The TCP port, or the port number in the socket's name.
    pub port: u16,
    /// The user to connect as.
    pub user: &'static str,
    /// The password, or `None` if the server doesn't ask for one.
    pub password: Option<String>,
    /// The database name.
    pub database: String,
}

impl Address {
    /// Returns the superuser's address for `database`, through the Unix socket `.s.PGSQL.PORT` in
    /// `directory`.
    #[must_use]
    pub fn at_socket(directory: &Path, port: u16, database: &str) -> Self {
        let host = directory.display().to_string();
        Self { host, port, user: SUPERUSER, password: None, database: database.to_owned() }
    }

    /// Returns the superuser's address for `database`, through the TCP address `socket`.
    #[must_use]
    pub fn at(socket: SocketAddr, password: Option<String>, database: &str) -> Self {
        let (host, port) = (socket.ip().to_string(), socket.port());
        Self { host, port, user: SUPERUSER, password, database: database.to_owned() }
    }

    /// Returns the URL in the format accepted by libpq and most drivers.
    #[must_use]
    pub fn url(&self) -> String {
        let (port, user, database) = (self.port, self.user, percent_encode(&self.database));
        if self.host.starts_with('/') {
            // Put the host into the URL's query part, because some drivers can't parse an empty host after
            // the "@".
            let host = percent_encode(&self.host);
            let password = self.password_after("&password=");
            return format!("postgresql:///{database}?host={host}&port={port}&user={user}{password}");
        }
        let password = self.password_after(":");
        format!("postgresql://{user}{password}@{}/{database}", self.authority())
    }

    /// Returns the JDBC URL of this database.
    #[must_use]
    pub fn jdbc_url(&self) -> String {
        let password = self.password_after("&password=");
        let (authority, database, user) = (self.authority(), percent_encode(&self.database), self.user);
        format!("jdbc:postgresql://{authority}/{database}?user={user}{password}")
    }

    /// Returns the URL of pgfresh's HTTP interface, with the password as the token. `PGFRESH_CONTROL`
    /// contains this value.
    #[must_use]
    pub fn control_url(&self) -> String {
        format!("http://{}@{}", self.password_after(":"), self.authority())
    }

    /// Returns the live page's URL for a browser, with the password as the token.
    #[must_use]
    pub fn page_url(&self) -> String {
        self.http_url() + &self.password_after("?token=")
    }

    /// Returns the URL of pgfresh's HTTP interface without the password.
    #[must_use]
    pub fn http_url(&self) -> String {
        format!("http://{}/", self.authority())
    }

    /// Splits a URL from [`Self::control_url`] into its address and password.
    #[must_use]
    pub fn parse_control_url(text: &str) -> Option<(SocketAddr, String)> {
        let (password, address) = text.strip_prefix("http://:")?.trim_end_matches('/').rsplit_once('@')?;
        let password = percent_decode_str(password).decode_utf8().ok()?;
        Some((address.parse().ok()?, password.into_owned()))
    }

    /// Returns `before` followed by the encoded password, or an empty string if there is no password.
    fn password_after(&self, before: &str) -> String {
        self.password
            .as_deref()
            .map_or_else(String::new, |password| format!("{before}{}", percent_encode(password)))
    }

    /// Returns `HOST:PORT`, with brackets around a host that contains a colon.
    fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Sets `DATABASE_URL` and libpq's variables in the environment of `command`, and removes variables that
    /// would direct the command to another server.
    pub fn describe_to(&self, command: &mut Command) {
        for name in MISLEADING {
            command.env_remove(name);
        }
        command.env("DATABASE_URL", self.url());
        command.env("PGHOST", &self.host).env("PGPORT", self.port.to_string());
        command.env("PGUSER", self.user).env("PGDATABASE", &self.database);
        if let Some(password) = &self.password {
            command.env("PGPASSWORD", password);
        }
    }
}

/// Characters that must be encoded: all except the unreserved ones. Source: RFC 3986, 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes every character that can have a special meaning in a URL.
#[must_use]
pub fn percent_encode(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(host: &str, password: Option<&str>, database: &str) -> Address {
        let password = password.map(str::to_owned);
        Address {
            host: host.to_owned(),
            port: 5433,
            user: "postgres",
            password,
            database: database.to_owned(),
        }
    }

    #[test]
    fn url_characters_are_escaped() {
        let socket = address("/run/a b", None, "shop?é");
        assert_eq!(socket.url(), "postgresql:///shop%3F%C3%A9?host=%2Frun%2Fa%20b&port=5433&user=postgres");
        let network = address("127.0.0.1", Some("s:t/u"), "a/b@c");
        assert_eq!(network.url(), "postgresql://postgres:s%3At%2Fu@127.0.0.1:5433/a%2Fb%40c");
        assert_eq!(
            network.jdbc_url(),
            "jdbc:postgresql://127.0.0.1:5433/a%2Fb%40c?user=postgres&password=s%3At%2Fu"
        );
        assert_eq!(address("::1", None, "a").url(), "postgresql://postgres@[::1]:5433/a");
    }

    #[test]
    fn invalid_control_urls_are_refused() {
        for text in
            ["", "127.0.0.1:5433", "http://127.0.0.1:5433", "http://:a@host", "http://:%ff@127.0.0.1:1"]
        {
            assert_eq!(Address::parse_control_url(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn control_urls_are_read_back(password in "\\PC{1,20}", host in prop::sample::select(vec!["127.0.0.1", "::1"])) {
            let url = address(host, Some(&password), "").control_url();
            let socket = SocketAddr::new(host.parse().unwrap(), 5433);
            prop_assert_eq!(Address::parse_control_url(&url), Some((socket, password)));
        }
    }
}
