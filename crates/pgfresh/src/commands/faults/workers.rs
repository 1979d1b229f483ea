//! Runs the command with each fault, several runs at a time.

use trials::{FaultyRun, FindingKind, Judgement, Point, RunEnd, Stuck, judge, stuck};

use super::child::CommandEnd;
use super::parallel::in_parallel;
use super::progress::TrialsProgress;
use super::run_gate::RunGate;
use super::runner::{Purpose, Runner};
use super::targets::{Targets, fault_of};
use crate::failure::Failure;

/// Number of bytes to keep from the end of a finding's output.
const OUTPUT: usize = 4000;

/// Runs the command with faults on several threads.
#[derive(Clone, Copy)]
pub(super) struct Workers<'a> {
    pub(super) runner: &'a Runner<'a>,
    pub(super) gate: &'a RunGate<'a>,
    pub(super) targets: &'a Targets,
    pub(super) jobs: usize,
    pub(super) progress: &'a TrialsProgress,
}

/// Result for a point.
#[derive(Debug)]
pub(super) enum Verdict {
    /// A judgement. If it is a finding, a second run has confirmed it.
    Judged(Judgement),
    /// A finding that didn't recur in the second run.
    Unconfirmed(FindingKind),
    /// A finding whose second run couldn't begin.
    SeenOnce(FindingKind),
    /// The command didn't run with this fault.
    NotRun,
}

/// A point with its result.
#[derive(Debug)]
pub(super) struct TriedPoint {
    pub(super) point: Point,
    pub(super) verdict: Verdict,
    /// The end of the command's output.
    pub(super) output: String,
}

impl Workers<'_> {
    /// Tries the points in order until the gate closes.
    pub(super) fn try_all(self, points: &[Point]) -> Vec<TriedPoint> {
        let (mut done, mut findings) = (0, 0);
        self.progress.show(done, points.len(), findings);
        let mut tried = in_parallel(
            self.jobs,
            points,
            |point| self.try_point(point),
            |result| {
                done += usize::from(!matches!(result.verdict, Verdict::NotRun));
                findings += usize::from(result.is_finding());
                self.progress.show(done, points.len(), findings);
            },
        );
        self.compare_with_retries(&mut tried);
        tried
    }

    /// Tries a point. If the run leads to a finding, tries the point a second time to confirm the finding.
    fn try_point(self, point: &Point) -> TriedPoint {
        let (first, output) = self.judged(point, Purpose::Try).unzip();
        let verdict = match first {
            None => Verdict::NotRun,
            Some(Judgement::Finding(kind)) => match self.judged(point, Purpose::Confirm) {
                None => Verdict::SeenOnce(kind),
                Some((Judgement::Finding(other), _)) if other.name() == kind.name() => {
                    Verdict::Judged(Judgement::Finding(kind))
                }
                Some(_) => Verdict::Unconfirmed(kind),
            },
            Some(judgement) => Verdict::Judged(judgement),
        };
        TriedPoint { point: point.clone(), verdict, output: output.unwrap_or_default() }
    }

    /// Compares lost connections with serialization failures at the same statement. If the application retries after
    /// the serialization failure but fails after the lost connection without opening a new connection, the failure
    /// becomes a finding. Second runs of both faults must confirm the finding.
    fn compare_with_retries(self, tried: &mut [TriedPoint]) {
        let judged = tried.iter().enumerate().filter_map(|(place, one)| Some((place, one.judged()?)));
        let (places, judged): (Vec<_>, Vec<_>) = judged.unzip();
        let found = stuck(&judged);
        let confirm = |stuck: &Stuck| {
            let again = |place: usize| Some(self.judged(judged[place].0, Purpose::Confirm)?.0);
            Some(Stuck::is_shown_by(&again(stuck.retry)?, &again(stuck.loss)?))
        };
        let confirmed = in_parallel(self.jobs, &found, confirm, |_| ());
        let places: Vec<_> = found.iter().map(|stuck| places[stuck.loss]).collect();
        for (place, confirmed) in places.into_iter().zip(confirmed) {
            let kind = FindingKind::NoConnection;
            tried[place].verdict = match confirmed {
                Some(true) => Verdict::Judged(Judgement::Finding(kind)),
                Some(false) => Verdict::Unconfirmed(kind),
                None => Verdict::SeenOnce(kind),
            };
        }
    }

    /// Runs the command with a fault and judges the run. Returns `None` if the run couldn't begin or if a signal ended
    /// it. `purpose` builds the run's purpose from the lease's number and the fault.
    fn judged(
        self,
        point: &Point,
        purpose: impl Fn(u64, gateway::Fault) -> Purpose,
    ) -> Option<(Judgement, String)> {
        if self.gate.closed().is_some() {
            return None;
        }
        match self.run(point, purpose) {
            Ok(judged) => judged,
            Err(failure) => {
                self.gate.fail(failure);
                None
            }
        }
    }

    fn run(
        self,
        point: &Point,
        purpose: impl Fn(u64, gateway::Fault) -> Purpose,
    ) -> Result<Option<(Judgement, String)>, Failure> {
        let Some((target, lease)) = self.targets.of(point) else { return Ok(None) };
        let purpose = purpose(point.lease, fault_of(point)?);
        let mut run = self.runner.run(&target.words, &purpose, Some(target.limit))?;
        let end = match run.end {
            CommandEnd::Exited(0) => RunEnd::Passed,
            CommandEnd::Exited(_) => RunEnd::Failed,
            CommandEnd::TimedOut => RunEnd::TimedOut(target.limit),
            CommandEnd::Interrupted => return Ok(None),
        };
        let fired = run.fault.as_ref().and_then(|fault| fault.since);
        let faulty = FaultyRun { end, fired, lease: run.take_hit_lease() };
        let judgement = judge(point, lease.steady_rows.as_ref(), &faulty);
        Ok(Some((judgement, end_of(run.output))))
    }
}

impl TriedPoint {
    fn is_finding(&self) -> bool {
        matches!(self.verdict, Verdict::Judged(Judgement::Finding(_)))
    }

    fn judged(&self) -> Option<(&Point, &Judgement)> {
        match &self.verdict {
            Verdict::Judged(judgement) => Some((&self.point, judgement)),
            _ => None,
        }
    }
}

fn end_of(mut output: String) -> String {
    let start = output.ceil_char_boundary(output.len().saturating_sub(OUTPUT));
    output.split_off(start)
}
