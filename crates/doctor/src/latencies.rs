//! Repeats an operation and measures how long it takes each time.

use std::time::{Duration, Instant};

use report::{Quantity, Sample, Unit, as_f64};

/// The latencies of a repeated operation, in seconds and in order.
#[derive(Debug, Clone)]
pub(crate) struct Latencies {
    sample: Sample,
    /// The sum of the latencies, in seconds.
    busy: f64,
}

impl Latencies {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { sample: Sample::new(name, Unit::Seconds), busy: 0.0 }
    }

    /// Repeats `operation` until `length` has passed, but at least once.
    pub(crate) fn measure<E>(
        &mut self,
        length: Duration,
        operation: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        self.measure_by(1, length, operation)
    }

    /// Like [`Self::measure`], but measures batches of `batch` operations and records each batch's mean. Use this for
    /// operations that are too fast to measure one by one.
    pub(crate) fn measure_by<E>(
        &mut self,
        batch: u32,
        length: Duration,
        mut operation: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let begun = Instant::now();
        let mut before = begun;
        loop {
            (0..batch).try_for_each(|_| operation())?;
            let now = Instant::now();
            self.add((now - before).as_secs_f64() / f64::from(batch));
            before = now;
            if now - begun >= length {
                return Ok(());
            }
        }
    }

    pub(crate) fn add(&mut self, seconds: f64) {
        self.sample.push(seconds).expect("a duration is finite");
        self.busy += seconds;
    }

    pub(crate) fn sample(&self) -> &Sample {
        &self.sample
    }

    /// Returns the operations per second, or `None` before the first operation.
    pub(crate) fn rate(&self) -> Option<Quantity> {
        (self.busy > 0.0).then(|| Quantity::new(as_f64(self.sample.len()) / self.busy, Unit::PerSecond))
    }

    /// Returns the median, in seconds.
    pub(crate) fn p50(&self) -> Option<Quantity> {
        self.sample.percentile(50.0)
    }

    /// Returns the 5th percentile in seconds: how long an operation takes without disturbances.
    pub(crate) fn least(&self) -> Option<Quantity> {
        self.sample.percentile(5.0)
    }

    /// Returns the 99th percentile, in seconds.
    pub(crate) fn p99(&self) -> Option<Quantity> {
        self.sample.percentile(99.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_counts_only_operation_time() {
        let mut latencies = Latencies::new("test");
        assert_eq!(latencies.rate(), None);
        for milliseconds in [1.0, 1.0, 2.0] {
            latencies.add(milliseconds / 1000.0);
        }
        assert!((latencies.rate().unwrap().value - 750.0).abs() < 1e-6);
        assert_eq!(latencies.p50().unwrap().to_string(), "1.00 ms");
        assert_eq!(latencies.p99().unwrap().to_string(), "2.00 ms");
    }

    #[test]
    fn operation_runs_at_least_once_until_failure() {
        let mut latencies = Latencies::new("test");
        latencies.measure::<()>(Duration::ZERO, || Ok(())).unwrap();
        assert_eq!(latencies.sample().len(), 1);
        assert_eq!(latencies.measure(Duration::MAX, || Err("no")), Err("no"));
    }
}
