//! Draws plots of time series.
//!
//! A rate that drops halfway through a run is easy to see in a plot, but not in a table. Plots consist of characters,
//! so they even work in a terminal or an issue.

use std::fmt;

use serde::Serialize;

use crate::{Quantity, Unit, text};

/// Maximum width of a plot, in columns.
const COLUMNS: usize = 60;
/// Minimum width of a plot with labels on both sides. On a narrower terminal, labels have their own lines.
const MIN_COLUMNS: usize = 24;
/// Height of the first time series, in lines.
const LINES: usize = 6;
/// Characters for bars with a height of 0 to 8 eighths of a line.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A time series with one value for each of its equally long steps. `None` means that nothing was measured
/// during a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimeSeries {
    /// Name of the measured quantity.
    pub name: String,
    /// Unit of all values.
    pub unit: Unit,
    /// The values, one for each step.
    pub values: Vec<Option<f64>>,
}

/// Several time series over the same steps.
///
/// On a terminal, the first time series takes up several lines, and its axis starts at zero. Each of the others
/// takes up a single line, scaled from the series' minimum to its maximum. In HTML, time series with the same unit
/// share a picture.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plot {
    pub(crate) title: String,
    pub(crate) end: Quantity,
    pub(crate) series: Vec<TimeSeries>,
}

impl TimeSeries {
    pub(crate) fn finite_values(&self) -> impl Iterator<Item = f64> {
        self.values.iter().copied().flatten()
    }

    pub(crate) fn range(&self) -> Option<(f64, f64)> {
        self.finite_values().fold(None, |range, value| {
            let (low, high) = range.unwrap_or((value, value));
            Some((value.min(low), value.max(high)))
        })
    }

    /// Returns the mean of all values in each of at most `columns` columns.
    fn columns(&self, columns: usize) -> Vec<Option<f64>> {
        let count = self.values.len();
        let columns = count.min(columns);
        let mean = |column: usize| {
            let part = &self.values[column * count / columns..(column + 1) * count / columns];
            let known: Vec<f64> = part.iter().copied().flatten().collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / crate::sample::as_f64(known.len()))
        };
        (0..columns).map(mean).collect()
    }
}

/// Converts a fraction of `height` characters to eighths of a character. The result is at least 1, so that every
/// measured value is visible.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 48")]
fn eighths(share: f64, height: usize) -> usize {
    ((share * crate::sample::as_f64(height) * 8.0).round() as usize).clamp(1, height * 8)
}

impl Plot {
    /// Creates a plot of `series`, which must all have the same number of values. The horizontal axis ranges from 0 to
    /// `end`, a time or a count.
    #[must_use]
    pub fn new(title: impl Into<String>, end: Quantity, series: Vec<TimeSeries>) -> Self {
        Self { title: title.into(), end, series }
    }

    pub(crate) fn to_markdown(&self) -> String {
        let drawing = self.drawing(usize::MAX);
        format!("## {}\n\n```text\n{drawing}```\n", text::markdown(&self.title))
    }

    /// Yields the title, the step (counted from 1), the name of the time series, the value and the unit for each value.
    pub(crate) fn cells(&self) -> impl Iterator<Item = [String; 5]> {
        self.series.iter().flat_map(move |series| {
            (1..).zip(&series.values).filter_map(move |(step, value)| {
                let (value, unit) = ((*value)?.to_string(), series.unit.name().to_owned());
                Some([self.title.clone(), step.to_string(), series.name.clone(), value, unit])
            })
        })
    }

    /// Formats the plot and its title with lines of at most `columns` columns.
    pub(crate) fn to_text(&self, columns: usize) -> String {
        format!("{}\n{}", text::hang("", &self.title, columns), self.drawing(columns))
    }

    fn drawing(&self, columns: usize) -> String {
        let Some((first, others)) = self.series.split_first() else { return String::new() };
        let Some((_, top)) = first.range() else {
            return text::hang("", &format!("{}: nothing was measured", first.name), columns);
        };
        let read = |value: f64, unit| Quantity::new(value, unit).to_string();
        let marks = [read(top, first.unit), read(0.0, first.unit)];
        let ranges = others.iter().filter_map(|series| {
            let (low, high) = series.range()?;
            let range = format!("{} to {}", read(low, series.unit), read(high, series.unit));
            Some((series, low, high, range))
        });
        let ranges: Vec<_> = ranges.collect();
        let widest = |texts: &mut dyn Iterator<Item = &str>| texts.map(text::width).max().unwrap_or(0);
        let of_marks = widest(&mut marks.iter().map(String::as_str));
        let names = widest(&mut ranges.iter().map(|(series, ..)| series.name.as_str()));
        let tail = widest(&mut ranges.iter().map(|(.., range)| range.as_str())) + 2;
        let is_wide = of_marks.max(names) + 2 + MIN_COLUMNS + tail <= columns;
        let margin = if is_wide { of_marks.max(names) } else { of_marks };
        let room = columns.saturating_sub(margin + 2 + if is_wide { tail } else { 0 });
        let room = room.clamp(1, COLUMNS);
        let label = |label: &str| text::pad(label, margin, text::Alignment::Right);

        let values = first.columns(room);
        let mut lines = bars(&values, top, &label, &marks);
        let end = self.end.to_string();
        let gap = values.len().saturating_sub(text::width(&end) + 1);
        lines.push(format!("{}  0{}{end}", label(""), " ".repeat(gap)));
        for (series, low, high, range) in ranges {
            let spread = (high - low).max(f64::MIN_POSITIVE);
            let draw =
                |value: Option<f64>| value.map_or(' ', |value| EIGHTHS[eighths((value - low) / spread, 1)]);
            let row: String = series.columns(room).into_iter().map(draw).collect();
            if is_wide {
                lines.push(format!("{}  {row}  {range}", label(&text::plain(&series.name))));
            } else {
                lines.extend(text::wrap(&format!("{}: {range}", series.name), columns));
                lines.push(format!("{}  {}", label(""), row.trim_end()));
            }
        }
        lines.join("\n") + "\n"
    }
}

/// Draws the values as bars with a height of several lines, above an axis. `marks` are the labels for the top
/// and for zero.
fn bars(
    values: &[Option<f64>],
    top: f64,
    label: &dyn Fn(&str) -> String,
    marks: &[String; 2],
) -> Vec<String> {
    let height =
        |value: &Option<f64>| value.map_or(0, |value| eighths(value / top.max(f64::MIN_POSITIVE), LINES));
    let heights: Vec<usize> = values.iter().map(height).collect();
    let line = |line: usize| {
        let mark = if line == LINES - 1 { marks[0].as_str() } else { "" };
        let row: String =
            heights.iter().map(|height| EIGHTHS[height.saturating_sub(line * 8).min(8)]).collect();
        format!("{} │{}", label(mark), row.trim_end())
    };
    let axis = format!("{} └{}", label(&marks[1]), "─".repeat(values.len()));
    (0..LINES).rev().map(line).chain([axis]).collect()
}

impl fmt::Display for Plot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_text(usize::MAX))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn cliff() -> Plot {
        let series = |name: &str, unit, values: &[f64]| TimeSeries {
            name: name.to_owned(),
            unit,
            values: values.iter().map(|value| Some(*value)).collect(),
        };
        let rates = series("syncs", Unit::PerSecond, &[960.0, 960.0, 960.0, 320.0, 320.0, 320.0]);
        let degrees = series("temperature", Unit::Celsius, &[40.0, 60.0, 80.0, 80.0, 80.0, 80.0]);
        Plot::new("Syncs over time", Quantity::new(6.0, Unit::Seconds), vec![rates, degrees])
    }

    #[test]
    fn plot_shows_cliff_above_temperature() {
        assert_eq!(
            cliff().to_string(),
            "Syncs over time\n\n     \
             960 /s │███\n            │███\n            │███\n            │███\n            │██████\n            │██████\n       \
             0 /s └──────\n             06.00 s\n\
             temperature  ▁▄████  40.0 °C to 80.0 °C\n"
        );
    }

    #[test]
    fn programs_get_every_value() {
        let json = serde_json::json!(cliff());
        assert_eq!(
            (&json["series"][1]["unit"], &json["series"][0]["values"][3]),
            (&"celsius".into(), &320.0.into())
        );
        assert_eq!(cliff().cells().count(), 12);
    }

    proptest! {
        #[test]
        fn anything_can_be_drawn(
            values in prop::collection::vec(prop::option::of(0.0..1e9), 0..300),
            seconds in 0.0..1e5,
            name in any::<String>(),
            columns in 30_usize..200,
        ) {
            let series = TimeSeries { name, unit: Unit::Count, values };
            let end = Quantity::new(seconds, Unit::Seconds);
            let plot = Plot::new("t", end, vec![series.clone(), series]);
            for line in plot.to_text(columns).lines() {
                prop_assert!(text::width(line) <= columns, "{}", line);
            }
            let picture = plot.to_html();
            prop_assert!(!picture.contains("NaN") && !picture.contains("inf"), "{}", picture);
        }
    }
}
