//! Requests new databases one after another, 20 per second. A real suite does other work between its requests.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use report::{Contender, Sample};

use super::floor::Floor;
use super::{Strategy, block, forget, obtain, obtain_at, obtain_by_hand, sample};
use crate::BenchError;
use crate::fixture::Fixture;

/// Interval between requests.
const PACE: Duration = Duration::from_millis(50);
/// Number of requests in a round.
const BLOCK: u32 = 20;
/// Number of requests in a round for the slow contenders.
const FEW: u32 = 5;

pub(super) const WARM: &str = "a new name through the gateway";
pub(super) const FLOOR: &str = "the floor: as many messages, one UPDATE, one thread";
pub(super) const STRANGE: &str = "a new name and a kind of start-up not seen before";

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
            strange: sample(STRANGE),
            by_hand: by_hand.map(|strategy| (strategy, sample(strategy.name()))).into(),
        }
    }
}

impl Samples {
    /// Discards the warm-up.
    pub(super) fn forget(&self) {
        let Self { warm, floor, strange, by_hand } = self;
        [warm, floor, strange].into_iter().chain(by_hand.iter().map(|(_, sample)| sample)).for_each(forget);
    }
}

pub(super) fn contenders<'a>(
    fixture: &'a Fixture,
    floor: &'a Floor,
    samples: &'a Samples,
) -> Result<Vec<Contender<'a, BenchError>>, BenchError> {
    let bare = || paced(|| obtain_at(&floor.address(), fixture, &[]));
    let mut contenders = vec![
        Contender::new(WARM, || block(&samples.warm, BLOCK, || paced(|| obtain(fixture, &[])))),
        Contender::new(FLOOR, move || block(&samples.floor, BLOCK, bare)),
    ];
    for (strategy, sample) in &samples.by_hand {
        if Strategy::all(fixture.major()).contains(strategy) {
            let mut admin = fixture.admin()?;
            contenders.push(Contender::new(strategy.name(), move || {
                block(sample, FEW, || paced(|| obtain_by_hand(fixture, &mut admin, *strategy)))
            }));
        }
    }
    Ok(contenders)
}

/// Returns the contenders whose sessions have new startup parameters each time.
pub(super) fn strangers<'a>(fixture: &'a Fixture, samples: &'a Samples) -> Vec<Contender<'a, BenchError>> {
    let strange = || {
        let name = fixture.new_name();
        paced(|| obtain(fixture, &[("application_name", &name)]))
    };
    vec![Contender::new(STRANGE, move || block(&samples.strange, FEW, strange))]
}

/// Runs `step`, then waits until the next request is due.
fn paced(step: impl FnOnce() -> Result<Duration, BenchError>) -> Result<Duration, BenchError> {
    let begun = Instant::now();
    let taken = step();
    std::thread::sleep(PACE.saturating_sub(begun.elapsed()));
    taken
}
