//! Judges how an application handled a fault, from the exit of its command and the rows at the end of the lease.

use std::time::{Duration, Instant};

use pgwire::matches_pattern;

use crate::difference::{DifferenceKind, SteadyRows, TableDifference};
use crate::points::{Point, TriedFault};
use crate::recording::LeaseRecord;

/// Minimum number of statements that fail with 25P02 after a fault to make a finding. A single one can be part of a
/// cleanup.
const FAILED_STATEMENTS: usize = 2;

/// How a run with a fault ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// The command succeeded.
    Passed,
    /// The command failed.
    Failed,
    /// The command exceeded this timeout, so pgfresh ended it.
    TimedOut(Duration),
}

/// Observations from a run with a fault.
#[derive(Debug, Clone)]
pub struct FaultyRun {
    /// How the command ended.
    pub end: RunEnd,
    /// When the fault fired. `None` if it didn't fire.
    pub fired: Option<Instant>,
    /// The lease in which the fault fired. `None` if it didn't fire.
    pub lease: Option<LeaseRecord>,
}

/// The verdict on a run with a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// The fault didn't fire.
    NotReached,
    /// The command passed, and the rows are the same as without faults.
    Recovered,
    /// The command passed, but the rows couldn't be compared.
    Passed,
    /// The command failed, so the error reached the test.
    Shown {
        /// Whether the application opened a new session in the lease after the fault.
        reconnects: bool,
    },
    /// The application mishandled the fault.
    Finding(FindingKind),
}

/// How an application mishandled a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FindingKind {
    /// The command didn't end within this timeout.
    Hangs(Duration),
    /// The command passed although rows differ.
    Rows {
        /// Differences between the rows, by table.
        differences: Vec<TableDifference>,
        /// Whether the application hides the error: rows of the failed statement are missing, and the application never
        /// ran that statement again.
        is_hidden: bool,
    },
    /// The command failed, and a retry doubled the rows of these tables.
    Doubles(Vec<TableDifference>),
    /// The command failed, and this many statements after the fault failed with 25P02, because the application went on
    /// in a failed transaction.
    FailedTransaction(usize),
    /// The application retries after a serialization failure, but doesn't reconnect after a lost connection.
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

/// Two points at the same statement that together show that the application doesn't reconnect: it retries after a
/// serialization failure, but fails without a new session after a lost connection. Both fields are indexes into the
/// list passed to [`stuck`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stuck {
    /// Index of the point with the serialization failure, after which the retry succeeded.
    pub retry: usize,
    /// Index of the point with the lost connection.
    pub loss: usize,
}

impl Stuck {
    /// Returns true if these judgements of two points show that the application doesn't reconnect.
    #[must_use]
    pub fn is_shown_by(retry: &Judgement, loss: &Judgement) -> bool {
        (retry, loss) == (&Judgement::Recovered, &Judgement::Shown { reconnects: false })
    }
}

/// Finds the lost connections after which the application doesn't reconnect. Pairs each of them with the point whose
/// retry succeeded.
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
    /// Returns the finding's kind for JSON reports, such as `hang`.
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

    /// Returns the name that repeats the finding with `--only`.
    #[must_use]
    pub fn name_to_repeat(&self, point: &Point) -> String {
        match self {
            // This finding results from several faults at the same statement, so repeat all of them.
            Self::NoConnection => point.name_of_all(),
            _ => point.to_string(),
        }
    }

    /// Describes the finding in a sentence without a full stop.
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
                format!("continues in the failed transaction: {count} more statements fail with 25P02")
            }
            Self::NoConnection => {
                "does not connect again: it retries after 40001 here, and fails without a new connection after this \
                 loss"
                    .to_owned()
            }
        }
    }

    /// Returns the tables whose rows differ. Empty for findings that don't concern rows.
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
