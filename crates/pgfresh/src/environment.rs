//! What a command learns of its server: variables in the words that drivers know.

use std::fmt::Write as _;
use std::process::Command;

use server::Server;

use crate::failure::Failure;

/// The port in the name of the socket; nothing listens on a network.
const PORT: &str = "5432";
/// What would lead a driver elsewhere than to our server.
const MISLEADING: [&str; 6] =
    ["PGHOSTADDR", "PGSERVICE", "PGSERVICEFILE", "PGPASSWORD", "PGPASSFILE", "PGSSLMODE"];

/// How to reach one database.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) user: &'static str,
    pub(crate) database: String,
}

impl Address {
    /// `database` on `server`, as the superuser.
    pub(crate) fn of(server: &Server, database: &str) -> Self {
        let host = server.run().address().display().to_string();
        Self { host, user: server::SUPERUSER, database: database.to_owned() }
    }

    /// In one line, as libpq and most drivers read it.
    pub(crate) fn url(&self) -> String {
        format!("postgresql://{}@/{}?host={}", self.user, escape(&self.database), escape(&self.host))
    }

    /// Puts the usual variables into the environment of `command`.
    pub(crate) fn describe_to(&self, command: &mut Command) {
        for name in MISLEADING {
            command.env_remove(name);
        }
        command.env("DATABASE_URL", self.url());
        command.env("PGHOST", &self.host).env("PGPORT", PORT);
        command.env("PGUSER", self.user).env("PGDATABASE", &self.database);
    }

    /// Fills in what `NAME=TEMPLATE` asks for.
    pub(crate) fn fill_in(&self, assignment: &str) -> Result<(String, String), Failure> {
        let wrong = |why: &str| {
            let failure = Failure::new(format!("cannot read --env \"{assignment}\": {why}"));
            failure.hint(
                "Write --env 'NAME={url}'; {host}, {port}, {user} and {database} are known too.".to_owned(),
            )
        };
        let (name, mut rest) = assignment.split_once('=').ok_or_else(|| wrong("it is not NAME=TEMPLATE"))?;
        if name.is_empty() {
            return Err(wrong("the name is empty"));
        }
        let mut value = String::new();
        while let Some((before, after)) = rest.split_once('{') {
            let (word, after) = after.split_once('}').ok_or_else(|| wrong("a \"{\" is not closed"))?;
            value.push_str(before);
            match word {
                "url" => value.push_str(&self.url()),
                "host" => value.push_str(&self.host),
                "port" => value.push_str(PORT),
                "user" => value.push_str(self.user),
                "database" => value.push_str(&self.database),
                _ => return Err(wrong(&format!("\"{{{word}}}\" is not known"))),
            }
            rest = after;
        }
        value.push_str(rest);
        Ok((name.to_owned(), value))
    }
}

/// Percent-encodes what has a meaning in a URL; slashes in a query have none. Source: RFC 3986, 3.4.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                escaped.push(byte.into())
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

    fn address() -> Address {
        Address { host: "/run/a b".to_owned(), user: "postgres", database: "shop".to_owned() }
    }

    #[test]
    fn placeholders_are_filled_in_and_unknown_ones_refused() {
        let filled = address().fill_in("URL=x{url}&p={port}").unwrap();
        assert_eq!(filled, ("URL".into(), "xpostgresql://postgres@/shop?host=/run/a%20b&p=5432".into()));
        assert_eq!(address().fill_in("A=").unwrap(), ("A".into(), String::new()));
        for wrong in ["URL", "=x", "A={nothing}", "A={url"] {
            assert!(address().fill_in(wrong).is_err(), "{wrong}");
        }
    }
}
