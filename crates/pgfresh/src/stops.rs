//! Counters of stops: a client that asked for a background server before a stop must not start one after it.
//!
//! ```text
//! CACHE/stops/all      a byte for each "stop --all"
//! CACHE/stops/PROJECT  a byte for each "stop" of that project
//! ```

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

use storage::{Attempt, Cache};

use crate::failure::Failure;

/// Counters that concern one project.
#[derive(Debug)]
pub(crate) struct Stops {
    folder: PathBuf,
    all: PathBuf,
    project: PathBuf,
}

impl Stops {
    pub(crate) fn of(cache: &Cache, project: &Path) -> Result<Self, Failure> {
        let folder = cache.state()?.join("stops");
        let mut hasher = DefaultHasher::new();
        project.hash(&mut hasher);
        let project = folder.join(format!("{:016x}", hasher.finish()));
        Ok(Self { all: folder.join("all"), project, folder })
    }

    /// Returns the number of stops so far.
    pub(crate) fn count(&self) -> u64 {
        [&self.all, &self.project]
            .into_iter()
            .map(|path| fs::metadata(path).map_or(0, |meta| meta.len()))
            .sum()
    }

    /// Counts one more stop, of this project or of all.
    pub(crate) fn add(&self, all: bool) -> Result<(), Failure> {
        let path = if all { &self.all } else { &self.project };
        fs::create_dir_all(&self.folder).attempt("create", &self.folder)?;
        let file = File::options().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(b".")).attempt("write", path)?;
        Ok(())
    }
}
