//! SVG pictures for HTML reports.
//!
//! Time series become lines, and distributions become histograms. The pictures use the page's text and background
//! colors, so they work in light and dark themes as well as in print.

use crate::distribution::{BINS, caption};
use crate::sample::as_f64;
use crate::text::html;
use crate::{Distribution, Plot, Quantity, TimeSeries, Unit};

/// Width of a picture and of the left margin for its labels, in SVG units.
const WIDTH: f64 = 760.0;
const MARGIN: f64 = 90.0;
/// Height of a plot's first panel, height of its other panels, and gap between panels.
const FIRST: f64 = 200.0;
const OTHERS: f64 = 80.0;
const GAP: f64 = 26.0;
/// Height of a histogram.
const HISTOGRAM_HEIGHT: f64 = 44.0;
/// Color variables in the page's style sheet.
const COLOURS: [&str; 4] = ["var(--one)", "var(--two)", "var(--three)", "var(--four)"];
/// Colors for light and dark backgrounds that color-blind readers can tell apart. Source: Okabe and Ito, "Color
/// Universal Design" (2008).
pub(crate) const PALETTE: &str = "\
:root{--one:#0072b2;--two:#d55e00;--three:#00805d;--four:#b0508a}\
@media (prefers-color-scheme:dark){@media screen{:root{--one:#56b4e9;--two:#e69f00;--three:#2fc99a;--four:#e3a3c6}}}";

/// Time series that share a picture because they have the same unit.
struct Panel<'a> {
    unit: Unit,
    series: Vec<&'a TimeSeries>,
}

fn panels(plot: &Plot) -> Vec<Panel<'_>> {
    let mut panels: Vec<Panel<'_>> = Vec::new();
    for series in plot.series.iter().filter(|series| series.range().is_some()) {
        match panels.iter_mut().find(|panel| panel.unit == series.unit) {
            Some(panel) => panel.series.push(series),
            None => panels.push(Panel { unit: series.unit, series: vec![series] }),
        }
    }
    panels
}

impl Panel<'_> {
    /// Returns the range of the vertical axis. The first panel's range includes zero. The other panels start at their
    /// minimum, because the distance between 60 °C and 0 °C, for example, is meaningless.
    fn range(&self, first: bool) -> (f64, f64) {
        let ranges = self.series.iter().filter_map(|series| series.range());
        let (low, high) = ranges.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (least, most)| {
            (low.min(least), high.max(most))
        });
        if first { (low.min(0.0), high) } else { (low, high) }
    }

    fn draw(&self, top: f64, height: f64, first: bool, svg: &mut String) {
        let (low, high) = self.range(first);
        let spread = (high - low).max(f64::MIN_POSITIVE);
        frame(svg, top, height);
        label(svg, MARGIN - 6.0, top + 10.0, "end", &Quantity::new(high, self.unit).to_string());
        label(svg, MARGIN - 6.0, top + height, "end", &Quantity::new(low, self.unit).to_string());
        let mut x = MARGIN;
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            svg.push_str(&format!(
                "<text x=\"{x:.0}\" y=\"{:.1}\" font-size=\"12\" style=\"fill:{colour}\">{}</text>\n",
                top - 5.0,
                html(&series.name)
            ));
            x += 8.0 * as_f64(crate::text::width(&series.name)) + 16.0;
            let step = (WIDTH - MARGIN) / as_f64(series.values.len()).max(1.0);
            for line in runs(&series.values) {
                let points = line.iter().map(|(index, value)| {
                    let x = MARGIN + (as_f64(*index) + 0.5) * step;
                    format!("{x:.1},{:.1}", top + height - (value - low) / spread * height)
                });
                let points = points.collect::<Vec<_>>().join(" ");
                svg.push_str(&format!(
                    "<polyline points=\"{points}\" fill=\"none\" style=\"stroke:{colour}\" stroke-width=\"1.5\" \
                     stroke-linecap=\"round\"/>\n"
                ));
            }
        }
    }
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

fn frame(svg: &mut String, top: f64, height: f64) {
    let bottom = top + height;
    svg.push_str(&format!(
        "<path d=\"M{MARGIN} {top:.1}V{bottom:.1}H{WIDTH}\" fill=\"none\" stroke=\"currentColor\" opacity=\".5\"/>\n"
    ));
}

fn label(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    svg.push_str(&format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"12\" fill=\"currentColor\" text-anchor=\"{anchor}\">{}</text>\n",
        html(text)
    ));
}

fn figure(title: &str, height: f64, content: &str) -> String {
    let title = html(title);
    format!(
        "<figure>\n<h2>{title}</h2>\n<div class=\"scroll\"><svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\">\n\
         {content}</svg></div>\n</figure>\n"
    )
}

impl Plot {
    /// Formats the plot and its title as an inline SVG.
    pub(crate) fn to_html(&self) -> String {
        let (mut svg, mut top) = (String::new(), 18.0);
        for (index, panel) in panels(self).iter().enumerate() {
            let height = if index == 0 { FIRST } else { OTHERS };
            panel.draw(top, height, index == 0, &mut svg);
            top += height + GAP;
        }
        label(&mut svg, MARGIN, top - 10.0, "start", "0");
        label(&mut svg, WIDTH, top - 10.0, "end", &self.end.to_string());
        figure(&self.title, top, &svg)
    }
}

impl Distribution {
    /// Formats the distributions and their title as an inline SVG. Each sample is a histogram with lines at the median
    /// and the 99th percentile. All histograms share a logarithmic axis.
    pub(crate) fn to_html(&self) -> String {
        let Some(axis) = self.axis() else { return String::new() };
        let (mut svg, mut top) = (String::new(), 4.0);
        let step = (WIDTH - MARGIN) / as_f64(BINS);
        for (sample, colour) in self.samples.iter().zip(COLOURS.iter().cycle()) {
            let heights = axis.shares(sample);
            let bottom = top + 16.0 + HISTOGRAM_HEIGHT;
            let mut path = format!("M{MARGIN} {bottom:.1}");
            for (index, height) in heights.iter().enumerate() {
                let (x, y) = (MARGIN + as_f64(index) * step, bottom - height * HISTOGRAM_HEIGHT);
                path.push_str(&format!("L{x:.1} {y:.1}L{:.1} {y:.1}", x + step));
            }
            svg.push_str(&format!(
                "<path d=\"{path}L{WIDTH} {bottom:.1}Z\" style=\"fill:{colour};stroke:{colour}\" fill-opacity=\".35\"/>\n"
            ));
            label(&mut svg, MARGIN, top + 12.0, "start", &caption(sample));
            for (name, percent) in [("p50", 50.0), ("p99", 99.0)] {
                let Some(value) = sample.percentile(percent) else { continue };
                let x = MARGIN + axis.place(value.value) * (WIDTH - MARGIN);
                svg.push_str(&format!(
                    "<path d=\"M{x:.1} {bottom:.1}v{:.1}\" stroke=\"currentColor\"><title>{name} {}</title></path>\n",
                    -HISTOGRAM_HEIGHT,
                    html(&value.to_string())
                ));
            }
            top = bottom + 8.0;
        }
        let (low, high) = axis.ends();
        label(&mut svg, MARGIN, top + 10.0, "start", &low.to_string());
        label(&mut svg, WIDTH, top + 10.0, "end", &format!("{high}, logarithmic"));
        figure(&self.title, top + 18.0, &svg)
    }
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
        assert_eq!(picture.matches("<path").count(), 2, "{picture}");
        // Each time series has a segment on either side of the gap.
        assert_eq!(picture.matches("<polyline").count(), 6, "{picture}");
        for part in
            [">a &amp; b</h2>", "fill:var(--one)\">&lt;each&gt;", "fill:var(--two)\">mean", ">3000</text>"]
        {
            assert!(picture.contains(part), "{part}\n{picture}");
        }
    }

    #[test]
    fn plot_lines_follow_the_values() {
        let picture = cliff().to_html();
        // 960 of 960 is at the top of the first panel. One third of 960 is two thirds of the way down.
        assert!(picture.contains("145.8,18.0"), "{picture}");
        assert!(picture.contains("704.2,151.3"), "{picture}");
    }
}
