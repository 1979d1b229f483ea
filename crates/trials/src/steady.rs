//! Pairs the leases of two runs without faults, because trials need leases that are the same in every run.

use std::collections::HashMap;

use crate::difference::SteadyRows;
use crate::recording::LeaseRecord;

/// A lease that both runs have at the same position and with the same test.
#[derive(Debug, Clone)]
pub struct SteadyLease {
    /// Number of the lease in each run, from 1.
    pub number: u64,
    /// Name of the test, or of the database if the test has no name. A number such as `(2)` makes duplicates unique.
    pub label: String,
    /// The lease in the first run.
    pub record: LeaseRecord,
    /// The lease in the second run.
    pub(crate) other: LeaseRecord,
    /// Rows at the end of the lease, compared between both runs. `None` if pgfresh couldn't read them.
    pub steady_rows: Option<SteadyRows>,
}

/// Pairs the leases of two runs by position. `ignored` lists tables and columns to leave out: see [`SteadyRows::of`].
/// Also returns how many leases of the first run have no counterpart: the second run has a different test, or no lease,
/// at their position.
#[must_use]
pub fn steady_leases(
    one: Vec<LeaseRecord>,
    other: Vec<LeaseRecord>,
    ignored: &[String],
) -> (Vec<SteadyLease>, usize) {
    let (mut steady, mut unsteady) = (Vec::new(), 0);
    let mut labels = HashMap::<String, usize>::new();
    let mut others = other.into_iter();
    for (place, record) in one.into_iter().enumerate() {
        let Some(other) = others.next().filter(|other| other.test == record.test) else {
            unsteady += 1;
            continue;
        };
        let number = place as u64 + 1;
        let is_named = record.database == other.database;
        let label = record
            .test
            .clone()
            .unwrap_or_else(|| if is_named { record.database.clone() } else { format!("lease {number}") });
        let count = labels.entry(label.clone()).or_default();
        *count += 1;
        let label = if *count == 1 { label } else { format!("{label} ({count})") };
        let steady_rows = record.contents.clone().zip(other.contents.as_ref());
        let steady_rows = steady_rows.map(|(contents, other)| SteadyRows::of(contents, other, ignored));
        steady.push(SteadyLease { number, label, record, other, steady_rows });
    }
    (steady, unsteady)
}
