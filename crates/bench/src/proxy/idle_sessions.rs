//! Measures a hundred busy sessions among thousands of idle sessions, as in an application with a large
//! connection pool.

use std::time::Duration;

use report::as_f64;

use super::fixture::{DATABASE, ProxyFixture, Route};
use super::pgbench::{self, BUSY_WORKLOAD};
use crate::pgbench::Pgbench;
use crate::{BenchError, memory};

/// Number of idle sessions.
pub(super) const IDLE_SESSIONS: usize = 2000;
/// How long the busy sessions work, in seconds.
const SECONDS: u32 = 10;

/// The costs of the idle sessions.
pub(super) struct IdleSessionCosts {
    /// Memory per idle session in this process, in bytes. Includes the client's end of the session, which is small.
    /// `None` if the system doesn't provide the value.
    pub(super) memory: Option<f64>,
    /// Mean time between two transactions of the busy sessions, without and with idle sessions.
    pub(super) alone: Duration,
    pub(super) among: Duration,
    /// Mean time between two transactions over a direct connection, with the idle sessions.
    pub(super) direct: Duration,
}

pub(super) fn measure(program: &Pgbench, fixture: &ProxyFixture) -> Result<IdleSessionCosts, BenchError> {
    let address = fixture.address(Route::Gateway);
    let busy = |route| {
        let phases = pgbench::time(program, fixture.address(route), BUSY_WORKLOAD, SECONDS)?;
        Ok::<_, BenchError>(phases.iter().map(|(_, time)| *time).sum())
    };
    let alone = busy(Route::Gateway)?;
    let before = memory::resident()?;
    let mut idle = Vec::with_capacity(IDLE_SESSIONS);
    for _ in 0..IDLE_SESSIONS {
        let mut client = address.connect(DATABASE, &[])?;
        client.shrink();
        idle.push(client);
    }
    let after = memory::resident()?;
    let (among, direct) = (busy(Route::Gateway)?, busy(Route::Direct)?);
    for client in &mut idle {
        client.query("SELECT 1")?;
    }
    let used = after.zip(before).map(|(after, before)| after.saturating_sub(before));
    let memory = used.map(|used| as_f64(used) / as_f64(IDLE_SESSIONS));
    for client in idle {
        client.close()?;
    }
    Ok(IdleSessionCosts { memory, alone, among, direct })
}
