//! Defines the arguments of `pgfresh serve`.
// clap prints these doc comments as help, so they must be plain text.
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes)]

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use gateway::Advertised;

use super::options::Options;
use super::run::ServiceOptions;
use super::values::{port, server_name};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pgfresh serve --json\n  pgfresh serve --name dev --port 54321\n\n\
    The server stops when its standard input closes. If the program that starts it keeps the pipe open, the server ends \
    with that program, even if the program crashes.")]
pub(crate) struct Serve {
    /// TCP port, for PostgreSQL and HTTP [default: any free port]
    #[arg(long, value_name = "N", env = "PGFRESH_PORT", hide_env = true, default_value_t = 0)]
    #[arg(hide_default_value = true, value_parser = port)]
    pub(crate) port: u16,
    /// Address to listen on [default: 127.0.0.1]
    ///
    /// If other machines can reach this address, the server requires SCRAM, accepts TLS, and serves them HTTP only over TLS.
    #[arg(long, value_name = "ADDRESS", env = "PGFRESH_LISTEN", hide_env = true)]
    pub(crate) listen: Option<IpAddr>,
    /// Host, and port if different, in the URLs that clients get [default: the address to listen on]
    #[arg(long, value_name = "HOST[:PORT]", env = "PGFRESH_ADVERTISE", hide_env = true)]
    #[arg(hide_short_help = true)]
    pub(crate) advertise: Option<Advertised>,
    /// Accept TLS with the certificate chain in this file (PEM)
    #[arg(long, value_name = "FILE", env = "PGFRESH_TLS_CERT", hide_env = true)]
    #[arg(hide_short_help = true, requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the --tls-cert certificate (PEM)
    #[arg(long, value_name = "FILE", env = "PGFRESH_TLS_KEY", hide_env = true)]
    #[arg(hide_short_help = true, requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Name of a development server, which keeps its data, port and password between starts
    #[arg(long, value_name = "NAME", value_parser = server_name)]
    pub(crate) name: Option<String>,
    /// Discard the data of the server with this --name, and begin again from the template
    #[arg(long, requires = "name")]
    pub(crate) reset: bool,
    #[command(flatten)]
    pub(crate) service: ServiceOptions,
    /// Use a database of the project's background server instead of starting a server
    #[arg(long, conflicts_with_all = ["port", "listen", "advertise", "name", "paranoid", "keep_failed", "tls", "tls_cert"])]
    pub(crate) shared: bool,
    /// Print the server's address as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(super) options: Options,
}
