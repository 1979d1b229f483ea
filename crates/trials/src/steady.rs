//! Leases that two runs without faults have in common.

use std::collections::HashMap;

use crate::difference::SteadyRows;
use crate::recording::LeaseRecord;

/// A lease that both runs have at one position, with one test.
#[derive(Debug, Clone)]
pub struct SteadyLease {
    /// Number of the lease in each run, from 1.
    pub number: u64,
    /// Name of the test, or of the database, unique among the leases.
    pub label: String,
    /// The lease in the first run.
    pub record: LeaseRecord,
    /// The lease in the second run.
    pub(crate) other: LeaseRecord,
    /// Rows at the end of both runs. `None` if pgfresh could not read them.
    pub steady_rows: Option<SteadyRows>,
}

/// Pairs the leases of two runs by their positions. `ignored` are tables and columns to leave out: see
/// [`SteadyRows::of`]. Also returns the number of leases of the first run for which the second run has no lease of this test
/// at this position.
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
