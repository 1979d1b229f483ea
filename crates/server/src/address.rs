//! How clients reach a database of ours: in one line, and in the variables that drivers know.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, utf8_percent_encode};

use crate::libpq::MISLEADING;

/// The superuser of every cluster.
pub const SUPERUSER: &str = "postgres";
/// The port in the name of the server's own socket; it listens on no network.
pub(crate) const PORT: u16 = 5432;
/// The server's own socket, in the directory that [`storage::RunDirectory::socket_directory`] names.
pub const SOCKET: &str = ".s.PGSQL.5432";

/// How to reach one database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The directory of a unix socket, or a host.
    pub host: String,
    /// On that host, or in the name of the socket.
    pub port: u16,
    /// Whom to connect as.
    pub user: &'static str,
    /// With what, where that is asked for.
    pub password: Option<String>,
    /// The database.
    pub database: String,
}

impl Address {
    /// `database` behind the unix socket `.s.PGSQL.PORT` in `directory`, as the superuser.
    #[must_use]
    pub fn at_socket(directory: &Path, port: u16, database: &str) -> Self {
        let host = directory.display().to_string();
        Self { host, port, user: SUPERUSER, password: None, database: database.to_owned() }
    }

    /// `database` behind `socket`, as the superuser.
    #[must_use]
    pub fn at(socket: SocketAddr, password: Option<String>, database: &str) -> Self {
        let (host, port) = (socket.ip().to_string(), socket.port());
        Self { host, port, user: SUPERUSER, password, database: database.to_owned() }
    }

    /// In one line, as libpq and most drivers read it.
    #[must_use]
    pub fn url(&self) -> String {
        let (port, user, database) = (self.port, self.user, percent_encode(&self.database));
        if self.host.starts_with('/') {
            // No host but in the query: some drivers' readers of URLs take none that is empty before an "@".
            let host = percent_encode(&self.host);
            let password = self.password_after("&password=");
            return format!("postgresql:///{database}?host={host}&port={port}&user={user}{password}");
        }
        let password = self.password_after(":");
        format!("postgresql://{user}{password}@{}/{database}", self.authority())
    }

    /// The same for the JVM.
    #[must_use]
    pub fn jdbc_url(&self) -> String {
        let password = self.password_after("&password=");
        let (authority, database, user) = (self.authority(), percent_encode(&self.database), self.user);
        format!("jdbc:postgresql://{authority}/{database}?user={user}{password}")
    }

    /// Where HTTP is, with the password as token: what `PGFRESH_CONTROL` says.
    #[must_use]
    pub fn control_url(&self) -> String {
        format!("http://{}@{}", self.password_after(":"), self.authority())
    }

    /// The live page, for a browser, with the password as token.
    #[must_use]
    pub fn page_url(&self) -> String {
        self.http_url() + &self.password_after("?token=")
    }

    /// Where HTTP is, without the password.
    #[must_use]
    pub fn http_url(&self) -> String {
        format!("http://{}/", self.authority())
    }

    /// Reads what [`Self::control_url`] writes: the address and the password.
    #[must_use]
    pub fn parse_control_url(text: &str) -> Option<(SocketAddr, String)> {
        let (password, address) = text.strip_prefix("http://:")?.trim_end_matches('/').rsplit_once('@')?;
        let password = percent_decode_str(password).decode_utf8().ok()?;
        Some((address.parse().ok()?, password.into_owned()))
    }

    /// The password, encoded, after `before`; nothing where there is none.
    fn password_after(&self, before: &str) -> String {
        self.password
            .as_deref()
            .map_or_else(String::new, |password| format!("{before}{}", percent_encode(password)))
    }

    /// Host and port; a colon in the host is told from that before the port.
    fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Puts the usual variables into the environment of `command`, and takes away those that would lead elsewhere.
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

/// All that is not unreserved. Source: RFC 3986, 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes all that may have a meaning in a URL.
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
    fn what_has_a_meaning_in_a_url_is_escaped() {
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
    fn what_is_no_control_url_is_not_read() {
        for text in
            ["", "127.0.0.1:5433", "http://127.0.0.1:5433", "http://:a@host", "http://:%ff@127.0.0.1:1"]
        {
            assert_eq!(Address::parse_control_url(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_control_url_is_read_as_it_was_written(password in "\\PC{1,20}", host in prop::sample::select(vec!["127.0.0.1", "::1"])) {
            let url = address(host, Some(&password), "").control_url();
            let socket = SocketAddr::new(host.parse().unwrap(), 5433);
            prop_assert_eq!(Address::parse_control_url(&url), Some((socket, password)));
        }
    }
}
