//! Draws a picture of when sessions were at work and what they waited for.
//!
//! ```text
//! number of sessions at work, by cause        ▁▃▅▃▁
//! a lane for sessions that don't overlap      ▆▆▆  ▆▆▆▆▆
//! a second lane                                 ▆▆▆▆▆
//! ```

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use report::chart::{self, CHART_LABEL_HEIGHT, CHART_WIDTH, Chart};
use report::{Quantity, Unit, escape_html};

use crate::recording::{Observation, Recording, Snapshot, State};
use crate::wait::Cause;

/// Number of time slices in the picture.
const TIME_SLICES: usize = 600;
/// Maximum number of lanes. Sessions without a lane only appear in the totals.
const MAX_LANES: usize = 40;
/// Tolerance for comparing times, in seconds. Much shorter than the sampling interval.
const TIME_TOLERANCE: f64 = 1e-6;
/// Heights of the picture's parts, in pixels.
const SUMS_TOP: f64 = 16.0;
const SUMS_HEIGHT: f64 = 120.0;
const LANE_HEIGHT: f64 = 14.0;
const GAP: f64 = 12.0;
/// Style sheet classes, each with the marks that have this class.
const LEGEND: [(&str, &str); 8] = [
    ("c3", "CPU"),
    ("c2", "WAL sync"),
    ("c5", "data file sync, checkpoint"),
    ("c7", "I/O"),
    ("c4", "lock"),
    ("c6", "client"),
    ("c1", "other"),
    ("c8", "open transaction, the client at work"),
];

/// A session's mark in one time slice.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Mark {
    seen: Observation,
    /// Number of seconds that the mark represents.
    seconds: f64,
}

/// Returns an HTML figure with the picture as an inline SVG and its legend. Returns an empty text if there are no
/// samples.
pub(crate) fn draw(recording: &Recording) -> String {
    let lanes = lanes(recording);
    if lanes.is_empty() || recording.seconds <= 0.0 {
        return String::new();
    }
    let below = LANE_HEIGHT * as_size(lanes.len());
    let lanes_top = SUMS_TOP + SUMS_HEIGHT + GAP;
    let mut chart = Chart::new(lanes_top + below + CHART_LABEL_HEIGHT);
    let (sums, most) = draw_sums(recording);
    chart.line(SUMS_TOP, "grid");
    chart.draw(SUMS_TOP, SUMS_HEIGHT, &sums);
    chart.line(SUMS_TOP + SUMS_HEIGHT, "axis");
    chart.label(0.0, SUMS_TOP - 4.0, &format!("{most:.0} at work"));
    let rows = lanes.iter().enumerate();
    let rows = rows.map(|(place, lane)| draw_lane(recording, lane, LANE_HEIGHT * as_size(place)));
    chart.draw(lanes_top, below, &rows.collect::<String>());
    chart.axis(lanes_top + below, Quantity::new(recording.seconds, Unit::Seconds));
    let label = format!("sessions over time: at most {most:.0} at work");
    chart::figure("Sessions over time", &(chart::legend(LEGEND) + &chart.finish(&label)))
}

/// Returns the class of a mark's color.
fn class(seen: &Observation) -> &'static str {
    match (seen.state, seen.cause) {
        (State::InTransaction, _) => "c8",
        (_, Cause::Cpu) => "c3",
        (_, Cause::WalSync) => "c2",
        (_, Cause::DataSync | Cause::Checkpoint | Cause::FileSystem) => "c5",
        (_, Cause::WalIo | Cause::DataIo) => "c7",
        (_, Cause::Lock | Cause::Internal) => "c4",
        (_, Cause::Client) => "c6",
        (_, Cause::Other) => "c1",
    }
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

/// Draws how many sessions are at work in each time slice, by color. Also returns the maximum.
fn draw_sums(recording: &Recording) -> (String, f64) {
    let mut sums: Vec<BTreeMap<&str, f64>> = vec![BTreeMap::new(); TIME_SLICES];
    let mut lengths = vec![0.0; TIME_SLICES];
    for (sample, slices, seconds) in slices(recording) {
        for slice in slices {
            lengths[slice] += seconds;
            for seen in sample.seen.iter().filter(|seen| seen.state == State::Active) {
                *sums[slice].entry(class(seen)).or_default() += seconds;
            }
        }
    }
    let all = |slice: usize| sums[slice].values().sum::<f64>() / f64::max(lengths[slice], f64::MIN_POSITIVE);
    let most = (0..TIME_SLICES).map(all).fold(1.0, f64::max);
    let width = CHART_WIDTH / as_size(TIME_SLICES);
    let mut paths: BTreeMap<&str, String> = BTreeMap::new();
    for (place, (parts, length)) in sums.iter().zip(&lengths).enumerate() {
        let mut y = SUMS_HEIGHT;
        for (class, spent) in parts {
            let (x, height) = (as_size(place) * width, spent / length / most * SUMS_HEIGHT);
            let bar = format!("M{x:.2} {y:.1}v{:.1}h{width:.2}v{height:.1}z", -height);
            paths.entry(class).or_default().push_str(&bar);
            y -= height;
        }
    }
    let paths = paths.iter().map(|(class, path)| format!("<path class=\"bars {class}\" d=\"{path}\"/>\n"));
    (paths.collect(), most)
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
fn draw_lane(recording: &Recording, lane: &[Option<Mark>], y: f64) -> String {
    let slice = CHART_WIDTH / as_size(TIME_SLICES);
    let same = |one: &Option<Mark>, other: &Option<Mark>| match (one, other) {
        (Some(one), Some(other)) => {
            let what = |mark: &Mark| (mark.seen.session, mark.seen.statement, class(&mark.seen));
            what(one) == what(other)
        }
        (one, other) => one.is_none() && other.is_none(),
    };
    let (mut place, mut rectangles) = (0, String::new());
    for run in lane.chunk_by(same) {
        if let Some(Mark { seen, .. }) = run[0] {
            let statement = &recording.statements.get(seen.statement).text;
            let session = recording.sessions.get(seen.session);
            let what = if seen.state == State::InTransaction { "after " } else { "" };
            let title = format!("{} ({}), {}: {what}{statement}", session.database, session.pid, seen.cause);
            let (class, title) = (class(&seen), escape_html(&title));
            let (x, width, height) = (as_size(place) * slice, as_size(run.len()) * slice, LANE_HEIGHT - 2.0);
            rectangles.push_str(&format!(
                "<rect class=\"bars {class}\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{height:.1}\"><title>{title}</title></rect>\n"
            ));
        }
        place += run.len();
    }
    rectangles
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
        assert!(svg.contains("<title>of_a (97), WAL sync: INSERT INTO &quot;&lt;t&gt;&quot;"), "{svg}");
        assert!(svg.contains("<title>of_a (97), client: after SELECT ?"), "{svg}");
        for class in ["c2", "c8"] {
            assert!(svg.contains(&format!("<rect class=\"bars {class}\"")), "{svg}");
        }
        assert_eq!(draw(&Recording::default()), "");
    }
}
