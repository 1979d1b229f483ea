//! Decides where trials inject faults: which fault, at which statement, in which lease.

use std::fmt;

use contract::FaultRequest;
use pgwire::{StatementKind, begins_with, has_words, matches_pattern, statement_pattern};

use crate::effect::QueryEffect;
use crate::moment::Moment;
use crate::recording::{LeaseRecord, RanStatement};
use crate::steady::SteadyLease;

/// Maximum length of a pattern in bytes. A number distinguishes statements with the same pattern.
const PATTERN: usize = 70;

/// A fault that a trial injects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TriedFault {
    /// The connection is lost before the server runs the statement.
    LostBefore,
    /// The connection is lost before the client receives the statement's result, although the server has run the
    /// statement.
    LostAfter,
    /// The statement fails with a serialization failure, as in a concurrent transaction under SERIALIZABLE.
    Serialization,
    /// The statement fails because its transaction was the victim of a deadlock.
    Deadlock,
    /// The statement is canceled, as after a cancel request or a statement timeout.
    Timeout,
}

impl TriedFault {
    /// Returns the SQLSTATE, or `None` for a lost connection.
    #[must_use]
    pub fn sqlstate(self) -> Option<&'static str> {
        match self {
            Self::LostBefore | Self::LostAfter => None,
            Self::Serialization => Some("40001"),
            Self::Deadlock => Some("40P01"),
            Self::Timeout => Some("57014"),
        }
    }

    /// Returns a phrase for reports that follows the statement's text.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::LostBefore => "connection lost before it",
            Self::LostAfter => "connection lost after it",
            Self::Serialization => "40001, serialization failure",
            Self::Deadlock => "40P01, deadlock",
            Self::Timeout => "57014, query canceled",
        }
    }
}

impl fmt::Display for TriedFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::LostBefore => "lost before",
            Self::LostAfter => "lost after",
            _ => self.sqlstate().unwrap_or_default(),
        })
    }
}

/// One fault at one statement of one lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// Label of the lease.
    pub label: String,
    /// Number of the lease in its run, from 1. Leases are numbered in the order of their first sessions.
    pub lease: u64,
    /// Pattern of the statement.
    pub pattern: String,
    /// Number of this statement among the lease's statements that match the pattern, from 1.
    pub nth: u64,
    /// Number of this statement among the fault's candidates, from 1. The candidates depend on when the fault happens
    /// (before or after a statement, or at COMMIT), so this number can differ from `nth`.
    pub candidate: u64,
    /// The fault to inject.
    pub fault: TriedFault,
    /// Pattern of a statement that runs again if the application retries: the statement itself or, for a COMMIT, the
    /// last write in its transaction.
    pub witness: String,
    class: Class,
}

/// Effect of a statement, which determines the faults to try on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Commit,
    /// A write outside of a transaction, which the server commits immediately.
    LoneWrite,
    Write,
    Read,
    /// A read in a transaction, which can get a serialization failure.
    ReadInTransaction,
}

impl Class {
    /// Returns the statement's class, or `None` if the trials skip the statement.
    fn of(statement: &RanStatement) -> Option<Self> {
        let RanStatement { text, kind, in_transaction, .. } = statement;
        let writes = match kind {
            StatementKind::Commit => {
                let commits = *in_transaction && !statement.is_rolled_back_commit();
                return commits.then_some(Self::Commit);
            }
            StatementKind::Insert
            | StatementKind::Update
            | StatementKind::Delete
            | StatementKind::Truncate => true,
            StatementKind::Copy => {
                !has_words(text, &["to"]) || QueryEffect::of(text) == QueryEffect::MayWrite
            }
            StatementKind::Select => match QueryEffect::of(text) {
                QueryEffect::LookUp => return None,
                effect => effect == QueryEffect::MayWrite,
            },
            StatementKind::Other => {
                if !begins_with(text, &["call", "do", "execute"]) {
                    return None;
                }
                true
            }
            _ => return None,
        };
        Some(match (writes, in_transaction) {
            (true, true) => Self::Write,
            (true, false) => Self::LoneWrite,
            (false, true) => Self::ReadInTransaction,
            (false, false) => Self::Read,
        })
    }

    /// Returns the moment at which the gateway injects `fault` into a statement of this class.
    fn moment(self, fault: TriedFault) -> Moment {
        match (fault, self) {
            (TriedFault::LostBefore, Self::Commit) => Moment::BeforeCommit,
            (TriedFault::LostAfter, Self::Commit) => Moment::AfterCommit,
            (_, Self::Commit) => Moment::Commit,
            (TriedFault::LostBefore, _) => Moment::LossBeforeStatement,
            (TriedFault::LostAfter, _) => Moment::AfterStatement,
            _ => Moment::ErrorBeforeStatement,
        }
    }

    fn faults(self) -> &'static [TriedFault] {
        use TriedFault::{Deadlock, LostAfter, LostBefore, Serialization, Timeout};
        match self {
            Self::Commit => &[LostAfter, Serialization, LostBefore],
            Self::LoneWrite => &[LostAfter, Serialization, LostBefore, Timeout, Deadlock],
            Self::Write => &[Serialization, LostBefore, Timeout, Deadlock],
            Self::ReadInTransaction => &[LostBefore, Serialization, Timeout],
            Self::Read => &[LostBefore, Timeout],
        }
    }
}

impl Point {
    /// Returns the API request that injects this fault.
    #[must_use]
    pub fn request(&self) -> FaultRequest {
        FaultRequest {
            error: self.fault.sqlstate().map(str::to_owned),
            connection: self.fault.sqlstate().is_none().then(|| "reset".to_owned()),
            at: Some(self.class.moment(self.fault).of_api().to_string()),
            statement: Some(self.pattern.clone()),
            nth: Some(self.candidate),
            ..FaultRequest::default()
        }
    }

    /// Returns true if the statement writes, or if it commits earlier writes.
    #[must_use]
    pub fn writes(&self) -> bool {
        matches!(self.class, Class::Commit | Class::LoneWrite | Class::Write)
    }

    /// Returns the statement's pattern, with a number such as `#2` unless it is the first match.
    #[must_use]
    pub fn statement(&self) -> String {
        match self.nth {
            1 => self.pattern.clone(),
            nth => format!("{} #{nth}", self.pattern),
        }
    }

    /// Returns the name that selects all faults at this statement with `--only`.
    #[must_use]
    pub fn name_of_all(&self) -> String {
        format!("{}:{}", self.label, self.statement())
    }

    /// Returns the names that select this point with `--only`: the names of its test, its statement, and the point
    /// itself.
    fn names(&self) -> [String; 3] {
        [self.label.clone(), self.name_of_all(), self.to_string()]
    }

    /// Returns true if both points are at the same statement of the same lease.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        (&self.label, &self.pattern, self.nth) == (&other.label, &other.pattern, other.nth)
    }

    /// Returns the rank of the point. Trials try the lowest ranks first, which are faults that can lose or double rows.
    fn rank(&self) -> (u8, u64) {
        use TriedFault::{Deadlock, LostAfter, LostBefore, Serialization, Timeout};
        let tier = match (self.class, self.fault) {
            (Class::Commit | Class::LoneWrite, LostAfter) => 0,
            (Class::Commit, _) => 1,
            (Class::LoneWrite | Class::Write, Serialization | LostBefore) => 2,
            (Class::Read | Class::ReadInTransaction, LostBefore | LostAfter) => 3,
            (Class::LoneWrite | Class::Write, Timeout) => 4,
            (Class::LoneWrite | Class::Write, Deadlock | LostAfter) => 5,
            (Class::Read | Class::ReadInTransaction, Serialization | Timeout | Deadlock) => 6,
        };
        (tier, self.nth)
    }
}

impl fmt::Display for Point {
    /// Writes the name that selects this point with `--only`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}:{}", self.label, self.statement(), self.fault)
    }
}

/// Returns all points of the leases, those that are most likely to reveal a problem first. Also returns how many
/// statements differ between the two runs.
#[must_use]
pub fn points<'a>(leases: impl IntoIterator<Item = &'a SteadyLease>) -> (Vec<Point>, usize) {
    let (mut all, mut unsteady) = (Vec::new(), 0);
    for lease in leases {
        for (place, statement) in lease.record.statements.iter().enumerate() {
            let Some(class) = Class::of(statement).filter(|_| statement.is_done()) else { continue };
            let (of_statement, is_steady) = points_of(lease, place, class);
            all.extend(of_statement);
            unsteady += usize::from(!is_steady);
        }
    }
    all.sort_by_key(Point::rank);
    (all, unsteady)
}

/// Returns the points at the statement with index `place`, and whether both runs have all candidates of these points.
fn points_of(lease: &SteadyLease, place: usize, class: Class) -> (Vec<Point>, bool) {
    let statement = &lease.record.statements[place];
    let pattern = statement_pattern(&statement.text, PATTERN);
    let count = |statements: &[RanStatement], moment: Moment| {
        let is_like = |other: &&RanStatement| moment.counts(other) && matches_pattern(&pattern, &other.text);
        statements.iter().filter(is_like).count() as u64
    };
    let until = &lease.record.statements[..=place];
    let named_by = if class == Class::Commit { Moment::Commit } else { Moment::ErrorBeforeStatement };
    let (nth, mut is_steady) = (count(until, named_by).max(1), true);
    let witness =
        if class == Class::Commit { last_write(&lease.record, place) } else { Some(pattern.clone()) };
    let mut found = Vec::new();
    for fault in class.faults() {
        let moment = class.moment(*fault);
        let candidate = count(until, moment);
        if !moment.counts(statement) {
            continue;
        }
        if count(&lease.other.statements, moment) < candidate {
            is_steady = false;
            continue;
        }
        // A COMMIT without a preceding write can't lose anything, so skip it.
        let Some(witness) = witness.clone() else { continue };
        let (label, pattern) = (lease.label.clone(), pattern.clone());
        found.push(Point {
            label,
            lease: lease.number,
            pattern,
            nth,
            candidate,
            fault: *fault,
            witness,
            class,
        });
    }
    (found, is_steady)
}

/// Returns the pattern of the last write in the transaction that the statement at index `place` ends.
fn last_write(lease: &LeaseRecord, place: usize) -> Option<String> {
    let session = lease.statements[place].session;
    let before = lease.statements[..place].iter().rev().filter(|statement| statement.session == session);
    let within = before.take_while(|statement| statement.in_transaction);
    let mut writes = within.filter(|statement| Class::of(statement) == Some(Class::Write));
    writes.next().map(|statement| statement_pattern(&statement.text, PATTERN))
}

/// Returns the points that `wanted` selects, or all points if `wanted` is empty. A name selects the test, statement or
/// fault with exactly this name. If none exists, the name selects all points whose names begin with it.
///
/// # Errors
/// Returns the first name that doesn't select a point.
pub fn chosen<'a>(points: &[Point], wanted: &'a [String]) -> Result<Vec<Point>, &'a str> {
    if wanted.is_empty() {
        return Ok(points.to_vec());
    }
    let mut is_chosen = vec![false; points.len()];
    for name in wanted {
        let mut meant: Vec<_> = points.iter().map(|point| point.names().contains(name)).collect();
        if !meant.contains(&true) {
            meant = points.iter().map(|point| point.to_string().starts_with(name.as_str())).collect();
        }
        if !meant.contains(&true) {
            return Err(name);
        }
        is_chosen.iter_mut().zip(meant).for_each(|(chosen, meant)| *chosen |= meant);
    }
    Ok(points.iter().zip(is_chosen).filter(|(_, chosen)| *chosen).map(|(point, _)| point.clone()).collect())
}

/// Returns true if `wanted` can select a point of the test named `test`.
#[must_use]
pub fn may_mean(wanted: &str, test: &str) -> bool {
    test.starts_with(wanted) || wanted.strip_prefix(test).is_some_and(|rest| rest.starts_with([':', ' ']))
}

#[cfg(test)]
mod tests;
