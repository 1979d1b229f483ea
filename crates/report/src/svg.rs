//! Draws time series and distributions as charts.
//!
//! Time series become lines, and distributions become histograms.

use crate::chart::{self, CHART_LABEL_HEIGHT, CHART_WIDTH, Chart};
use crate::distribution::{Axis, BINS, caption};
use crate::sample::as_f64;
use crate::text::html;
use crate::{Distribution, Plot, Quantity, TimeSeries, Unit};

/// Height of a plot's first panel, of its other panels, and of a histogram, in pixels.
const FIRST: f64 = 190.0;
const OTHERS: f64 = 80.0;
const HISTOGRAM: f64 = 56.0;
/// Space above a panel for the label of its top line, in pixels.
const TOP: f64 = 16.0;
/// Maximum number of positions in a plot that show their values under the mouse pointer.
const PROBES: usize = 120;
/// Maximum number of labels on a logarithmic axis.
const DECADES: usize = 5;
/// Style sheet classes for the series in a picture.
const CLASSES: [&str; 8] = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"];

/// Time series that share a panel because they have the same unit, with their classes.
struct Panel<'a> {
    unit: Unit,
    series: Vec<(&'static str, &'a TimeSeries)>,
}

fn panels(plot: &Plot) -> Vec<Panel<'_>> {
    let mut panels: Vec<Panel<'_>> = Vec::new();
    let measured = plot.series.iter().filter(|series| series.range().is_some());
    for (class, series) in CLASSES.into_iter().cycle().zip(measured) {
        match panels.iter_mut().find(|panel| panel.unit == series.unit) {
            Some(panel) => panel.series.push((class, series)),
            None => panels.push(Panel { unit: series.unit, series: vec![(class, series)] }),
        }
    }
    panels
}

impl Panel<'_> {
    /// Returns the values that have a line. The first panel includes zero. The other panels start near their minimum,
    /// because the distance between 60 °C and 0 °C, for example, is meaningless.
    fn ticks(&self, first: bool) -> Vec<f64> {
        let ranges = self.series.iter().filter_map(|(_, series)| series.range());
        let (low, high) = ranges.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (least, most)| {
            (low.min(least), high.max(most))
        });
        chart::ticks(if first { low.min(0.0) } else { low }, high)
    }

    /// Draws the panel. `end` is the end of the horizontal axis, which only the last panel shows.
    fn to_html(&self, end: Quantity, first: bool, last: bool) -> String {
        let height = if first { FIRST } else { OTHERS };
        let below = if last { CHART_LABEL_HEIGHT } else { 1.0 };
        let mut chart = Chart::new(TOP + height + below);
        let ticks = self.ticks(first);
        let (low, high) = (ticks[0], ticks[ticks.len() - 1]);
        let spread = (high - low).max(f64::MIN_POSITIVE);
        let y = |value: f64| height - (value - low) / spread * height;
        for tick in &ticks {
            chart.line(TOP + y(*tick), "grid");
        }
        let curves: String = self.series.iter().map(|(class, series)| curve(class, series, &y)).collect();
        chart.draw(TOP, height, &curves);
        for tick in &ticks {
            chart.label(0.0, TOP + y(*tick) - 4.0, &Quantity::new(*tick, self.unit).to_string());
        }
        if last {
            chart.axis(TOP + height, end);
        }
        chart.draw(TOP, height, &self.probes(end, height));
        let names = self.series.iter().map(|(class, series)| (*class, series.name.as_str()));
        let label: Vec<&str> = self.series.iter().map(|(_, series)| series.name.as_str()).collect();
        chart::legend(names) + &chart.finish(&label.join(", "))
    }

    /// Returns invisible rectangles whose titles contain the values.
    fn probes(&self, end: Quantity, height: f64) -> String {
        let count = self.series.iter().map(|(_, series)| series.values.len()).max().unwrap_or(0);
        let steps = chart::thin_out((0..count).collect(), PROBES);
        let width = CHART_WIDTH / as_f64(steps.len().max(1));
        let probe = |(place, index): (usize, usize)| {
            let when = Quantity::new(end.value * as_f64(index) / as_f64(count), end.unit);
            let values = self.series.iter().filter_map(|(_, series)| {
                let value = series.values.get(index).copied().flatten()?;
                Some(format!("{} {}", series.name, Quantity::new(value, series.unit)))
            });
            let title = html(&format!("at {when}: {}", values.collect::<Vec<_>>().join(", ")));
            let x = as_f64(place) * width;
            format!(
                "<rect class=\"probe\" x=\"{x:.1}\" width=\"{width:.1}\" height=\"{height}\"><title>{title}</title></rect>\n"
            )
        };
        steps.into_iter().enumerate().map(probe).collect()
    }
}

fn curve(class: &str, series: &TimeSeries, y: &dyn Fn(f64) -> f64) -> String {
    let half = chart::place(1, series.values.len()) / 2.0;
    let line = |run: Vec<(usize, f64)>| {
        let point = |(index, value): (usize, f64)| {
            format!("{:.1},{:.1}", chart::place(index, series.values.len()) + half, y(value))
        };
        let points: Vec<String> = run.into_iter().map(point).collect();
        format!("<polyline class=\"curve {class}\" points=\"{}\"/>\n", points.join(" "))
    };
    runs(&series.values).into_iter().map(line).collect()
}

/// Splits the values at gaps and pairs each value with its step's index. A lone value is repeated so that it appears as
/// a dot.
fn runs(values: &[Option<f64>]) -> Vec<Vec<(usize, f64)>> {
    let mut runs: Vec<Vec<(usize, f64)>> = vec![Vec::new()];
    for (index, value) in values.iter().enumerate() {
        match value {
            Some(value) => runs.last_mut().expect("there is one").push((index, *value)),
            None => runs.push(Vec::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    for run in &mut runs {
        if let [only] = run[..] {
            run.push(only);
        }
    }
    runs
}

impl Plot {
    /// Formats the plot and its title as inline SVG, one chart for each unit.
    pub(crate) fn to_html(&self) -> String {
        let panels = panels(self);
        let last = panels.len().saturating_sub(1);
        let charts = panels.iter().enumerate();
        let charts = charts.map(|(index, panel)| panel.to_html(self.end, index == 0, index == last));
        let charts: String = charts.collect();
        let nothing = if charts.is_empty() { "<p class=\"empty\">Nothing was measured.</p>\n" } else { "" };
        chart::figure(&self.title, &(charts + nothing))
    }
}

impl Distribution {
    /// Formats the distributions and their title as inline SVG. Each sample is a histogram with lines at the median
    /// and the 99th percentile. All histograms share a logarithmic axis.
    pub(crate) fn to_html(&self) -> String {
        let Some(axis) = self.axis() else { return String::new() };
        let samples = CLASSES.into_iter().cycle().zip(&self.samples).enumerate();
        let charts = samples.map(|(index, (class, sample))| {
            let is_last = index + 1 == self.samples.len();
            let mut chart = Chart::new(HISTOGRAM + if is_last { CHART_LABEL_HEIGHT } else { 1.0 });
            let mut path = format!("M0 {HISTOGRAM}");
            for (bin, height) in axis.shares(sample, BINS).iter().enumerate() {
                let y = HISTOGRAM * (1.0 - height);
                path.push_str(&format!("V{y:.1}H{:.1}", chart::place(bin + 1, BINS)));
            }
            let marks = [("p50", 50.0), ("p99", 99.0)].map(|(name, percent)| {
                let Some(value) = sample.percentile(percent) else { return String::new() };
                let (x, value) = (axis.place(value.value) * CHART_WIDTH, html(&value.to_string()));
                format!(
                    "<path class=\"mark\" d=\"M{x:.1} 0V{HISTOGRAM}\"><title>{name} {value}</title></path>\n"
                )
            });
            let bars = format!("<path class=\"bars {class}\" d=\"{path}V{HISTOGRAM}Z\"/>\n");
            chart.draw(0.0, HISTOGRAM, &(bars + &marks.concat()));
            chart.line(HISTOGRAM, "axis");
            if is_last {
                for (place, value) in decades(&axis) {
                    chart.label(place, HISTOGRAM + CHART_LABEL_HEIGHT - 4.0, &value.to_string());
                }
            }
            chart::legend([(class, caption(sample).as_str())]) + &chart.finish(&caption(sample))
        });
        chart::figure(&self.title, &charts.collect::<String>())
    }
}

/// Returns the values that have a label on a logarithmic axis, each with its position. The labels are powers of ten if
/// there are several. Otherwise, they are the axis's ends.
fn decades(axis: &Axis) -> Vec<(f64, Quantity)> {
    let (low, high) = axis.ends();
    #[expect(clippy::cast_possible_truncation, reason = "a float's exponent is at most 308")]
    let exponent = |value: f64| value.log10() as i32;
    let powers = (exponent(low.value) - 1..=exponent(high.value) + 1).map(|power| 10_f64.powi(power));
    let powers: Vec<f64> = powers.filter(|value| (low.value..=high.value).contains(value)).collect();
    if powers.len() < 2 {
        return vec![(0.0, low), (1.0, high)];
    }
    let powers = chart::thin_out(powers, DECADES).into_iter();
    powers.map(|value| (axis.place(value), Quantity::new(value, low.unit))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::tests::cliff;

    #[test]
    fn series_with_same_unit_share_picture() {
        let series = |name: &str, unit| TimeSeries {
            name: name.to_owned(),
            unit,
            values: vec![Some(1.0), None, Some(2.0)],
        };
        let series = vec![
            series("<each>", Unit::Seconds),
            series("mean", Unit::Seconds),
            series("heat", Unit::Celsius),
        ];
        let picture = Plot::new("a & b", Quantity::new(3000.0, Unit::Count), series).to_html();
        assert_eq!(picture.matches("class=\"chart\"").count(), 2, "{picture}");
        // Each time series has a segment on either side of the gap.
        assert_eq!(picture.matches("<polyline").count(), 6, "{picture}");
        for part in [
            ">a &amp; b</h2>",
            "<li class=\"c1\">&lt;each&gt;</li>",
            "<li class=\"c2\">mean</li>",
            ">3000</text>",
            "<title>at 0: &lt;each&gt; 1.00 s, mean 1.00 s</title>",
        ] {
            assert!(picture.contains(part), "{part}\n{picture}");
        }
    }

    #[test]
    fn picture_of_long_series_is_small() {
        let series = |name: &str, factor: f64| TimeSeries {
            name: name.to_owned(),
            unit: Unit::PerSecond,
            values: (0..300).map(|step| Some((f64::from(step) * factor) % 997.0)).collect(),
        };
        let series = vec![series("one", 37.0), series("two", 74.0)];
        let picture = Plot::new("Rates", Quantity::new(60.0, Unit::Seconds), series).to_html();
        assert!(picture.len() < 30_000, "{}", picture.len());
    }

    #[test]
    fn plot_lines_follow_the_values() {
        let picture = cliff().to_html();
        // The axis ends at 1000, above the largest value of 960. The first of six steps has its middle at one twelfth.
        assert!(picture.contains("83.3,7.6"), "{picture}");
        assert!(picture.contains("916.7,129.2"), "{picture}");
    }
}
