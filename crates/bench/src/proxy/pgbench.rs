//! Runs pgbench over each way. pgbench has the smallest messages, so the cost of the way is most visible here.

use std::cell::RefCell;
use std::collections::HashMap;

use report::{Contender, PhaseTimes, Quantity, Sample, Unit};

use super::fixture::{DATABASE, ProxyFixture, Way};
use crate::BenchError;
use crate::client::Address;
use crate::pgbench::Pgbench;

/// The number of branches, of 15 MB each. With 20 branches, 8 clients rarely wait for each other.
const SCALE: u32 = 20;
/// How long each turn takes, in seconds.
const SECONDS: u32 = 2;

/// A workload for pgbench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) name: &'static str,
    read_only: bool,
    clients: u32,
}

/// All workloads.
pub(super) const LOADS: [Load; 4] = [
    Load { name: "pgbench -S, 1 client", read_only: true, clients: 1 },
    Load { name: "pgbench -S, 8 clients", read_only: true, clients: 8 },
    Load { name: "TPC-B-like, 1 client", read_only: false, clients: 1 },
    Load { name: "TPC-B-like, 8 clients", read_only: false, clients: 8 },
];

/// The workload of the busy sessions among idle ones.
pub(super) const BUSY: Load = Load { name: "pgbench -S, 100 clients", read_only: true, clients: 100 };

/// Creates the database and pgbench's tables.
pub(super) fn prepare(pgbench: &Pgbench, fixture: &ProxyFixture) -> Result<(), BenchError> {
    let socket = fixture.address(Way::Socket);
    socket.connect("postgres", &[])?.query(&format!("CREATE DATABASE {DATABASE}"))?;
    pgbench.prepare(socket, DATABASE, SCALE, &[])
}

/// The processor time for each transaction that the process or thread between client and server uses. There is a sample
/// for each contender, by name.
#[derive(Default)]
pub(super) struct ProcessorTimes(RefCell<HashMap<String, Sample>>);

impl ProcessorTimes {
    fn note(&self, name: &str, taken: f64) {
        let mut samples = self.0.borrow_mut();
        let sample = samples.entry(name.to_owned()).or_insert_with(|| Sample::new(name, Unit::Seconds));
        sample.push(taken).expect("a duration is finite");
    }

    /// Discards the warm-up.
    pub(super) fn forget(&self) {
        self.0.borrow_mut().clear();
    }

    /// Returns the median for a contender, or `None` if there is nothing between client and server.
    pub(super) fn median(&self, name: &str) -> Option<Quantity> {
        self.0.borrow().get(name)?.median()
    }
}

pub(super) fn contenders<'a>(
    pgbench: &'a Pgbench,
    fixture: &'a ProxyFixture,
    used: &'a ProcessorTimes,
) -> Vec<Contender<'a, BenchError>> {
    let mut contenders = Vec::new();
    for load in LOADS {
        for (way, address) in &fixture.ways {
            let name = contender(load.name, *way);
            contenders.push(Contender::new(name.clone(), move || {
                let before = fixture.processor_time(*way)?;
                let phases = time(pgbench, address, load, SECONDS)?;
                if let (Some(before), Some(after)) = (before, fixture.processor_time(*way)?) {
                    let each: f64 = phases.iter().map(|(_, each)| each.as_secs_f64()).sum();
                    used.note(&name, after.saturating_sub(before).as_secs_f64() * each / f64::from(SECONDS));
                }
                Ok(phases)
            }));
        }
    }
    contenders
}

/// Returns the name of the contender for a workload over a way.
pub(super) fn contender(what: &str, way: Way) -> String {
    format!("{what}: {}", way.name())
}

/// Runs a workload. Returns the mean time between two transactions of any client.
pub(super) fn time(
    pgbench: &Pgbench,
    address: &Address,
    load: Load,
    seconds: u32,
) -> Result<PhaseTimes, BenchError> {
    let read_only: &[_] = if load.read_only { &["-S"] } else { &[] };
    pgbench.time(address, DATABASE, load.clients, seconds, read_only)
}
