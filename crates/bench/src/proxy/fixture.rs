//! Starts a server and all routes to it.
//!
//! The benchmark starts this server by hand, because pgfresh's own servers don't listen on TCP ports.

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gateway::Gateway;
use server::{GuardedCommand, SUPERUSER};
use storage::{Attempt, Place};
use sys::Signal;
use template::Provisioner;

use super::forwarder::{self, Forwarder};
use crate::BenchError;
use crate::by_hand;
use crate::client::Address;
use crate::fixture::open_gateway;
use crate::floor::Tree;
use crate::memory::if_known;

/// Size of the database in bytes, including copies of its rows and its WAL.
pub(super) const BYTES: u64 = 2 << 30;
/// The benchmark's database, created with SQL.
pub(super) const DATABASE: &str = "bench";
/// Number of sessions that the server and `PgBouncer` accept.
const SESSIONS: u32 = 2300;
/// Number of attempts to find a free port. Another process may take a port before the benchmark can use it.
const ATTEMPTS: u32 = 5;
/// Maximum time until a process is ready.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// A way to connect to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Direct,
    Gateway,
    PgBouncer,
    Forwarder,
    Socket,
}

impl Route {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct TCP",
            Self::Gateway => "pgfresh",
            Self::PgBouncer => "PgBouncer, session pooling",
            Self::Forwarder => "a bare forwarder",
            Self::Socket => "unix socket of the server",
        }
    }
}

/// A server with the gateway and the proxies in front of it.
pub(super) struct ProxyFixture {
    /// The available routes with their addresses, in report order.
    pub(super) routes: Vec<(Route, Address)>,
    /// `PgBouncer`'s version. `None` if it isn't installed.
    pub(super) bouncer: Option<String>,
    /// `PgBouncer`'s process ID, if it runs.
    bouncer_process: Option<u32>,
}

impl ProxyFixture {
    /// Starts everything, runs `measure`, and stops everything again.
    pub(super) fn run_with<T>(
        provisioner: &Provisioner,
        place: &Place,
        measure: impl FnOnce(&Self) -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let tree = Tree::list(&provisioner.base_image(&|_| ())?.entry.data())?;
        let guard = by_hand::guarded_directory(provisioner, place)?;
        let guarded = guard.guarded_command()?;
        let directory = guarded.run().socket_directory();
        tree.copy(&guarded.run().data(), &provisioner.account)?;
        let conf = guarded.run().data().join("postgresql.conf");
        fs::write(&conf, provisioner.settings(place.budget())?.to_conf()).attempt("write", &conf)?;
        let (mut postmaster, server) = start_server(provisioner, &guarded)?;
        // The gateway expects the server's socket under this name.
        let theirs = directory.join(format!(".s.PGSQL.{}", server.port()));
        let socket = directory.join(server::SOCKET);
        symlink(&theirs, &socket).attempt("link", &socket)?;
        let major = provisioner.installation.version().major;
        let (leases, gateway) = open_gateway(guarded.run(), place, major, "template1", None)?;
        let mut bouncer = start_bouncer(provisioner, &guarded, server)?;
        let forwarder = Forwarder::start(&socket)?;
        let bouncers = bouncer.as_ref().map(|bouncer| bouncer.address);
        let fixture = Self {
            routes: open_routes(server, &gateway, bouncers, forwarder.address, socket),
            bouncer: bouncer.as_ref().map(|bouncer| bouncer.version.clone()),
            bouncer_process: bouncer.as_ref().map(|bouncer| bouncer.child.id()),
        };
        let result = measure(&fixture).and_then(|measured| forwarder.stop().map(|()| measured));
        gateway.close();
        leases.close();
        if let Some(RunningBouncer { child, .. }) = &mut bouncer {
            stop_process(child, Signal::KILL)?;
        }
        stop_process(&mut postmaster, Signal::QUIT)?;
        result
    }

    /// Returns how much CPU time the process or thread between the client and the server has used so far. Returns
    /// `None` for a direct route, and if the system doesn't provide the value.
    pub(super) fn processor_time(&self, route: Route) -> Result<Option<Duration>, BenchError> {
        let ours = std::process::id();
        let (process, threads) = match route {
            Route::Direct | Route::Socket => return Ok(None),
            Route::Gateway => (Some(ours), Some(gateway::THREAD_NAME)),
            Route::Forwarder => (Some(ours), Some(forwarder::THREAD)),
            Route::PgBouncer => (self.bouncer_process, None),
        };
        let Some(process) = process else { return Ok(None) };
        let time = if_known(sys::processor_time(process, threads));
        Ok(time.attempt("examine", Path::new(route.name()))?)
    }

    /// Returns a route's address.
    pub(super) fn address(&self, route: Route) -> &Address {
        let found = self.routes.iter().find(|(there, _)| *there == route);
        &found.expect("asked for none but those that there are").1
    }
}

fn open_routes(
    server: SocketAddr,
    gateway: &Gateway,
    bouncer: Option<SocketAddr>,
    forwarder: SocketAddr,
    socket: PathBuf,
) -> Vec<(Route, Address)> {
    let secret = gateway.access().secret().to_owned();
    let mut routes = vec![
        (Route::Direct, Address::Tcp(server, String::new())),
        (Route::Gateway, Address::Tcp(gateway.address(), secret)),
    ];
    routes.extend(bouncer.map(|address| (Route::PgBouncer, Address::Tcp(address, String::new()))));
    routes.push((Route::Forwarder, Address::Tcp(forwarder, String::new())));
    routes.push((Route::Socket, Address::Unix(socket)));
    routes
}

/// Starts `postgres` with a private socket and a port on the loopback interface.
fn start_server(
    provisioner: &Provisioner,
    guarded: &GuardedCommand<'_>,
) -> Result<(Child, SocketAddr), BenchError> {
    let run = guarded.run();
    let mut attempt = 1;
    loop {
        let address = free_address()?;
        let log = run.create_file("log", &provisioner.account)?;
        let mut postgres = guarded.command(&provisioner.installation, "postgres", &provisioner.account)?;
        postgres.arg("-D").arg(run.data()).arg("-k").arg(run.socket_directory());
        postgres.args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "-N", &SESSIONS.to_string()]);
        postgres.stdout(Stdio::null()).stderr(Stdio::from(log));
        let mut child = postgres.spawn().attempt("run", Path::new("postgres"))?;
        match by_hand::wait_until_ready(&mut child, run) {
            Ok(()) => return Ok((child, address)),
            Err(BenchError::Program { .. }) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Returns a loopback address with a currently free port.
fn free_address() -> Result<SocketAddr, BenchError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    Ok(listener.attempt("bind", Path::new("127.0.0.1"))?)
}

struct RunningBouncer {
    child: Child,
    address: SocketAddr,
    version: String,
}

/// Starts `PgBouncer` in front of the server. Returns `None` if it isn't installed.
fn start_bouncer(
    provisioner: &Provisioner,
    guarded: &GuardedCommand<'_>,
    server: SocketAddr,
) -> Result<Option<RunningBouncer>, BenchError> {
    let debian = Some(PathBuf::from("/usr/sbin/pgbouncer")).filter(|path| path.is_file());
    let Some(program) = provisioner.installation.client("pgbouncer").or(debian) else { return Ok(None) };
    let run = guarded.run();
    let address = free_address()?;
    let mut conf = String::new();
    conf.push_str(&format!(
        "[databases]\n* = host={} port={} user={SUPERUSER}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
         listen_port = {}\nunix_socket_dir =\nauth_type = any\npool_mode = session\n\
         max_client_conn = {SESSIONS}\ndefault_pool_size = {SESSIONS}\n",
        run.socket_directory().display(),
        server.port(),
        address.port(),
    ));
    let path = run.path().join("pgbouncer.ini");
    let mut file = run.create_file("pgbouncer.ini", &provisioner.account)?;
    file.write_all(conf.as_bytes()).attempt("write", &path)?;
    let log = run.create_file("pgbouncer.log", &provisioner.account)?;
    let program = program.display().to_string();
    let mut command = guarded.command(&provisioner.installation, &program, &provisioner.account)?;
    command.arg("--quiet").arg(&path).stdout(Stdio::null()).stderr(Stdio::from(log));
    let mut child = command.spawn().attempt("run", Path::new(&program))?;
    let begun = Instant::now();
    // `PgBouncer` doesn't report when it is ready, so try until a connection succeeds.
    while Address::Tcp(address, String::new()).connect("postgres", &[]).is_err() {
        if let Some(status) = child.try_wait().attempt("wait for", Path::new(&program))? {
            BenchError::check_status("pgbouncer", status, &run.path().join("pgbouncer.log"))?;
        }
        if begun.elapsed() > START_TIMEOUT {
            return Err(BenchError::NotReady { seconds: START_TIMEOUT.as_secs() });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(Some(RunningBouncer { child, address, version: version(&program) }))
}

/// Returns the first output line of `program --version`.
fn version(program: &str) -> String {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("PgBouncer").to_owned()
}

fn stop_process(child: &mut Child, signal: Signal) -> Result<(), BenchError> {
    sys::signal(child, signal).attempt("stop", Path::new("a server"))?;
    child.wait().attempt("wait for", Path::new("a server"))?;
    Ok(())
}
