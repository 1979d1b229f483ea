//! Judges a run with a fault.

use std::time::{Duration, Instant};

use pgwire::matches_pattern;

use crate::difference::{DifferenceKind, SteadyRows, TableDifference};
use crate::points::{Point, TriedFault};
use crate::recording::LeaseRecord;

/// Minimum number of statements that fail with 25P02 after a fault. A single one can be part of a cleanup.
const FAILED_STATEMENTS: usize = 2;

/// How a run with a fault ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// The command succeeded.
    Passed,
    /// The command failed.
    Failed,
    /// pgfresh ended the command after this time.
    TimedOut(Duration),
}

/// A run with a fault.
#[derive(Debug, Clone)]
pub struct FaultyRun {
    /// How the command ended.
    pub end: RunEnd,
    /// When the fault fired. `None` if it did not fire.
    pub fired: Option<Instant>,
    /// The lease with the fault. `None` if the fault did not fire.
    pub lease: Option<LeaseRecord>,
}

/// The result of a run with a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// The fault did not fire.
    NotReached,
    /// The command passes, and the rows are those of a run without faults.
    Recovered,
    /// The command passes, and the rows could not be compared.
    Passed,
    /// The command fails, so the error reaches the test.
    Shown {
        /// Whether the application opened a new session of the lease after the fault.
        reconnects: bool,
    },
    /// The application does not cope with the fault.
    Finding(FindingKind),
}

/// How an application does not cope with a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FindingKind {
    /// The command did not end within this time.
    Hangs(Duration),
    /// The command passes, although rows differ.
    Rows {
        /// Differences, by table.
        differences: Vec<TableDifference>,
        /// Whether the application hides the error: rows of the failed statement are missing, and the statement never ran
        /// again.
        is_hidden: bool,
    },
    /// The command fails, and a retry has doubled the rows of these tables.
    Doubles(Vec<TableDifference>),
    /// The command fails, and so many statements after the fault got 25P02, because their transaction had failed.
    FailedTransaction(usize),
    /// The application retries after a serialization failure, and opens no other connection after the loss of one.
    NoConnection,
}

/// Judges a run with a fault at `point`.
#[must_use]
pub fn judge(point: &Point, steady_rows: Option<&SteadyRows>, run: &FaultyRun) -> Judgement {
    let (Some(fired), Some(lease)) = (run.fired, &run.lease) else { return Judgement::NotReached };
    let differences = steady_rows.zip(lease.contents.as_ref()).map(|(clean, found)| clean.differences(found));
    let later = || lease.statements.iter().filter(|statement| statement.sent > fired);
    let is_retried =
        later().any(|statement| statement.is_done() && matches_pattern(&point.witness, &statement.text));
    match (run.end, differences) {
        (RunEnd::TimedOut(time), _) => Judgement::Finding(FindingKind::Hangs(time)),
        (RunEnd::Passed, None) => Judgement::Passed,
        (RunEnd::Passed, Some(differences)) if differences.is_empty() => Judgement::Recovered,
        (RunEnd::Passed, Some(differences)) => {
            let is_undone = point.writes() && point.fault != TriedFault::LostAfter;
            let loses = differences
                .iter()
                .any(|difference| matches!(difference.kind, DifferenceKind::Lost | DifferenceKind::Changed));
            let is_hidden = is_undone && loses && !is_retried;
            Judgement::Finding(FindingKind::Rows { differences, is_hidden })
        }
        (RunEnd::Failed, differences) => {
            let failed = later().filter(|statement| statement.sqlstate() == Some("25P02")).count();
            if failed >= FAILED_STATEMENTS {
                return Judgement::Finding(FindingKind::FailedTransaction(failed));
            }
            let mut doubled = differences.unwrap_or_default();
            doubled.retain(|difference| difference.kind == DifferenceKind::Doubled);
            if is_retried && point.writes() && !doubled.is_empty() {
                return Judgement::Finding(FindingKind::Doubles(doubled));
            }
            Judgement::Shown { reconnects: lease.sessions.iter().any(|began| *began > fired) }
        }
    }
}

/// Two points at one statement that show that the application does not connect again: it retries after a serialization
/// failure, but fails without a new session after a lost connection. The places are positions in the list for [`stuck`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stuck {
    /// Place of the point with the serialization failure, after which the retry worked.
    pub retry: usize,
    /// Place of the point with the lost connection.
    pub loss: usize,
}

impl Stuck {
    /// Returns true if the results of these two points show that the application does not connect again.
    #[must_use]
    pub fn is_shown_by(retry: &Judgement, loss: &Judgement) -> bool {
        (retry, loss) == (&Judgement::Recovered, &Judgement::Shown { reconnects: false })
    }
}

/// Finds the lost connections after which the application does not connect again, each with the retry that proves it.
#[must_use]
pub fn stuck(judged: &[(&Point, &Judgement)]) -> Vec<Stuck> {
    let of_loss = |(loss, (point, judgement)): (usize, &(&Point, &Judgement))| {
        point.fault.sqlstate().is_none().then_some(())?;
        let is_retry = |(other, end): &(&Point, &Judgement)| {
            let is_same = other.fault == TriedFault::Serialization && other.is_beside(point);
            is_same && Stuck::is_shown_by(end, judgement)
        };
        judged.iter().position(is_retry).map(|retry| Stuck { retry, loss })
    };
    judged.iter().enumerate().filter_map(of_loss).collect()
}

impl FindingKind {
    /// Returns the name of the kind in JSON reports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hangs(_) => "hang",
            Self::Rows { is_hidden: true, .. } => "hidden_error",
            Self::Rows { differences, .. } => match differences.iter().map(|one| one.kind).min() {
                Some(DifferenceKind::Doubled) => "doubled_rows",
                Some(DifferenceKind::Surplus) => "surplus_rows",
                Some(DifferenceKind::Lost) => "lost_rows",
                Some(DifferenceKind::Changed) | None => "changed_rows",
            },
            Self::Doubles(_) => "doubled_rows_failed",
            Self::FailedTransaction(_) => "failed_transaction",
            Self::NoConnection => "no_connection",
        }
    }

    /// Returns the name for `--only` with which pgfresh repeats the finding.
    #[must_use]
    pub fn name_to_repeat(&self, point: &Point) -> String {
        match self {
            // The finding follows from several faults of the statement.
            Self::NoConnection => point.name_of_all(),
            _ => point.to_string(),
        }
    }

    /// Returns the finding in a sentence without a full stop.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::Hangs(time) => format!("hangs: it does not end within {} s", time.as_secs()),
            Self::Rows { differences, is_hidden: true } => {
                format!("hides the error: the test passes, and the statement never runs again; {}", list(differences))
            }
            Self::Rows { differences, .. } => {
                let word = match self.name() {
                    "doubled_rows" => "doubles rows",
                    "surplus_rows" => "adds rows",
                    "lost_rows" => "loses rows",
                    _ => "changes rows",
                };
                format!("{word}, and the test passes: {}", list(differences))
            }
            Self::Doubles(differences) => format!("doubles rows, and the test fails: {}", list(differences)),
            Self::FailedTransaction(count) => {
                format!("goes on in the failed transaction: {count} more statements fail with 25P02")
            }
            Self::NoConnection => {
                "does not connect again: it retries after 40001 here, and fails without a new connection after this \
                 loss"
                    .to_owned()
            }
        }
    }

    /// Returns the differences of rows, or none for a finding without them.
    #[must_use]
    pub fn differences(&self) -> &[TableDifference] {
        match self {
            Self::Rows { differences, .. } | Self::Doubles(differences) => differences,
            _ => &[],
        }
    }
}

fn list(differences: &[TableDifference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join(". ")
}

#[cfg(test)]
mod tests;
