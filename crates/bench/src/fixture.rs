//! A server with a template of 30 tables or another number of them, its databases, and a gateway before it: where leases are measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gateway::{Access, Budget, Gateway, GatewayOptions};
use lease::{Isolation, LeaseOptions, Leases, TemplateDatabase};
use report::Report;
use server::{AdminConnection, Installation, SOCKET, SUPERUSER, Server};
use storage::{Attempt, Cache, Entry, Place, RunDirectory};
use template::{Provisioner, ServerOptions, Started, TemplateSpec};

use crate::client::Address;
use crate::{BenchError, environment};

/// Tables of the template as usual.
pub(crate) const TABLES: u32 = 30;
/// Tables that are made by one query: a transaction has a lock for each.
const TOGETHER: u32 = 100;
/// What copies by hand are made of: the same as the template.
pub(crate) const BY_HAND: &str = "by_hand";
/// The template's name.
const TEMPLATE: &str = "measured";
/// What makes a lease end with its last session.
pub(crate) const BRIEF: (&str, &str) = ("options", "-c pgfresh.linger=0");
/// The same, in rollback isolation.
pub(crate) const ROLLED_BACK: (&str, &str) = ("options", "-c pgfresh.isolation=rollback -c pgfresh.linger=0");
/// Sessions that the server admits, unless the user sets it.
const SESSIONS: u32 = 500;
/// How long a database outlives its last session, as usual.
const LINGER: Duration = Duration::from_secs(5);
/// How long a statement may take.
const STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);

/// All of it. What is declared first goes first.
pub(crate) struct Fixture {
    gateway: Gateway,
    pub(crate) leases: Leases,
    pub(crate) server: Server,
    provisioner: Provisioner,
    place: String,
    load: String,
    serial: AtomicU64,
    /// How long it took to make the tables of the template.
    pub(crate) built: Duration,
}

impl Fixture {
    pub(crate) fn open(
        server_options: &ServerOptions,
        cache: Option<&Path>,
        program: PathBuf,
        tables: u32,
    ) -> Result<Self, BenchError> {
        let load = environment::load();
        let (provisioner, mut started) = start(server_options, None, cache, program)?;
        let mut admin = match started.session.take() {
            Some(session) => session,
            None => started.server.session("postgres")?,
        };
        admin.query(&format!("CREATE DATABASE {TEMPLATE}"))?;
        let (begun, mut session) = (Instant::now(), started.server.session(TEMPLATE)?);
        for sql in statements(tables) {
            session.query(&sql)?;
        }
        let built = begun.elapsed();
        drop(session);
        // It waits for the end of the session that has made the tables.
        admin.query(&format!("CREATE DATABASE {BY_HAND} TEMPLATE {TEMPLATE}"))?;
        // It is in no cache now.
        started.entry = None;
        Self::serve(provisioner, started, load, built)
    }

    /// One that starts from a template in the cache, as users' servers do. Nothing is made by hand in it.
    pub(crate) fn of_template(
        server_options: &ServerOptions,
        template: TemplateSpec,
        cache: &Path,
        program: PathBuf,
    ) -> Result<Self, BenchError> {
        let load = environment::load();
        let (provisioner, started) = start(server_options, Some(template), Some(cache), program)?;
        Self::serve(provisioner, started, load, Duration::ZERO)
    }

    fn serve(
        provisioner: Provisioner,
        started: Started,
        load: String,
        built: Duration,
    ) -> Result<Self, BenchError> {
        let major = provisioner.installation.version().major;
        let (leases, gateway) = front(started.server.run(), &started.place, major, TEMPLATE, started.entry)?;
        let place = started.place.why();
        Ok(Self {
            gateway,
            leases,
            server: started.server,
            provisioner,
            place,
            load,
            serial: AtomicU64::new(0),
            built,
        })
    }

    /// The gateway's port.
    pub(crate) fn gateway(&self) -> Address {
        Address::Tcp(self.gateway.address(), self.gateway.access().secret().to_owned())
    }

    /// The server's own socket.
    pub(crate) fn socket(&self) -> Address {
        Address::Unix(self.server.run().socket_directory().join(SOCKET))
    }

    /// A session that makes and drops databases, as a superuser of the server.
    pub(crate) fn admin(&self) -> Result<AdminConnection, BenchError> {
        Ok(AdminConnection::open(
            &self.server.run().socket_directory(),
            SUPERUSER,
            "postgres",
            STATEMENT_TIMEOUT,
        )?)
    }

    /// The server's binaries.
    pub(crate) fn installation(&self) -> &Installation {
        &self.provisioner.installation
    }

    /// The server's major version.
    pub(crate) fn major(&self) -> u32 {
        self.installation().version().major
    }

    /// A name that no database has had.
    pub(crate) fn new_name(&self) -> String {
        format!("bench_{}", self.serial.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn describe(&self, report: &mut Report) {
        environment::describe(report, &self.provisioner, &self.place, &self.load);
    }

    /// Ends all of it.
    pub(crate) fn close(self) {
        self.gateway.close();
        self.leases.close();
    }
}

/// Starts a server that admits many sessions: ours, those that we keep warm, and those by hand.
fn start(
    server_options: &ServerOptions,
    template: Option<TemplateSpec>,
    cache: Option<&Path>,
    program: PathBuf,
) -> Result<(Provisioner, Started), BenchError> {
    let mut server_options = ServerOptions { template, ..server_options.clone() };
    server_options.settings.insert(0, ("max_connections".to_owned(), SESSIONS.to_string()));
    let provisioner = Provisioner::find(server_options, Cache::locate(cache)?, program)?;
    let started = provisioner.start(&|_| ())?;
    Ok((provisioner, started))
}

/// The tables of a template as a file in `folder`, and how a template is made of that.
pub(crate) fn template_in(folder: &Path) -> Result<TemplateSpec, BenchError> {
    let file = folder.join("tables.sql");
    fs::write(&file, statements(TABLES).join(";\n")).attempt("write", &file)?;
    let sql = vec!["tables.sql".to_owned()];
    Ok(TemplateSpec { name: TEMPLATE.to_owned(), folder: folder.to_owned(), sql, ..TemplateSpec::default() })
}

/// Opens leases of the databases of a server, which all are copies of one, and a gateway before them, on any port that is free.
pub(crate) fn front(
    run: &RunDirectory,
    place: &Place,
    major: u32,
    template: &str,
    entry: Option<Entry>,
) -> Result<(Leases, Gateway), BenchError> {
    let options = LeaseOptions {
        directory: run.socket_directory(),
        data: run.data(),
        major,
        budget: place.budget(),
        templates: vec![TemplateDatabase { name: template.to_owned(), database: template.to_owned() }],
        entry,
        isolation: Isolation::Clone,
        linger: LINGER,
        paranoid: false,
        provisioner: None,
    };
    let leases = Leases::open(options, None)?;
    let secret = Access::random_secret().attempt("read", Path::new("random numbers"))?;
    let listen = ([127, 0, 0, 1], 0).into();
    let options = GatewayOptions {
        listen,
        advertised: None,
        certificate: None,
        socket: None,
        secret,
        history: None,
        budget: Budget::default(),
    };
    let gateway = Gateway::bind(options)?.serve(leases.clone(), None)?;
    Ok((leases, gateway))
}

/// Queries that make a sequence and so many tables, as an application has them: keys, references, an index on a word, a time.
pub(crate) fn statements(tables: u32) -> Vec<String> {
    let table = |table: u32| {
        let refers = if table > 1 { format!(" REFERENCES t{}", table - 1) } else { String::new() };
        format!(
            "CREATE TABLE t{table} (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, parent bigint{refers}, \
             name text NOT NULL, made timestamptz NOT NULL DEFAULT now()); CREATE INDEX ON t{table} (name);"
        )
    };
    let some = |first: u32| (first..=tables.min(first + TOGETHER - 1)).map(table).collect();
    let first = (1..=tables).step_by(TOGETHER as usize);
    std::iter::once("CREATE SEQUENCE number".to_owned()).chain(first.map(some)).collect()
}
