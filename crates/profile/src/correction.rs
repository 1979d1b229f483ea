//! Replaces the sampled times with the gateway's exact times if these are complete.

use std::collections::BTreeMap;

use crate::attribution::{Attribution, TimeAndRuns};
use crate::gateway_times::GatewayTimes;
use crate::recording::Recording;
use crate::time::Time;
use pgwire::StatementKind;
use report::as_f64;

/// Fraction of the time that is too small to matter.
const NEGLIGIBLE_SHARE: f64 = 0.1;

impl Attribution {
    /// Divides the time of `recording`, using the gateway's exact times if there are any.
    #[must_use]
    pub fn of(recording: &Recording) -> Self {
        let sampled = Self::sampled(recording);
        match &recording.exact {
            Some(exact) => correct(exact, sampled, recording),
            None => sampled,
        }
    }
}

/// Returns true if the exact reports cover nearly all sampled sessions.
fn covers(exact: &GatewayTimes, sampled: &Attribution) -> bool {
    !exact.incomplete && sampled.outside_gateway <= NEGLIGIBLE_SHARE * sampled.database.sessions
}

/// Replaces the times in `sampled` with the exact times.
///
/// Only samples show what a statement waits for, so each kind of statement keeps the ratios between its sampled waits.
/// If the exact reports are incomplete, `sampled` is returned unchanged.
fn correct(exact: &GatewayTimes, mut sampled: Attribution, recording: &Recording) -> Attribution {
    if !covers(exact, &sampled) {
        return sampled;
    }
    let (mut kinds, mut statements) = (BTreeMap::<StatementKind, Time>::new(), Vec::new());
    let width = Attribution::usual(&exact.at_once, exact.database.wall);
    for (place, (time, runs)) in &exact.statements {
        kinds.entry(recording.statements.get(*place).kind).or_default().add_time(*time);
        statements.push((*place, spent(*time, *runs)));
    }
    statements.sort_by(|(_, one), (_, other)| other.time.sessions.total_cmp(&one.time.sessions));
    for (kind, time) in &mut kinds {
        *time = time.with_savings_of(sampled.kinds.get(kind).copied().unwrap_or_default(), width);
    }
    let database = exact.database.with_savings_of(sampled.database, width);
    for ((kind, _), time) in &mut sampled.kinds_and_causes {
        *time = time.scale(sampled.kinds[kind], kinds.get(kind).copied().unwrap_or_default());
    }
    sampled.causes.clear();
    for ((_, cause), time) in &sampled.kinds_and_causes {
        sampled.causes.entry(*cause).or_default().add_time(*time);
    }
    let databases = exact.databases.iter().map(|(name, time)| (name.to_string(), *time));
    let mut databases: Vec<_> = databases.collect();
    databases.sort_by(|(_, one), (_, other)| other.sessions.total_cmp(&one.sessions));
    Attribution {
        exact: true,
        syncing: sampled.syncing.scale(sampled.database, database),
        new_files: sampled.new_files.scale(sampled.database, database),
        database,
        in_transaction: exact.in_transaction,
        width,
        max_sessions: exact.at_once.keys().next_back().copied().unwrap_or(0),
        kinds,
        statements,
        databases,
        clean_up: spent(exact.clean_up.0.with_savings_of(sampled.clean_up.time, width), exact.clean_up.1),
        ..sampled
    }
}

fn spent(time: Time, runs: u64) -> TimeAndRuns {
    TimeAndRuns { time, seen: usize::try_from(runs).unwrap_or(usize::MAX), runs: as_f64(runs) }
}
