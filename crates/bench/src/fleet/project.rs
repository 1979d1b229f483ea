//! Creates the project that the shards work on.
//!
//! The project has a template whose setup takes a configurable time, and a dump of the same template.

use std::fs;
use std::path::{Path, PathBuf};

use storage::{Attempt, FileError};

use super::remove;

/// The environment variable that tells the setup which shard it runs on.
pub(super) const SHARD_VARIABLE: &str = "PGFRESH_BENCH_SHARD";
/// The number of tables in the template.
const TABLES: u32 = 200;
/// The number of rows in each table.
const ROWS: u32 = 2000;

/// The directory that contains all of the shards' files.
pub(super) struct Project {
    pub(super) folder: PathBuf,
}

impl Project {
    /// Creates the project below `parent`.
    pub(super) fn create(parent: &Path, seconds: u32) -> Result<Self, FileError> {
        let project = Self { folder: parent.join("fleet") };
        for folder in [project.checkout(false), project.checkout(true), project.remote_path()] {
            fs::create_dir_all(&folder).attempt("create", &folder)?;
        }
        let note = format!("echo \"${SHARD_VARIABLE}\" >>'{}'", project.builds_path().display());
        let migrates =
            format!("[template]\nsql = \"schema.sql\"\nsetup = '''{note}'''\ninputs = \"schema.sql\"\n");
        let restores = format!("[template]\ndump = '{}'\n", project.dump_path().display());
        project.write("migrates/pgfresh.toml", &migrates)?;
        project.write("migrates/schema.sql", &schema(seconds))?;
        project.write("restores/pgfresh.toml", &restores)?;
        Ok(project)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), FileError> {
        let path = self.folder.join(name);
        fs::write(&path, text).attempt("write", &path)
    }

    /// Returns the project's checkout. If `restores` is true, the checkout restores the dump instead of running the
    /// setup.
    pub(super) fn checkout(&self, restores: bool) -> PathBuf {
        self.folder.join(if restores { "restores" } else { "migrates" })
    }

    pub(super) fn dump_path(&self) -> PathBuf {
        self.folder.join("template.dump")
    }

    /// Returns the directory that serves as the remote cache unless the user specifies a remote.
    pub(super) fn remote_path(&self) -> PathBuf {
        self.folder.join("store")
    }

    /// Returns a shard's cache directory.
    pub(super) fn cache_path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("cache-{number}"))
    }

    /// Returns the file with the output of shard `number`.
    pub(super) fn log_path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("log-{number}"))
    }

    /// Returns a shard's messages about building the template because the remote cache was unusable.
    pub(super) fn remote_errors(&self, number: u32) -> Vec<String> {
        let text = fs::read_to_string(self.log_path(number)).unwrap_or_default();
        let lines = text.lines().filter(|line| line.contains(" is built here: "));
        lines.map(|line| format!("Shard {number}: {}", line.trim_start_matches("pgfresh: "))).collect()
    }

    pub(super) fn empty_caches(&self, shards: u32) -> Result<(), FileError> {
        (0..shards).try_for_each(|number| remove(&self.cache_path(number)))
    }

    fn builds_path(&self) -> PathBuf {
        self.folder.join("builds")
    }

    pub(super) fn remove_builds(&self) -> Result<(), FileError> {
        self.write("builds", "")
    }

    /// Returns the numbers of the shards that ran the setup.
    pub(super) fn builders(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.builds_path()).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

/// Returns SQL that creates tables with an index and rows, then sleeps until `seconds` seconds have passed since it
/// started.
fn schema(seconds: u32) -> String {
    let mut sql = "CREATE TABLE begun AS SELECT clock_timestamp() AS at;\n".to_owned();
    for table in 1..=TABLES {
        sql += &format!(
            "CREATE TABLE t{table} (id int PRIMARY KEY, name text NOT NULL, at timestamptz DEFAULT now());\n\
             INSERT INTO t{table} (id, name) SELECT i, md5(i::text) FROM generate_series(1, {ROWS}) i;\n\
             CREATE INDEX ON t{table} (name);\n"
        );
    }
    sql + &format!(
        "SELECT pg_sleep(greatest(0, {seconds} - extract(epoch FROM clock_timestamp() - at))) FROM begun;\n"
    )
}
