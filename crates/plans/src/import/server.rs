//! Parses the production server's URL, and determines the password and the encryption of the connection.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ::server::ConnectionString;
use postgres::config::{Host, SslMode};
use postgres::{Client, Config, NoTls};

use super::error::{ImportError, reason};
use super::password_file::{self, Login};
use super::tls::{Authorities, Encryption, Verification};

/// `application_name` of the session.
const APPLICATION_NAME: &str = "pgfresh";
/// Timeout for connecting, if the URL doesn't set one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the server may leave TCP packets unacknowledged before pgfresh considers it gone.
const GONE_TIMEOUT: Duration = Duration::from_secs(30);

/// A server to read statistics from.
pub struct StatisticsServer {
    config: Config,
    /// How to verify the server. `None` if the connection is never encrypted.
    verification: Option<Verification>,
}

impl StatisticsServer {
    /// Returns true if `text` is a database URL. Other texts may be file paths.
    #[must_use]
    pub fn is_url(text: &str) -> bool {
        ["postgresql://", "postgres://"].iter().any(|scheme| text.starts_with(scheme))
    }

    /// Parses a URL. If the URL doesn't contain a password, uses the one from `PGPASSWORD` or the password file.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is invalid, or if a file that it requires is missing.
    pub fn from_url(url: &str) -> Result<Self, ImportError> {
        Self::new(url, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn new(url: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, ImportError> {
        let parsed = ConnectionString::parse(url).map_err(|error| ImportError::Url(error.to_string()))?;
        let Parameters { rest, mode, root } = Parameters::split(parsed.without_password())?;
        let mode = mode.or_else(|| variable("PGSSLMODE"));
        let root = root.or_else(|| variable("PGSSLROOTCERT"));
        let mut config = Config::from_str(&rest).map_err(|error| ImportError::Url(reason(&error)))?;
        complete(&mut config, &variable);
        config.application_name(APPLICATION_NAME);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(GONE_TIMEOUT);
        }
        if let Some(password) = parsed.password().map(str::to_owned).or_else(|| variable("PGPASSWORD")) {
            config.password(password);
        } else if let Some(password) = stored_password(&config, variable("PGPASSFILE"))? {
            config.password(password);
        }
        let (ssl_mode, verification) = encryption(mode.as_deref(), root.as_deref())?;
        let is_local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        if is_local {
            config.ssl_mode(SslMode::Disable);
            return Ok(Self { config, verification: None });
        }
        config.ssl_mode(ssl_mode);
        Ok(Self { config, verification })
    }

    pub(super) fn connect(&self) -> Result<Client, ImportError> {
        let client = match &self.verification {
            Some(verification) => self.config.connect(Encryption::new(verification)?),
            None => self.config.connect(NoTls),
        };
        client.map_err(|error| ImportError::Connect { server: self.location(), reason: reason(&error) })
    }

    /// Returns the host and port, or the socket directory.
    pub(super) fn location(&self) -> String {
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => format!("{host}:{port}"),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => "localhost".to_owned(),
        }
    }
}

/// URL parameters that the driver doesn't support, and the remaining URL.
struct Parameters {
    rest: String,
    mode: Option<String>,
    root: Option<String>,
}

impl Parameters {
    fn split(url: &str) -> Result<Self, ImportError> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut root, mut others) = (None, None, Vec::new());
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslmode", value)) => mode = Some(decoded(value)?),
                Some(("sslrootcert", value)) => root = Some(decoded(value)?),
                _ => others.push(parameter),
            }
        }
        let rest = if others.is_empty() { place.to_owned() } else { format!("{place}?{}", others.join("&")) };
        Ok(Self { rest, mode, root })
    }
}

fn decoded(value: &str) -> Result<String, ImportError> {
    ::server::percent_decode(value).map_err(|error| ImportError::Url(error.to_string()))
}

/// Returns the password from the user's password file.
fn stored_password(config: &Config, path: Option<String>) -> Result<Option<String>, ImportError> {
    let path = path.map(PathBuf::from).or_else(|| Some(std::env::home_dir()?.join(".pgpass")));
    let (Some(path), Some(user)) = (path, config.get_user()) else { return Ok(None) };
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let database = config.get_dbname().unwrap_or(user);
    password_file::find(&path, &Login { host: &host, port, database, user })
}

/// Returns the driver's SSL mode and the certificate checks for the given `sslmode` and `sslrootcert`.
fn encryption(
    mode: Option<&str>,
    root: Option<&str>,
) -> Result<(SslMode, Option<Verification>), ImportError> {
    let authorities = match root {
        Some("system") => Some(Authorities::System),
        Some(path) => Some(Authorities::File(PathBuf::from(path))),
        None => default_authorities(),
    };
    let default = if root == Some("system") { "verify-full" } else { "prefer" };
    let mode = mode.unwrap_or(default);
    if root == Some("system") && mode != "verify-full" {
        let reason = format!("sslmode={mode} is too weak for sslrootcert=system: use verify-full");
        return Err(ImportError::Url(reason));
    }
    let needed = |authorities: Option<Authorities>| {
        authorities.ok_or_else(|| {
            ImportError::Url(format!(
                "sslmode={mode} needs the certificate of an authority: name its file with sslrootcert, or write \
                 sslrootcert=system"
            ))
        })
    };
    Ok(match mode {
        "disable" => (SslMode::Disable, None),
        "allow" | "prefer" => (SslMode::Prefer, Some(Verification::None)),
        // Like libpq, check the certificate if there are authorities to check it with.
        "require" => {
            (SslMode::Require, Some(authorities.map_or(Verification::None, Verification::Authority)))
        }
        "verify-ca" => (SslMode::Require, Some(Verification::Authority(needed(authorities)?))),
        "verify-full" => (SslMode::Require, Some(Verification::Name(needed(authorities)?))),
        _ => {
            let modes = "disable, allow, prefer, require, verify-ca or verify-full";
            return Err(ImportError::Url(format!("sslmode is not {modes}")));
        }
    })
}

/// Returns the file that libpq reads if `sslrootcert` isn't set. `None` if the file doesn't exist.
fn default_authorities() -> Option<Authorities> {
    let path = std::env::home_dir()?.join(".postgresql/root.crt");
    path.is_file().then_some(Authorities::File(path))
}

/// Adds the host, port, user and database that the URL lacks, from the same variables as libpq. The host defaults to
/// `localhost`.
fn complete(config: &mut Config, variable: impl Fn(&str) -> Option<String>) {
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        config.host(&variable("PGHOST").unwrap_or_else(|| "localhost".to_owned()));
    }
    if config.get_ports().is_empty()
        && let Some(port) = variable("PGPORT").and_then(|port| port.parse().ok())
    {
        config.port(port);
    }
    if config.get_user().is_none()
        && let Some(user) = variable("PGUSER")
    {
        config.user(&user);
    }
    if config.get_dbname().is_none()
        && let Some(database) = variable("PGDATABASE")
    {
        config.dbname(&database);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> StatisticsServer {
        StatisticsServer::new(url, |_| None).unwrap()
    }

    fn error(url: &str) -> String {
        StatisticsServer::new(url, |_| None).err().expect(url).to_string()
    }

    #[test]
    fn encryption_follows_the_url() {
        let file = || Authorities::File(PathBuf::from("/a b/root.crt"));
        let root = "sslrootcert=/a%20b/root.crt";
        for (parameters, mode, verification) in [
            ("sslmode=disable".to_owned(), SslMode::Disable, None),
            ("connect_timeout=3&sslmode=prefer".to_owned(), SslMode::Prefer, Some(Verification::None)),
            (format!("sslmode=require&{root}"), SslMode::Require, Some(Verification::Authority(file()))),
            (format!("sslmode=verify-ca&{root}"), SslMode::Require, Some(Verification::Authority(file()))),
            (format!("sslmode=verify-full&{root}"), SslMode::Require, Some(Verification::Name(file()))),
            (
                "sslrootcert=system".to_owned(),
                SslMode::Require,
                Some(Verification::Name(Authorities::System)),
            ),
        ] {
            let server = server(&format!("postgresql://me:secret@db/shop?{parameters}"));
            assert_eq!(server.config.get_ssl_mode(), mode, "{parameters}");
            assert_eq!(server.verification, verification, "{parameters}");
            assert_eq!(server.config.get_password(), Some(&b"secret"[..]));
        }
        assert_eq!(server("postgresql:///shop?host=/run/x&sslmode=require").verification, None);
    }

    #[test]
    fn wrong_urls_are_errors_without_passwords() {
        for (url, expected) in [
            ("postgresql://me:secret@db?sslmode=secure", "sslmode is not disable, allow"),
            ("postgresql://me:secret@db?sslmode=require&sslrootcert=system", "too weak"),
            ("postgresql://me:sec/ret@db", "the port is not a number"),
            ("postgresql://me:secret@db?sslcert=x", "unknown option `sslcert`"),
            ("postgresql://me:secret@db?sslmode=%zz", "hexadecimal"),
        ] {
            let error = error(url);
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn variables_complete_the_url() {
        let variable = |name: &str| match name {
            "PGPASSWORD" => Some("hidden".to_owned()),
            "PGSSLMODE" => Some("require".to_owned()),
            "PGSSLROOTCERT" => Some("/root.crt".to_owned()),
            _ => None,
        };
        let server = StatisticsServer::new("postgresql://me@db/shop", variable).unwrap();
        assert_eq!(server.config.get_password(), Some(&b"hidden"[..]));
        let root = Authorities::File(PathBuf::from("/root.crt"));
        assert_eq!(server.verification, Some(Verification::Authority(root)));
        let variable = |name: &str| match name {
            "PGHOST" => Some("/run/x".to_owned()),
            "PGPORT" => Some("6000".to_owned()),
            "PGUSER" | "PGDATABASE" => Some("me".to_owned()),
            _ => None,
        };
        let server = StatisticsServer::new("postgresql://", variable).unwrap();
        assert_eq!(server.config.get_hosts(), [Host::Unix("/run/x".into())]);
        assert_eq!(server.config.get_ports(), [6000]);
        assert_eq!((server.config.get_user(), server.config.get_dbname()), (Some("me"), Some("me")));
        let server = StatisticsServer::new("postgresql://you@db:5433/shop", variable).unwrap();
        assert_eq!(server.config.get_hosts(), [Host::Tcp("db".to_owned())]);
        assert_eq!((server.config.get_ports(), server.config.get_user()), (&[5433][..], Some("you")));
    }
}
