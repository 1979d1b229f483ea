//! Draws charts as inline SVG.
//!
//! Drawings stretch to the width of the page. Texts keep their size, so a chart is readable on a phone, on a wide
//! screen and in print. Colors come from the style sheet's classes `c1` to `c8`, for light and dark themes.

use crate::text::html;
use crate::{Quantity, as_f64};

/// Width of a chart's drawings, in SVG user units.
pub const CHART_WIDTH: f64 = 1000.0;
/// Height of the labels below a chart, in pixels.
pub const CHART_LABEL_HEIGHT: f64 = 18.0;
/// Number of parts that labels divide a linear axis into.
const AXIS_PARTS: u8 = 4;
/// Preferred number of intervals on a vertical axis.
const INTERVALS: f64 = 4.0;

/// A chart of a fixed height. All heights are in pixels.
#[derive(Debug)]
pub struct Chart {
    height: f64,
    content: String,
}

impl Chart {
    /// Creates an empty chart.
    #[must_use]
    pub fn new(height: f64) -> Self {
        Self { height, content: String::new() }
    }

    /// Adds SVG elements in coordinates from 0 to [`CHART_WIDTH`] and from 0 to `height`.
    pub fn draw(&mut self, top: f64, height: f64, elements: &str) {
        self.content.push_str(&format!(
            "<svg y=\"{top:.1}\" width=\"100%\" height=\"{height:.1}\" viewBox=\"0 0 {CHART_WIDTH} {height:.1}\" \
             preserveAspectRatio=\"none\">\n{elements}</svg>\n"
        ));
    }

    /// Adds a horizontal line with the class `grid` or `axis`.
    pub fn line(&mut self, y: f64, class: &str) {
        self.content.push_str(&format!(
            "<line class=\"{class}\" x1=\"0\" x2=\"100%\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\n"
        ));
    }

    /// Adds a text. `share` is the text's position on the horizontal axis, from 0 to 1.
    pub fn label(&mut self, share: f64, y: f64, text: &str) {
        let anchor = match share {
            ..0.04 => "start",
            0.96.. => "end",
            _ => "middle",
        };
        let (percent, text) = (share * 100.0, html(text));
        self.content.push_str(&format!(
            "<text x=\"{percent:.1}%\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n"
        ));
    }

    /// Adds the labels of a linear axis from 0 to `end`, below the line at `y`.
    pub fn axis(&mut self, y: f64, end: Quantity) {
        self.line(y, "axis");
        for part in 0..=AXIS_PARTS {
            let share = f64::from(part) / f64::from(AXIS_PARTS);
            let place = Quantity::new(end.value * share, end.unit);
            self.label(share, y + CHART_LABEL_HEIGHT - 4.0, &place.to_string());
        }
    }

    /// Returns the chart as SVG. `label` describes the chart for readers who can't see it.
    #[must_use]
    pub fn finish(self, label: &str) -> String {
        let (height, content, label) = (self.height, self.content, html(label));
        format!(
            "<svg class=\"chart\" height=\"{height:.0}\" role=\"img\" aria-label=\"{label}\">\n{content}</svg>\n"
        )
    }
}

/// Returns a legend. Each item of `names` is a style sheet class with the name to show.
#[must_use]
pub fn legend<'a>(names: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let item = |(class, name): (&str, &str)| format!("<li class=\"{class}\">{}</li>\n", html(name));
    let items: String = names.into_iter().map(item).collect();
    format!("<ul class=\"legend\">\n{items}</ul>\n")
}

/// Returns a titled figure with this content.
#[must_use]
pub fn figure(title: &str, content: &str) -> String {
    format!("<h2>{}</h2>\n<figure class=\"card\">\n{content}</figure>\n", html(title))
}

/// Returns evenly spaced round values for a vertical axis that covers the range, in order.
pub(crate) fn ticks(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / INTERVALS;
    if !rough.is_normal() {
        return vec![low, high];
    }
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let first = (low / step).floor() * step;
    let ticks = (0..=8_u8).map(|index| first + f64::from(index) * step);
    let mut found = Vec::new();
    for tick in ticks {
        found.push(tick);
        if tick >= high {
            break;
        }
    }
    if found.iter().all(|tick| tick.is_finite()) { found } else { vec![low, high] }
}

/// Returns at most `most` of the items, evenly spaced.
pub(crate) fn thin_out<T>(items: Vec<T>, most: usize) -> Vec<T> {
    let step = items.len().div_ceil(most).max(1);
    items.into_iter().step_by(step).collect()
}

/// Returns the horizontal position of a step on an axis with `count` steps, from 0 to [`CHART_WIDTH`].
pub(crate) fn place(index: usize, count: usize) -> f64 {
    as_f64(index) * CHART_WIDTH / as_f64(count.max(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Unit;

    #[test]
    fn axis_has_round_values() {
        assert_eq!(ticks(0.0, 231.0), [0.0, 100.0, 200.0, 300.0]);
        assert_eq!(ticks(40.0, 80.0), [40.0, 50.0, 60.0, 70.0, 80.0]);
        assert_eq!(ticks(7.0, 7.0), [7.0, 7.0]);
    }

    #[test]
    fn labels_escape_text_and_stay_inside() {
        let mut chart = Chart::new(50.0);
        chart.label(0.0, 10.0, "<a>");
        chart.axis(30.0, Quantity::new(4.0, Unit::Seconds));
        let svg = chart.finish("a & b");
        for part in [
            "text-anchor=\"start\">&lt;a&gt;<",
            "x=\"50.0%\"",
            ">2.00 s<",
            "text-anchor=\"end\">4.00 s<",
            "\"a &amp; b\"",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }

    proptest! {
        #[test]
        fn ticks_cover_any_range(one in any::<f64>(), other in any::<f64>()) {
            prop_assume!(one.is_finite() && other.is_finite());
            let (low, high) = (one.min(other), one.max(other));
            let ticks = ticks(low, high);
            prop_assert!((2..=9).contains(&ticks.len()));
            prop_assert!(ticks.iter().all(|tick| tick.is_finite()));
            prop_assert!(ticks.is_sorted());
        }
    }
}
