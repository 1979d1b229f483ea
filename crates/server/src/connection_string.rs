//! Moves the password in a connection string from a program's arguments to its environment. All users of a
//! machine can read a program's arguments, but only the program's own user can read its environment.
//!
//! Source: `conninfo_parse` and `conninfo_uri_parse_options` in `src/interfaces/libpq/fe-connect.c`. Parsing
//! a string differently from libpq could expose the password, so pgfresh rejects every string that libpq
//! would reject.

use std::process::Command;

/// Secret parameters other than the password. libpq can't read them from environment variables.
const SECRET_PARAMETERS: [&str; 4] =
    ["sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"];

/// Reasons why pgfresh can't pass on a connection string.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionStringError {
    /// libpq couldn't parse the text.
    #[error("cannot read the connection string: {0}")]
    Malformed(&'static str),
    /// The string contains a secret other than the password.
    #[error("cannot use \"{0}\" in a connection string: other users of this machine could read it")]
    Secret(String),
}

impl ConnectionStringError {
    /// Returns advice for the user.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Malformed(_) => {
                "Write postgresql://USER@HOST:PORT/DATABASE, with special characters as %XX, and \
                 the password in PGPASSWORD or ~/.pgpass."
                    .to_owned()
            }
            Self::Secret(_) => {
                "Put the parameters into a service file (PGSERVICEFILE) and write service=NAME.".to_owned()
            }
        }
    }
}

/// A connection string in any format that libpq accepts: a URL, `name=value` pairs, or a database name. The
/// password is stored separately.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectionString {
    open: String,
    password: Option<String>,
}

impl std::fmt::Debug for ConnectionString {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionString").field("open", &self.open).finish_non_exhaustive()
    }
}

impl ConnectionString {
    /// Parses `text` and separates the password from the rest.
    ///
    /// # Errors
    /// Returns an error if libpq would reject the text too, or if the text contains a secret other than the
    /// password.
    pub fn parse(text: &str) -> Result<Self, ConnectionStringError> {
        for scheme in ["postgresql://", "postgres://"] {
            if let Some(rest) = text.strip_prefix(scheme) {
                return parse_url(scheme, rest);
            }
        }
        if text.contains('=') {
            return parse_pairs(text);
        }
        // libpq would take a host with a port for a database name and look for a socket.
        if text.contains([':', '/', '@']) {
            return Err(ConnectionStringError::Malformed("it does not begin with \"postgresql://\""));
        }
        Ok(Self { open: text.to_owned(), password: None })
    }

    /// Returns the connection string without the password.
    #[must_use]
    pub fn without_password(&self) -> &str {
        &self.open
    }

    /// Returns the password, if the connection string has one.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Adds the connection to the arguments and the environment of `command`, a `PostgreSQL` client program.
    pub fn describe_to(&self, command: &mut Command) {
        command.arg(format!("--dbname={}", self.open));
        // If the string has no password, libpq looks for one in the user's own variables and files.
        if let Some(password) = &self.password {
            command.env("PGPASSWORD", password);
        }
    }
}

fn parse_url(scheme: &str, rest: &str) -> Result<ConnectionString, ConnectionStringError> {
    let end = rest.find(['@', '/']).filter(|&end| rest.as_bytes()[end] == b'@');
    let (user, place) = match end {
        Some(end) => (Some(&rest[..end]), &rest[end + 1..]),
        None => (None, rest),
    };
    let (place, query) = place.split_once('?').map_or((place, None), |(place, query)| (place, Some(query)));
    check_ports(place.split('/').next().unwrap_or_default())?;
    let mut password = None;
    let mut open = scheme.to_owned();
    if let Some(user) = user {
        let (name, secret) = user.split_once(':').map_or((user, None), |(name, secret)| (name, Some(secret)));
        open.push_str(name);
        open.push('@');
        // libpq ignores an empty password.
        password = secret.filter(|secret| !secret.is_empty()).map(percent_decode).transpose()?;
    }
    open.push_str(place);
    let mut separator = '?';
    for parameter in query.into_iter().flat_map(|query| query.split('&')) {
        let malformed = ConnectionStringError::Malformed("a parameter after \"?\" is not NAME=VALUE");
        let (name, value) = parameter.split_once('=').ok_or(malformed)?;
        if store_password(&percent_decode(name)?, || percent_decode(value), &mut password)? {
            continue;
        }
        open.push(separator);
        open.push_str(parameter);
        separator = '&';
    }
    Ok(ConnectionString { open, password })
}

/// Rejects hosts with an invalid port. A password that contains `/` instead of `%2F` looks like an invalid
/// port, and libpq would print it.
fn check_ports(hosts: &str) -> Result<(), ConnectionStringError> {
    for host in hosts.split(',') {
        let port = match host.rsplit_once(']') {
            Some((_, port)) => port,
            None => host.split_once(':').map_or("", |(_, port)| port),
        };
        if !port.trim_start_matches(':').bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ConnectionStringError::Malformed("the port is not a number"));
        }
    }
    Ok(())
}

/// Stores the value and returns true if it is the password.
fn store_password(
    name: &str,
    value: impl FnOnce() -> Result<String, ConnectionStringError>,
    password: &mut Option<String>,
) -> Result<bool, ConnectionStringError> {
    if SECRET_PARAMETERS.contains(&name) {
        return Err(ConnectionStringError::Secret(name.to_owned()));
    }
    if name == "password" {
        let value = value()?;
        *password = (!value.is_empty()).then_some(value);
    }
    Ok(name == "password")
}

/// Decodes `%XX` sequences of a URL as libpq does.
///
/// # Errors
/// Returns an error if a `%` isn't followed by two hexadecimal digits, or the result isn't UTF-8 or contains NUL.
pub fn percent_decode(text: &str) -> Result<String, ConnectionStringError> {
    let malformed = || ConnectionStringError::Malformed("\"%\" is not followed by two hexadecimal digits");
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16)).ok_or_else(malformed);
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).ok().filter(|&value| value != 0).ok_or_else(malformed)?);
    }
    String::from_utf8(bytes).map_err(|_| ConnectionStringError::Malformed("it is not UTF-8"))
}

fn parse_pairs(text: &str) -> Result<ConnectionString, ConnectionStringError> {
    let mut open = Vec::new();
    let mut password = None;
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let missing = ConnectionStringError::Malformed("a parameter has no \"=\"");
        let (name, after) = rest.split_once('=').ok_or(missing.clone())?;
        let name = name.trim_end();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(missing);
        }
        let (value, after) = value_of(after.trim_start())?;
        if !store_password(name, || Ok(value.clone()), &mut password)? {
            open.push(format!("{name}='{}'", value.replace('\\', "\\\\").replace('\'', "\\'")));
        }
        rest = after.trim_start();
    }
    Ok(ConnectionString { open: open.join(" "), password })
}

/// Returns the value at the start of `text`, without quotes and backslashes, and the rest of the text.
fn value_of(text: &str) -> Result<(String, &str), ConnectionStringError> {
    let (quoted, text) = text.strip_prefix('\'').map_or((false, text), |text| (true, text));
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => value.extend(characters.next().map(|(_, character)| character)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            _ if !quoted && character.is_whitespace() => return Ok((value, &text[at..])),
            _ => value.push(character),
        }
    }
    if quoted {
        return Err(ConnectionStringError::Malformed("a quoted value does not end"));
    }
    Ok((value, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_removed_in_every_form() {
        for (text, open, password) in [
            ("postgresql://me@db/shop", "postgresql://me@db/shop", None),
            ("postgresql://me:s%2Fe@db:5432/shop", "postgresql://me@db:5432/shop", Some("s/e")),
            ("postgres://:secret@/shop", "postgres://@/shop", Some("secret")),
            ("postgresql://me:@db", "postgresql://me@db", None),
            ("postgresql://me:a:b?c@[::1]:5432,db/x", "postgresql://me@[::1]:5432,db/x", Some("a:b?c")),
            ("postgresql://db/x?a=1&p%61ssword=s%20e&b=2", "postgresql://db/x?a=1&b=2", Some("s e")),
            ("postgresql://me:one@db?password=two", "postgresql://me@db", Some("two")),
            ("postgresql:///x?host=/run/a@b", "postgresql:///x?host=/run/a@b", None),
            ("shop", "shop", None),
            ("service=shop", "service='shop'", None),
            ("host = db password=s\\ e user=me", "host='db' user='me'", Some("s e")),
            ("password='it\\'s' dbname='a b'", "dbname='a b'", Some("it's")),
        ] {
            let parsed = ConnectionString::parse(text).unwrap();
            assert_eq!((parsed.open.as_str(), parsed.password.as_deref()), (open, password), "{text}");
        }
    }

    #[test]
    fn malformed_connection_strings_are_refused() {
        for text in ["127.0.0.1:5432", "db.example/shop", "me@db", "http://db/shop", "me:secret@db/shop"] {
            let error = ConnectionString::parse(text).expect_err(text).to_string();
            assert_eq!(error, "cannot read the connection string: it does not begin with \"postgresql://\"");
        }
    }

    #[test]
    fn other_secrets_are_refused() {
        for text in [
            "postgresql://me:s/ecret@db/shop",
            "postgresql://me:s%zz@db",
            "postgresql://me:s%00@db",
            "postgresql://db/x?password",
            "postgresql://db/x?sslpassword=secret",
            "password='secret",
            "host=db secret password=x",
            "=x",
            "host=db oauth_client_secret=x",
        ] {
            let error = ConnectionString::parse(text).expect_err(text).to_string();
            assert!(!error.contains("ecret@") && !error.contains("'secret"), "{error}");
        }
    }

    #[test]
    fn debug_output_hides_the_password() {
        let parsed = ConnectionString::parse("postgresql://me:secret@db/shop").unwrap();
        let mut command = Command::new("pg_dump");
        parsed.describe_to(&mut command);
        let arguments: Vec<_> = command.get_args().collect();
        assert_eq!(arguments, ["--dbname=postgresql://me@db/shop"]);
        assert!(!format!("{parsed:?}").contains("secret"));
    }
}
