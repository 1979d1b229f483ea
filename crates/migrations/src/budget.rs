//! Checks a migration against its budgets: how long it may make other sessions wait, and what it may do at all.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use report::as_f64;

use crate::sizes::listed;
use crate::{LockMode, OverMigrationBudget, Prediction, RelationLock, ReportedStatement};

/// Weakest lock mode that makes writers of a table wait.
const BLOCKS_WRITES: LockMode = LockMode::Share;

/// Maximum width of a statement in a message, in columns.
const SHOWN: usize = 60;

/// Limits for a migration, from `[migrate]` in `pgfresh.toml`. `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MigrationBudget {
    /// Maximum time that readers of a table have to wait, because the migration holds ACCESS EXCLUSIVE.
    pub access_exclusive: Option<Duration>,
    /// Maximum time that writers of a table have to wait, because the migration holds SHARE or a stronger mode.
    pub share: Option<Duration>,
    /// Maximum `lock_timeout` for statements that make readers or writers wait. A statement without `lock_timeout`
    /// exceeds this limit.
    pub lock_timeout: Option<Duration>,
    /// Maximum number of tables and materialized views that the migration rewrites.
    pub rewrites: Option<u64>,
    /// Maximum number of statements in the test suite that fail after the migration.
    pub broken_statements: Option<u64>,
}

/// A limit on the time that locks are held.
struct TimeLimit {
    key: &'static str,
    /// Lock modes that the limit applies to.
    modes: RangeInclusive<LockMode>,
    limit: Duration,
}

impl MigrationBudget {
    /// Returns the limits that the migration exceeds. Ignores bookkeeping statements and those with an exception.
    /// A statement that the laboratory did not observe exceeds the limits on locks and rewrites.
    ///
    /// A range exceeds a limit if its high end does. Without a prediction, the time of the migration's own run counts.
    /// That time is a lower bound, because statements that read or rewrite a table take at least as long in production.
    #[must_use]
    pub fn exceeded(&self, statements: &[ReportedStatement]) -> Vec<OverMigrationBudget> {
        let mut over = Vec::new();
        for limit in self.time_limits() {
            over.extend(limit.exceeded(statements));
        }
        over.extend(self.exceeded_lock_timeout(statements));
        over.extend(self.exceeded_rewrites(statements));
        over.extend(self.exceeded_broken_statements(statements));
        over.extend(self.unobserved(statements));
        over.sort_by_key(|over| over.statement);
        over
    }

    /// Returns a sentence if statements lack the prediction that a time limit needs. `has_sizes` means that pgfresh
    /// knows the production table sizes.
    #[must_use]
    pub fn unjudged(&self, statements: &[ReportedStatement], has_sizes: bool) -> Option<String> {
        let keys: Vec<_> = self.time_limits().iter().map(|limit| format!("`{}`", limit.key)).collect();
        let grows = |statement: &&ReportedStatement| {
            let observed = &statement.observed;
            statement.predicted.is_none() && !(observed.scans.is_empty() && observed.rewrites.is_empty())
        };
        let grows = counting(statements).map(|(_, statement)| statement).filter(grows).count();
        (!keys.is_empty() && !has_sizes && grows > 0).then(|| {
            let statements =
                if grows == 1 { "a statement that reads or rewrites" } else { "statements that read or rewrite" };
            format!(
                "{} cannot judge {statements} tables without production's sizes. Give --statistics or --rows.",
                keys.join(" and ")
            )
        })
    }

    /// Returns an entry for each statement that could not be observed, because it may exceed a limit.
    fn unobserved(&self, statements: &[ReportedStatement]) -> Vec<OverMigrationBudget> {
        let limits = [
            ("access_exclusive", self.access_exclusive.is_some()),
            ("share", self.share.is_some()),
            ("lock_timeout", self.lock_timeout.is_some()),
            ("rewrites", self.rewrites.is_some()),
        ];
        let keys: Vec<_> = limits.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key).collect();
        let Some(first) = keys.first() else { return Vec::new() };
        let entry = |(position, statement): (usize, &ReportedStatement)| {
            let cause = statement.observed.unobserved.as_ref()?;
            Some(OverMigrationBudget {
                key: (*first).to_owned(),
                statement: position,
                message: format!(
                    "{} cannot judge \"{}\", which the laboratory did not observe: {cause}",
                    keys.join(" and "),
                    report::cut(&statement.observed.sql, SHOWN)
                ),
            })
        };
        counting(statements).filter_map(entry).collect()
    }

    fn time_limits(&self) -> Vec<TimeLimit> {
        let limit = |key, modes, limit: Duration| TimeLimit { key, modes, limit };
        let exclusive = LockMode::AccessExclusive;
        // If `access_exclusive` is the stricter limit, it already reports locks that block readers. Don't report them
        // for `share` too.
        let is_stricter = self.access_exclusive.is_some_and(|time| Some(time) <= self.share);
        let strongest = if is_stricter { LockMode::Exclusive } else { exclusive };
        let share = self.share.map(|time| limit("share", BLOCKS_WRITES..=strongest, time));
        let exclusive =
            self.access_exclusive.map(|time| limit("access_exclusive", exclusive..=exclusive, time));
        exclusive.into_iter().chain(share).collect()
    }

    fn exceeded_lock_timeout(&self, statements: &[ReportedStatement]) -> Vec<OverMigrationBudget> {
        let Some(limit) = self.lock_timeout else { return Vec::new() };
        let mut transactions = BTreeSet::new();
        let mut over = Vec::new();
        for (position, statement) in counting(statements) {
            let observed = &statement.observed;
            let modes = BLOCKS_WRITES..=LockMode::AccessExclusive;
            let (Some(lock), timeout) = (blocking(&observed.locks, &modes), observed.lock_timeout) else {
                continue;
            };
            let is_within = timeout.is_some_and(|timeout| timeout <= limit);
            if is_within || !transactions.insert((&observed.database, observed.session, observed.transaction))
            {
                continue;
            }
            let limit = format_time(limit);
            let found = match timeout {
                Some(timeout) => format!("is {}", format_time(timeout)),
                None => "is not set".to_owned(),
            };
            over.push(OverMigrationBudget {
                key: "lock_timeout".to_owned(),
                statement: position,
                message: format!(
                    "lock_timeout {found} for {} on {}, the budget is {limit}",
                    lock.mode, lock.relation
                ),
            });
        }
        over
    }

    fn exceeded_rewrites(&self, statements: &[ReportedStatement]) -> Option<OverMigrationBudget> {
        let limit = self.rewrites?;
        let mut names = Vec::new();
        let mut last = 0;
        for (position, statement) in counting(statements) {
            let rewrites = statement.observed.rewrites.iter();
            for rewrite in rewrites.filter(|rewrite| rewrite.table.is_none() && !rewrite.is_emptied) {
                let name = rewrite.relation.to_string();
                if !names.contains(&name) {
                    names.push(name);
                    last = if as_f64(names.len()) <= as_f64(limit) + 1.0 { position } else { last };
                }
            }
        }
        let count = names.len();
        let names = listed(&names);
        (as_f64(count) > as_f64(limit)).then(|| OverMigrationBudget {
            key: "rewrites".to_owned(),
            statement: last,
            message: format!("rewrites is {count} ({names}), the budget is {limit}"),
        })
    }

    fn exceeded_broken_statements(&self, statements: &[ReportedStatement]) -> Option<OverMigrationBudget> {
        let limit = self.broken_statements?;
        let mut broken = BTreeSet::new();
        let mut first = None;
        for (position, statement) in counting(statements) {
            for statement in &statement.breaks {
                broken.insert(&statement.statement);
                first.get_or_insert(position);
            }
        }
        let count = broken.len();
        first.filter(|_| as_f64(count) > as_f64(limit)).map(|statement| OverMigrationBudget {
            key: "broken_statements".to_owned(),
            statement,
            message: format!("broken_statements is {count}, the budget is {limit}"),
        })
    }
}

impl TimeLimit {
    /// Returns an entry for each transaction that exceeds the limit, with the longest of its times.
    fn exceeded(&self, statements: &[ReportedStatement]) -> Vec<OverMigrationBudget> {
        let mut worst: Vec<(&ReportedStatement, OverMigrationBudget, f64)> = Vec::new();
        for (position, statement) in counting(statements) {
            let Some(lock) = blocking(&statement.observed.locks, &self.modes) else { continue };
            let held = statement.observed.held_seconds;
            let range = statement.predicted_held.unwrap_or(Prediction { low: held, high: held });
            if range.high <= self.limit.as_secs_f64() {
                continue;
            }
            let over = OverMigrationBudget {
                key: self.key.to_owned(),
                statement: position,
                message: format!(
                    "{} is {range} on {}, the budget is {}",
                    self.key,
                    lock.relation,
                    format_time(self.limit)
                ),
            };
            let is_same = |other: &ReportedStatement| {
                let (a, b) = (&other.observed, &statement.observed);
                (&a.database, a.session, a.transaction) == (&b.database, b.session, b.transaction)
            };
            match worst.iter_mut().find(|(other, ..)| is_same(other)) {
                Some((_, known, high)) if range.high > *high => (*known, *high) = (over, range.high),
                Some(_) => {}
                None => worst.push((statement, over, range.high)),
            }
        }
        worst.into_iter().map(|(_, over, _)| over).collect()
    }
}

/// Returns the statements that count, with their positions: those of the migration itself that have no exception.
fn counting(statements: &[ReportedStatement]) -> impl Iterator<Item = (usize, &ReportedStatement)> {
    statements.iter().enumerate().filter(|(_, one)| !one.is_bookkeeping && one.exception.is_none())
}

/// Returns the strongest lock whose mode is in `modes`. Prefers tables to indexes.
fn blocking<'l>(locks: &'l [RelationLock], modes: &RangeInclusive<LockMode>) -> Option<&'l RelationLock> {
    let blocking = locks.iter().filter(|lock| modes.contains(&lock.mode) && lock.blocks_writes());
    // `max_by_key` returns the last of several equal locks, so reverse the order to get the first.
    blocking.rev().max_by_key(|lock| (!lock.kind.is_index(), lock.mode))
}

/// Formats a time in seconds if it is a whole number of seconds, otherwise in a smaller unit.
fn format_time(time: Duration) -> String {
    if time.subsec_millis() == 0 {
        format!("{} s", time.as_secs())
    } else {
        format!("{} ms", time.as_millis())
    }
}

#[cfg(test)]
mod tests;
