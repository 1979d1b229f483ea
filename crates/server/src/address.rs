//! How clients reach a database of ours: in one line, and in the variables that drivers know.

use std::fmt::Write as _;
use std::process::Command;

use crate::{SUPERUSER, Server};

/// The port in the name of the socket; nothing listens on a network.
pub(crate) const PORT: &str = "5432";
/// What would lead a driver elsewhere than to our server.
const MISLEADING: [&str; 6] =
    ["PGHOSTADDR", "PGSERVICE", "PGSERVICEFILE", "PGPASSWORD", "PGPASSFILE", "PGSSLMODE"];

/// How to reach one database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The directory of the socket.
    pub host: String,
    /// Whom to connect as.
    pub user: &'static str,
    /// The database.
    pub database: String,
}

impl Address {
    /// `database` on `server`, as the superuser.
    #[must_use]
    pub fn of(server: &Server, database: &str) -> Self {
        let host = server.run().address().display().to_string();
        Self { host, user: SUPERUSER, database: database.to_owned() }
    }

    /// The number in the name of the socket.
    #[must_use]
    pub fn port(&self) -> &'static str {
        PORT
    }

    /// In one line, as libpq and most drivers read it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgresql://{}@/{}?host={}", self.user, escape(&self.database), escape(&self.host))
    }

    /// Puts the usual variables into the environment of `command`.
    pub fn describe_to(&self, command: &mut Command) {
        for name in MISLEADING {
            command.env_remove(name);
        }
        command.env("DATABASE_URL", self.url());
        command.env("PGHOST", &self.host).env("PGPORT", PORT);
        command.env("PGUSER", self.user).env("PGDATABASE", &self.database);
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
        let address =
            Address { host: "/run/a b".to_owned(), user: "postgres", database: "shop?é".to_owned() };
        assert_eq!(address.url(), "postgresql://postgres@/shop%3F%C3%A9?host=/run/a%20b");
    }
}
