//! Collects the observed statements and assigns them to transactions.

use std::time::Instant;

use crate::{Observations, ObservedStatement, RelationLock};

/// A session's transaction that is still open.
#[derive(Debug)]
struct OpenTransaction {
    number: usize,
    /// Record numbers of the transaction's statements, each with the time when its request was sent.
    statements: Vec<(usize, Instant)>,
    /// Names of the transaction's savepoints, each with the number of statements before it.
    savepoints: Vec<(String, usize)>,
}

/// Collects the observed statements of all sessions.
#[derive(Debug)]
pub(super) struct Records {
    observations: Observations,
    /// Number of transactions so far.
    transactions: usize,
    /// The open transaction of each session. `None` if the session has none.
    open: Vec<Option<OpenTransaction>>,
}

impl Records {
    pub(super) fn new(sessions: usize) -> Self {
        Self {
            observations: Observations::default(),
            transactions: 0,
            open: (0..sessions).map(|_| None).collect(),
        }
    }

    pub(super) fn finish(self) -> Observations {
        self.observations
    }

    /// Notes something that the laboratory didn't see. Ignores a duplicate.
    pub(super) fn note(&mut self, clause: String) {
        if !self.observations.unseen.contains(&clause) {
            self.observations.unseen.push(clause);
        }
    }

    /// Adds a statement to the open transaction of its session, or to a new transaction if none is open. Returns the
    /// statement's record number. `sent` is the time when its request was sent.
    pub(super) fn add(&mut self, mut statement: ObservedStatement, sent: Instant) -> usize {
        let number = self.observations.statements.len();
        let open = &mut self.open[statement.session];
        if open.is_none() {
            let new = self.transactions;
            self.transactions += 1;
            *open = Some(OpenTransaction { number: new, statements: Vec::new(), savepoints: Vec::new() });
        }
        if let Some(open) = open {
            statement.transaction = open.number;
            open.statements.push((number, sent));
        }
        self.observations.statements.push(statement);
        number
    }

    /// Adds `rest` to a statement whose portal was suspended.
    pub(super) fn complete(&mut self, number: usize, rest: ObservedStatement) {
        let statement = &mut self.observations.statements[number];
        (statement.tag, statement.error) = (rest.tag, rest.error);
        statement.is_unfinished = rest.is_unfinished;
        statement.locks.extend(rest.locks);
        statement.changed.extend(rest.changed);
        for more in rest.scans {
            match statement.scans.iter_mut().find(|scan| scan.relation == more.relation) {
                Some(scan) => {
                    scan.scans += more.scans;
                    scan.rows += more.rows;
                }
                None => statement.scans.push(more),
            }
        }
    }

    /// Adds locks that a statement's transaction takes when it ends.
    pub(super) fn add_locks(&mut self, number: usize, locks: Vec<RelationLock>) {
        let statement = &mut self.observations.statements[number];
        for lock in locks {
            statement.locks.retain(|other| other.relation != lock.relation);
            statement.locks.push(lock);
        }
        statement.locks.sort();
    }

    /// Divides the time of a request equally among its statements.
    pub(super) fn share_time(&mut self, numbers: &[usize], begun: Instant, ended: Instant) {
        let seconds = ended.saturating_duration_since(begun).as_secs_f64();
        let count = u32::try_from(numbers.len()).unwrap_or(u32::MAX).max(1);
        for number in numbers {
            self.observations.statements[*number].seconds += seconds / f64::from(count);
        }
    }

    /// Ends the session's transaction, which held its locks until `at`.
    pub(super) fn end_transaction(&mut self, session: usize, at: Instant) {
        if let Some(open) = self.open[session].take() {
            self.release(&open.statements, at);
        }
    }

    pub(super) fn savepoint(&mut self, session: usize, name: String) {
        if let Some(open) = &mut self.open[session] {
            let before = open.statements.len();
            open.savepoints.push((name, before));
        }
    }

    /// Rolls back to a savepoint, which stays open. The server releases the locks of the later statements at `at`.
    pub(super) fn roll_back_to(&mut self, session: usize, name: &str, at: Instant) {
        let Some(open) = &mut self.open[session] else { return };
        let Some(position) = open.savepoints.iter().rposition(|(one, _)| one == name) else { return };
        open.savepoints.truncate(position + 1);
        let released = open.statements.split_off(open.savepoints[position].1);
        for (number, _) in &released {
            self.observations.statements[*number].is_rolled_back = true;
        }
        self.release(&released, at);
    }

    fn release(&mut self, statements: &[(usize, Instant)], at: Instant) {
        for (number, sent) in statements {
            self.observations.statements[*number].held_seconds =
                at.saturating_duration_since(*sent).as_secs_f64();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn locks_last_to_the_end_or_a_savepoint() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut records = Records::new(2);
        let add = |records: &mut Records, session, seconds| {
            records.add(ObservedStatement { session, ..ObservedStatement::default() }, at(seconds))
        };
        add(&mut records, 0, 0);
        records.savepoint(0, "a".to_owned());
        add(&mut records, 1, 1);
        add(&mut records, 0, 2);
        records.roll_back_to(0, "a", at(5));
        add(&mut records, 0, 6);
        records.end_transaction(0, at(10));
        records.end_transaction(1, at(11));
        add(&mut records, 0, 12);
        records.end_transaction(0, at(12));
        let statements = records.finish().statements;
        let rolled_back: Vec<_> = statements.iter().map(|one| one.is_rolled_back).collect();
        assert_eq!(rolled_back, [false, false, true, false, false]);
        let seen: Vec<_> = statements.iter().map(|one| (one.transaction, one.held_seconds)).collect();
        assert_eq!(seen, [(0, 10.0), (1, 10.0), (0, 3.0), (0, 4.0), (2, 0.0)]);
    }
}
