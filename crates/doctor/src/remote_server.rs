//! Examines a server that pgfresh didn't start, without changing anything there.
//!
//! For example, users can find out which settings a staging server has, and what a commit costs there.
//!
//! psql makes the connection, because it supports every way to connect and to log in. psql also measures how long each
//! statement takes.
//!
//! To measure commits, the examination writes messages to the WAL with `pg_logical_emit_message`. The server flushes
//! these messages like any other commit. A message needs neither a table nor special privileges, and only leaves about
//! a hundred bytes of WAL.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use report::{
    Basis, Cell, Factor, Finding, Gain, Interval, Layer, Progress, Quantity, Report, Rounds, Sample, Table,
    Tile, Unit, as_f64,
};
use server::ConnectionString;
use storage::Attempt;
use sys::{Mount, ProcessorWatch, Roots, Shortage};

use crate::proof::{MIN_WORTHWHILE_GAIN, Proof};
use crate::{Diagnosis, DoctorError};

/// Number of rounds, as in [`crate::commit`].
const ROUNDS: u32 = 12;
/// Number of commits in a trial run. The trial run determines how many commits fit into a round.
const PROBE_COMMITS: usize = 20;
/// Minimum and maximum number of commits of each kind per round. The server may be in production, so even the maximum
/// only adds up to a few hundred commits.
const COMMITS_PER_ROUND: (f64, f64) = (2.0, 12.0);
/// Settings that affect a suite's speed. Source: docs/settings.md.
const SETTINGS: [&str; 10] = [
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "wal_sync_method",
    "shared_buffers",
    "max_wal_size",
    "autovacuum",
    "jit",
    "max_connections",
];
/// Timeout for the examination's own statements.
const STATEMENT_TIMEOUT: &str = "SET statement_timeout = '10s';\n";
/// Queries for facts about the server. Each fact is a line of the form `name|value`. The result lacks facts that the
/// role can't read.
const INFO_QUERIES: &str = r"
SELECT 'version|' || current_setting('server_version');
SELECT 'superuser|' || rolsuper FROM pg_roles WHERE rolname = current_user;
SELECT 'owner|' || pg_has_role(datdba, 'MEMBER') FROM pg_database WHERE datname = current_database();
SELECT 'set ' || name || '|' || current_setting(name) FROM pg_settings;
SELECT 'source ' || name || '|' || source FROM pg_settings;
SELECT 'folder|' || setting FROM pg_settings WHERE name = 'data_directory' AND setting <> '';
";

/// Queries for facts that only a superuser can read. From the environment, these queries only return entries that
/// begin with POSTGRES_ and don't contain PASSWORD.
const SUPERUSER_QUERIES: &str = r"
SELECT 'mount|' || line FROM regexp_split_to_table(pg_read_file('/proc/self/mountinfo', 0, 1000000, true), E'\n') AS line;
WITH file AS (SELECT pg_read_file('postmaster.pid', 0, 100, true) AS text),
     environment AS (SELECT pg_read_binary_file('/proc/' || split_part(text, E'\n', 1) || '/environ', 0, 100000, true) AS bytes
                     FROM file)
SELECT 'environment|' || entry
FROM environment, regexp_split_to_table(encode(bytes, 'escape'), '\\000') AS entry
WHERE entry LIKE 'POSTGRES\_%' AND entry NOT LIKE '%PASSWORD%';
";

/// Examines a server that the user runs, through psql. The fields are the examination's options.
#[derive(Debug, Clone)]
pub struct RemoteExamination {
    /// A connection string in psql's format.
    pub target: ConnectionString,
    /// The path of psql.
    pub psql: PathBuf,
    /// Total time for measuring commits.
    pub length: Duration,
}

/// Facts about the server.
#[derive(Debug, Default)]
struct ServerInfo {
    values: HashMap<String, String>,
    mounts: String,
    /// The postmaster's environment variables that begin with POSTGRES_.
    variables: Vec<(String, String)>,
}

impl RemoteExamination {
    /// Examines the server by reading settings and writing messages to the WAL. Changes nothing else.
    ///
    /// # Errors
    /// Returns an error if the server is unreachable or rejects the login.
    pub fn diagnose(&self, progress: &dyn Progress) -> Result<Diagnosis, DoctorError> {
        progress.measuring("what is in effect");
        let mut facts = ServerInfo::read(&self.psql(INFO_QUERIES)?);
        if facts.is("superuser", "true") {
            // These facts aren't available on other operating systems or in containers without /proc.
            facts.add(&self.psql(SUPERUSER_QUERIES).unwrap_or_default());
        }
        progress.measuring("commits");
        let commits = self.commits()?;

        let mut report = Report::new("pgfresh doctor of a remote server");
        report.add_tiles(commits.tiles());
        report.add_layer(facts.server());
        report.add_layer(facts.settings());
        report.add_layer(facts.files());
        report.add_layer(commits.layer());
        report.add_table(commits.table());
        let mut found = facts.findings();
        found.extend(commits.findings(&facts));
        Finding::rank(&mut found);
        report.add_findings(found);
        report.add_notes([format!(
            "pgfresh changed nothing on the server: it read settings, and {} transactions wrote a message to the WAL.",
            commits.count()
        )]);
        report.add_notes(commits.shortage.warning());
        let samples = vec![commits.durable, commits.asynchronous, commits.round_trip];
        Ok(Diagnosis { report, samples, without_servers: None })
    }

    /// Runs `script` in psql and returns its output.
    #[expect(
        clippy::let_underscore_must_use,
        reason = "what psql did not read it did not want: its status tells"
    )]
    fn psql(&self, script: &str) -> Result<String, DoctorError> {
        let mut command = Command::new(&self.psql);
        command.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-f", "-"]);
        self.target.describe_to(&mut command);
        command.env("LC_ALL", "C").env("PGCLIENTENCODING", "UTF8").env("PGCONNECT_TIMEOUT", "10");
        command.env("PGAPPNAME", "pgfresh doctor");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().attempt("run", &self.psql)?;
        let mut input = child.stdin.take().expect("it is a pipe");
        // Scripts can be hundreds of kilobytes long, so write them in another thread while this one reads psql's
        // output.
        let script = [STATEMENT_TIMEOUT, script].concat();
        let writer = std::thread::spawn(move || input.write_all(script.as_bytes()));
        let output = child.wait_with_output().attempt("read from", &self.psql)?;
        let _ = writer.join();
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let reason = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("psql gave no reason");
        let reason = reason.trim_start_matches("psql: ").trim_start_matches("error: ").to_owned();
        Err(DoctorError::Psql { reason })
    }

    fn commits(&self) -> Result<Commits, DoctorError> {
        let probe =
            parse_times(&self.psql(&timing_script(&[(COMMIT, PROBE_COMMITS), (ROUND_TRIP, PROBE_COMMITS)]))?);
        let round: f64 = probe.iter().sum::<f64>() / as_f64(PROBE_COMMITS) * 2.0;
        let each = commits_per_round(self.length, round);
        let mut blocks = Vec::new();
        let kinds = [(COMMIT, each), (ASYNCHRONOUS, each), (ROUND_TRIP, each)];
        for round in 0..ROUNDS {
            blocks.extend(Rounds::order(round, kinds.len()).map(|index| kinds[index]));
        }
        let watch = ProcessorWatch::start(&Roots::default());
        let mut times = parse_times(&self.psql(&timing_script(&blocks))?).into_iter();
        let mut commits = Commits { shortage: watch.shortage(), ..Commits::default() };
        for (kind, count) in blocks {
            let sample = match kind {
                COMMIT => &mut commits.durable,
                ASYNCHRONOUS => &mut commits.asynchronous,
                _ => &mut commits.round_trip,
            };
            for seconds in times.by_ref().take(count) {
                sample.push(seconds).expect("psql writes finite numbers");
            }
        }
        commits.each = each;
        Ok(commits)
    }
}

/// Returns how many commits of each kind a round has if the rounds together may take `length`. `each` is the time for
/// one commit of each kind, in seconds.
fn commits_per_round(length: Duration, each: f64) -> usize {
    let per_round = length.as_secs_f64() / f64::from(ROUNDS);
    let (least, most) = COMMITS_PER_ROUND;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within COMMITS_PER_ROUND")]
    let count = (per_round / each.max(1e-6)).clamp(least, most) as usize;
    count
}

/// The setting before a block of statements, which identifies their kind. Empty for `SELECT 1`.
const COMMIT: &str = "SET synchronous_commit = on";
const ASYNCHRONOUS: &str = "SET synchronous_commit = off";
const ROUND_TRIP: &str = "";
const MESSAGE: &str = "SELECT pg_logical_emit_message(true, 'pgfresh', '');\n";

/// Returns a script that makes psql measure each statement of these blocks, and nothing else.
fn timing_script(blocks: &[(&str, usize)]) -> String {
    let mut script = "\\o /dev/null\n".to_owned();
    for (setting, count) in blocks {
        let statement = if setting.is_empty() { "SELECT 1;\n" } else { MESSAGE };
        script.push_str(&format!("\\timing off\n{setting};\n\\timing on\n"));
        script += &statement.repeat(*count);
    }
    script
}

/// Parses the times printed by psql, converting them to seconds.
fn parse_times(text: &str) -> Vec<f64> {
    let times =
        text.lines().filter_map(|line| line.strip_prefix("Time: ")?.split(' ').next()?.parse::<f64>().ok());
    times.map(|milliseconds| milliseconds / 1e3).collect()
}

impl ServerInfo {
    fn read(text: &str) -> Self {
        let mut facts = Self::default();
        facts.add(text);
        facts
    }

    fn add(&mut self, text: &str) {
        for (name, value) in text.lines().filter_map(|line| line.split_once('|')) {
            match name {
                "mount" => self.mounts += &[value, "\n"].concat(),
                "environment" => {
                    let pair = value.split_once('=');
                    self.variables.extend(pair.map(|(name, value)| (name.to_owned(), value.to_owned())));
                }
                _ => {
                    self.values.insert(name.to_owned(), value.to_owned());
                }
            }
        }
    }

    fn get(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == value
    }

    fn flushes(&self) -> bool {
        self.is("set fsync", "on")
    }

    fn mount(&self) -> Option<Mount> {
        Mount::in_table(&self.mounts, Path::new(self.get("folder")))
    }

    /// Describes the settings in effect and which of them the role can change.
    fn server(&self) -> Layer {
        let may = match (self.is("superuser", "true"), self.is("owner", "true")) {
            (true, _) => "you are a superuser, so you can use ALTER SYSTEM",
            (false, true) => "you own the database, so you can use ALTER DATABASE … SET, but not fsync",
            (false, false) => "you can change only your own sessions: SET, PGOPTIONS, ALTER ROLE",
        };
        Layer::new("Server", format!("PostgreSQL {}; {may}.", self.get("version")))
    }

    fn settings(&self) -> Layer {
        let verdict = match (self.flushes(), self.is("set synchronous_commit", "off")) {
            (true, false) => "every commit waits until it is on disk",
            (true, true) => "commits do not wait, but statements that drop files do",
            (false, _) => "nothing is flushed",
        };
        let mut layer = Layer::new("Settings", format!("{verdict}."));
        for name in SETTINGS {
            let (value, source) = (self.get(&format!("set {name}")), self.get(&format!("source {name}")));
            if !value.is_empty() {
                layer.add_fact(
                    name,
                    if source == "default" { value.to_owned() } else { format!("{value} ({source})") },
                );
            }
        }
        layer
    }

    fn files(&self) -> Layer {
        let folder = self.get("folder");
        let verdict = match (self.mount(), folder) {
            (Some(mount), _) if mount.kind == "tmpfs" => format!("\"{folder}\" is in RAM (tmpfs)."),
            (Some(mount), _) => {
                format!("\"{folder}\" is on disk ({} at \"{}\").", mount.kind, mount.point.display())
            }
            (None, "") => "unknown: only a superuser may see where the data directory is.".to_owned(),
            (None, _) => format!("\"{folder}\"; the server does not show its file system."),
        };
        Layer::new("Data", verdict)
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut add = |name: String, evidence: String, remedy: String| {
            findings.push(Finding { name, evidence, gain: None, remedy });
        };
        for (variable, value) in &self.variables {
            let setting = variable.trim_start_matches("POSTGRES_").to_ascii_lowercase();
            let effect = self.get(&format!("set {setting}"));
            // This variable is named after a setting but has no effect. Don't check other variables, because the
            // user's own scripts may read them.
            if !effect.is_empty() && effect != value {
                add(
                    format!("{variable} has no effect"),
                    format!("{setting} is {effect}; the official image does not read this variable."),
                    format!("Pass the setting to the server itself: postgres -c {setting}={value}."),
                );
            }
            if variable == "POSTGRES_INITDB_ARGS" && value.contains("sync") && self.flushes() {
                add(
                    format!("{value} affects only initdb"),
                    "The server still flushes, because fsync is on.".to_owned(),
                    "Pass fsync=off to the server: postgres -c fsync=off.".to_owned(),
                );
            }
        }
        if self.mount().is_some_and(|mount| mount.kind == "overlay") {
            add(
                "The data is on an overlay file system".to_owned(),
                "An overlay is the container's own layer, not a volume.".to_owned(),
                "Mount a tmpfs there: --tmpfs /var/lib/postgresql/data, from 18 on --tmpfs \
                /var/lib/postgresql."
                    .to_owned(),
            );
        }
        findings
    }
}

/// The durations of all statements, in seconds.
#[derive(Debug)]
struct Commits {
    durable: Sample,
    asynchronous: Sample,
    /// Round trips of `SELECT 1`.
    round_trip: Sample,
    /// Number of statements of each kind per round.
    each: usize,
    /// How severe the CPU shortage was on this machine during the measurement.
    shortage: Shortage,
}

impl Default for Commits {
    fn default() -> Self {
        let sample = |name| Sample::new(name, Unit::Seconds);
        Self {
            durable: sample("a commit, synchronous_commit=on"),
            asynchronous: sample("a commit, synchronous_commit=off"),
            round_trip: sample("SELECT 1"),
            each: 1,
            shortage: Shortage::default(),
        }
    }
}

impl Commits {
    fn count(&self) -> usize {
        PROBE_COMMITS + self.durable.len() + self.asynchronous.len()
    }

    /// Returns each round's total duration.
    fn rounds(&self, sample: &Sample) -> Sample {
        let mut sums = Sample::new(sample.name(), Unit::Seconds);
        for round in sample.values().chunks_exact(self.each) {
            sums.push(round.iter().sum()).expect("it is finite");
        }
        sums
    }

    fn gain(&self) -> Option<Factor> {
        let ratios = self.rounds(&self.durable).ratio_to(&self.rounds(&self.asynchronous)).ok()?;
        Interval::of_median(&ratios).map(Factor::Interval)
    }

    fn tiles(&self) -> [Tile; 3] {
        [
            Tile::new("Commit", self.durable.median(), "p50, as the server is"),
            Tile::new("Commit, not awaited", self.asynchronous.median(), "p50, synchronous_commit=off"),
            Tile::new("Round trip", self.round_trip.median(), "p50 of SELECT 1"),
        ]
    }

    fn layer(&self) -> Layer {
        let medians = [&self.durable, &self.asynchronous, &self.round_trip].map(Sample::median);
        let [Some(durable), Some(asynchronous), Some(way)] = medians else {
            return Layer::new("Commit", "not measured.");
        };
        let verdict = format!(
            "{durable}, {asynchronous} with synchronous_commit=off; both include a round trip of {way}."
        );
        Layer::new("Commit", verdict)
    }

    fn table(&self) -> Table {
        let columns = ["p50", "p99", "longest", "commits"];
        let mut table = Table::numbers("Commits there", "statement", columns);
        for sample in [&self.durable, &self.asynchronous, &self.round_trip] {
            let percentiles = [50.0, 99.0, 100.0].map(|percent| Cell::from(sample.percentile(percent)));
            let count = Quantity::new(as_f64(sample.len()), Unit::Count);
            table.add_row([Cell::from(sample.name())].into_iter().chain(percentiles).chain([count.into()]));
        }
        table
    }

    fn findings(&self, facts: &ServerInfo) -> Vec<Finding> {
        let Some(factor) = self.gain() else { return Vec::new() };
        let change =
            self.durable.median().zip(self.asynchronous.median()).map(|(before, after)| [before, after]);
        let no_wait = |evidence: String| Finding {
            name: "Commits do not wait for a disk there".to_owned(),
            evidence,
            gain: None,
            remedy: "Look at what the suite does instead: \"pgfresh profile --url URL\".".to_owned(),
        };
        match Proof::of(factor, MIN_WORTHWHILE_GAIN, &self.shortage) {
            // Whatever the measurement says, a server doesn't flush with this setting.
            _ if facts.is("set fsync", "off") => {
                return vec![no_wait("The server runs with fsync = off.".to_owned())];
            }
            Proof::Gain(_) => {}
            Proof::NoGain(_) => {
                return vec![no_wait(format!("With synchronous_commit=off they are {factor} as fast."))];
            }
            Proof::Unknown(_, why) => {
                return vec![Finding {
                    name: "Whether commits wait for a disk there is not known".to_owned(),
                    evidence: format!("With synchronous_commit=off they are {factor} as fast, but {why}."),
                    gain: None,
                    remedy: "Measure again when the server and the network are idle.".to_owned(),
                }];
            }
        }
        let remedy = if facts.is("superuser", "true") {
            "If its data is disposable: ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf(); and the same for \
             full_page_writes; no restart is needed. Else ALTER DATABASE name SET synchronous_commit = off; TRUNCATE, \
             DROP and CREATE DATABASE then still wait."
        } else if facts.is("owner", "true") {
            "ALTER DATABASE name SET synchronous_commit = off, or create the tables of tests UNLOGGED; TRUNCATE, DROP \
            and CREATE DATABASE still wait. The owner of the server can do more: postgres -c fsync=off."
        } else {
            "PGOPTIONS='-c synchronous_commit=off' for the tests, or UNLOGGED tables; TRUNCATE, DROP and CREATE \
            DATABASE still wait. The owner of the server can do more: postgres -c fsync=off."
        };
        vec![Finding {
            name: "Commits wait for the disk of that server".to_owned(),
            evidence: "A suite gains less, because it also does other work.".to_owned(),
            gain: Some(Gain { of: "a commit".to_owned(), factor, basis: Basis::Measured, change }),
            remedy: remedy.to_owned(),
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "version|16.11\nsuperuser|true\nowner|true\nset fsync|on\nset synchronous_commit|on\n\
        set shared_buffers|128MB\nsource shared_buffers|configuration file\nfolder|/var/lib/postgresql/data\n\
        mount|1 0 0:50 / / rw - overlay overlay rw\n\
        mount|2 1 0:51 / /var/lib/postgresql/data rw - tmpfs tmpfs rw,size=1g\n\
        environment|POSTGRES_SHARED_BUFFERS=256MB\nenvironment|POSTGRES_USER=postgres\n\
        environment|POSTGRES_INITDB_ARGS=--nosync\nenvironment|POSTGRES_PASSWORD_FILE=/x";

    fn names(facts: &ServerInfo) -> Vec<String> {
        facts.findings().into_iter().map(|finding| finding.name).collect()
    }

    #[test]
    fn unread_variables_are_named_with_effective_value() {
        let facts = ServerInfo::read(TEXT);
        assert_eq!(names(&facts), ["POSTGRES_SHARED_BUFFERS has no effect", "--nosync affects only initdb"]);
        let finding = &facts.findings()[0];
        assert!(finding.evidence.starts_with("shared_buffers is 128MB;"), "{}", finding.evidence);
        assert_eq!(
            finding.remedy,
            "Pass the setting to the server itself: postgres -c shared_buffers=256MB."
        );
    }

    #[test]
    fn data_directory_is_classified_ram_disk_or_unknown() {
        assert_eq!(
            ServerInfo::read(TEXT).files().verdict(),
            "\"/var/lib/postgresql/data\" is in RAM (tmpfs)."
        );
        // A configuration meant for version 16 puts version 18's data outside of the tmpfs.
        let moved = ServerInfo::read(
            &TEXT.replace("folder|/var/lib/postgresql/data", "folder|/var/lib/postgresql/18/docker"),
        );
        assert!(moved.files().verdict().ends_with("is on disk (overlay at \"/\")."), "{:?}", moved.files());
        assert!(names(&moved).contains(&"The data is on an overlay file system".to_owned()));
        assert!(ServerInfo::read("version|16.11").files().verdict().starts_with("unknown"));
    }

    #[test]
    fn only_statements_between_timing_switches_count() {
        let script = timing_script(&[(COMMIT, 2), (ROUND_TRIP, 1)]);
        assert_eq!(script.matches("pg_logical_emit_message").count(), 2);
        assert!(
            script.contains("\\timing off\nSET synchronous_commit = on;\n\\timing on\nSELECT pg_log"),
            "{script}"
        );
        assert_eq!(parse_times("Time: 1.500 ms\nx\nTime: 61000.000 ms (01:01.000)\n"), [0.0015, 61.0]);
    }

    #[test]
    fn fast_servers_get_few_hundred_commits() {
        let writing =
            |each| PROBE_COMMITS + 2 * ROUNDS as usize * commits_per_round(Duration::from_secs(10), each);
        // docs/doctor.md has the first number.
        assert_eq!([1e-4, 0.2, 60.0].map(writing), [308, 116, 68]);
    }

    #[test]
    fn commit_remedy_depends_on_user_privileges() {
        let mut commits = Commits::default();
        for round in 0..12 {
            commits.durable.push(0.01 + f64::from(round) * 1e-5).unwrap();
            commits.asynchronous.push(0.001).unwrap();
        }
        let remedy = |text: &str| commits.findings(&ServerInfo::read(text))[0].remedy.clone();
        assert!(remedy(TEXT).contains("ALTER SYSTEM"));
        assert!(remedy("superuser|false\nowner|true").starts_with("ALTER DATABASE"));
        assert!(remedy("superuser|false\nowner|false").starts_with("PGOPTIONS"));
        // The setting decides, whatever a noisy measurement says.
        let off = commits.findings(&ServerInfo::read(&TEXT.replace("set fsync|on", "set fsync|off")));
        assert_eq!(off[0].name, "Commits do not wait for a disk there");
        commits.asynchronous = commits.durable.clone();
        assert_eq!(commits.findings(&ServerInfo::read(TEXT))[0].name, "Commits do not wait for a disk there");
    }
}
