//! Fills a template by running its specification's steps against a server. The steps are SQL files, a dump and
//! commands.
//!
//! The steps write their output to `setup.log` in the run directory. Each step inherits the helper lock, so that if
//! pgfresh crashes, the guard can terminate the step and its children.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use server::{
    Address, AdminConnection, Installation, LoopbackEncryption, LoopbackListener, SUPERUSER, Server,
    SessionError, StartError, end_of_log, extension_advice, identifier,
};
use storage::{Account, Attempt};

use crate::database_properties::{self, DatabaseProperty};
use crate::error::{PREPARE, SETUP, SetupError};
use crate::inputs::InputError;
use crate::provisioner::Step;
use crate::{ProvisionError, TemplateSpec, complete_copy, create_copy, end_sessions, inputs};

/// Name of the log file in the run directory.
const LOG_NAME: &str = "setup.log";
/// How many bytes at the end of the log an error message may quote from.
const LOG_TAIL: i64 = 8 * 1024;
/// Maximum number of lines that an error message quotes.
const MAX_LINES: usize = 12;
/// Interval between progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// libpq's variables that can change what a session writes. A step gets only those that the specification lists in
/// `env`, because the fingerprint doesn't depend on the others.
const SESSION_VARIABLES: [&str; 5] = ["PGCLIENTENCODING", "PGDATESTYLE", "PGGEQO", "PGOPTIONS", "PGTZ"];
/// SQL that counts the user's objects in a database. Objects created by initdb have smaller oids. Temporary objects and
/// their schemas don't count: the server never drops the schemas, and a session that has ended may still be dropping
/// its tables. Source: `src/include/access/transam.h`, `FirstNormalObjectId`.
const COUNT_OBJECTS: &str =
    "WITH kept AS (SELECT oid FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp_')
    SELECT (SELECT count(*) FROM pg_class WHERE oid >= 16384 AND relnamespace IN (TABLE kept))
    + (SELECT count(*) FROM pg_proc WHERE oid >= 16384 AND pronamespace IN (TABLE kept))
    + (SELECT count(*) FROM pg_type WHERE oid >= 16384 AND typnamespace IN (TABLE kept))
    + (SELECT count(*) FROM kept WHERE oid >= 16384)
    + (SELECT count(*) FROM pg_extension WHERE oid >= 16384)
    + (SELECT count(*) FROM pg_largeobject_metadata)";
/// SQL that fails if an open transaction has changed something. The error text then contains [`OPEN_TRANSACTION`].
const EXPECT_NO_TRANSACTION: &str = "SELECT CAST('pgfresh: the transaction is open: ' || pg_catalog.pg_current_xact_id_if_assigned()::text AS integer)";
const OPEN_TRANSACTION: &str = "pgfresh: the transaction is open: ";
/// Time limit for one SQL file that runs without psql.
const SQL_TIMEOUT: Duration = Duration::from_hours(1);

/// The setup of one template in a running server.
pub(crate) struct Setup<'a> {
    pub(crate) server: &'a Server,
    pub(crate) installation: &'a Installation,
    /// Encryption for the setup command's TCP connections. Some programs insist on TLS, which the server itself lacks.
    pub(crate) encryption: Option<&'a Arc<dyn LoopbackEncryption>>,
    pub(crate) spec: &'a TemplateSpec,
    pub(crate) report: &'a dyn Fn(Step<'_>),
}

/// State of the server before the first step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StartingPoint<'a> {
    /// The server doesn't have a database for the template yet.
    BaseImage,
    /// The extended template (`from`) has a database in the cluster. The value is the database's name.
    From(&'a str),
    /// The databases of other templates exist in the cluster and must remain there. The value is the name of the
    /// extended template's database, if any.
    Beside(Option<&'a str>),
    /// The data comes from an earlier template with the same name. The prepare command, the dump and some of the SQL
    /// files have already run.
    Parent {
        /// Number of files at the beginning of the list that have already run.
        sql_files: usize,
    },
}

/// A step that failed.
pub(crate) struct FailedStep {
    pub(crate) step: String,
    pub(crate) status: ExitStatus,
    pub(crate) after: Duration,
    pub(crate) wants_tls: bool,
}

impl<'a> StartingPoint<'a> {
    /// Returns the starting point for a full build of `spec`.
    pub(crate) fn of(spec: &'a TemplateSpec) -> Self {
        let from = spec.from.as_ref().map(|from| from.name.as_str());
        match (&spec.beside, from) {
            (Some(_), from) => Self::Beside(from),
            (None, Some(from)) => Self::From(from),
            (None, None) => Self::BaseImage,
        }
    }

    fn sql_files(self) -> usize {
        if let Self::Parent { sql_files } = self { sql_files } else { 0 }
    }
}

impl Setup<'_> {
    /// Creates the database if it is missing and runs all steps that haven't run yet. Returns the first step that
    /// fails. If none does, checks that pgfresh can copy the result.
    pub(crate) fn run(&self, start: StartingPoint<'_>) -> Result<Option<FailedStep>, ProvisionError> {
        self.create_database(start)?;
        let broken = self.run_steps(start)?;
        if broken.is_none() {
            self.check_result()?;
        }
        Ok(broken)
    }

    fn run_steps(&self, start: StartingPoint<'_>) -> Result<Option<FailedStep>, ProvisionError> {
        let (folder, have_run) = (&self.spec.folder, start.sql_files());
        let is_new = !matches!(start, StartingPoint::Parent { .. });
        if let Some(words) = self.spec.prepare.as_ref().filter(|_| is_new)
            && let Some(broken) = self.run_command(PREPARE, words)?
        {
            return Ok(Some(broken));
        }
        for file in inputs::expand_sql(folder, &self.spec.sql)?.files.iter().skip(have_run) {
            if let Some(broken) = self.run_sql(file)? {
                return Ok(Some(broken));
            }
        }
        if let Some(dump) = &self.spec.dump
            && is_new
            && let Some(broken) = self.restore(dump)?
        {
            return Ok(Some(broken));
        }
        if let Some(words) = &self.spec.setup {
            return self.run_command(SETUP, words);
        }
        Ok(None)
    }

    /// Runs a command of the user. Some programs can reach a server only over TCP, so pgfresh opens a loopback port
    /// while the command runs.
    fn run_command(&self, step: &str, words: &str) -> Result<Option<FailedStep>, ProvisionError> {
        let mut command = Command::new("sh");
        command.args(["-c", words]);
        let loopback = LoopbackListener::open(self.server, self.encryption.cloned())
            .attempt("listen on", Path::new("127.0.0.1"))?;
        let address = loopback.as_ref().map(|loopback| loopback.address(&self.spec.name));
        let broken = self.run_program(step, command, &address.unwrap_or_else(|| self.address()))?;
        let wants_tls = loopback.is_some_and(|loopback| loopback.has_rejected_tls());
        Ok(broken.map(|broken| FailedStep { wants_tls, ..broken }))
    }

    /// Writes the root certificate of the offered encryption to a file and
    /// returns the file's path, or `None` if the encryption doesn't have one.
    fn write_root(&self) -> Result<Option<PathBuf>, ProvisionError> {
        let Some(root) = self.encryption.and_then(|encryption| encryption.root()) else { return Ok(None) };
        let path = self.server.run().path().join("root.crt");
        fs::write(&path, root).attempt("write", &path)?;
        Ok(Some(path))
    }

    fn address(&self) -> Address {
        self.server.address(&self.spec.name)
    }

    /// Returns the path of the setup's log.
    pub(crate) fn log(server: &Server) -> PathBuf {
        server.run().path().join(LOG_NAME)
    }

    /// Returns the last lines of the log.
    pub(crate) fn last_lines(log: &Path) -> Vec<String> {
        let text = end_of_log(log, LOG_TAIL).unwrap_or_default();
        let lines: Vec<_> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(MAX_LINES)..].iter().map(|&line| line.to_owned()).collect()
    }

    /// Returns advice if the step's output, or the last error in the server's log, is about an extension. Not every
    /// tool prints the server's error.
    pub(crate) fn advice_for_extension(server: &Server, installation: &Installation) -> Option<String> {
        let output = end_of_log(&Self::log(server), LOG_TAIL).unwrap_or_default();
        let log = end_of_log(&server.run().path().join("log"), LOG_TAIL).unwrap_or_default();
        let last_error = log.lines().rfind(|line| line.contains("ERROR:  "));
        output.lines().chain(last_error).filter_map(|line| extension_advice(line, installation)).next_back()
    }

    fn create_database(&self, start: StartingPoint<'_>) -> Result<(), ProvisionError> {
        let name = &self.spec.name;
        let statements = match start {
            StartingPoint::Parent { .. } => return Ok(()),
            StartingPoint::From(from) if from == name => return Ok(()),
            StartingPoint::From(from) => {
                let rename = format!("ALTER DATABASE {} RENAME TO {}", identifier(from), identifier(name));
                vec![end_sessions(from), rename]
            }
            StartingPoint::Beside(Some(from)) => {
                let major = self.installation.version().major;
                vec![end_sessions(from), create_copy(from, name, major), complete_copy(from, name)]
            }
            StartingPoint::BaseImage | StartingPoint::Beside(None) => {
                vec![format!("CREATE DATABASE {}", identifier(name))]
            }
        };
        let failed = |source| SetupError::Database { database: name.clone(), source };
        let mut session = self.server.session("postgres")?;
        for sql in statements {
            session.query(&sql).map_err(failed)?;
        }
        Ok(())
    }

    /// Checks that pgfresh can still use the server, and that it can copy the databases of all templates.
    fn check_result(&self) -> Result<(), ProvisionError> {
        let name = &self.spec.name;
        let left = self.read_state();
        let [superuser, read_only, present, prepared] =
            left.map_err(|source| SetupError::Closed { name: name.clone(), source })?;
        if superuser == ["off"] {
            return Err(SetupError::NoSuperuser { name: name.clone() }.into());
        }
        let spoiled = |what: String| Err(SetupError::Spoiled { name: name.clone(), what }.into());
        if read_only == ["on"] {
            return spoiled("all transactions read-only".to_owned());
        }
        self.warn_if_empty();
        for database in self.spec.names() {
            if !present.iter().any(|name| name == database) {
                return spoiled(format!("no database \"{database}\""));
            }
            if prepared.iter().any(|name| name == database) {
                return spoiled(format!("a prepared transaction in database \"{database}\""));
            }
            // The server can copy even a database that refuses sessions, so this isn't an error.
            if let Err(error) = self.server.write_relation_cache(database) {
                tracing::debug!(%error, database, "a template has no relation cache");
            }
        }
        Ok(())
    }

    /// Reports a setup that leaves the template's database empty, because it may have migrated the wrong database.
    fn warn_if_empty(&self) {
        let name = &self.spec.name;
        if self.spec.setup.is_none() {
            return;
        }
        let answer = self.server.session(name).and_then(|mut session| Ok(session.query(COUNT_OBJECTS)?));
        match answer {
            Ok(rows) if rows.iter().flatten().flatten().eq(["0"]) => {
                (self.report)(Step::SetupMadeNothing { name });
            }
            Ok(_) => {}
            // The server can copy even a database that refuses sessions, so this isn't an error.
            Err(error) => tracing::debug!(%error, name, "could not count what a setup has made"),
        }
    }

    /// Reads `is_superuser`, `transaction_read_only`, the names of all databases, and the databases with prepared
    /// transactions.
    fn read_state(&self) -> Result<[Vec<String>; 4], StartError> {
        let mut session = self.server.session("postgres")?;
        let mut column = |sql| -> Result<Vec<String>, StartError> {
            Ok(session.query(sql)?.into_iter().flatten().flatten().collect())
        };
        Ok([
            column("SHOW is_superuser")?,
            column("SHOW transaction_read_only")?,
            column("SELECT datname FROM pg_database")?,
            column("SELECT DISTINCT database FROM pg_prepared_xacts")?,
        ])
    }

    fn run_sql(&self, file: &str) -> Result<Option<FailedStep>, ProvisionError> {
        let path = self.spec.folder.join(file);
        match Format::of(&path).attempt("read", &path)? {
            Format::Plain => {}
            Format::Compressed(unpack) => {
                return Err(SetupError::Compressed { file: file.to_owned(), unpack }.into());
            }
            Format::Archive | Format::Tar => {
                return Err(SetupError::DumpAsSql { file: file.to_owned() }.into());
            }
        }
        let Some(psql) = self.installation.client("psql") else { return self.run_sql_without_psql(file) };
        let mut command = Command::new(psql);
        // If a transaction is still open at the end, psql would roll it back and still report success.
        command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", file]);
        // The log must contain only the file's own results.
        command.args(["-c", "\\o /dev/null", "-c", EXPECT_NO_TRANSACTION]);
        let broken = self.run_program(&format!("psql with \"{file}\""), command, &self.address())?;
        let is_open = |line: &String| line.contains(OPEN_TRANSACTION);
        if broken.is_some() && Self::last_lines(&Self::log(self.server)).iter().any(is_open) {
            return Err(SetupError::OpenTransaction { file: file.to_owned() }.into());
        }
        Ok(broken)
    }

    /// Runs a SQL file as one simple query, rejecting psql commands.
    fn run_sql_without_psql(&self, file: &str) -> Result<Option<FailedStep>, ProvisionError> {
        let path = self.spec.folder.join(file);
        let sql = fs::read_to_string(&path).attempt("read", &path)?;
        if let Some(line) = sql.lines().position(|line| line.starts_with('\\')) {
            return Err(SetupError::NeedsPsql { file: file.to_owned(), line: line + 1 }.into());
        }
        let failed = |source: SessionError| {
            let extension = extension_advice(&source.to_string(), self.installation);
            SetupError::Sql { file: file.to_owned(), extension, source }
        };
        let socket = self.server.run().socket_directory();
        let mut session =
            AdminConnection::open(&socket, SUPERUSER, &self.spec.name, SQL_TIMEOUT).map_err(failed)?;
        session.query(&sql).map_err(failed)?;
        let open = session.query("SELECT pg_catalog.pg_current_xact_id_if_assigned()").map_err(failed)?;
        if open.into_iter().flatten().flatten().next().is_some() {
            return Err(SetupError::OpenTransaction { file: file.to_owned() }.into());
        }
        Ok(None)
    }

    fn restore(&self, dump: &str) -> Result<Option<FailedStep>, ProvisionError> {
        let path = self.spec.folder.join(dump);
        let format = Format::of(&path).attempt("read", &path)?;
        if matches!(format, Format::Plain | Format::Compressed(_)) {
            return self.run_sql(dump);
        }
        let program = self.installation.client("pg_restore");
        let missing = || SetupError::NoProgram { program: "pg_restore", file: dump.to_owned() };
        let program = program.ok_or_else(missing)?;
        let mut command = Command::new(&program);
        command.args(["--exit-on-error", "--dbname", &self.spec.name]);
        if format == Format::Archive {
            let cores = std::thread::available_parallelism().map_or(1, usize::from).min(8);
            command.arg(format!("--jobs={cores}"));
        }
        command.arg(dump);
        let step = format!("pg_restore with \"{dump}\"");
        if let Some(broken) = self.run_program(&step, command, &self.address())? {
            return Ok(Some(broken));
        }
        let begun = Instant::now();
        match database_properties::read(&program, &[], &path).attempt("run", &program)? {
            Ok(properties) => self.restore_properties(&properties)?,
            Err(Output { status, .. }) => {
                return Ok(Some(FailedStep { step, status, after: begun.elapsed(), wants_tls: false }));
            }
        }
        Ok(None)
    }

    /// Gives the template's database the properties of the dumped database. Properties that the server refuses are
    /// skipped and reported. For example, the owner may be missing, because a dump contains no roles.
    fn restore_properties(&self, properties: &[DatabaseProperty]) -> Result<(), ProvisionError> {
        let name = &self.spec.name;
        let mut session = self.server.session("postgres")?;
        for property in properties {
            let statement = property.for_database(name);
            match session.query(&statement) {
                Ok(_) => {}
                Err(SessionError::Server { severity, message: why, .. }) if severity == "ERROR" => {
                    (self.report)(Step::PropertyLeftOut { name, statement: &statement, why: &why });
                }
                Err(source) => {
                    return Err(SetupError::Database { database: name.clone(), source }.into());
                }
            }
        }
        Ok(())
    }

    /// Runs a program in the specification's folder. Its environment contains the database's address, just like that of
    /// a command the user runs with pgfresh.
    fn run_program(
        &self,
        step: &str,
        mut command: Command,
        address: &Address,
    ) -> Result<Option<FailedStep>, ProvisionError> {
        let run = self.server.run();
        let begun = Instant::now();
        let output = run.create_file(LOG_NAME, &Account::ours())?;
        let second = output.try_clone().attempt("duplicate", &run.path().join(LOG_NAME))?;
        command.current_dir(&self.spec.folder).stdin(Stdio::null());
        command.stdout(Stdio::from(output)).stderr(Stdio::from(second));
        address.describe_to(&mut command);
        for name in SESSION_VARIABLES.iter().filter(|name| self.spec.env.iter().all(|own| own != *name)) {
            command.env_remove(name);
        }
        if let Some(root) = self.write_root()? {
            command.env("PGSSLROOTCERT", root);
        }
        self.installation.append_to_path(&mut command);
        let lock = run.helper_lock()?;
        sys::inherit(&mut command, vec![lock.descriptor().attempt("duplicate", run.path())?]);
        sys::die_with_parent(&mut command);
        sys::restore_open_file_limit(&mut command);
        sys::restore_mask(&mut command);
        let program = PathBuf::from(command.get_program());
        let child = command.spawn().attempt("run", &program)?;
        drop((command, lock));
        let status = self.wait(child, step, begun).attempt("wait for", &program)?;
        if !self.server.is_alive() {
            let (step, why) = (step.to_owned(), self.server.end_reason());
            return Err(SetupError::ServerGone { step, why }.into());
        }
        let broken = FailedStep { step: step.to_owned(), status, after: begun.elapsed(), wants_tls: false };
        Ok((!status.success()).then_some(broken))
    }

    /// Waits for a step to finish, without a time limit, and reports progress.
    fn wait(&self, mut child: Child, step: &str, begun: Instant) -> std::io::Result<ExitStatus> {
        let ended = sys::ProcessHandle::of(&child)?;
        let log = Setup::log(self.server);
        while !sys::wait_readable(&ended, PROGRESS_INTERVAL)? {
            if !self.server.is_alive() {
                // Without the server, the step would wait forever, so kill it. The guard terminates its children.
                if let Err(error) = child.kill() {
                    tracing::debug!(%error, "could not end a step without a server");
                }
            }
            let line = Self::last_lines(&log).pop().unwrap_or_default();
            (self.report)(Step::Running { step, since: begun.elapsed(), line: &line });
        }
        child.wait()
    }
}

/// Format of a dump file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// SQL that psql can run.
    Plain,
    /// Archive in the custom or directory format, which several jobs can restore in parallel.
    Archive,
    /// Archive in the tar format, which only one job can restore.
    Tar,
    /// Compressed file that neither psql nor `pg_restore` can read. The command decompresses it to stdout.
    Compressed(&'static str),
}

/// First bytes of compressed files, each with the command that decompresses them.
const COMPRESSED: [(&[u8], &str); 6] = [
    (b"\x1f\x8b", "gunzip -c"),
    (b"\x28\xb5\x2f\xfd", "zstd -dc"),
    (b"\xfd7zXZ\0", "xz -dc"),
    (b"BZh", "bzip2 -dc"),
    (b"\x04\x22\x4d\x18", "lz4 -dc"),
    (b"PK\x03\x04", "unzip -p"),
];

impl Format {
    /// Detects the format from the file's first bytes. Source: `src/bin/pg_dump/pg_backup_archiver.c`,
    /// `_discoverArchiveFormat`.
    fn of(path: &Path) -> std::io::Result<Self> {
        if path.is_dir() {
            return Ok(Self::Archive);
        }
        let mut head = Vec::new();
        File::open(path)?.take(512).read_to_end(&mut head)?;
        Ok(match &head[..] {
            head if head.starts_with(b"PGDMP") => Self::Archive,
            head if head.get(257..262) == Some(b"ustar") => Self::Tar,
            head => COMPRESSED
                .iter()
                .find(|(magic, _)| head.starts_with(magic))
                .map_or(Self::Plain, |(_, unpack)| Self::Compressed(unpack)),
        })
    }
}

/// Returns a dump's files relative to `folder`: either the dump itself or all files in its directory.
pub(crate) fn dump_files(folder: &Path, dump: &str) -> Result<Vec<String>, InputError> {
    let path = folder.join(dump);
    if !path.is_dir() {
        return Ok(vec![dump.to_owned()]);
    }
    if !path.join("toc.dat").is_file() {
        return Err(InputError::NoDump { dump: dump.to_owned() });
    }
    let entries = fs::read_dir(&path).attempt("read", &path)?.flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.map(|name| format!("{}/{name}", dump.trim_end_matches('/'))).collect())
}
