//! Runs pgbench over each route. Its messages are tiny, so the cost of a route is most visible here.

use std::cell::RefCell;
use std::collections::HashMap;

use report::{Contender, PhaseTimes, Quantity, Sample, Unit};

use super::fixture::{DATABASE, ProxyFixture, Route};
use crate::BenchError;
use crate::client::Address;
use crate::pgbench::Pgbench;

/// Number of branches, 15 MB each. With 20 branches, 8 clients rarely wait for each other.
const SCALE: u32 = 20;
/// Duration of each turn, in seconds.
const SECONDS: u32 = 2;

/// A pgbench workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    read_only: bool,
    clients: u32,
}

/// All workloads.
pub(super) const WORKLOADS: [Workload; 4] = [
    Workload { name: "pgbench -S, 1 client", read_only: true, clients: 1 },
    Workload { name: "pgbench -S, 8 clients", read_only: true, clients: 8 },
    Workload { name: "TPC-B-like, 1 client", read_only: false, clients: 1 },
    Workload { name: "TPC-B-like, 8 clients", read_only: false, clients: 8 },
];

/// The workload that the busy sessions run among idle sessions.
pub(super) const BUSY_WORKLOAD: Workload =
    Workload { name: "pgbench -S, 100 clients", read_only: true, clients: 100 };

/// Creates the database and pgbench's tables.
pub(super) fn prepare(pgbench: &Pgbench, fixture: &ProxyFixture) -> Result<(), BenchError> {
    let socket = fixture.address(Route::Socket);
    socket.connect("postgres", &[])?.query(&format!("CREATE DATABASE {DATABASE}"))?;
    pgbench.prepare(socket, DATABASE, SCALE, &[])
}

/// CPU time per transaction used by the process or thread between the client and the server, as one sample per
/// contender name.
#[derive(Default)]
pub(super) struct ProcessorTimes(RefCell<HashMap<String, Sample>>);

impl ProcessorTimes {
    fn add(&self, name: &str, taken: f64) {
        let mut samples = self.0.borrow_mut();
        let sample = samples.entry(name.to_owned()).or_insert_with(|| Sample::new(name, Unit::Seconds));
        sample.push(taken).expect("a duration is finite");
    }

    /// Discards the warm-up's values.
    pub(super) fn discard_warm_up(&self) {
        self.0.borrow_mut().clear();
    }

    /// Returns a contender's median, or `None` for a direct route.
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
    for load in WORKLOADS {
        for (route, address) in &fixture.routes {
            let name = contender_name(load.name, *route);
            contenders.push(Contender::new(name.clone(), move || {
                let before = fixture.processor_time(*route)?;
                let phases = time(pgbench, address, load, SECONDS)?;
                if let (Some(before), Some(after)) = (before, fixture.processor_time(*route)?) {
                    let each: f64 = phases.iter().map(|(_, each)| each.as_secs_f64()).sum();
                    used.add(&name, after.saturating_sub(before).as_secs_f64() * each / f64::from(SECONDS));
                }
                Ok(phases)
            }));
        }
    }
    contenders
}

/// Returns the contender's name for a workload over a route.
pub(super) fn contender_name(what: &str, route: Route) -> String {
    format!("{what}: {}", route.name())
}

/// Runs a workload. Returns the mean time between two consecutive transactions, which may belong to different clients.
pub(super) fn time(
    pgbench: &Pgbench,
    address: &Address,
    load: Workload,
    seconds: u32,
) -> Result<PhaseTimes, BenchError> {
    let read_only: &[_] = if load.read_only { &["-S"] } else { &[] };
    pgbench.time(address, DATABASE, load.clients, seconds, read_only)
}
