//! Servers as articles of the field have set them up, each on a disk or in RAM of the caller's choice.

use std::path::{Path, PathBuf};

use server::{Preset, Server};
use storage::{Cache, PlaceRequest};
use template::{Provisioner, ServerOptions};

use crate::BenchError;

/// What a server is told, and where its data live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setup {
    /// `PostgreSQL` as it is out of the box, on the disk.
    Normal,
    /// Three settings off, on the disk. Source: End Point's blog, "Speeding Up Integration Tests with `PostgreSQL`".
    Dangerous,
    /// Seven settings, on the disk. Source: the article on tests in CI that were cleaned by TRUNCATE, its last section.
    Tuned,
    /// As it is out of the box with larger buffers, in RAM. Source: the same article, its solution.
    Tmpfs,
}

/// What our presets have otherwise than `PostgreSQL` has it. Source: its manual, 15, chapter 20.
const STOCK: [(&str, &str); 7] = [
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
    // The server does not start with a minimal WAL and senders of it.
    ("max_wal_senders", "0"),
    ("full_page_writes", "off"),
    ("autovacuum", "off"),
    ("max_wal_size", "1GB"),
    ("shared_buffers", "256MB"),
];
const TMPFS: [(&str, &str); 1] = [("shared_buffers", "256MB")];

impl Setup {
    /// What it is called in tables.
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

/// What such servers are started with.
#[derive(Debug)]
pub(crate) struct Setups<'a> {
    /// Whose installation is taken; all else is the setup's.
    pub(crate) server_options: &'a ServerOptions,
    pub(crate) cache: Option<&'a Path>,
    pub(crate) program: &'a Path,
    /// A directory on the disk in question; without one, where a server's data would live on disk.
    pub(crate) disk: Option<&'a Path>,
}

impl Setups<'_> {
    /// Starts one, which goes away when it is dropped. Returns where its data live, too.
    ///
    /// # Errors
    /// It does not start, or its place has no room for it.
    fn start(&self, setup: Setup) -> Result<(Server, String), BenchError> {
        let place = match (setup, self.disk) {
            (Setup::Tmpfs, _) => PlaceRequest::Ram,
            (_, Some(disk)) => PlaceRequest::At(disk.to_owned()),
            (_, None) => PlaceRequest::Disk,
        };
        let settings = STOCK.iter().chain(setup.settings());
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

    /// Starts all of them side by side, each prepared; with a sentence for each on where its data live. There may be no room
    /// in RAM: then that one is missing, and its sentence says why.
    ///
    /// # Errors
    /// Another one does not start, or cannot be prepared.
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

/// Running servers.
pub(crate) type Servers = Vec<(Setup, Server)>;
