//! `gateway`: what it costs to go through it, beside a direct connection and `PgBouncer`, on the same server.

mod copy;
mod crowd;
mod ground;
mod pgbench;
mod report;

use std::path::PathBuf;

use storage::Cache;
use template::{Maker, Wishes};

use crate::pgbench::Pgbench;
use crate::runner::{self, Observer, Timed};
use crate::{BenchError, Measured, environment};
use crowd::Crowd;
use ground::Ground;

/// Rounds for nothing, until everything is in memory.
const WARM_UP: u32 = 1;

/// The bench and what it needs of its caller.
#[derive(Debug)]
pub struct Passage {
    /// What is wished of the server. Its template does not matter.
    pub wishes: Wishes,
    /// The cache that was chosen, if one was.
    pub cache: Option<PathBuf>,
    /// A pgfresh that can be a guard; see [`server::Guard::over`].
    pub program: PathBuf,
}

impl Passage {
    /// Measures pgbench and copies over each way to one server, in turn, and then a crowd of sessions.
    ///
    /// # Errors
    /// Nothing was measured at all; there is no pgbench, for example.
    pub fn measure(&self, rounds: u32, observer: &mut dyn Observer) -> Result<Measured, BenchError> {
        let load = environment::load();
        let wishes = Wishes { template: None, ..self.wishes.clone() };
        let maker = Maker::find(wishes, Cache::locate(self.cache.as_deref())?, self.program.clone())?;
        let place = maker.place(ground::BYTES)?;
        let why = place.why();
        Ground::on(&maker, &place, |ground| {
            let program = Pgbench::of(&maker.installation)?;
            pgbench::prepare(&program, ground)?;
            let rows = copy::prepare(ground)?;
            let mut contenders = pgbench::contenders(&program, ground);
            contenders.extend(copy::contenders(ground, &rows));
            let report = |timed: &[Timed], crowd: Option<&Crowd>| {
                let mut report = report::of(timed, &rows, crowd, ground);
                environment::describe(&mut report, &maker, &why, &load);
                report
            };
            let so_far = |timed: &[Timed]| report(timed, None);
            let (timed, mut end) =
                runner::run_and_report(&mut contenders, WARM_UP, rounds, observer, &so_far);
            drop(contenders);
            let mut crowd = None;
            if end.is_ok() && !observer.wants_to_stop() {
                match crowd::gather(&program, ground) {
                    Ok(gathered) => crowd = Some(gathered),
                    Err(error) => end = Err(error),
                }
            }
            Ok((report(&timed, crowd.as_ref()), end.err()))
        })
    }
}
