//! The `pgbench` benchmark: runs pgbench's TPC-B-like transactions on pgfresh and on servers with settings from
//! published articles.

mod report;

use std::cell::RefCell;
use std::path::PathBuf;

use ::report::{Contender, Progress, Report, Rounds, Timed};
use server::{AdminConnection, Server};
use template::ServerOptions;

use crate::client::Address;
use crate::fixture::{DEFAULT_TABLES, Fixture};
use crate::pgbench::Pgbench;
use crate::setup::{Setup, Setups};
use crate::{BenchError, Measured, time_and_report};

/// Number of rounds before the measurement, after which all data is in memory.
const WARM_UP: u32 = 1;
/// Numbers of clients, each with its own thread. Source: End Point's blog, "Speeding Up Integration Tests with
/// PostgreSQL".
const CLIENTS: [u32; 3] = [1, 2, 3];
/// Names of the databases. Each server has the first database. The server with normal settings also has the second
/// database, whose tables are unlogged.
const DATABASE: &str = "tpcb";
const UNLOGGED: &str = "unlogged";
/// Name of the database to lease from the gateway.
const LEASED: &str = "leased";
/// Names of the sides that don't come from [`Setup`].
const NORMAL_UNLOGGED: &str = "normal settings, unlogged tables, on disk";
const OURS: &str = "pgfresh";
const OURS_DIRECT: &str = "pgfresh, straight to its server";

/// The benchmark's options.
#[derive(Debug)]
pub struct Transactions {
    /// Options for pgfresh's own server. The other servers use the same installation.
    pub server_options: ServerOptions,
    /// The cache directory, if the user specified one.
    pub cache: Option<PathBuf>,
    /// A pgfresh executable that can act as a guard; see [`server::Guard::over`].
    pub program: PathBuf,
    /// A directory on the disk to test. Defaults to where pgfresh would put a server's data on disk.
    pub disk: Option<PathBuf>,
    /// Number of branches in each database, 15 MB each.
    pub scale: u32,
    /// Duration of each turn, in seconds.
    pub seconds: u32,
}

/// One side of the comparison.
struct Side {
    name: &'static str,
    address: Address,
    database: &'static str,
    /// A session for the CHECKPOINT before each turn, which writes the pages dirtied by earlier turns.
    session: RefCell<AdminConnection>,
}

impl Side {
    fn open(name: &'static str, server: &Server, database: &'static str) -> Result<Self, BenchError> {
        let session = RefCell::new(server.session("postgres")?);
        Ok(Self { name, address: socket(server), database, session })
    }

    fn contenders<'a>(
        &'a self,
        pgbench: &'a Pgbench,
        seconds: u32,
    ) -> impl Iterator<Item = Contender<'a, BenchError>> {
        CLIENTS.into_iter().map(move |clients| {
            Contender::new(contender_name(self.name, clients), move || {
                self.session.borrow_mut().query("CHECKPOINT")?;
                pgbench.time(&self.address, self.database, clients, seconds, &["-j", &clients.to_string()])
            })
        })
    }
}

/// Returns the name of a side's contender with `clients` clients.
fn contender_name(side: &str, clients: u32) -> String {
    format!("{side}, clients: {clients}")
}

/// Returns the server's own Unix socket.
fn socket(server: &Server) -> Address {
    Address::Unix(server.run().socket_directory().join(server::SOCKET))
}

impl Transactions {
    /// Measures pgbench with one, two and three clients, in `rounds` rounds.
    ///
    /// # Errors
    /// Returns an error if there are no results at all, for example because pgbench is missing or the disk is full.
    pub fn measure(&self, rounds: u32, progress: &dyn Progress) -> Result<Measured, BenchError> {
        let Self { server_options, cache, program, disk, .. } = self;
        let fixture = Fixture::open(server_options, cache.as_deref(), program.clone(), DEFAULT_TABLES)?;
        let pgbench = Pgbench::find(fixture.installation())?;
        let setups = Setups { server_options, cache: cache.as_deref(), program, disk: disk.as_deref() };
        let needed = [Setup::Normal, Setup::Dangerous, Setup::Tuned, Setup::Tmpfs];
        let (servers, mut notes) =
            setups.start_all(&needed, |server| self.prepare(&pgbench, server, DATABASE, &[]))?;
        // The unlogged tables are on the server with normal settings.
        self.prepare(&pgbench, &servers[0].1, UNLOGGED, &["--unlogged-tables"])?;
        self.prepare(&pgbench, &fixture.server, DATABASE, &[])?;
        let gateway = fixture.gateway();
        // The lease ends with its last session, so keep this one open.
        let holder = gateway.connect(LEASED, &[])?;
        pgbench.prepare(&gateway, LEASED, self.scale, &[])?;

        let mut sides = vec![Side::open(Setup::Normal.name(), &servers[0].1, DATABASE)?];
        sides.push(Side::open(NORMAL_UNLOGGED, &servers[0].1, UNLOGGED)?);
        for (setup, server) in &servers[1..] {
            sides.push(Side::open(setup.name(), server, DATABASE)?);
        }
        sides.push(Side::open(OURS_DIRECT, &fixture.server, DATABASE)?);
        sides.push(Side {
            address: gateway,
            database: LEASED,
            ..Side::open(OURS, &fixture.server, DATABASE)?
        });
        notes.push(format!("pgbench has a scale of {}, and each turn takes {} s.", self.scale, self.seconds));
        let names: Vec<&str> = sides.iter().map(|side| side.name).collect();
        let report = |timed: &[Timed]| -> Report {
            let mut report = report::of(timed, &names);
            report.add_notes(&notes);
            fixture.describe(&mut report);
            report
        };
        let mut contenders = Vec::new();
        for side in &sides {
            contenders.extend(side.contenders(&pgbench, self.seconds));
        }
        let (report, end) = time_and_report(Rounds::new(WARM_UP, rounds), contenders, progress, &report);
        let closed = holder.close().map_err(BenchError::from);
        fixture.close();
        Ok((report, end.or(closed.err())))
    }

    /// Creates a database with pgbench's tables.
    fn prepare(
        &self,
        pgbench: &Pgbench,
        server: &Server,
        database: &str,
        more: &[&str],
    ) -> Result<(), BenchError> {
        server.session("postgres")?.query(&format!("CREATE DATABASE {database}"))?;
        pgbench.prepare(&socket(server), database, self.scale, more)
    }
}
