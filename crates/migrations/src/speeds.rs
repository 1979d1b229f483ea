//! Measures this machine: how fast a pgfresh server reads, rewrites, sorts and changes rows in memory.
//!
//! Each step runs on two tables whose rows have very different widths, so that pgfresh can separate the time for a page
//! from the time for a row. Each step runs several times, and the fastest run counts. pgfresh reads the server's CPU
//! time from the kernel. Other programs on a busy machine therefore don't change the result.

use std::time::{Duration, Instant};

use server::{AdminConnection, SessionError};

/// Number of rows in the table with narrow rows.
const SLIM: f64 = 100_000.0;
/// Number of rows in the table with wide rows.
const WIDE: f64 = 10_000.0;
/// How often each step runs.
const ROUNDS: usize = 2;
/// Minimum time for a row or a page, in seconds. Without it, a difference of two measurements could happen to be
/// negative.
const LEAST: f64 = 1e-9;

/// Creates the tables. The template's event triggers don't fire. Parallel workers are off, because a busy production
/// server may not have any to spare.
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

/// Measures the time of statements in a session.
struct Timer<'s> {
    session: &'s mut AdminConnection,
    /// Pid of the session's backend. `None` until the timer has read it.
    pid: Option<u32>,
}

/// Times for units of work, in seconds, if all data is in memory and a single process works.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speeds {
    /// Time to read a page.
    pub scan_page: f64,
    /// Time to read a row and check a condition.
    pub scan_row: f64,
    /// Time to copy a page into a new file, including its log records.
    pub rewrite_page: f64,
    /// Time to copy a row into a new file.
    pub rewrite_row: f64,
    /// Time to sort a row with a numeric key into an index, divided by log2 of the number of rows.
    pub sort_number: f64,
    /// Time to sort a row with a text key into an index, divided by log2 of the number of rows.
    pub sort_text: f64,
    /// Time to check a foreign key, per row of both tables.
    pub reference_row: f64,
    /// Time to write a new row version, in addition to the time for its pages.
    pub update_row: f64,
    /// Time to add an entry to an index, in random key order.
    pub index_entry: f64,
}

impl Speeds {
    /// Measures the speeds, which takes a second or two. The session may be in any database of the laboratory's server.
    /// Removes its tables afterwards.
    ///
    /// # Errors
    ///
    /// Returns an error if the session fails.
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

/// Measured times of all steps, in seconds.
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
            // Solves "pages * page + rows * row = time" for the two tables.
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

    /// Returns the time to read all rows of a table, in seconds.
    fn scan(&mut self, table: &str) -> Result<f64, SessionError> {
        let check = format!("ALTER TABLE {table} ADD CONSTRAINT checked CHECK (id >= 0)");
        self.fastest(&check, &format!("ALTER TABLE {table} DROP CONSTRAINT checked"))
    }

    /// Returns the time to copy all rows of a table, in seconds.
    fn rewrite(&mut self, table: &str) -> Result<f64, SessionError> {
        let change = |to: &str| format!("ALTER TABLE {table} ALTER id TYPE {to}");
        self.fastest(&change("bigint"), &change("int"))
    }

    /// Runs `sql` several times, each time followed by `undo`. Returns the time of the fastest run, in seconds.
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
