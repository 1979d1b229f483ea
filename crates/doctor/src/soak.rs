//! Repeats a sync for minutes while recording the state of the machine. This measurement is called a soak.
//!
//! Many disks are fast for a short time and then slow down, for example because they get hot or because a cache fills
//! up. A short measurement doesn't reveal this.
//!
//! ```text
//! cold  ──▶ a second of syncs ─▶ sensors ─▶ a second of syncs ─▶ …
//! ```
//!
//! Reading the sensors takes about 0.1 ms per second. The sensors are read between two syncs, so this time isn't part
//! of any latency.

mod summary;

use std::io;
use std::time::{Duration, Instant};

use report::{Progress, as_f64};
use sys::{Heat, Readings, Sensors};

use crate::change_points::{Change, changes, quantile};
use crate::latencies::Latencies;
use crate::sync::TestFile;

/// Minimum number of steps. If the soak is shorter than this number of seconds, steps are shorter than a second.
const MIN_STEPS: u32 = 30;
/// Minimum ratio between the rates before and after a fall for the fall to count as a cliff.
const MIN_CLIFF_RATIO: f64 = 2.0;
/// Minimum temperature rise for blaming a cliff on heat, in degrees. Not required if the disk itself reports that it
/// throttles.
const MIN_TEMPERATURE_RISE: f64 = 5.0;
/// Maximum time between a cliff and the disk's own report for the report to explain the cliff, in seconds.
/// The disk's counters have a resolution of a second, and the cliff's position is only known to within about one step.
const MAX_REPORT_DISTANCE: f64 = 2.0;
/// Minimum ratio between the rates' 90th and 10th percentiles for a disk to count as noisy.
const MIN_NOISE_RATIO: f64 = 1.5;
/// If tasks wait for CPUs for at least this fraction of the time, other programs are the cause of a disturbed soak.
const MIN_BUSY_SHARE: f64 = 0.5;
/// Minimum 99th percentile of the latencies for a disk to count as capped, in seconds and as a multiple of the median.
/// Caps work in time slices of 100 ms.
const MIN_CAPPED_TAIL: (f64, f64) = (0.02, 50.0);

/// The measurements of a soak.
#[derive(Debug, Clone)]
pub(crate) struct Soak {
    /// Mean duration of a step, in seconds. Steps are slightly longer than planned, because each ends with a complete
    /// sync.
    step: f64,
    /// Syncs per second in each step, and the sensor values after the step.
    steps: Vec<(f64, Readings)>,
    /// Sensor values before the first step, when the disk is cold.
    cold: Readings,
    /// Temperature at which the disk throttles itself, in degrees Celsius. `None` if the disk doesn't report it.
    limit: Option<f64>,
    latencies: Latencies,
}

/// Conclusion from a soak.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SoakResult {
    /// The rate fell permanently while the temperature rose.
    Throttles(Change),
    /// The rate fell permanently, but the temperature didn't rise.
    Fills(Change),
    /// The rate fell permanently, for an unknown reason.
    Slows(Change),
    /// Most syncs are fast, and the slow syncs take about as long as a cap's time slice.
    Capped,
    /// The rate varies a lot.
    Noisy,
    /// The rate varies, but tasks waited for CPUs at the same time.
    Disturbed,
    /// The rate remains the same.
    Steady,
}

impl Soak {
    /// Repeats syncs for `length` or until the user cancels, but for at least one step.
    pub(crate) fn measure(
        target: &TestFile,
        sensors: &Sensors,
        length: Duration,
        progress: &dyn Progress,
    ) -> io::Result<Self> {
        let step = Duration::from_secs(1).min(length / MIN_STEPS);
        let file = target.open()?;
        let mut soak = Self {
            step: 0.0,
            steps: Vec::new(),
            cold: sensors.read(),
            limit: sensors.limit,
            latencies: Latencies::new("fdatasync, soak"),
        };
        let begun = Instant::now();
        while soak.steps.is_empty() || (begun.elapsed() < length && !progress.is_cancelled()) {
            let mut latencies = Latencies::new("");
            latencies.measure(step, || target.commit(&file))?;
            let rate = latencies.rate().map_or(0.0, |rate| rate.value);
            for seconds in latencies.sample().values() {
                soak.latencies.add(*seconds);
            }
            soak.steps.push((rate, sensors.read()));
        }
        soak.step = begun.elapsed().as_secs_f64() / as_f64(soak.steps.len());
        Ok(soak)
    }

    pub(crate) fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    fn rates(&self) -> Vec<f64> {
        self.steps.iter().map(|(rate, _)| *rate).collect()
    }

    fn temperature(&self, step: usize) -> Option<f64> {
        self.steps.get(step)?.1.temperature
    }

    /// Draws a conclusion from the soak.
    pub(crate) fn classify(&self) -> SoakResult {
        let rates = self.rates();
        let changes = changes(&rates);
        let falls = || changes.iter().filter(|change| change.before >= MIN_CLIFF_RATIO * change.after);
        let rises = changes.iter().filter(|change| change.after > change.before).count();
        if let Some(fall) = falls().next().filter(|_| rises <= changes.len() / 2) {
            let hot = self.temperature(fall.at);
            return match (self.cold.temperature, hot) {
                _ if self.heat_report(fall.at).is_some() => SoakResult::Throttles(*fall),
                (Some(cold), Some(hot)) if hot - cold >= MIN_TEMPERATURE_RISE => SoakResult::Throttles(*fall),
                _ if self.is_busy(fall.at) => SoakResult::Disturbed,
                (Some(_), Some(_)) => SoakResult::Fills(*fall),
                _ => SoakResult::Slows(*fall),
            };
        }
        let (p50, p99) = (self.latencies.p50(), self.latencies.p99());
        let capped = p50.zip(p99).is_some_and(|(p50, p99)| {
            p99.value >= MIN_CAPPED_TAIL.0 && p99.value >= MIN_CAPPED_TAIL.1 * p50.value
        });
        match quantile(&rates, 0.9) / quantile(&rates, 0.1) {
            // The kernel also assigns CPU time in slices, so a busy machine can look like a cap.
            spread if (capped || spread >= MIN_NOISE_RATIO) && self.is_busy(0) => SoakResult::Disturbed,
            _ if capped => SoakResult::Capped,
            spread if spread < MIN_NOISE_RATIO => SoakResult::Steady,
            _ => SoakResult::Noisy,
        }
    }

    /// Yields the sensor values in chronological order, starting with the values of the cold disk.
    fn readings(&self) -> impl Iterator<Item = &Readings> {
        std::iter::once(&self.cold).chain(self.steps.iter().map(|(_, readings)| readings))
    }

    /// Returns the disk's own report about heat, provided that it came within [`MAX_REPORT_DISTANCE`] seconds of the
    /// start of `step`.
    fn heat_report(&self, step: usize) -> Option<String> {
        let near = |look: usize| self.step * as_f64(look.abs_diff(step)) <= MAX_REPORT_DISTANCE;
        let looks =
            || self.readings().enumerate().filter(|(look, _)| near(*look)).map(|(_, readings)| readings);
        if throttling_report(looks()).is_some() {
            return throttling_report(self.readings())
                .map(|in_all| format!("by its own count, the drive throttled itself {in_all}"));
        }
        let alarm = looks().any(|readings| readings.alarm == Some(true));
        alarm.then(|| "its temperature alarm was on".to_owned())
    }

    /// Returns the fraction of the time that tasks waited. `gauge` returns a counter of the seconds that tasks spent
    /// waiting.
    fn waiting_share(&self, gauge: impl Fn(&Readings) -> Option<f64>) -> Option<f64> {
        let last = &self.steps.last()?.1;
        let seconds = self.step * as_f64(self.steps.len());
        Some((gauge(last)? - gauge(&self.cold)?) / seconds)
    }

    /// Returns true if tasks have waited for CPUs most of the time since the start of `step`.
    fn is_busy(&self, step: usize) -> bool {
        let (before, last) = (self.readings().nth(step), self.steps.last());
        let seconds = self.step * as_f64(self.steps.len() - step);
        let waited =
            last.zip(before).and_then(|((_, last), before)| Some(last.cpu_pressure? - before.cpu_pressure?));
        waited.is_some_and(|waited| waited / seconds > MIN_BUSY_SHARE)
    }
}

/// Returns how much a drive's counters increased between the first and the last values. Returns `None` if the drive has
/// no counters.
fn counter_increase<'a>(looks: impl Iterator<Item = &'a Readings>) -> Option<Heat> {
    let heats: Vec<Heat> = looks.filter_map(|readings| readings.heat).collect();
    Some(heats.last()?.since(*heats.first()?))
}

/// Returns how often and how long a drive throttled itself while these values were recorded, or `None` if it never did.
fn throttling_report<'a>(looks: impl Iterator<Item = &'a Readings>) -> Option<String> {
    let heat = counter_increase(looks).filter(|heat| heat.throttles + heat.throttled > 0)?;
    let times = if heat.throttles == 1 { "once".to_owned() } else { format!("{} times", heat.throttles) };
    Some(format!("{times}, {} s", heat.throttled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;

    /// Returns a soak with these rates. During its first third, the temperature rises from the first of the two values
    /// to the second.
    fn soak(rates: impl IntoIterator<Item = f64>, temperature: Option<(f64, f64)>) -> Soak {
        let readings = |share: f64| Readings {
            temperature: temperature.map(|(cold, hot)| cold + (hot - cold) * share.min(1.0)),
            ..Readings::default()
        };
        let rates: Vec<f64> = rates.into_iter().collect();
        let third = as_f64(rates.len()) / 3.0;
        let mut latencies = Latencies::new("");
        for rate in &rates {
            latencies.add(1.0 / rate);
        }
        let steps =
            (0_u32..).zip(rates).map(|(step, rate)| (rate, readings(f64::from(step + 1) / third))).collect();
        Soak { step: 1.0, steps, cold: readings(0.0), limit: None, latencies }
    }

    /// An observer that has canceled from the start if it contains true, and never cancels otherwise.
    struct Cancelled(bool);

    impl Progress for Cancelled {
        fn is_cancelled(&self) -> bool {
            self.0
        }
    }

    #[test]
    fn soak_times_at_least_one_step_correctly() {
        let folder = tempfile::tempdir().unwrap();
        let target = TestFile::create(folder.path()).unwrap();
        let sensors = Sensors::of(&sys::Roots::default(), None);
        for cancelled in [false, true] {
            let length = Duration::from_millis(30);
            let soak = Soak::measure(&target, &sensors, length, &Cancelled(cancelled)).unwrap();
            assert!(!soak.steps.is_empty() && (!cancelled || soak.steps.len() == 1), "{cancelled}");
            let synced: f64 = soak.latencies.sample().values().iter().sum();
            let seconds = soak.step * as_f64(soak.steps.len());
            assert!(seconds >= synced, "{seconds} {synced}");
        }
    }

    fn levels(levels: &[(f64, u32)]) -> Vec<f64> {
        let wave = |level: f64, i: u32| level * (0.95 + 0.1 * (f64::from(i) * 0.618_034).fract());
        levels.iter().flat_map(|(level, count)| (0..*count).map(move |i| wave(*level, i))).collect()
    }

    #[test]
    fn cliff_cause_follows_from_temperature_readings() {
        let cliff = levels(&[(988.0, 10), (299.0, 20)]);
        assert!(
            matches!(soak(cliff.clone(), Some((40.0, 80.0))).classify(), SoakResult::Throttles(fall) if fall.at == 10)
        );
        assert!(matches!(soak(cliff.clone(), Some((40.0, 41.0))).classify(), SoakResult::Fills(_)));
        assert!(matches!(soak(cliff.clone(), None).classify(), SoakResult::Slows(_)));
        let finding = soak(cliff, Some((40.0, 80.0))).finding().unwrap();
        assert!((finding.gain.unwrap().factor.point() - 3.3).abs() < 0.2);
        assert!(finding.evidence.contains("at 80 °C"), "{}", finding.evidence);
    }

    /// Returns a soak of thirty steps with a cliff after ten. `say` adjusts the sensor values after each number of
    /// steps.
    fn cliff(temperature: Option<(f64, f64)>, say: impl Fn(u64, &mut Readings)) -> Soak {
        let mut soak = soak(levels(&[(988.0, 10), (299.0, 20)]), temperature);
        let looks =
            std::iter::once(&mut soak.cold).chain(soak.steps.iter_mut().map(|(_, readings)| readings));
        (0..).zip(looks).for_each(|(steps, readings)| say(steps, readings));
        soak
    }

    #[test]
    fn throttling_reported_by_the_drive_explains_cliff() {
        let counted = |from: u64| {
            move |steps: u64, readings: &mut Readings| {
                let seconds = steps.saturating_sub(from);
                readings.heat =
                    Some(Heat { throttles: 70 + seconds.min(1), throttled: 600 + seconds, overheated: 1 });
            }
        };
        for temperature in [None, Some((80.0, 81.0))] {
            for from in [8, 10, 11] {
                let soak = cliff(temperature, counted(from));
                assert!(matches!(soak.classify(), SoakResult::Throttles(fall) if fall.at == 10), "{from}");
            }
            // Throttling that starts after the cliff can't be its cause.
            assert!(!matches!(cliff(temperature, counted(15)).classify(), SoakResult::Throttles(_)));
            let idle = cliff(temperature, |_, readings| {
                readings.heat = Some(Heat { throttles: 70, ..Heat::default() });
            });
            assert!(!matches!(idle.classify(), SoakResult::Throttles(_)));
            let alarm = cliff(temperature, |steps, readings| readings.alarm = Some(steps > 10));
            assert!(matches!(alarm.classify(), SoakResult::Throttles(_)));
        }
        // The drive throttled itself from the start.
        assert!(matches!(cliff(None, counted(0)).classify(), SoakResult::Throttles(_)));
    }

    #[test]
    fn drive_heat_readings_become_facts_and_evidence() {
        let device =
            Device { stack: sys::Stack { layers: Vec::new(), bottom: sys::Bottom::Memory }, cap: None };
        let fact = |soak: &Soak, name: &str| {
            let mut report = report::Report::new("");
            report.add_layer(soak.layer(&device));
            report.to_json()["layers"][0]["facts"][name].clone()
        };
        let hot = cliff(None, |steps, readings| {
            readings.heat =
                Some(Heat { throttles: 3 + steps / 10, throttled: 9 + steps, overheated: steps / 15 });
            readings.alarm = Some(steps == 30);
        });
        assert_eq!(fact(&hot, "drive throttled itself"), "3 times, 30 s");
        assert_eq!(fact(&hot, "drive too hot"), "2 min");
        assert_eq!(fact(&hot, "temperature alarm"), "3 % of the time");
        assert_eq!(
            hot.finding().unwrap().evidence,
            "The sync rate fell after 10.0 s; by its own count, the drive throttled itself 3 times, 30 s."
        );
        let alarm = cliff(Some((80.0, 81.0)), |_, readings| readings.alarm = Some(true));
        let evidence = "The sync rate fell after 10.0 s, at 81 °C; its temperature alarm was on.";
        assert_eq!(alarm.finding().unwrap().evidence, evidence);
        // One CPU goes offline, so its counter is missing from the sum.
        let offline = cliff(None, |steps, readings| readings.throttles = Some(9 - steps / 10));
        assert!(fact(&offline, "processors throttled").is_null());
        let cool =
            cliff(None, |_, readings| (readings.heat, readings.alarm) = (Some(Heat::default()), Some(false)));
        for name in ["drive throttled itself", "drive too hot", "temperature alarm"] {
            assert!(fact(&cool, name).is_null(), "{name}");
        }
    }

    #[test]
    fn soak_without_cliff_is_steady_noisy_or_disturbed() {
        assert_eq!(soak(levels(&[(7000.0, 30)]), Some((40.0, 80.0))).classify(), SoakResult::Steady);
        let noise = (0..40).map(|i| if i % 2 == 0 { 150.0 } else { 300.0 + 30.0 * f64::from(i % 7) });
        assert_eq!(soak(noise.clone(), None).classify(), SoakResult::Noisy);
        let mut busy = soak(noise, None);
        busy.cold.cpu_pressure = Some(0.0);
        busy.steps.last_mut().unwrap().1.cpu_pressure = Some(30.0);
        assert_eq!(busy.classify(), SoakResult::Disturbed);
        let waves = levels(&[(900.0, 8), (300.0, 8), (900.0, 8), (300.0, 8), (900.0, 8)]);
        assert!(matches!(soak(waves, None).classify(), SoakResult::Noisy | SoakResult::Slows(_)));
    }

    #[test]
    fn capped_disk_is_recognized_by_tail() {
        let mut capped = soak(levels(&[(1000.0, 30)]), None);
        capped.latencies = Latencies::new("");
        (0..1000).for_each(|i| capped.latencies.add(if i % 50 == 0 { 0.09 } else { 60e-6 }));
        assert_eq!(capped.classify(), SoakResult::Capped);
        assert_eq!(capped.finding().unwrap().name, "Something caps this disk");
    }

    #[test]
    fn cliff_under_busy_processors_is_called_disturbed() {
        // The machine is busy from step `from` on.
        let busy = |from: u64| {
            move |steps: u64, readings: &mut Readings| {
                readings.cpu_pressure = Some(as_f64(steps.saturating_sub(from)));
            }
        };
        for from in [0, 9, 10, 14] {
            assert_eq!(cliff(None, busy(from)).classify(), SoakResult::Disturbed, "{from}");
            assert_eq!(cliff(Some((40.0, 41.0)), busy(from)).classify(), SoakResult::Disturbed, "{from}");
            assert!(cliff(None, busy(from)).finding().is_none());
            // A rising temperature is the more likely cause.
            assert!(
                matches!(cliff(Some((40.0, 80.0)), busy(from)).classify(), SoakResult::Throttles(_)),
                "{from}"
            );
        }
        // The machine was busy before the cliff, but hardly after it.
        assert!(matches!(
            cliff(None, |steps, readings| readings.cpu_pressure = Some(as_f64(steps.min(10)))).classify(),
            SoakResult::Slows(_)
        ));
        let mut capped = soak(levels(&[(1000.0, 30)]), None);
        capped.latencies = Latencies::new("");
        (0..1000).for_each(|i| capped.latencies.add(if i % 50 == 0 { 0.09 } else { 60e-6 }));
        capped.cold.cpu_pressure = Some(0.0);
        capped.steps.last_mut().unwrap().1.cpu_pressure = Some(29.0);
        assert_eq!((capped.classify(), capped.finding().is_none()), (SoakResult::Disturbed, true));
    }
}
