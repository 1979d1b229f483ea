//! The `gateway` benchmark: measures the gateway's overhead by comparing the gateway with a direct connection and with
//! `PgBouncer`, all in front of the same server.

mod copy;
mod fixture;
mod forwarder;
mod idle_sessions;
mod pgbench;
mod report;

use std::path::PathBuf;

use ::report::{Progress, Rounds, Timed};
use storage::Cache;
use template::{Provisioner, ServerOptions};

use crate::pgbench::Pgbench;
use crate::{BenchError, Measured, environment};
use fixture::ProxyFixture;
use idle_sessions::IdleSessionCosts;
use pgbench::ProcessorTimes;

/// Number of rounds before the measurement, after which all data is in memory.
const WARM_UP: u32 = 1;

/// The benchmark's options.
#[derive(Debug)]
pub struct ProxyBench {
    /// Options for the server. Their template is ignored.
    pub server_options: ServerOptions,
    /// The cache directory, if the user specified one.
    pub cache: Option<PathBuf>,
    /// A pgfresh executable that can act as a guard; see [`server::Guard::over`].
    pub program: PathBuf,
}

impl ProxyBench {
    /// Measures pgbench and COPY over each route to the same server in turn, in `rounds` rounds, and then
    /// many sessions.
    ///
    /// # Errors
    /// Returns an error if there are no results at all, for example because pgbench is missing.
    pub fn measure(&self, rounds: u32, progress: &dyn Progress) -> Result<Measured, BenchError> {
        let load = environment::load_averages();
        let server_options = ServerOptions { template: None, ..self.server_options.clone() };
        let provisioner =
            Provisioner::find(server_options, Cache::locate(self.cache.as_deref())?, self.program.clone())?;
        let place = provisioner.place(fixture::BYTES)?;
        let why = place.why();
        ProxyFixture::run_with(&provisioner, &place, |fixture| {
            let program = Pgbench::find(&provisioner.installation)?;
            pgbench::prepare(&program, fixture)?;
            let rows = copy::prepare(fixture)?;
            let used = ProcessorTimes::default();
            let mut contenders = pgbench::contenders(&program, fixture, &used);
            contenders.extend(copy::contenders(fixture, &rows));
            Rounds::new(WARM_UP, 0).run(&mut contenders, progress, drop)?;
            used.discard_warm_up();
            let report = |timed: &[Timed], crowd: Option<&IdleSessionCosts>| {
                let mut report = report::of(timed, &used, &rows, crowd, fixture);
                environment::describe(&mut report, &provisioner, &why, &load);
                report
            };
            let so_far = |timed: &[Timed]| report(timed, None);
            let (timed, mut end) = Rounds::new(0, rounds).time(&mut contenders, progress, Some(&so_far));
            drop(contenders);
            let mut crowd = None;
            if end.is_ok() && !progress.is_cancelled() {
                match idle_sessions::measure(&program, fixture) {
                    Ok(gathered) => crowd = Some(gathered),
                    Err(error) => end = Err(error),
                }
            }
            Ok((report(&timed, crowd.as_ref()), end.err()))
        })
    }
}
