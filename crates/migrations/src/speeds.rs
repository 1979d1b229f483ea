//! Speeds of this machine: how fast a server of pgfresh reads, rewrites, sorts and changes rows in memory.
//!
//! Two tables with rows of very different widths separate the time for a page from the time for a row. Each step runs
//! several times, and the fastest run counts. pgfresh asks the kernel for the server's time on a processor, so that other
//! programs on a busy machine do not change the result.

use std::time::{Duration, Instant};

use server::{AdminConnection, SessionError};

/// Number of rows of the table with slim rows.
const SLIM: f64 = 100_000.0;
/// Number of rows of the table with wide rows.
const WIDE: f64 = 10_000.0;
/// How often each step runs.
const ROUNDS: usize = 2;
/// Smallest time for a row or page in seconds. By chance, a difference of two measurements can be even negative.
const LEAST: f64 = 1e-9;

/// Creates the tables. Event triggers of the template do not see them. Parallel workers are off, because a production
/// server may have none to spare.
const SETUP: [&str; 9] = [
    "SET session_replication_role = replica",
    "SET max_parallel_maintenance_workers = 0",
    "SET max_parallel_workers_per_gather = 0",
    "SET maintenance_work_mem = '64MB'",
    "SET client_min_messages = warning",
    "CREATE SCHEMA pgfresh_speeds",
    "SET search_path = pgfresh_speeds, pg_catalog",
    "CREATE TABLE slim AS SELECT i AS id, (i::bigint * 7919 % 100000)::int AS key, md5(i::text) AS label \
     FROM generate_series(0, 99999) i",
    "CREATE TABLE wide AS SELECT i AS id, 0 AS key, repeat('x', 1000) AS label FROM generate_series(0, 9999) i",
];
const CLEANUP: [&str; 2] = ["DROP SCHEMA pgfresh_speeds CASCADE", "RESET ALL"];

/// A session that times its statements.
struct Timer<'s> {
    session: &'s mut AdminConnection,
    /// Process of the session.
    pid: Option<u32>,
}

/// Times for units of work, in seconds. All data are in memory, and one process works.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speeds {
    /// Reads a page.
    pub scan_page: f64,
    /// Reads a row and checks a condition.
    pub scan_row: f64,
    /// Copies a page into a new file, with its log records.
    pub rewrite_page: f64,
    /// Copies a row into a new file.
    pub rewrite_row: f64,
    /// Sorts a row with a number as key into an index: a factor of n log2 n.
    pub sort_number: f64,
    /// Sorts a row with a text as key into an index: a factor of n log2 n.
    pub sort_text: f64,
    /// Checks a row of a foreign key: a factor of the rows of both tables.
    pub reference_row: f64,
    /// Writes a new version of a row, in addition to its pages.
    pub update_row: f64,
    /// Adds an entry to an index, in random order.
    pub index_entry: f64,
}

impl Speeds {
    /// Measures the speeds in a second or two. The session may be in any database of the laboratory's server. The
    /// tables of the measurement are removed.
    ///
    /// # Errors
    ///
    /// If the session fails.
    pub fn measure(session: &mut AdminConnection) -> Result<Self, SessionError> {
        for sql in SETUP {
            session.query(sql)?;
        }
        let mut clock = Timer { session, pid: None };
        clock.pid = clock.number("SELECT pg_backend_pid()")?;
        let times = Times::measure(&mut clock);
        for sql in CLEANUP {
            session.query(sql)?;
        }
        Ok(times?.speeds())
    }
}

/// Durations of all steps in seconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    slim_pages: f64,
    wide_pages: f64,
    scan_slim: f64,
    scan_wide: f64,
    rewrite_slim: f64,
    rewrite_wide: f64,
    index_numbers: f64,
    index_texts: f64,
    reference: f64,
    update: f64,
    update_with_index: f64,
}

impl Times {
    fn measure(clock: &mut Timer<'_>) -> Result<Self, SessionError> {
        let slim_pages = clock.pages("slim")?;
        let wide_pages = clock.pages("wide")?;
        let scan_slim = clock.scan("slim")?;
        let scan_wide = clock.scan("wide")?;
        let rewrite_slim = clock.rewrite("slim")?;
        let rewrite_wide = clock.rewrite("wide")?;
        let index_numbers = clock.fastest("CREATE INDEX sorted ON slim (key)", "DROP INDEX sorted")?;
        let index_texts = clock.fastest("CREATE INDEX sorted ON slim (label)", "DROP INDEX sorted")?;
        let change = "UPDATE slim SET id = id";
        let update = clock.fastest(change, "VACUUM slim")?;
        clock.session.query("CREATE INDEX random ON slim (key)")?;
        let update_with_index = clock.fastest(change, "VACUUM slim")?;
        clock.session.query("CREATE UNIQUE INDEX keys ON slim (id)")?;
        let refer = "ALTER TABLE slim ADD CONSTRAINT refers FOREIGN KEY (key) REFERENCES slim (id)";
        let reference = clock.fastest(refer, "ALTER TABLE slim DROP CONSTRAINT refers")?;
        Ok(Self {
            slim_pages,
            wide_pages,
            scan_slim,
            scan_wide,
            rewrite_slim,
            rewrite_wide,
            index_numbers,
            index_texts,
            reference,
            update,
            update_with_index,
        })
    }

    fn speeds(&self) -> Speeds {
        let Self { slim_pages, wide_pages, scan_slim, .. } = *self;
        let split = |slim: f64, wide: f64| {
            // Solves "pages * page + rows * row = time" for both tables.
            let page = (wide * SLIM - slim * WIDE) / (wide_pages * SLIM - slim_pages * WIDE);
            let page = page.clamp(LEAST, wide / wide_pages);
            (page, ((slim - slim_pages * page) / SLIM).max(LEAST))
        };
        let (scan_page, scan_row) = split(scan_slim, self.scan_wide);
        let (rewrite_page, rewrite_row) = split(self.rewrite_slim, self.rewrite_wide);
        let sort = |time: f64| ((time - scan_slim) / (SLIM * SLIM.log2())).max(LEAST / 10.0);
        let update = self.update - slim_pages * rewrite_page;
        Speeds {
            scan_page,
            scan_row,
            rewrite_page,
            rewrite_row,
            sort_number: sort(self.index_numbers),
            sort_text: sort(self.index_texts),
            reference_row: (self.reference / (2.0 * SLIM)).max(LEAST),
            update_row: (update / SLIM).max(LEAST),
            index_entry: ((self.update_with_index - self.update) / SLIM).max(LEAST),
        }
    }
}

impl Timer<'_> {
    fn number(&mut self, sql: &str) -> Result<Option<u32>, SessionError> {
        let rows = self.session.query(sql)?;
        Ok(rows.first().and_then(|row| row.first()?.as_ref()?.parse().ok()))
    }

    fn pages(&mut self, table: &str) -> Result<f64, SessionError> {
        let pages = self.number(&format!("SELECT pg_relation_size('{table}') / 8192"))?;
        Ok(f64::from(pages.unwrap_or(1)))
    }

    /// Returns the seconds for reading all rows of a table.
    fn scan(&mut self, table: &str) -> Result<f64, SessionError> {
        let check = format!("ALTER TABLE {table} ADD CONSTRAINT checked CHECK (id >= 0)");
        self.fastest(&check, &format!("ALTER TABLE {table} DROP CONSTRAINT checked"))
    }

    /// Returns the seconds for copying all rows of a table.
    fn rewrite(&mut self, table: &str) -> Result<f64, SessionError> {
        let change = |to: &str| format!("ALTER TABLE {table} ALTER id TYPE {to}");
        self.fastest(&change("bigint"), &change("int"))
    }

    /// Runs a step, and `undo` after each run. Returns the seconds of the fastest run.
    fn fastest(&mut self, sql: &str, undo: &str) -> Result<f64, SessionError> {
        let mut fastest = f64::INFINITY;
        for _ in 0..ROUNDS {
            let (begun, used) = (Instant::now(), self.processor_time());
            self.session.query(sql)?;
            let elapsed = begun.elapsed();
            let ran = used.zip(self.processor_time()).map(|(before, after)| after.saturating_sub(before));
            let ran = ran.filter(|ran| !ran.is_zero());
            fastest = fastest.min(ran.unwrap_or(elapsed).as_secs_f64());
            self.session.query(undo)?;
        }
        Ok(fastest)
    }

    fn processor_time(&self) -> Option<Duration> {
        sys::processor_time(self.pid?, None).ok()
    }
}
