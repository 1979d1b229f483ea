//! Finds the suite's statements that have to wait for a migration's locks.

use std::cmp::Reverse;

use super::needs::{LockReason, NeededLock, StatementNeeds};
use crate::{BlockedStatement, ObservedStatement, RelationLock};

/// Returns the suite's statements that have to wait for a lock of `observed`. Statements that many tests run come
/// first.
///
/// `needs` and `observed` must be from the same database. If a statement waits for several locks, only the most certain
/// one is returned. Of several equally certain locks, this is the strongest one that the migration holds.
#[must_use]
pub fn blocked(needs: &[StatementNeeds], observed: &ObservedStatement) -> Vec<BlockedStatement> {
    let mut waiting: Vec<_> = needs
        .iter()
        .filter_map(|need| {
            let conflicts = need.locks.iter().flat_map(|wanted| {
                let held = observed.locks.iter().filter(move |held| conflict(wanted, held));
                held.map(move |held| (wanted, held))
            });
            let (wanted, held) = conflicts.min_by_key(|(wanted, held)| {
                (&wanted.reason, Reverse(held.mode), Reverse(wanted.mode), &wanted.relation)
            })?;
            Some((need, wanted, held))
        })
        .collect();
    waiting.sort_by_key(|(need, ..)| (Reverse(need.tests.len()), Reverse(need.runs), &need.statement));
    let blocked = waiting.into_iter().map(|(need, wanted, held)| BlockedStatement {
        statement: need.statement.clone(),
        tests: need.tests.clone(),
        relation: wanted.relation.clone(),
        wants: wanted.mode,
        held: held.mode,
        because: Some(&wanted.reason)
            .filter(|reason| **reason != LockReason::Statement)
            .map(ToString::to_string),
    });
    blocked.collect()
}

fn conflict(wanted: &NeededLock, held: &RelationLock) -> bool {
    wanted.relation == held.relation && held.mode.conflicts_with(wanted.mode)
}

#[cfg(test)]
mod tests {
    use plans::{RelationKind, RelationName};

    use super::*;
    use crate::LockMode;

    fn name(name: &str) -> RelationName {
        RelationName { schema: "public".to_owned(), name: name.to_owned() }
    }

    fn need(statement: &str, tests: &[&str], locks: &[(&str, LockReason, LockMode)]) -> StatementNeeds {
        let lock = |(relation, reason, mode): &(&str, LockReason, LockMode)| NeededLock {
            relation: name(relation),
            reason: reason.clone(),
            mode: *mode,
        };
        StatementNeeds {
            statement: statement.to_owned(),
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
            locks: locks.iter().map(lock).collect(),
            ..StatementNeeds::default()
        }
    }

    #[test]
    fn certain_reasons_and_many_tests_come_first() {
        let key = LockReason::ForeignKey("orders_fk".to_owned());
        let needs = [
            need("DELETE", &["a"], &[("orders", key, LockMode::RowShare)]),
            need(
                "INSERT",
                &["a", "b"],
                &[
                    ("customers", LockReason::Partition, LockMode::RowExclusive),
                    ("orders", LockReason::Statement, LockMode::RowExclusive),
                ],
            ),
            need("SELECT", &["c"], &[("items", LockReason::Statement, LockMode::AccessShare)]),
        ];
        let lock =
            |relation: &str, mode| RelationLock { relation: name(relation), kind: RelationKind::Table, mode };
        let observed = ObservedStatement {
            locks: vec![
                lock("customers", LockMode::AccessExclusive),
                lock("items", LockMode::ShareRowExclusive),
                lock("orders", LockMode::Exclusive),
            ],
            ..ObservedStatement::default()
        };
        let found = blocked(&needs, &observed);
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.statement.as_str(), one.relation.name.as_str(), one.held, one.because.as_deref()))
            .collect();
        assert_eq!(
            found,
            [
                ("INSERT", "orders", LockMode::Exclusive, None),
                ("DELETE", "orders", LockMode::Exclusive, Some("by the foreign key orders_fk")),
            ]
        );
    }
}
