//! Thousands of idle sessions with a hundred busy ones among them.

use std::time::Duration;

use report::as_f64;

use super::fixture::{DATABASE, ProxyFixture, Way};
use super::pgbench::{self, BUSY};
use crate::pgbench::Pgbench;
use crate::{BenchError, memory};

/// Number of idle sessions.
pub(super) const IDLE: usize = 2000;
/// Duration of the busy sessions in seconds.
const SECONDS: u32 = 10;

/// Results of the crowd.
pub(super) struct Crowd {
    /// Bytes of our memory per idle session. It includes the client's end, which is small.
    pub(super) memory: f64,
    /// Time between transactions over all busy sessions: without the idle ones, and among them.
    pub(super) alone: Duration,
    pub(super) among: Duration,
    /// Time between transactions among the idle sessions, over a direct connection.
    pub(super) direct: Duration,
}

pub(super) fn gather(program: &Pgbench, fixture: &ProxyFixture) -> Result<Crowd, BenchError> {
    let address = fixture.address(Way::Gateway);
    let busy = |way| {
        let phases = pgbench::time(program, fixture.address(way), BUSY, SECONDS)?;
        Ok::<_, BenchError>(phases.iter().map(|(_, time)| *time).sum())
    };
    let alone = busy(Way::Gateway)?;
    let before = memory::resident()?;
    let mut idle = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        let mut client = address.connect(DATABASE, &[])?;
        client.shrink();
        idle.push(client);
    }
    let after = memory::resident()?;
    let (among, direct) = (busy(Way::Gateway)?, busy(Way::Direct)?);
    for client in &mut idle {
        client.query("SELECT 1")?;
    }
    let memory = as_f64(after.saturating_sub(before)) / as_f64(IDLE);
    for client in idle {
        client.close()?;
    }
    Ok(Crowd { memory, alone, among, direct })
}
