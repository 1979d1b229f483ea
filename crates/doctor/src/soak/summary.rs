//! Describes a soak: its verdict, the facts and the plot for the report, and the finding about the disk.

use report::{Basis, Factor, Finding, Gain, Layer, Plot, Quantity, TimeSeries, Unit, as_f64};
use sys::Readings;

use super::{Soak, SoakResult, counter_increase, throttling_report};
use crate::change_points::{Change, quantile};
use crate::device::Device;
use crate::sync::assess_flushes;

impl Soak {
    /// Returns when a step starts.
    fn step_start(&self, step: usize) -> Quantity {
        Quantity::new(self.step * as_f64(step), Unit::Seconds)
    }

    /// Describes how the sync rate changed during the soak.
    pub(super) fn verdict(&self) -> String {
        let rate = |value| Quantity::new(value, Unit::PerSecond);
        let from_to = |change: &Change| {
            let [before, after] = [change.before, change.after].map(rate);
            format!("fdatasync at {before} for {}, then at {after}", self.step_start(change.at))
        };
        let degrees = |step| {
            self.temperature(step).map_or(String::new(), |degrees| format!(", from {degrees:.0} °C on"))
        };
        match self.classify() {
            SoakResult::Throttles(fall) => {
                format!("throttles with temperature: {}{}", from_to(&fall), degrees(fall.at))
            }
            SoakResult::Fills(fall) => {
                format!("write cache fills: {}, no hotter than before", from_to(&fall))
            }
            SoakResult::Slows(fall) => {
                format!(
                    "slows down: {}; there is no thermometer, so the cause can be heat or a full cache",
                    from_to(&fall)
                )
            }
            SoakResult::Capped => {
                "capped: most syncs are quick, and some wait for the next time slice".to_owned()
            }
            SoakResult::Noisy => format!("shared disk, noisy: {}", self.rate_range()),
            SoakResult::Disturbed => {
                format!("disturbed by other programs, which kept the processors busy: {}", self.rate_range())
            }
            SoakResult::Steady => format!("steady: {}", self.rate_range()),
        }
    }

    pub(crate) fn layer(&self, device: &Device) -> Layer {
        let judgement = self.latencies.least().map(|least| assess_flushes(device, least, None));
        let lies = judgement.filter(|judgement| judgement.starts_with("lies"));
        let lies = lies.map_or_else(String::new, |judgement| format!("; {judgement}"));
        let mut layer = Layer::new("Soak", format!("{}{lies}.", self.verdict()));
        layer.add_fact("length", self.step_start(self.steps.len()));
        layer.add_fact("p50", self.latencies.p50());
        layer.add_fact("p99", self.latencies.p99());
        layer.add_fact("longest", self.latencies.sample().max());
        layer.add_fact("throttles from", self.limit.map(|limit| Quantity::new(limit, Unit::Celsius)));
        layer.add_fact("drive throttled itself", throttling_report(self.readings()));
        let overheated =
            counter_increase(self.readings()).map(|heat| heat.overheated).filter(|minutes| *minutes > 0);
        layer.add_fact("drive too hot", overheated.map(|minutes| format!("{minutes} min")));
        let percent = |share: f64| format!("{:.0} % of the time", share * 100.0);
        let alarms = self.readings().filter(|readings| readings.alarm == Some(true)).count();
        let alarms = as_f64(alarms) / as_f64(self.readings().count());
        layer.add_fact("temperature alarm", Some(alarms).filter(|share| *share > 0.0).map(percent));
        layer.add_fact(
            "some task waited for I/O",
            self.waiting_share(|readings| readings.io_pressure).map(percent),
        );
        layer.add_fact(
            "some task waited for a processor",
            self.waiting_share(|readings| readings.cpu_pressure).map(percent),
        );
        let throttles = self.steps.last().and_then(|(_, last)| last.throttles).zip(self.cold.throttles);
        let throttles =
            throttles.map(|(after, before)| Quantity::new(as_f64(after.saturating_sub(before)), Unit::Count));
        layer.add_fact("processors throttled", throttles.filter(|count| count.value > 0.0));
        layer
    }

    fn rate_range(&self) -> String {
        let rates = self.rates();
        let [low, high] = [0.05, 0.95].map(|share| Quantity::new(quantile(&rates, share), Unit::PerSecond));
        format!("{low} to {high} in 9 of 10 steps")
    }

    /// Plots the rate, with the sensor values below it.
    pub(crate) fn plot(&self) -> Plot {
        let course = |name: &str, unit, values| TimeSeries { name: name.to_owned(), unit, values };
        let readings = |value: fn(&Readings) -> Option<f64>| {
            self.steps.iter().map(|(_, readings)| value(readings)).collect()
        };
        let pressure: Vec<_> = self.readings().map(|readings| readings.io_pressure).collect();
        let waits = pressure.windows(2).map(|both| Some((both[1]? - both[0]?) / self.step)).collect();
        let series = vec![
            course("fdatasyncs", Unit::PerSecond, self.steps.iter().map(|(rate, _)| Some(*rate)).collect()),
            course("temperature", Unit::Celsius, readings(|readings| readings.temperature)),
            course("unwritten", Unit::Bytes, readings(|readings| readings.dirty.map(as_f64))),
            course("I/O waits per second", Unit::Seconds, waits),
        ];
        let seconds = self.step * as_f64(self.steps.len());
        let end = Quantity::new(seconds, Unit::Seconds);
        Plot::new("Soak: fdatasyncs of 8 kB, and the state of the machine", end, series)
    }

    /// Returns the finding about a cliff or a cap, or `None` if the soak shows neither.
    pub(crate) fn finding(&self) -> Option<Finding> {
        let make = |name: &str, fall: Change, evidence: String, remedy: &str| Finding {
            name: name.to_owned(),
            evidence,
            gain: Some(Gain {
                of: "a sync of a long run".to_owned(),
                factor: Factor::Point(Quantity::new(fall.before / fall.after, Unit::Ratio)),
                basis: Basis::Predicted,
                change: Some([fall.after, fall.before].map(|rate| Quantity::new(1.0 / rate, Unit::Seconds))),
            }),
            remedy: remedy.to_owned(),
        };
        match self.classify() {
            SoakResult::Throttles(fall) => {
                let degrees = self.temperature(fall.at).map(|degrees| format!(", at {degrees:.0} °C"));
                let complaint = self.heat_report(fall.at).map(|complaint| format!("; {complaint}"));
                let [degrees, complaint] = [degrees, complaint].map(Option::unwrap_or_default);
                let evidence =
                    format!("The sync rate fell after {}{degrees}{complaint}.", self.step_start(fall.at));
                let remedy = "Cool it (a heatsink, moving air), or flush nothing: then it stays cool.";
                Some(make("The disk throttles when it is hot", fall, evidence, remedy))
            }
            SoakResult::Fills(fall) | SoakResult::Slows(fall) => {
                let evidence = format!("The sync rate fell after {}.", self.step_start(fall.at));
                let remedy = "Short benchmarks flatter this disk: rely on the later rate, or flush nothing.";
                Some(make("The disk is fast only for a short time", fall, evidence, remedy))
            }
            SoakResult::Capped => Some(Finding {
                name: "Something caps this disk".to_owned(),
                evidence:
                    "Most syncs are fast, and some take the rest of a time slice. A limit of operations per \
                second has this effect."
                        .to_owned(),
                gain: None,
                remedy: "Ask for a larger volume or a higher limit, or flush nothing.".to_owned(),
            }),
            SoakResult::Noisy | SoakResult::Disturbed | SoakResult::Steady => None,
        }
    }
}
