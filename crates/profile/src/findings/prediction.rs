//! Predicts how much a remedy gains.
//!
//! A prediction subtracts the saved time (see [`crate::attribution`]) from the suite's duration, but never goes
//! below the time that the CPUs need. Each prediction assumes that the user applies a single remedy, so gains can't
//! be added up.

use report::{Basis, Factor, Finding, Gain, Quantity, Unit};
use sys::Shortage;

use super::Analysis;
use crate::attribution::Attribution;

/// How much shorter the remaining work becomes, as a fraction, once a suite that waited for disks nearly all the time
/// no longer waits. The reason is that the CPU caches remain warm.
///
/// This gain comes on top of the gain visible in the time of a single-row commit. It was measured with six suites on
/// three disks (docs/results.md).
pub(super) const WARM_CACHE_GAIN: f64 = 0.16;
/// How much the time without flushes can exceed or fall below the prediction, as fractions. Sampling errors
/// come on top.
///
/// This error exists because the same work doesn't take the same time on a different server. It was measured with the
/// suites of [`WARM_CACHE_GAIN`].
pub(super) const MODEL_ERROR: [f64; 2] = [0.3, 0.25];

impl Analysis<'_> {
    /// Returns how severe the CPU shortage was, or `None` if that is unknown.
    pub(super) fn shortage(&self) -> Option<Shortage> {
        let waited = self.recording.machine?.cpu_pressure? / self.recording.seconds;
        Some(Shortage { waited: waited.is_finite().then_some(waited), stolen: None })
    }

    /// Predicts the suite's duration in seconds if a remedy saves `saved` seconds. The result is never shorter than
    /// the time when CPUs are busy.
    ///
    /// Both the suite and concurrent sessions need CPUs. If there is only one session at a time, its CPU time is part
    /// of its waits, so a remedy saves both.
    pub(super) fn duration_without(&self, saved: f64) -> f64 {
        let Attribution { wall, width, .. } = *self.attribution;
        let busy = self.recording.machine.map_or(0.0, |machine| {
            let sessions = if width > 1.0 { machine.backend_cpu } else { 0.0 };
            (machine.suite_cpu + sessions) / machine.processors.max(1.0)
        });
        (wall - saved).max(busy).min(wall)
    }

    /// Returns the gain of a remedy that saves `saved` seconds.
    pub(crate) fn gain(&self, saved: f64) -> Gain {
        let (wall, after) = (self.attribution.wall, self.duration_without(saved));
        let quantity = |value| Quantity::new(value, Unit::Seconds);
        Gain {
            of: "the suite".to_owned(),
            factor: Factor::Point(self.times_as_fast(after)),
            basis: Basis::Predicted,
            change: Some([quantity(wall), quantity(after)]),
        }
    }

    /// Returns the ratio of the whole time to `after` seconds, capped at 1000.
    pub(super) fn times_as_fast(&self, after: f64) -> Quantity {
        let wall = self.attribution.wall;
        Quantity::new(wall / after.max(wall / 1000.0), Unit::Ratio)
    }

    /// Returns how many seconds the suite saves if nothing waits for a disk.
    ///
    /// `flushing` is the time of the sessions' own flushes, which also slow down the work after them. `checkpoints`
    /// is the time of other processes' flushes. However expensive a commit seems, the result never exceeds the
    /// server's total time.
    pub(super) fn saved_with_waits(&self, flushing: f64, checkpoints: f64) -> f64 {
        let cost = self.circumstances.waiting_cost.unwrap_or(1.0).max(1.0);
        let most = self.attribution.database.saved.max(flushing + checkpoints);
        let saved = (flushing * cost + checkpoints).min(most);
        saved + WARM_CACHE_GAIN * self.attribution.share(flushing) * (self.attribution.wall - saved)
    }
}

/// Removes a prediction's interval. In a CPU shortage, an unknown part of the apparent work is time spent
/// waiting for a CPU.
pub(super) fn mark_uncertain(finding: &mut Finding, shortage: &Shortage) {
    if let Some(gain) = &mut finding.gain {
        gain.factor = Factor::Point(Quantity::new(gain.factor.point(), Unit::Ratio));
        finding.evidence += &format!(" The prediction is uncertain, because CPU time was short: {shortage}.");
    }
}
