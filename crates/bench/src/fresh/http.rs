//! Measures the maximum rate of leases over HTTP. One or two workers each repeatedly lease a database, run one query
//! through the gateway's Unix socket, and release the database.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use report::{Contender, Quantity, Sample, Table, Timed, Unit};

use super::sustained::run_workers;
use super::{QUERY, clear, sample};
use crate::BenchError;
use crate::fixture::Fixture;
use crate::goal::{Goal, Limit};
use crate::http::HttpConnection;
use crate::summary::{rate, ratio};

const ONE_WORKER: &str = "1 worker over HTTP";
const TWO_WORKERS: &str = "2 workers over HTTP";

/// The duration of each cycle, by number of workers.
pub(super) struct Samples([RefCell<Sample>; 2]);

/// A client that uses databases one after another.
struct HttpClient {
    connection: HttpConnection,
    taken: Vec<Duration>,
}

impl Default for Samples {
    fn default() -> Self {
        Self([ONE_WORKER, TWO_WORKERS].map(sample))
    }
}

impl Samples {
    /// Discards the warm-up's values.
    pub(super) fn discard_warm_up(&self) {
        self.0.iter().for_each(clear);
    }
}

pub(super) fn contenders<'a>(
    fixture: &'a Fixture,
    Samples([one, two]): &'a Samples,
) -> Vec<Contender<'a, BenchError>> {
    let contender = |workers: usize, sample: &'a RefCell<Sample>| {
        let name = sample.borrow().name().to_owned();
        Contender::new(name, move || {
            let open = || Ok(HttpClient { connection: fixture.http()?, taken: Vec::new() });
            let mut clients = (0..workers).map(|_| open()).collect::<Result<Vec<_>, BenchError>>()?;
            let phases = run_workers(&mut clients, &|client| client.use_database(fixture))?;
            for taken in clients.iter().flat_map(|client| &client.taken) {
                sample.borrow_mut().push(taken.as_secs_f64()).expect("a duration is finite");
            }
            Ok(phases)
        })
    };
    vec![contender(1, one), contender(2, two)]
}

impl HttpClient {
    fn use_database(&mut self, fixture: &Fixture) -> Result<(), BenchError> {
        let (name, begun) = (fixture.new_name(), Instant::now());
        let lease = format!("{{\"name\":\"{name}\"}}");
        self.connection.request("POST /v1/databases", &lease, "201").map_err(BenchError::Http)?;
        let mut client = fixture.gateway_socket().connect(&name, &[])?;
        client.query(QUERY)?;
        client.close()?;
        let release = format!("DELETE /v1/databases/{name}");
        self.connection.request(&release, "", "204").map_err(BenchError::Http)?;
        self.taken.push(begun.elapsed());
        Ok(())
    }
}

pub(super) fn table(timed: &[Timed], Samples(samples): &Samples) -> Table {
    let columns = ["in a second", "median", "p95", "p95 × the median", "p99", "× one worker"];
    let mut table = Table::numbers("Leased over HTTP, asked by socket_url, and released", "what", columns);
    for sample in samples {
        let sample = sample.borrow();
        table.add_row([
            sample.name().into(),
            rate(timed, sample.name()).into(),
            sample.median().into(),
            sample.percentile(95.0).into(),
            tail(&sample).into(),
            sample.percentile(99.0).into(),
            gain(timed, sample.name()).into(),
        ]);
    }
    table
}

pub(super) fn goals(timed: &[Timed], Samples(samples): &Samples) -> [Goal; 3] {
    let goal = |what: &'static str, limit: fn(Quantity) -> Limit, value, measured| Goal {
        what: what.into(),
        limit: limit(Quantity::new(value, Unit::Ratio)),
        measured,
    };
    let [one, two] = samples.each_ref().map(|sample| tail(&sample.borrow()));
    [
        goal("over HTTP, two workers × one", Limit::AtLeast, 1.7, gain(timed, TWO_WORKERS)),
        goal("over HTTP, one worker, p95 × the median", Limit::AtMost, 2.0, one),
        goal("over HTTP, two workers, p95 × the median", Limit::AtMost, 2.0, two),
    ]
}

/// Returns a contender's rate as a multiple of one worker's.
fn gain(timed: &[Timed], name: &str) -> Option<Quantity> {
    ratio(timed, ONE_WORKER, name)
}

fn tail(sample: &Sample) -> Option<Quantity> {
    let (tail, median) = (sample.percentile(95.0)?, sample.median()?);
    Some(Quantity::new(tail.value / median.value, Unit::Ratio))
}
