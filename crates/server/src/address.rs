//! How clients reach a database of ours: in one line, and in the variables that drivers know.

use std::fmt::Write as _;
use std::process::Command;

use crate::{SUPERUSER, Server};

/// The port in the name of the server's own socket; it listens on no network.
const PORT: u16 = 5432;
/// The server's own socket, in the directory that [`storage::RunDirectory::address`] names.
pub const SOCKET: &str = ".s.PGSQL.5432";
/// What would lead a driver elsewhere than to our server.
const MISLEADING: [&str; 6] =
    ["PGHOSTADDR", "PGSERVICE", "PGSERVICEFILE", "PGPASSWORD", "PGPASSFILE", "PGSSLMODE"];

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
    /// `database` on `server`, as the superuser, with nothing in the way.
    #[must_use]
    pub fn of(server: &Server, database: &str) -> Self {
        let host = server.run().socket_directory().display().to_string();
        Self { host, port: PORT, user: SUPERUSER, password: None, database: database.to_owned() }
    }

    /// In one line, as libpq and most drivers read it.
    #[must_use]
    pub fn url(&self) -> String {
        let Self { host, port, user, password, database } = self;
        let database = escape(database);
        let password = password.as_deref().map(escape);
        if host.starts_with('/') {
            // No host but in the query: some drivers' readers of URLs take none that is empty before an "@".
            let password = password.map_or_else(String::new, |password| format!("&password={password}"));
            return format!(
                "postgresql:///{database}?host={}&port={port}&user={user}{password}",
                escape(host)
            );
        }
        let password = password.map_or_else(String::new, |password| format!(":{password}"));
        format!("postgresql://{user}{password}@{host}:{port}/{database}")
    }

    /// Puts the usual variables into the environment of `command`.
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

/// Percent-encodes what has a meaning in a URL; slashes in a query have none. Source: RFC 3986, 3.4.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                escaped.push(byte.into());
            }
            _ => {
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_meaning_in_a_url_is_escaped() {
        let mut address = Address {
            host: "/run/a b".to_owned(),
            port: PORT,
            user: "postgres",
            password: None,
            database: "shop?é".to_owned(),
        };
        assert_eq!(address.url(), "postgresql:///shop%3F%C3%A9?host=/run/a%20b&port=5432&user=postgres");
        address.port = 5433;
        assert_eq!(address.url(), "postgresql:///shop%3F%C3%A9?host=/run/a%20b&port=5433&user=postgres");
        address.host = "127.0.0.1".to_owned();
        address.password = Some("s:t".to_owned());
        assert_eq!(address.url(), "postgresql://postgres:s%3At@127.0.0.1:5433/shop%3F%C3%A9");
    }
}
