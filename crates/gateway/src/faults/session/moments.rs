//! Asks for faults at each moment of a statement: before, during and after it.

use contract::FaultMoment;

use super::{FAILOVER, FaultSession};
use crate::faults::fault::FaultEffect;
use crate::faults::lease_faults::Strike;
use crate::faults::statement::{Kind, Statement};

/// Transaction state before a statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct TransactionState {
    /// Transaction status: I, T or E.
    pub(super) status: u8,
    /// Whether statements have run outside a transaction block without being committed yet.
    pub(super) has_work: bool,
}

impl TransactionState {
    pub(super) fn has_failed(self) -> bool {
        self.status == b'E'
    }

    /// Returns true if the statement tries to commit work.
    fn commits(self, kind: Kind) -> bool {
        kind.commits() && (self.status != b'I' || self.has_work)
    }

    /// Returns the state after the statement has run.
    pub(super) fn after(self, kind: Kind) -> Self {
        let idle = Self { status: b'I', has_work: false };
        match kind {
            Kind::Begin | Kind::RollbackTo => Self { status: b'T', ..self },
            Kind::Commit { chain: true } | Kind::Rollback { chain: true } => Self { status: b'T', ..idle },
            Kind::Commit { .. } | Kind::Rollback { .. } | Kind::PrepareTransaction => idle,
            _ if self.status == b'I' => Self { has_work: true, ..self },
            _ => self,
        }
    }

    /// Returns true if an error after the statement couldn't undo it, so that the statement must fail before it runs.
    pub(super) fn must_fail_before(self, kind: Kind) -> bool {
        match kind {
            Kind::Alone | Kind::Begin => true,
            Kind::Call => self.status == b'I',
            kind => kind.commits(),
        }
    }
}

/// An error that the session must plan before the statement runs.
#[derive(Debug)]
pub(super) struct PlannedError {
    pub(super) sqlstate: String,
    /// Whether the statement runs before the error.
    pub(super) is_after: bool,
    /// Whether the transaction fails during its commit.
    pub(super) is_commit: bool,
}

impl PlannedError {
    fn new(effect: &FaultEffect, is_after: bool, is_commit: bool) -> Option<Self> {
        let FaultEffect::Error { sqlstate, .. } = effect else { return None };
        Some(Self { sqlstate: sqlstate.clone(), is_after, is_commit })
    }

    /// Returns an error that replaces a statement and ends the connection.
    pub(super) fn of_end() -> Self {
        Self { sqlstate: FAILOVER.to_owned(), is_after: false, is_commit: false }
    }
}

/// Faults that affect a statement before it runs.
#[derive(Debug, Default)]
pub(super) struct StatementFaults {
    pub(super) error: Option<PlannedError>,
    /// Effect that ends the connection in place of the statement.
    pub(super) before: Option<FaultEffect>,
    /// Effect immediately after the server has received the statement.
    pub(super) during: Option<FaultEffect>,
    /// Delays and bandwidth limits that start before the statement.
    pub(super) slow: Vec<FaultEffect>,
    pub(super) strikes: Strikes,
}

/// Strikes of one statement. The session takes them back if the server doesn't reach the statement.
#[derive(Debug, Default)]
pub(super) struct Strikes {
    pub(super) before: Vec<Strike>,
    /// The strike of a planned error after the statement.
    pub(super) after: Option<Strike>,
}

/// Returns true for an error that doesn't end the session.
pub(super) fn is_plain_error(effect: &FaultEffect) -> bool {
    matches!(effect, FaultEffect::Error { .. }) && !effect.ends_session()
}

pub(super) fn is_slow(effect: &FaultEffect) -> bool {
    matches!(effect, FaultEffect::Delay(_) | FaultEffect::Bandwidth(_))
}

impl FaultSession {
    /// Asks for the faults of a statement that the client wants to run. `is_query` means that the statement is part of
    /// a Query, so the session must also plan errors after the statement.
    pub(super) fn faults_before(
        &self,
        statement: &Statement,
        state: TransactionState,
        is_query: bool,
    ) -> StatementFaults {
        let mut faults = StatementFaults::default();
        let kind = statement.kind;
        if kind == Kind::Fault {
            return faults;
        }
        let commits = state.commits(kind);
        let may_fail = !state.has_failed() && !kind.rolls_back();
        let moments = [
            (FaultMoment::BeforeStatement, true),
            (FaultMoment::BeforeCommit, commits),
            (FaultMoment::Commit, commits),
            (FaultMoment::DuringStatement, true),
        ];
        for (moment, is_candidate) in moments {
            if !is_candidate {
                continue;
            }
            let strike =
                self.faults.strike_if(moment, statement, |effect| may_fail || !is_plain_error(effect));
            let effect = strike.effect.clone();
            faults.strikes.before.push(strike);
            match effect {
                None => {}
                Some(effect @ FaultEffect::Error { .. }) if is_plain_error(&effect) => {
                    faults.error = PlannedError::new(&effect, false, commits);
                    return faults;
                }
                Some(effect) if moment == FaultMoment::DuringStatement => faults.during = Some(effect),
                Some(effect) if is_slow(&effect) => faults.slow.push(effect),
                Some(effect) => {
                    faults.before = Some(effect);
                    return faults;
                }
            }
        }
        let fails_before = state.must_fail_before(kind);
        if may_fail && (is_query || fails_before) {
            let strike = self.faults.strike_if(FaultMoment::AfterStatement, statement, is_plain_error);
            let effect = strike.effect.as_ref();
            faults.error = effect.and_then(|effect| PlannedError::new(effect, !fails_before, commits));
            faults.strikes.after = Some(strike);
        }
        faults
    }

    /// Takes back the strikes of statements that haven't run.
    pub(super) fn take_back(&self, strikes: &[Strikes]) {
        for Strikes { before, after } in strikes {
            for strike in before.iter().chain(after) {
                self.faults.take_back(strike);
            }
        }
    }

    /// Asks for the faults of a statement that has run. `may_fail` means that the statement can still fail.
    pub(super) fn faults_after(
        &self,
        statement: &Statement,
        has_committed: bool,
        may_fail: bool,
    ) -> Vec<FaultEffect> {
        if statement.kind == Kind::Fault {
            return Vec::new();
        }
        let is_possible = |effect: &FaultEffect| may_fail || !is_plain_error(effect);
        let strike = |moment| self.faults.strike_if(moment, statement, is_possible).effect;
        let after = strike(FaultMoment::AfterStatement);
        let goes_on = after.as_ref().is_none_or(is_slow);
        let after_commit = if has_committed && goes_on { strike(FaultMoment::AfterCommit) } else { None };
        after.into_iter().chain(after_commit).collect()
    }
}
