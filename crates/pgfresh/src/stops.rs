//! Counts `pgfresh stop` invocations. The counts keep a client from starting a background server that the client
//! requested before a stop.
//!
//! ```text
//! CACHE/stops/all      a byte for each "stop --all"
//! CACHE/stops/PROJECT  a byte for each "stop" of this project
//! ```

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use storage::{Attempt, Cache};
use template::Fingerprint;

use crate::failure::Failure;

/// The counters of stops that affect one project.
#[derive(Debug)]
pub(crate) struct Stops {
    folder: PathBuf,
    all: PathBuf,
    project: PathBuf,
}

impl Stops {
    pub(crate) fn of(cache: &Cache, project: &Path) -> Result<Self, Failure> {
        let folder = cache.state()?.join("stops");
        let mut key = Fingerprint::of("project");
        key.part("folder", project.as_os_str().as_encoded_bytes());
        let project = folder.join(key.finish().as_str());
        Ok(Self { all: folder.join("all"), project, folder })
    }

    /// Returns how many stops have affected this project so far.
    pub(crate) fn count(&self) -> u64 {
        [&self.all, &self.project]
            .into_iter()
            .map(|path| fs::metadata(path).map_or(0, |meta| meta.len()))
            .sum()
    }

    /// Counts a stop of this project, or with `all`, of every project.
    pub(crate) fn add(&self, all: bool) -> Result<(), Failure> {
        let path = if all { &self.all } else { &self.project };
        fs::create_dir_all(&self.folder).attempt("create", &self.folder)?;
        let file = File::options().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(b".")).attempt("write", path)?;
        Ok(())
    }
}
