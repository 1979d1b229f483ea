//! Draws a picture of when sessions were at work and what they waited for.
//!
//! ```text
//! number of sessions at work, by cause        ▁▃▅▃▁
//! a lane for sessions that don't overlap      ▆▆▆  ▆▆▆▆▆
//! a second lane                                 ▆▆▆▆▆
//! ```

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use report::escape_html;

use crate::circumstances::seconds;
use crate::recording::{Observation, Recording, Snapshot, State};
use crate::wait::Cause;

/// Number of time slices in the picture.
const TIME_SLICES: usize = 600;
/// Maximum number of lanes. Sessions without a lane only appear in the sums.
const MAX_LANES: usize = 40;
/// Tolerance for comparing times, in seconds. It is much shorter than the sampling interval.
const TIME_TOLERANCE: f64 = 1e-6;
/// Sizes of the picture's parts, in SVG units.
const WIDTH: f64 = 1200.0;
const SUMS_HEIGHT: f64 = 120.0;
const LANE_HEIGHT: f64 = 14.0;
const GAP: f64 = 28.0;

/// A session's mark in one time slice.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Mark {
    seen: Observation,
    /// Seconds the mark stands for.
    seconds: f64,
}

/// Returns an HTML figure with the picture as an inline SVG and its legend. Returns an empty text if there are no
/// samples.
pub(crate) fn draw(recording: &Recording) -> String {
    let lanes = lanes(recording);
    if lanes.is_empty() || recording.seconds <= 0.0 {
        return String::new();
    }
    let height = SUMS_HEIGHT + GAP + LANE_HEIGHT * as_size(lanes.len());
    let mut svg = format!(
        "<h2>Sessions over time</h2>\n<p>{}</p>\n<div class=\"scroll\">\n<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"sessions over time\">\n",
        legend(),
        height + 20.0
    );
    draw_sums(recording, &mut svg);
    for (place, lane) in lanes.iter().enumerate() {
        draw_lane(recording, lane, SUMS_HEIGHT + GAP + LANE_HEIGHT * as_size(place), &mut svg);
    }
    for tenth in 0..=10 {
        let x = WIDTH * f64::from(tenth) / 10.0;
        let anchor = ["start", "middle", "end"][usize::from(tenth > 0) + usize::from(tenth == 10)];
        let when = seconds(recording.seconds * f64::from(tenth) / 10.0);
        svg.push_str(&format!(
            "<text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"currentColor\" text-anchor=\"{anchor}\">{when}</text>\n",
            height + 15.0
        ));
    }
    svg + "</svg>\n</div>\n"
}

/// Returns a mark's color. Color-blind readers can tell the colors apart. Source: Okabe and Ito, "Color Universal
/// Design" (2008).
fn colour(seen: &Observation) -> &'static str {
    match (seen.state, seen.cause) {
        (State::InTransaction, _) => "#bbbbbb",
        (_, Cause::Cpu) => "#009e73",
        (_, Cause::WalSync) => "#d55e00",
        (_, Cause::DataSync | Cause::Checkpoint | Cause::FileSystem) => "#e69f00",
        (_, Cause::WalIo | Cause::DataIo) => "#f0e442",
        (_, Cause::Lock | Cause::Internal) => "#cc79a7",
        (_, Cause::Client) => "#56b4e9",
        (_, Cause::Other) => "#0072b2",
    }
}

fn legend() -> String {
    let words = [
        ("#009e73", "CPU"),
        ("#d55e00", "WAL sync"),
        ("#e69f00", "data file sync, checkpoint"),
        ("#f0e442", "I/O"),
        ("#cc79a7", "lock"),
        ("#56b4e9", "client"),
        ("#0072b2", "other"),
        ("#bbbbbb", "open transaction, the client at work"),
    ];
    let words = words.map(|(colour, word)| format!("<span style=\"color:{colour}\">■</span>\u{a0}{word}"));
    words.join(" ")
}

/// Yields each sample with the time slices it covers and the seconds in each of these slices. A sample starts where the
/// previous one ends.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn slices(recording: &Recording) -> impl Iterator<Item = (&Snapshot, RangeInclusive<usize>, f64)> {
    let slice = |at: f64| ((at / recording.seconds * as_size(TIME_SLICES)) as usize).min(TIME_SLICES - 1);
    recording.samples.iter().scan(0.0, move |begin, sample| {
        let (first, last) = (slice(*begin), slice((*begin + sample.seconds - TIME_TOLERANCE).max(*begin)));
        *begin += sample.seconds;
        Some((sample, first..=last, sample.seconds / as_size(last + 1 - first)))
    })
}

/// Draws how many sessions are at work in each time slice, by color.
fn draw_sums(recording: &Recording, svg: &mut String) {
    let mut sums: Vec<BTreeMap<&str, f64>> = vec![BTreeMap::new(); TIME_SLICES];
    let mut lengths = vec![0.0; TIME_SLICES];
    for (sample, slices, seconds) in slices(recording) {
        for slice in slices {
            lengths[slice] += seconds;
            for seen in sample.seen.iter().filter(|seen| seen.state == State::Active) {
                *sums[slice].entry(colour(seen)).or_default() += seconds;
            }
        }
    }
    let all = |slice: usize| sums[slice].values().sum::<f64>() / f64::max(lengths[slice], f64::MIN_POSITIVE);
    let most = (0..TIME_SLICES).map(all).fold(1.0, f64::max);
    let width = WIDTH / as_size(TIME_SLICES);
    for (place, (parts, length)) in sums.iter().zip(&lengths).enumerate() {
        let mut y = SUMS_HEIGHT;
        for (colour, spent) in parts {
            let height = spent / length / most * SUMS_HEIGHT;
            y -= height;
            draw_rectangle(svg, &Rectangle { x: as_size(place) * width, y, width, height }, colour, "");
        }
    }
    svg.push_str(&format!(
        "<text x=\"0\" y=\"11\" font-size=\"11\" fill=\"currentColor\">{most:.0} at work</text>\
         <line x1=\"0\" y1=\"{SUMS_HEIGHT}\" x2=\"{WIDTH}\" y2=\"{SUMS_HEIGHT}\" stroke=\"currentColor\" stroke-width=\"0.5\"/>\n"
    ));
}

/// Distributes the sessions over as few lanes as possible. Each time slice of a lane shows the sample that takes up
/// most of the slice.
fn lanes(recording: &Recording) -> Vec<Vec<Option<Mark>>> {
    let mut spans: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for sample in &recording.samples {
        for seen in &sample.seen {
            spans.entry(seen.session).or_insert((sample.at - sample.seconds, sample.at)).1 = sample.at;
        }
    }
    let mut in_order: Vec<(u32, (f64, f64))> = spans.into_iter().collect();
    in_order.sort_by(|(_, one), (_, other)| one.0.total_cmp(&other.0));
    let (mut lane_of, mut ends) = (BTreeMap::new(), Vec::<f64>::new());
    for (session, (begin, end)) in in_order {
        let place = ends.iter().position(|free| *free <= begin + TIME_TOLERANCE).unwrap_or(ends.len());
        if place == ends.len() {
            ends.push(end);
        }
        ends[place] = end;
        lane_of.insert(session, place);
    }
    let mut lanes = vec![vec![None; TIME_SLICES]; ends.len().min(MAX_LANES)];
    for (sample, slices, seconds) in slices(recording) {
        for (slice, seen) in slices.flat_map(|slice| sample.seen.iter().map(move |seen| (slice, seen))) {
            let Some(lane) = lanes.get_mut(lane_of[&seen.session]) else { continue };
            let mark: &mut Option<Mark> = &mut lane[slice];
            if mark.is_none_or(|mark| mark.seconds < seconds || mark.seen.state == State::InTransaction) {
                *mark = Some(Mark { seen: *seen, seconds });
            }
        }
    }
    lanes
}

/// Draws a lane, merging equal neighbors into a single rectangle.
fn draw_lane(recording: &Recording, lane: &[Option<Mark>], y: f64, svg: &mut String) {
    let width = WIDTH / as_size(TIME_SLICES);
    let same = |one: &Option<Mark>, other: &Option<Mark>| match (one, other) {
        (Some(one), Some(other)) => {
            let what = |mark: &Mark| (mark.seen.session, mark.seen.statement, colour(&mark.seen));
            what(one) == what(other)
        }
        (one, other) => one.is_none() && other.is_none(),
    };
    let mut place = 0;
    for run in lane.chunk_by(same) {
        if let Some(Mark { seen, .. }) = run[0] {
            let statement = &recording.statements.get(seen.statement).text;
            let session = recording.sessions.get(seen.session);
            let what = if seen.state == State::InTransaction { "after " } else { "" };
            let title = format!("{} ({}), {}: {what}{statement}", session.database, session.pid, seen.cause);
            let (x, width, height) = (as_size(place) * width, as_size(run.len()) * width, LANE_HEIGHT - 2.0);
            draw_rectangle(svg, &Rectangle { x, y, width, height }, colour(&seen), &title);
        }
        place += run.len();
    }
}

/// A rectangle in SVG units.
struct Rectangle {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

fn draw_rectangle(svg: &mut String, rectangle: &Rectangle, colour: &str, title: &str) {
    let Rectangle { x, y, width, height } = rectangle;
    let title =
        if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape_html(title)) };
    svg.push_str(&format!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\">{title}</rect>\n"
    ));
}

/// Converts a count to a float. The result is exact up to 2⁵³.
fn as_size(count: usize) -> f64 {
    report::as_f64(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::tests::recording;

    #[test]
    fn overlapping_sessions_have_separate_lanes() {
        let serial = recording(&[&["a:SELECT 1:cpu"], &["b:SELECT 1:cpu"], &["c:SELECT 1:sync"]]);
        assert_eq!(lanes(&serial).len(), 1);
        let parallel =
            recording(&[&["a:SELECT 1:cpu", "b:SELECT 1:cpu"], &["a:SELECT 1:cpu"], &["c:SELECT 1:cpu"]]);
        assert_eq!(lanes(&parallel).len(), 2);
    }

    #[test]
    fn unequal_samples_leave_no_gap() {
        let mut unequal = recording(&[&["a:SELECT 1:cpu"] as &[_]; 3]);
        for (sample, [at, seconds]) in
            unequal.samples.iter_mut().zip([[0.01, 0.05], [0.09, 0.055], [0.12, 0.045]])
        {
            (sample.at, sample.seconds) = (at, seconds);
        }
        unequal.seconds = 0.15;
        assert!(lanes(&unequal)[0].iter().all(Option::is_some));
    }

    #[test]
    fn timeline_labels_statements_and_colors_waits() {
        let one = recording(&[&["a:INSERT INTO \"<t>\" VALUES (1):sync"], &[], &["a:SELECT 1:open"]]);
        let svg = draw(&one);
        assert!(
            svg.contains("fill=\"#d55e00\"><title>of_a (97), WAL sync: INSERT INTO &quot;&lt;t&gt;&quot;"),
            "{svg}"
        );
        assert!(svg.contains("fill=\"#bbbbbb\"><title>of_a (97), client: after SELECT ?"), "{svg}");
        assert_eq!(draw(&Recording::default()), "");
    }
}
