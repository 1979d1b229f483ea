//! Starts servers with the settings that published articles recommend, on disk or in RAM.
//!
//! Users find these settings on the web, so pgfresh should be compared with them.

use std::path::{Path, PathBuf};

use server::{Preset, Server};
use storage::{Cache, PlaceRequest};
use template::{Provisioner, ServerOptions};

use crate::BenchError;

/// A server's settings and the place of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setup {
    /// PostgreSQL's default settings, on disk.
    Normal,
    /// With three settings off, on disk. Source: End Point's blog, "Speeding Up Integration Tests with PostgreSQL".
    Dangerous,
    /// With seven settings changed from the defaults, on disk. Source: the last section of the article on tests in CI
    /// that were cleaned by TRUNCATE.
    Tuned,
    /// Default settings with larger buffers, in RAM. Source: the solution in the article on tests in CI that were
    /// cleaned by TRUNCATE.
    Tmpfs,
}

/// PostgreSQL's defaults for the settings that pgfresh's presets change. Source: the manual of version 15, chapter 20.
const DEFAULT_SETTINGS: [(&str, &str); 7] = [
    ("shared_buffers", "128MB"),
    ("autovacuum_naptime", "1min"),
    ("bgwriter_lru_maxpages", "100"),
    ("bgwriter_delay", "200ms"),
    ("checkpoint_timeout", "5min"),
    ("max_wal_size", "1GB"),
    ("update_process_title", "on"),
];
const DANGEROUS: [(&str, &str); 3] =
    [("fsync", "off"), ("synchronous_commit", "off"), ("full_page_writes", "off")];
const TUNED: [(&str, &str); 8] = [
    ("fsync", "off"),
    ("synchronous_commit", "off"),
    ("wal_level", "minimal"),
    // With `wal_level=minimal`, a server only starts if `max_wal_senders` is 0.
    ("max_wal_senders", "0"),
    ("full_page_writes", "off"),
    ("autovacuum", "off"),
    ("max_wal_size", "1GB"),
    ("shared_buffers", "256MB"),
];
const TMPFS: [(&str, &str); 1] = [("shared_buffers", "256MB")];

impl Setup {
    /// Returns the setup's name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal settings, on disk",
            Self::Dangerous => "three settings off, on disk",
            Self::Tuned => "seven settings tuned, on disk",
            Self::Tmpfs => "normal settings, in RAM",
        }
    }

    fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Normal => &[],
            Self::Dangerous => &DANGEROUS,
            Self::Tuned => &TUNED,
            Self::Tmpfs => &TMPFS,
        }
    }
}

/// Options for starting servers with these setups.
#[derive(Debug)]
pub(crate) struct Setups<'a> {
    /// Options that determine the PostgreSQL installation. Each setup overrides the other options.
    pub(crate) server_options: &'a ServerOptions,
    pub(crate) cache: Option<&'a Path>,
    pub(crate) program: &'a Path,
    /// A directory on the disk to test. Defaults to where pgfresh would put a server's data on disk.
    pub(crate) disk: Option<&'a Path>,
}

impl Setups<'_> {
    /// Starts a server with this setup, and returns it along with the place of its data. The server stops when the
    /// returned value is dropped.
    ///
    /// # Errors
    /// Returns an error if the server doesn't start or if there isn't enough space.
    fn start(&self, setup: Setup) -> Result<(Server, String), BenchError> {
        let place = match (setup, self.disk) {
            (Setup::Tmpfs, _) => PlaceRequest::Ram,
            (_, Some(disk)) => PlaceRequest::At(disk.to_owned()),
            (_, None) => PlaceRequest::Disk,
        };
        let settings = DEFAULT_SETTINGS.iter().chain(setup.settings());
        let server_options = ServerOptions {
            place,
            preset: Preset::Durable,
            settings: settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            template: None,
            ..self.server_options.clone()
        };
        let program = PathBuf::from(self.program);
        let started =
            Provisioner::find(server_options, Cache::locate(self.cache)?, program)?.start(&|_| ())?;
        let place = started.place.why();
        Ok((started.server, place))
    }

    /// Starts and prepares a server for each setup. The result includes one sentence about each server's place.
    ///
    /// A server in RAM may fail to start, for example because there isn't enough space. It is then missing from the
    /// result, and its sentence gives the reason.
    ///
    /// # Errors
    /// Returns an error if a server on disk doesn't start or if a server can't be prepared.
    pub(crate) fn start_all(
        &self,
        setups: &[Setup],
        prepare: impl Fn(&Server) -> Result<(), BenchError>,
    ) -> Result<(Servers, Vec<String>), BenchError> {
        let (mut servers, mut notes) = (Servers::new(), Vec::new());
        for setup in setups {
            match self.start(*setup) {
                Ok((server, place)) => {
                    notes.push(format!("{}: {place}.", setup.name()));
                    prepare(&server)?;
                    servers.push((*setup, server));
                }
                Err(error) if *setup == Setup::Tmpfs => notes.push(format!("{}: {error}.", setup.name())),
                Err(error) => return Err(error),
            }
        }
        Ok((servers, notes))
    }
}

/// The running servers with their setups.
pub(crate) type Servers = Vec<(Setup, Server)>;
