//! Requests new databases one after another, 20 per second. A real suite, too, does other work between two requests.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use report::{Contender, Sample};

use super::minimal_gateway::MinimalGateway;
use super::{Strategy, clear, obtain, obtain_at, obtain_by_hand, repeat, sample};
use crate::BenchError;
use crate::fixture::Fixture;

/// Interval between requests.
const REQUEST_INTERVAL: Duration = Duration::from_millis(50);
/// Number of requests per round.
const REQUESTS_PER_ROUND: u32 = 20;
/// Number of requests per round for the slow contenders.
const SLOW_REQUESTS_PER_ROUND: u32 = 5;

pub(super) const WARM: &str = "a new name through the gateway";
pub(super) const FLOOR: &str = "the floor: as many messages, one UPDATE, one thread";
pub(super) const NEW_PARAMETERS: &str = "a new name and a kind of start-up not seen before";

/// The duration of each request.
pub(super) struct Samples {
    pub(super) warm: RefCell<Sample>,
    pub(super) floor: RefCell<Sample>,
    pub(super) strange: RefCell<Sample>,
    pub(super) by_hand: Vec<(Strategy, RefCell<Sample>)>,
}

impl Default for Samples {
    fn default() -> Self {
        let by_hand = [Strategy::Default, Strategy::Files];
        Self {
            warm: sample(WARM),
            floor: sample(FLOOR),
            strange: sample(NEW_PARAMETERS),
            by_hand: by_hand.map(|strategy| (strategy, sample(strategy.name()))).into(),
        }
    }
}

impl Samples {
    /// Discards the warm-up's values.
    pub(super) fn discard_warm_up(&self) {
        let Self { warm, floor, strange, by_hand } = self;
        [warm, floor, strange].into_iter().chain(by_hand.iter().map(|(_, sample)| sample)).for_each(clear);
    }
}

pub(super) fn contenders<'a>(
    fixture: &'a Fixture,
    floor: &'a MinimalGateway,
    samples: &'a Samples,
) -> Result<Vec<Contender<'a, BenchError>>, BenchError> {
    let bare = || paced(|| obtain_at(&floor.address(), fixture, &[]));
    let mut contenders = vec![
        Contender::new(WARM, || repeat(&samples.warm, REQUESTS_PER_ROUND, || paced(|| obtain(fixture, &[])))),
        Contender::new(FLOOR, move || repeat(&samples.floor, REQUESTS_PER_ROUND, bare)),
    ];
    for (strategy, sample) in &samples.by_hand {
        if Strategy::all(fixture.major()).contains(strategy) {
            let mut admin = fixture.admin()?;
            contenders.push(Contender::new(strategy.name(), move || {
                repeat(sample, SLOW_REQUESTS_PER_ROUND, || {
                    paced(|| obtain_by_hand(fixture, &mut admin, *strategy))
                })
            }));
        }
    }
    Ok(contenders)
}

/// Returns the contenders whose sessions each have startup parameters new to the gateway.
pub(super) fn new_parameter_contenders<'a>(
    fixture: &'a Fixture,
    samples: &'a Samples,
) -> Vec<Contender<'a, BenchError>> {
    let strange = || {
        let name = fixture.new_name();
        paced(|| obtain(fixture, &[("application_name", &name)]))
    };
    vec![Contender::new(NEW_PARAMETERS, move || repeat(&samples.strange, SLOW_REQUESTS_PER_ROUND, strange))]
}

/// Runs `step`, then waits until the next request is due.
fn paced(step: impl FnOnce() -> Result<Duration, BenchError>) -> Result<Duration, BenchError> {
    let begun = Instant::now();
    let taken = step();
    std::thread::sleep(REQUEST_INTERVAL.saturating_sub(begun.elapsed()));
    taken
}
