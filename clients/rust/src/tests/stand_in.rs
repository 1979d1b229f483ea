//! Provides the script that a client starts in place of pgfresh.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::server::Environment;

pub(super) const TRANSCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../transcripts");

/// The script, and the folder that has its log.
pub(super) struct StandIn {
    log: PathBuf,
}

impl StandIn {
    pub(super) fn new(folder: &Path) -> Self {
        Self { log: folder.join("log") }
    }

    /// Returns the environment variables of this process, changed so that a client starts the script, which prints
    /// `line`.
    pub(super) fn environment(&self, line: &str) -> Environment {
        let mut environment: Environment = env::vars_os().collect();
        environment.retain(|name, _| name != "PGFRESH_CONTROL" && name != "PGFRESH_HOLDER");
        environment.insert("PGFRESH_BIN".into(), format!("{TRANSCRIPTS}/pgfresh").into());
        environment.insert("FAKE_LOG".into(), self.log.clone().into());
        environment.insert("FAKE_LINE".into(), line.into());
        environment
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}
