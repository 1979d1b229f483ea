//! Certificates that the client trusts for a server on another machine.

use std::ffi::OsStr;

use percent_encoding::utf8_percent_encode;
use ureq::config::ConfigBuilder;
#[cfg(feature = "tls")]
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::typestate::AgentScope;

use crate::error::Error;
use crate::server::UNRESERVED;

/// Certificates that verify a server, for `https`.
pub(crate) struct Trust {
    #[cfg(feature = "tls")]
    roots: RootCerts,
    /// URL parameters that make drivers verify the server, too.
    parameters: String,
}

impl Trust {
    /// Reads the certificates in `file`, which `PGSSLROOTCERT` names. If `file` is None or `system`, uses
    /// Mozilla's certificates.
    pub(crate) fn read(file: Option<&OsStr>) -> Result<Self, Error> {
        let mut parameters = "sslmode=verify-full".to_owned();
        let file = file.filter(|file| *file != "system");
        if let Some(file) = file {
            let file = file.to_string_lossy();
            parameters.extend(["&sslrootcert=", &utf8_percent_encode(&file, UNRESERVED).to_string()]);
        }
        Self::with(file, parameters)
    }

    #[cfg(feature = "tls")]
    fn with(file: Option<&OsStr>, parameters: String) -> Result<Self, Error> {
        let Some(file) = file else { return Ok(Self { roots: RootCerts::WebPki, parameters }) };
        let unreadable = |error: &dyn std::fmt::Display| {
            let file = file.display();
            Error::new(format!("cannot read the certificate \"{file}\", which PGSSLROOTCERT names: {error}"))
        };
        let text = std::fs::read(file).map_err(|error| unreadable(&error))?;
        let mut roots = Vec::new();
        for item in parse_pem(&text) {
            if let PemItem::Certificate(root) = item.map_err(|error| unreadable(&error))? {
                roots.push(root);
            }
        }
        Ok(Self { roots: RootCerts::new_with_certs(&roots), parameters })
    }

    #[cfg(not(feature = "tls"))]
    fn with(_: Option<&OsStr>, _: String) -> Result<Self, Error> {
        let error = Error::new("PGFRESH_CONTROL is https, which this build of pgfresh-test does not know");
        Err(error.hint("Add features = [\"tls\"] to pgfresh-test in Cargo.toml."))
    }

    #[cfg(feature = "tls")]
    pub(crate) fn configure(&self, config: ConfigBuilder<AgentScope>) -> ConfigBuilder<AgentScope> {
        config.tls_config(TlsConfig::builder().root_certs(self.roots.clone()).build())
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_self, reason = "with the feature, it has certificates")]
    pub(crate) fn configure(&self, config: ConfigBuilder<AgentScope>) -> ConfigBuilder<AgentScope> {
        config
    }

    /// Adds the parameters that make drivers verify the server to a database URL.
    pub(crate) fn add_to(&self, url: &mut String) {
        url.extend([if url.contains('?') { "&" } else { "?" }, &self.parameters]);
    }
}
