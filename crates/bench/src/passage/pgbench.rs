//! pgbench over each way: the smallest messages there are, so that the way weighs most.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use server::SUPERUSER;
use storage::Attempt;
use template::Maker;

use super::ground::{DATABASE, Ground, Way};
use crate::BenchError;
use crate::client::{Address, Client};
use crate::runner::{Contender, Phases};

/// Branches: as many as keep 8 clients out of each other's way. 15 MB each.
const SCALE: u32 = 20;
/// How long each goes on in a round, in seconds.
const SECONDS: u32 = 2;

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) name: &'static str,
    read_only: bool,
    clients: u32,
}

/// All of it.
pub(super) const LOADS: [Load; 4] = [
    Load { name: "pgbench -S, 1 client", read_only: true, clients: 1 },
    Load { name: "pgbench -S, 8 clients", read_only: true, clients: 8 },
    Load { name: "TPC-B-like, 1 client", read_only: false, clients: 1 },
    Load { name: "TPC-B-like, 8 clients", read_only: false, clients: 8 },
];

/// A hundred that only read.
pub(super) const BUSY: Load = Load { name: "pgbench -S, 100 clients", read_only: true, clients: 100 };

/// Finds pgbench.
pub(super) fn find(maker: &Maker) -> Result<PathBuf, BenchError> {
    maker.installation.client("pgbench").ok_or(BenchError::NoProgram { program: "pgbench" })
}

/// Makes the database, and its tables.
pub(super) fn prepare(program: &Path, ground: &Ground) -> Result<(), BenchError> {
    let socket = ground.address(Way::Socket);
    Client::open(socket, "postgres", &[])?.query(&format!("CREATE DATABASE {DATABASE}"))?;
    let scale = SCALE.to_string();
    run(program, socket, &["-i", "-I", "dtgvp", "-q", "-s", &scale]).map(drop)
}

pub(super) fn contenders<'a>(program: &'a Path, ground: &'a Ground) -> Vec<Contender<'a, BenchError>> {
    let mut contenders = Vec::new();
    for load in LOADS {
        for (way, address) in &ground.ways {
            let name = contender(load.name, *way);
            contenders.push(Contender::new(name, move || time(program, address, load, SECONDS)));
        }
    }
    contenders
}

/// The name of who does that over this way.
pub(super) fn contender(what: &str, way: Way) -> String {
    format!("{what}: {}", way.name())
}

/// The time from one transaction to the next, over all clients.
pub(super) fn time(
    program: &Path,
    address: &Address,
    load: Load,
    seconds: u32,
) -> Result<Phases, BenchError> {
    let (clients, seconds) = (load.clients.to_string(), seconds.to_string());
    let mut arguments = vec!["-n", "-c", &clients, "-T", &seconds];
    arguments.extend(load.read_only.then_some("-S"));
    let output = run(program, address, &arguments)?;
    let rate = output.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    let rate: f64 = rate.filter(|rate| *rate > 0.0).ok_or(BenchError::Unclear { program: "pgbench" })?;
    Ok(vec![("a transaction", Duration::from_secs_f64(1.0 / rate))])
}

/// Runs pgbench to its end. It fails if one of its clients does.
fn run(program: &Path, address: &Address, arguments: &[&str]) -> Result<String, BenchError> {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    match address {
        Address::Tcp(address, password) => {
            command.arg("-h").arg(address.ip().to_string()).arg("-p").arg(address.port().to_string());
            command.env("PGPASSWORD", password);
        }
        Address::Unix(file) => {
            command.arg("-h").arg(file.parent().unwrap_or(Path::new("/"))).args(["-p", "5432"]);
        }
    }
    command.args(["-U", SUPERUSER]).args(arguments).arg(DATABASE).stdin(Stdio::null());
    let output = command.output().attempt("run", program)?;
    if !output.status.success() {
        let last_words = String::from_utf8_lossy(&output.stderr).lines().last().map(str::to_owned);
        return Err(BenchError::Program { program: "pgbench".to_owned(), status: output.status, last_words });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
