//! Sets up a server with a template, database leases, and a gateway.
//!
//! Most benchmarks need all of these, because tests reach their databases in this way.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use api::{Api, OnFailure};
use gateway::{Access, Budget, Gateway, GatewayOptions, SocketFile};
use lease::{Isolation, LeaseOptions, Leases, NameRules, TemplateDatabase};
use report::Report;
use server::{AdminConnection, Installation, SOCKET, SUPERUSER, Server};
use storage::{Attempt, Cache, Entry, Place, RunDirectory};
use template::{Provisioner, ServerOptions, Started, TemplateSpec};

use crate::client::Address;
use crate::http::HttpConnection;
use crate::{BenchError, environment};

/// Number of tables in the template, unless a benchmark compares several numbers.
pub(crate) const DEFAULT_TABLES: u32 = 30;
/// Number of tables to create per query. A transaction holds a lock for each table that it creates, and the server
/// limits the number of locks.
const TABLES_PER_QUERY: u32 = 100;
/// A copy of the template. Contenders that work by hand copy this database.
pub(crate) const MANUAL_DATABASE: &str = "by_hand";
/// The name of the template's database.
const TEMPLATE: &str = "measured";
/// Connection option that ends a lease along with its last session.
pub(crate) const NO_LINGER: (&str, &str) = ("options", "-c pgfresh.linger=0");
/// Connection options for a lease in rollback isolation that ends along with its last session.
pub(crate) const ROLLBACK_ISOLATION: (&str, &str) =
    ("options", "-c pgfresh.isolation=rollback -c pgfresh.linger=0");
/// The server's default `max_connections`.
const MAX_CONNECTIONS: u32 = 500;
/// Port in the name of the gateway's Unix socket. This isn't the server's own port.
const SOCKET_PORT: u16 = 5433;
/// How long a database remains leased after its last session ends, by default.
const LINGER: Duration = Duration::from_secs(5);
/// Timeout for a statement.
const STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);

/// A running server with leases and a gateway. Fields are dropped in declaration order.
pub(crate) struct Fixture {
    gateway: Gateway,
    pub(crate) leases: Leases,
    pub(crate) server: Server,
    provisioner: Provisioner,
    place: String,
    load: String,
    serial: AtomicU64,
    /// How long creating the template's tables took.
    pub(crate) built: Duration,
}

impl Fixture {
    pub(crate) fn open(
        server_options: &ServerOptions,
        cache: Option<&Path>,
        program: PathBuf,
        tables: u32,
    ) -> Result<Self, BenchError> {
        let load = environment::load_averages();
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
        // CREATE DATABASE waits until the session that created the tables has ended.
        admin.query(&format!("CREATE DATABASE {MANUAL_DATABASE} TEMPLATE {TEMPLATE}"))?;
        // The cached copy of the data directory doesn't have a database with these tables, so don't use it.
        started.entry = None;
        Self::serve(provisioner, started, load, built)
    }

    /// Opens a fixture whose server starts from a cached template, as a user's server does. This fixture doesn't have
    /// a [`MANUAL_DATABASE`].
    pub(crate) fn of_template(
        server_options: &ServerOptions,
        template: TemplateSpec,
        cache: &Path,
        program: PathBuf,
    ) -> Result<Self, BenchError> {
        let load = environment::load_averages();
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
        let (leases, gateway) =
            open_gateway(started.server.run(), &started.place, major, TEMPLATE, started.entry)?;
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

    /// Returns the gateway's address.
    pub(crate) fn gateway(&self) -> Address {
        Address::Tcp(self.gateway.address(), self.gateway.access().secret().to_owned())
    }

    /// Returns the gateway's Unix socket.
    pub(crate) fn gateway_socket(&self) -> Address {
        Address::Unix(gateway_socket(self.server.run()).path())
    }

    /// Opens a connection to the HTTP API.
    pub(crate) fn http(&self) -> Result<HttpConnection, BenchError> {
        let secret = self.gateway.access().secret();
        HttpConnection::open(self.gateway.address(), secret).map_err(BenchError::Http)
    }

    /// Returns the server's own Unix socket.
    pub(crate) fn socket(&self) -> Address {
        Address::Unix(self.server.run().socket_directory().join(SOCKET))
    }

    /// Opens a superuser session for creating and dropping databases.
    pub(crate) fn admin(&self) -> Result<AdminConnection, BenchError> {
        Ok(AdminConnection::open(
            &self.server.run().socket_directory(),
            SUPERUSER,
            "postgres",
            STATEMENT_TIMEOUT,
        )?)
    }

    /// Returns the server's installation.
    pub(crate) fn installation(&self) -> &Installation {
        &self.provisioner.installation
    }

    /// Returns the server's major version.
    pub(crate) fn major(&self) -> u32 {
        self.installation().version().major
    }

    /// Returns a new database name.
    pub(crate) fn new_name(&self) -> String {
        format!("bench_{}", self.serial.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn describe(&self, report: &mut Report) {
        environment::describe(report, &self.provisioner, &self.place, &self.load);
    }

    /// Closes the gateway and the leases and stops the server.
    pub(crate) fn close(self) {
        self.gateway.close();
        self.leases.close();
    }
}

/// Starts a server with enough connections for the fixture's own sessions, the pool and the contenders that
/// work by hand.
fn start(
    server_options: &ServerOptions,
    template: Option<TemplateSpec>,
    cache: Option<&Path>,
    program: PathBuf,
) -> Result<(Provisioner, Started), BenchError> {
    let mut server_options = ServerOptions { template, ..server_options.clone() };
    server_options.settings.insert(0, ("max_connections".to_owned(), MAX_CONNECTIONS.to_string()));
    let provisioner = Provisioner::find(server_options, Cache::locate(cache)?, program)?;
    let started = provisioner.start(&|_| ())?;
    Ok((provisioner, started))
}

/// Writes the SQL for a template's tables to a file in `folder` and returns the template's specification.
pub(crate) fn template_in(folder: &Path) -> Result<TemplateSpec, BenchError> {
    let file = folder.join("tables.sql");
    fs::write(&file, statements(DEFAULT_TABLES).join(";\n")).attempt("write", &file)?;
    let sql = vec!["tables.sql".to_owned()];
    Ok(TemplateSpec { name: TEMPLATE.to_owned(), folder: folder.to_owned(), sql, ..TemplateSpec::default() })
}

/// Returns the gateway's Unix socket in the run directory `run`.
fn gateway_socket(run: &RunDirectory) -> SocketFile {
    SocketFile { directory: run.address().to_owned(), port: SOCKET_PORT }
}

/// Opens leases for the databases of a server that has one template, and a gateway with the HTTP API for these leases.
/// The gateway listens on a free port and on a Unix socket.
pub(crate) fn open_gateway(
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
        names: NameRules::default(),
        isolation: Isolation::Clone,
        linger: LINGER,
        suite: None,
        paranoid: false,
        provisioner: None,
        observer: None,
    };
    let leases = Leases::open(options, None)?;
    let secret = Access::random_secret().attempt("read", Path::new("random numbers"))?;
    let listen = ([127, 0, 0, 1], 0).into();
    let options = GatewayOptions {
        listen,
        advertised: None,
        certificate: None,
        replicas: false,
        socket: Some(gateway_socket(run)),
        secret,
        history: None,
        budget: Budget::default(),
    };
    let bound = Gateway::bind(options)?;
    let api = Api::new(
        leases.clone(),
        bound.access(),
        OnFailure::Release,
        None,
        bound.events(),
        bound.recorder(),
        bound.faults(),
    );
    let gateway = bound.serve(leases.clone(), Some(Arc::new(api)))?;
    Ok((leases, gateway))
}

/// Returns queries that create a sequence and `tables` tables. The tables resemble an application's: they have keys,
/// references to other tables, an index on a text column, and a timestamp.
pub(crate) fn statements(tables: u32) -> Vec<String> {
    let table = |table: u32| {
        let refers = if table > 1 { format!(" REFERENCES t{}", table - 1) } else { String::new() };
        format!(
            "CREATE TABLE t{table} (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, parent bigint{refers}, \
             name text NOT NULL, made timestamptz NOT NULL DEFAULT now()); CREATE INDEX ON t{table} (name);"
        )
    };
    let some = |first: u32| (first..=tables.min(first + TABLES_PER_QUERY - 1)).map(table).collect();
    let first = (1..=tables).step_by(TABLES_PER_QUERY as usize);
    std::iter::once("CREATE SEQUENCE number".to_owned()).chain(first.map(some)).collect()
}
