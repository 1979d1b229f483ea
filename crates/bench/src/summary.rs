//! What tables say of contenders.

use report::{Interval, Quantity, Sample, Unit};

use crate::runner::Timed;

/// What was timed of that name.
pub(crate) fn find<'a>(timed: &'a [Timed], name: &str) -> Option<&'a Timed> {
    timed.iter().find(|timed| timed.name() == name)
}

/// How many times as long `name` takes as `base`, the median over all rounds.
pub(crate) fn ratio(timed: &[Timed], name: &str, base: &str) -> Option<Quantity> {
    let (one, base) = (find(timed, name)?.total(), find(timed, base)?.total());
    if one.len() == base.len() {
        return one.ratio_to(&base).ok()?.median();
    }
    // Not in the same rounds.
    Some(Quantity::new(one.median()?.value / base.median()?.value, Unit::Ratio))
}

/// So many in a second.
pub(crate) fn rate(timed: &[Timed], name: &str) -> Option<Quantity> {
    let each = find(timed, name)?.total().median()?;
    Some(Quantity::new(1.0 / each.value, Unit::PerSecond))
}

/// The ends of the interval of the median.
pub(crate) fn interval(sample: &Sample) -> Option<String> {
    Interval::of_median(sample).map(|interval| format!("{} to {}", interval.low, interval.high))
}
