//! Parses the URL of a remote.
//!
//! Machines share templates through a store, the remote. Its URL can contain a password,
//! so [`RemoteAddress`] parses the URL strictly and never displays the credentials.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use url::{Host, Url};

/// URL of a remote, i.e., a store for shared templates. Its display form hides credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteAddress {
    pub(crate) kind: StoreKind,
    pub(crate) url: Url,
}

/// The protocol of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreKind {
    S3,
    Gcs,
    Azure,
    Http,
    File,
    Oci,
}

/// The supported URL schemes and their protocols.
const SCHEMES: [(&str, StoreKind); 7] = [
    ("s3", StoreKind::S3),
    ("gs", StoreKind::Gcs),
    ("az", StoreKind::Azure),
    ("https", StoreKind::Http),
    ("http", StoreKind::Http),
    ("file", StoreKind::File),
    ("oci", StoreKind::Oci),
];

/// Reasons why a text isn't the address of a remote. The error
/// messages don't repeat the text, because it can contain a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseAddressError {
    /// The text isn't a URL with a known scheme and a host.
    #[error("expected a URL such as \"s3://bucket/prefix\": s3, gs, az, https, file or oci")]
    Url,
    /// The URL has a query or a fragment.
    #[error("expected a URL without \"?\" and \"#\": credentials come from the environment")]
    Query,
    /// The URL has a user name or a password, but this scheme takes them from the environment.
    #[error("expected {0}:// without a password: it comes from the environment")]
    Password(&'static str),
    /// The path of the `file` URL is relative, or on a different host.
    #[error("expected an absolute path, as in \"file:///srv/templates\"")]
    RelativePath,
    /// The `oci` URL doesn't name a repository.
    #[error("expected a repository, as in \"oci://registry.example/team/templates\"")]
    Repository,
    /// The `http` URL names a host other than this machine.
    #[error("expected https: http is for this machine alone, as in \"http://127.0.0.1:8000\"")]
    PlainHttp,
}

impl FromStr for RemoteAddress {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let url = Url::parse(text.trim()).map_err(|_| ParseAddressError::Url)?;
        let known = SCHEMES.iter().find(|(scheme, _)| *scheme == url.scheme());
        let (scheme, kind) = *known.ok_or(ParseAddressError::Url)?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(ParseAddressError::Query);
        }
        let address = Self { kind, url };
        if address.has_secret() && kind != StoreKind::Http {
            return Err(ParseAddressError::Password(scheme));
        }
        match kind {
            StoreKind::File if address.folder().is_none() => Err(ParseAddressError::RelativePath),
            StoreKind::File => Ok(address),
            _ if address.url.host_str().is_none_or(str::is_empty) => Err(ParseAddressError::Url),
            StoreKind::Oci if address.path().is_empty() => Err(ParseAddressError::Repository),
            StoreKind::Http if scheme == "http" && !address.is_loopback() => {
                Err(ParseAddressError::PlainHttp)
            }
            _ => Ok(address),
        }
    }
}

impl RemoteAddress {
    /// Returns true if the URL contains a user name or a password.
    #[must_use]
    pub fn has_secret(&self) -> bool {
        self.url.password().is_some() || !self.url.username().is_empty()
    }

    /// Returns the URL's path without leading and trailing slashes.
    pub(crate) fn path(&self) -> &str {
        self.url.path().trim_matches('/')
    }

    /// Returns the directory of a `file` URL, or `None` if the URL doesn't name a local path.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.url.to_file_path().ok()
    }

    /// Returns true if the URL's host is this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        is_loopback(&self.url)
    }

    /// Returns the host and port as written in the URL.
    pub(crate) fn authority(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }
}

/// Returns true if the host of `url` is this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || loopback_literal(name),
        None => false,
    }
}

/// Returns true if `name` is a loopback address. The `url` crate doesn't parse IP
/// addresses in URLs with a non-standard scheme such as `oci`, so this function does.
fn loopback_literal(name: &str) -> bool {
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.url.clone();
        if self.has_secret() {
            // `set_username` only fails for a URL without a host, which can't have credentials.
            let hidden = shown.set_username("…").and_then(|()| shown.set_password(None));
            debug_assert!(hidden.is_ok());
            return f.write_str(&shown.as_str().replacen("%E2%80%A6", "…", 1));
        }
        f.write_str(shown.as_str())
    }
}

impl fmt::Debug for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteAddress({self})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn remote_address_parses_each_scheme_and_rejects_others() {
        for text in [
            "s3://bucket/prefix",
            "gs://bucket",
            "az://container/a/b",
            "https://cache.example/templates",
            "http://127.0.0.1:8000/x",
            "http://[::1]:8000",
            "http://localhost:1",
            "file:///srv/templates",
            "oci://registry.example:5000/team/templates",
        ] {
            let address: RemoteAddress = text.parse().unwrap();
            assert_eq!(address.to_string().trim_end_matches('/'), text);
        }
        for text in [
            "",
            "bucket",
            "ftp://x/y",
            "s3://",
            "s3:bucket",
            "file://host/x",
            "oci://registry.example",
            "http://cache.example",
            "az://container?sig=secret",
            "oci://user:secret@registry/x",
            "s3://key:secret@bucket",
            "https://x/y#secret",
        ] {
            let why = text.parse::<RemoteAddress>().unwrap_err().to_string();
            assert!(why.starts_with("expected ") && !why.contains("secret"), "{text}: {why}");
        }
    }

    proptest! {
        #[test]
        fn no_password_is_shown(user in "[a-z0-9]{0,8}", password in "[A-Z]{6,12}", path in "[a-z/]{0,12}") {
            let text = format!("https://{user}:{password}@cache.example/{path}");
            let address: RemoteAddress = text.parse().unwrap();
            for shown in [address.to_string(), format!("{address:?}")] {
                prop_assert!(!shown.contains(&password), "{}", shown);
                prop_assert!(shown.contains("cache.example"), "{}", shown);
            }
        }
    }
}
