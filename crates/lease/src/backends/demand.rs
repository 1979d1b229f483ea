//! Learns how many backends a lease needs concurrently, so that pgfresh can start the same number ahead of the
//! template's next lease.
//!
//! Most tests in a suite open as many sessions as the tests before them: one, or a whole pool. Starting a backend ahead
//! of its client costs no more than starting it on demand, but is wasted if no client comes. So pgfresh starts a
//! backend only if at least half of the last leases would have used it. Since backends that are already waiting cost
//! little, pgfresh retains more of those.

use std::collections::{BTreeMap, VecDeque};

use crate::table::ParamsId;

/// How many recent leases to consider. Older ones are forgotten.
const LEASES: usize = 8;
/// Maximum number of backends with the same startup parameters waiting for one lease.
const MOST: usize = 16;

/// Counts the backends used by one lease's sessions, by startup parameters.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    counts: BTreeMap<ParamsId, Count>,
    /// The lease's number in [`Demand`]. `None` until [`Demand::learn`] has first seen the lease.
    number: Option<u64>,
}

#[derive(Debug, Default)]
struct Count {
    now: usize,
    most: usize,
}

impl Usage {
    /// Counts a backend received by a client of the lease.
    pub(crate) fn take(&mut self, params: ParamsId) {
        let count = self.counts.entry(params).or_default();
        count.now += 1;
        count.most = count.most.max(count.now);
    }

    /// Records that a client has left its backend, which can now serve the next one.
    pub(crate) fn give_back(&mut self, params: ParamsId) {
        if let Some(count) = self.counts.get_mut(&params) {
            count.now = count.now.saturating_sub(1);
        }
    }
}

/// Records how many backends the last leases of one template needed.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// For each set of startup parameters, the leases' numbers and how many backends they needed, latest last.
    leases: BTreeMap<ParamsId, VecDeque<(u64, usize)>>,
    last_number: u64,
}

impl Demand {
    /// Learns from a lease whose sessions have all ended. If the lease gets more sessions later, the caller should call
    /// this again. All startup parameters except `expected` are forgotten. Leases without sessions are ignored.
    pub(crate) fn learn(&mut self, usage: &mut Usage, expected: &[ParamsId]) {
        if usage.counts.is_empty() {
            return;
        }
        let number = *usage.number.get_or_insert_with(|| {
            self.last_number += 1;
            self.last_number
        });
        self.leases.retain(|params, _| expected.contains(params));
        for params in expected {
            let most = usage.counts.get(params).map_or(0, |count| count.most);
            let leases = self.leases.entry(*params).or_default();
            match leases.iter_mut().find(|(other, _)| *other == number) {
                Some((_, known)) => *known = most,
                None => leases.push_back((number, most)),
            }
            if leases.len() > LEASES {
                leases.pop_front();
            }
        }
    }

    /// Returns how many backends should wait for the next lease: the largest
    /// number that at least half of the last leases needed, but at least one.
    pub(crate) fn expected(&self, params: ParamsId) -> usize {
        let leases = self.leases.get(&params).into_iter().flatten();
        let mut needed: Vec<usize> = leases.map(|(_, most)| *most).collect();
        needed.sort_unstable();
        needed.get(needed.len() / 2).map_or(1, |most| (*most).clamp(1, MOST))
    }

    /// Returns how many waiting backends to retain: the most that any of the last
    /// leases needed. Returns `None` if no lease with these parameters is on record.
    pub(crate) fn kept(&self, params: ParamsId) -> Option<usize> {
        let most = self.leases.get(&params)?.iter().map(|(_, most)| *most).max()?;
        Some(most.clamp(1, MOST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: ParamsId = ParamsId(1);
    const OTHER: ParamsId = ParamsId(2);

    fn lease_of(sessions: usize) -> Usage {
        let mut usage = Usage::default();
        (0..sessions).for_each(|_| usage.take(POOL));
        usage
    }

    fn after(leases: &[usize]) -> Demand {
        let mut demand = Demand::default();
        for sessions in leases {
            demand.learn(&mut lease_of(*sessions), &[POOL]);
        }
        demand
    }

    #[test]
    fn usage_counts_backends_used_at_once() {
        let mut usage = Usage::default();
        for _ in 0..3 {
            usage.take(POOL);
            usage.give_back(POOL);
        }
        usage.take(POOL);
        usage.take(POOL);
        let mut demand = Demand::default();
        demand.learn(&mut usage, &[POOL]);
        assert_eq!(demand.expected(POOL), 2);
    }

    #[test]
    fn lease_that_goes_on_counts_once() {
        let mut demand = after(&[1, 1]);
        let mut usage = lease_of(2);
        demand.learn(&mut usage, &[POOL]);
        (0..3).for_each(|_| usage.take(POOL));
        (0..LEASES - 3).for_each(|_| demand.learn(&mut lease_of(1), &[POOL]));
        demand.learn(&mut usage, &[POOL]);
        assert_eq!((demand.expected(POOL), demand.kept(POOL)), (1, Some(5)));
    }

    #[test]
    fn half_of_last_leases_decide_what_is_expected() {
        for (leases, expected, kept) in [
            (&[][..], 1, None),
            (&[10], 10, Some(10)),
            (&[1, 10], 10, Some(10)),
            (&[1, 1, 10], 1, Some(10)),
            (&[10, 1, 1, 10], 10, Some(10)),
            (&[5, 3, 4], 4, Some(5)),
            (&[100], MOST, Some(MOST)),
        ] {
            let demand = after(leases);
            assert_eq!((demand.expected(POOL), demand.kept(POOL)), (expected, kept), "{leases:?}");
        }
    }

    #[test]
    fn demand_forgets_old_leases_and_unexpected_parameters() {
        let mut leases = vec![10; 20];
        leases.extend([1; LEASES]);
        let mut demand = after(&leases);
        assert_eq!((demand.expected(POOL), demand.kept(POOL)), (1, Some(1)));
        demand.learn(&mut lease_of(3), &[OTHER]);
        assert_eq!((demand.kept(POOL), demand.kept(OTHER)), (None, Some(1)));
        demand.learn(&mut Usage::default(), &[POOL]);
        assert_eq!(
            (demand.kept(POOL), demand.kept(OTHER)),
            (None, Some(1)),
            "nothing is learned without sessions"
        );
    }
}
