//! Contains the rules for transactions: which locks they hold and for how long, and how many rows they change.

use std::time::Duration;

use super::advice;
use super::change::{RowShare, SchemaChange};
use super::cursor::SqlName;
use super::facts::Facts;
use crate::{AdviceTopic, LockMode, RelationLock, StatementAdvice};

/// Number of rows that a statement may change in one transaction without advice, whatever its conditions are.
const BATCH: u64 = 10_000;

/// Longest `lock_timeout` that still protects the application.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

const LOCK_TIMEOUT: &str = "SET lock_timeout = '2s' before it, and try again after a pause";
const COMMIT_FIRST: &str = "commit before it, and run it in a transaction of its own";
const ONE_TABLE: &str = "change one table in each transaction, or SET lock_timeout";
const NO_TRANSACTION: &str = "switch the tool's transaction off for this migration";
const BATCHES: &str = "change a few thousand rows in each transaction, by ranges of the key";
const COMMIT_BATCHES: &str = "commit after each batch";

/// Returns the advice for what a statement does to its transaction. `is_first` means that no earlier statement of the
/// migration got the advice to set `lock_timeout`.
pub(super) fn advise_transaction(facts: &Facts<'_>, is_first: bool) -> Vec<StatementAdvice> {
    let held = held_during_work(facts).or_else(|| second_lock(facts));
    // The advice about a second lock recommends the timeout too, so don't repeat it.
    let is_named = held.as_ref().is_some_and(|advice| advice.instead == ONE_TABLE);
    let timeout = (is_first && !is_named).then(|| lock_timeout(facts)).flatten();
    [refused(facts), backfill(facts), held, timeout].into_iter().flatten().collect()
}

/// Returns advice for a statement that PostgreSQL refuses in a transaction block.
fn refused(facts: &Facts<'_>) -> Option<StatementAdvice> {
    let danger = "PostgreSQL refuses it in a transaction";
    (facts.error() == Some("25001")).then(|| advice(AdviceTopic::OneTransaction, danger, NO_TRANSACTION))
}

/// Returns advice for a scan or rewrite while the transaction holds a lock from an earlier statement.
fn held_during_work(facts: &Facts<'_>) -> Option<StatementAdvice> {
    if !facts.is_long() || facts.refuses_rows() {
        return None;
    }
    let held = strongest(facts.held())?;
    let danger = format!("{} while its transaction {}", facts.work(), blocking(held));
    Some(advice(AdviceTopic::OneTransaction, danger, COMMIT_FIRST))
}

/// Returns advice for a statement that waits, without a timeout, for a lock on a second table while the transaction
/// blocks a first one.
fn second_lock(facts: &Facts<'_>) -> Option<StatementAdvice> {
    let held = facts.held();
    let first = strongest(held.clone())?;
    let has_held = |lock: &RelationLock| held.iter().any(|held| held.relation == lock.relation);
    let new = facts.locks().into_iter().find(|lock| lock.blocks_writes() && !has_held(lock))?;
    let is_known = held.iter().any(|other| other.relation != first.relation);
    let danger = format!("waits for {} while its transaction {}", new.relation, blocking(first));
    (!facts.has_lock_timeout() && !is_known).then(|| advice(AdviceTopic::OneTransaction, danger, ONE_TABLE))
}

fn strongest(locks: Vec<&RelationLock>) -> Option<&RelationLock> {
    locks.into_iter().rev().max_by_key(|lock| lock.mode)
}

/// Describes what a lock blocks, as in "blocks writes of orders".
fn blocking(lock: &RelationLock) -> String {
    let use_of = if lock.mode == LockMode::AccessExclusive { "reads and writes" } else { "writes" };
    format!("blocks {use_of} of {}", lock.relation)
}

/// Returns advice for a statement that changes many rows in one transaction.
fn backfill(facts: &Facts<'_>) -> Option<StatementAdvice> {
    if facts.refuses_rows() {
        return None;
    }
    let danger = |table: &str| format!("locks all these rows of {table} until its transaction ends");
    let named = if let SchemaChange::WriteRows { table, .. } = facts.change() { Some(table) } else { None };
    if let (rows, Some(table)) = facts.changed(named)
        && rows > BATCH
    {
        return Some(advice(AdviceTopic::Backfill, danger(&table), BATCHES));
    }
    match facts.change() {
        SchemaChange::WriteRows { table, share } if facts.is_old(table) => {
            if *share == RowShare::Unbounded && facts.is_long() {
                return Some(advice(AdviceTopic::Backfill, danger(&table.name), BATCHES));
            }
            (*share == RowShare::Batch && has_batch_before(facts, table)).then(|| {
                advice(AdviceTopic::Backfill, "is a second batch in one transaction", COMMIT_BATCHES)
            })
        }
        SchemaChange::WriteRowsInBlock if facts.is_long() => {
            let table = facts.scanned().into_iter().next()?;
            Some(advice(AdviceTopic::Backfill, danger(&table), BATCHES))
        }
        _ => None,
    }
}

fn has_batch_before(facts: &Facts<'_>, table: &SqlName) -> bool {
    let (before, _) = facts.in_transaction();
    before.into_iter().any(|change| {
        matches!(change, SchemaChange::WriteRows { table: other, share: RowShare::Batch } if other == table)
    })
}

/// Returns advice for a statement that may wait for its lock forever. Every later statement on the table waits behind
/// it.
fn lock_timeout(facts: &Facts<'_>) -> Option<StatementAdvice> {
    let locks = facts.locks();
    let lock = strongest(locks.into_iter().filter(|lock| lock.blocks_writes()).collect())?;
    let table = &lock.relation;
    let danger = match facts.observed().lock_timeout {
        None => format!("no lock_timeout: while it waits for {table}, all later statements wait behind it"),
        Some(timeout) if timeout > LONGEST_WAIT => {
            format!(
                "while it waits for {table}, for up to {} s, all later statements wait behind it",
                timeout.as_secs()
            )
        }
        Some(_) => return None,
    };
    (!facts.is_concurrent()).then(|| advice(AdviceTopic::LockTimeout, danger, LOCK_TIMEOUT))
}

impl Facts<'_> {
    /// Returns true if the session's `lock_timeout` limits the wait enough to protect the application.
    pub(super) fn has_lock_timeout(&self) -> bool {
        self.observed().lock_timeout.is_some_and(|timeout| timeout <= LONGEST_WAIT)
    }
}
