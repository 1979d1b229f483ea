//! Runs the command with each fault, several at the same time.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sweep::{FaultyRun, FindingKind, Judgement, Point, RunEnd, judge};

use super::child::CommandEnd;
use super::parallel::in_parallel;
use super::progress::SweepProgress;
use super::runner::Runner;
use super::targets::{Targets, fault_of};
use crate::failure::Failure;

/// Maximum length of a finding's output, in bytes from the end.
const OUTPUT: usize = 4000;

/// A point with its result.
#[derive(Debug)]
pub(super) struct JudgedPoint {
    pub(super) point: Point,
    /// `None` if a second run did not confirm the finding.
    pub(super) judgement: Option<Judgement>,
    /// End of the command's output.
    pub(super) output: String,
}

/// Runs the points in their order until the budget is spent or a signal arrives. Returns the results of those that ran.
pub(super) fn run(
    runner: &Runner<'_>,
    targets: &Targets,
    points: &[Point],
    jobs: usize,
    budget: Duration,
    progress: &SweepProgress,
) -> Result<Vec<JudgedPoint>, Failure> {
    let (end, total) = (Instant::now() + budget, points.len());
    let (mut done, mut findings) = (0, 0);
    progress.show(done, total, findings);
    let work = |point: &Point| {
        let is_over = Instant::now() > end || runner.cancelled.load(Ordering::Relaxed);
        if is_over { Ok(None) } else { run_point(runner, targets, point.clone()) }
    };
    let judged = in_parallel(jobs, points, work, |result| {
        if let Some(result) = result {
            done += 1;
            findings += usize::from(result.is_finding());
            progress.show(done, total, findings);
        }
    })?;
    Ok(judged.into_iter().flatten().collect())
}

impl JudgedPoint {
    fn is_finding(&self) -> bool {
        matches!(self.judgement, Some(Judgement::Finding(_)))
    }
}

/// Runs a point, and once more if there is a finding. Returns `None` if a signal has ended the command.
fn run_point(runner: &Runner<'_>, targets: &Targets, point: Point) -> Result<Option<JudgedPoint>, Failure> {
    let Some((first, output)) = judged(runner, targets, &point)? else { return Ok(None) };
    let Judgement::Finding(kind) = &first else {
        return Ok(Some(JudgedPoint { point, judgement: Some(first), output }));
    };
    let Some((second, _)) = judged(runner, targets, &point)? else { return Ok(None) };
    let is_confirmed = matches!(&second, Judgement::Finding(other) if is_like(kind, other));
    let judgement = is_confirmed.then_some(first);
    Ok(Some(JudgedPoint { point, judgement, output }))
}

/// Returns true if both findings are of the same kind.
fn is_like(one: &FindingKind, other: &FindingKind) -> bool {
    one.name() == other.name()
}

fn judged(
    runner: &Runner<'_>,
    targets: &Targets,
    point: &Point,
) -> Result<Option<(Judgement, String)>, Failure> {
    let Some((target, lease)) = targets.of(point) else { return Ok(None) };
    let fault = fault_of(point)?;
    let mut run = runner.run(&target.words, Some((point.lease, fault)), Some(target.limit))?;
    let end = match run.end {
        CommandEnd::Exited(0) => RunEnd::Passed,
        CommandEnd::Exited(_) => RunEnd::Failed,
        CommandEnd::TimedOut => RunEnd::TimedOut(target.limit),
        CommandEnd::Cancelled => return Ok(None),
    };
    let fired = run.fault.as_ref().and_then(|fault| fault.since);
    let faulty = FaultyRun { end, fired, lease: run.take_hit_lease() };
    let judgement = judge(point, lease.steady_rows.as_ref(), &faulty);
    Ok(Some((judgement, end_of(run.output))))
}

fn end_of(mut output: String) -> String {
    let start = output.ceil_char_boundary(output.len().saturating_sub(OUTPUT));
    output.split_off(start)
}
