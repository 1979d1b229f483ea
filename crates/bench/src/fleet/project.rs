//! What the shards check out: a template whose set-up takes as long as it should, and the same from a dump.

use std::fs;
use std::path::{Path, PathBuf};

use storage::{Attempt, FileError};

use super::remove;

/// The variable that tells a set-up for which shard it runs.
pub(super) const SHARD: &str = "PGFRESH_BENCH_SHARD";
/// Tables of the template.
const TABLES: u32 = 200;
/// Rows of each.
const ROWS: u32 = 2000;

/// A folder with all that the shards have.
pub(super) struct Project {
    pub(super) folder: PathBuf,
}

impl Project {
    /// Below `parent`.
    pub(super) fn create(parent: &Path, seconds: u32) -> Result<Self, FileError> {
        let project = Self { folder: parent.join("fleet") };
        for folder in [project.of(false), project.of(true), project.store()] {
            fs::create_dir_all(&folder).attempt("create", &folder)?;
        }
        let note = format!("echo \"${SHARD}\" >>'{}'", project.builds().display());
        let migrates =
            format!("[template]\nsql = \"schema.sql\"\nsetup = '''{note}'''\ninputs = \"schema.sql\"\n");
        let restores = format!("[template]\ndump = '{}'\n", project.dump().display());
        project.write("migrates/pgfresh.toml", &migrates)?;
        project.write("migrates/schema.sql", &schema(seconds))?;
        project.write("restores/pgfresh.toml", &restores)?;
        Ok(project)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), FileError> {
        let path = self.folder.join(name);
        fs::write(&path, text).attempt("write", &path)
    }

    /// The checkout, of which there are two.
    pub(super) fn of(&self, restores: bool) -> PathBuf {
        self.folder.join(if restores { "restores" } else { "migrates" })
    }

    pub(super) fn dump(&self) -> PathBuf {
        self.folder.join("template.dump")
    }

    /// The remote, unless another one is named.
    pub(super) fn store(&self) -> PathBuf {
        self.folder.join("store")
    }

    /// The cache of a shard.
    pub(super) fn cache(&self, number: u32) -> PathBuf {
        self.folder.join(format!("cache-{number}"))
    }

    /// What a shard has written.
    pub(super) fn log(&self, number: u32) -> PathBuf {
        self.folder.join(format!("log-{number}"))
    }

    /// What a shard has said of a remote that it did not take its template from.
    pub(super) fn refusals(&self, number: u32) -> Vec<String> {
        let text = fs::read_to_string(self.log(number)).unwrap_or_default();
        let lines = text.lines().filter(|line| line.contains(" is built here: "));
        lines.map(|line| format!("Shard {number}: {}", line.trim_start_matches("pgfresh: "))).collect()
    }

    pub(super) fn empty_caches(&self, shards: u32) -> Result<(), FileError> {
        (0..shards).try_for_each(|number| remove(&self.cache(number)))
    }

    fn builds(&self) -> PathBuf {
        self.folder.join("builds")
    }

    pub(super) fn forget_builds(&self) -> Result<(), FileError> {
        self.write("builds", "")
    }

    /// The shards whose set-up ran.
    pub(super) fn builders(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.builds()).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

/// Tables with an index and rows, and the rest of the time.
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
