//! Tracks the faults of one lease: determines which fault is due, and records what each fault has done.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use contract::{FaultDescription, FaultList, FaultMoment};
use pgwire::PreparedPattern;
use sys::lock;
use tokio::sync::watch;

use super::fault::{Fault, FaultEffect};
use super::statement::Statement;

/// Maximum number of statements in a fault's description.
const MOST_STATEMENTS: usize = 100;
/// The SQLSTATE of a server that refuses sessions because it is starting.
const STARTING_UP: &str = "57P03";
/// Maximum length of a statement in a fault's description, in bytes.
const LONGEST_STATEMENT: usize = 1023;

/// The faults of one lease, shared by all its sessions.
#[derive(Debug, Default)]
pub(crate) struct LeaseFaults {
    requested: Mutex<Requests>,
    refusal: Mutex<Refusal>,
    /// Number of failovers. Each failover ends all sessions that are open at that time.
    failovers: watch::Sender<u64>,
}

/// Restrictions on new sessions after a failover or a FATAL error.
#[derive(Debug, Default)]
struct Refusal {
    /// The SQLSTATE that new sessions fail with, and until when.
    until: Option<(String, Instant)>,
    /// Number of new sessions to refuse after a failover without a duration.
    sessions: u64,
    read_only_until: Option<Instant>,
}

/// All faults of a lease, in request order.
#[derive(Debug, Default)]
struct Requests {
    all: Vec<Requested>,
    /// Positions in `all`, grouped by moment, because a statement checks the faults of one moment at a time.
    by_moment: HashMap<FaultMoment, Vec<usize>>,
}

#[derive(Debug)]
struct Requested {
    fault: Fault,
    /// Pattern that selects the statements that the fault counts. `None` selects all statements.
    pattern: Option<PreparedPattern>,
    candidates: u64,
    fired: u64,
    /// When the fault fired for the first time.
    fired_at: Option<Instant>,
    statements: Vec<String>,
    /// Whether a plan made before the lease began includes the fault, so that no test has requested it.
    is_planned: bool,
}

/// Effect of one statement on the faults at one moment: which faults counted it, and which fault fired.
#[derive(Debug, Default)]
pub(super) struct Strike {
    /// Positions of the faults that counted the candidate.
    counted: Vec<usize>,
    /// Position of the fault that fired, and the text of the statement that it hit.
    hit: Option<(usize, Arc<str>)>,
    pub(super) effect: Option<FaultEffect>,
}

impl LeaseFaults {
    /// Adds a fault that a test has requested. Returns its number.
    pub(crate) fn add(&self, fault: Fault) -> u64 {
        self.push(fault, false)
    }

    /// Adds a planned fault, which no test has requested. Returns its number.
    pub(crate) fn add_planned(&self, fault: Fault) -> u64 {
        self.push(fault, true)
    }

    fn push(&self, fault: Fault, is_planned: bool) -> u64 {
        let at_once =
            matches!(fault.effect, FaultEffect::Failover { .. }) && fault.moment == FaultMoment::Connect;
        let (effect, times) = (fault.effect.clone(), fault.times);
        let fired = if at_once { times } else { 0 };
        let number = {
            let mut requests = lock(&self.requested);
            let Requests { all, by_moment } = &mut *requests;
            by_moment.entry(fault.moment).or_default().push(all.len());
            all.push(Requested {
                pattern: fault.statement.as_deref().map(PreparedPattern::new),
                fault,
                candidates: fired,
                fired,
                fired_at: at_once.then(Instant::now),
                statements: Vec::new(),
                is_planned,
            });
            all.len() as u64
        };
        if at_once {
            self.affect_sessions(&effect, times);
        }
        number
    }

    /// Applies the consequences that a FATAL error or a failover has for other sessions. After a failover without a
    /// duration, the lease refuses `sessions` new sessions.
    pub(crate) fn affect_sessions(&self, effect: &FaultEffect, sessions: u64) {
        let now = Instant::now();
        let mut refusal = lock(&self.refusal);
        match effect {
            FaultEffect::Error { sqlstate, duration: Some(duration) } => {
                refusal.until = Some((sqlstate.clone(), now + *duration));
            }
            FaultEffect::Failover { refuses, read_only } => {
                match refuses {
                    Some(time) => refusal.until = Some((STARTING_UP.to_owned(), now + *time)),
                    None => refusal.sessions = sessions,
                }
                refusal.read_only_until =
                    read_only.map(|time| now + refuses.unwrap_or(Duration::ZERO) + time);
                self.failovers.send_modify(|count| *count += 1);
            }
            _ => {}
        }
    }

    /// Returns the number of failovers. A session must end when this number changes.
    pub(crate) fn failovers(&self) -> watch::Receiver<u64> {
        self.failovers.subscribe()
    }

    /// Returns the effect that replaces a new session if the lease refuses it or a fault is due. Returns `None` if the
    /// session can start.
    pub(crate) fn admit(&self) -> Option<FaultEffect> {
        let error =
            |sqlstate: &str| Some(FaultEffect::Error { sqlstate: sqlstate.to_owned(), duration: None });
        {
            let mut refusal = lock(&self.refusal);
            if let Some((sqlstate, _)) = refusal.until.as_ref().filter(|(_, until)| Instant::now() < *until) {
                return error(sqlstate);
            }
            if refusal.sessions > 0 {
                refusal.sessions -= 1;
                return error(STARTING_UP);
            }
        }
        let effect = self.strike(FaultMoment::Connect, &Statement::named(""))?;
        self.affect_sessions(&effect, 1);
        Some(effect)
    }

    /// Returns true if a failover makes the transactions of new sessions read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        lock(&self.refusal).read_only_until.is_some_and(|until| Instant::now() < until)
    }

    /// Describes the requested faults that have never fired, each with the reason.
    pub(crate) fn unfired(&self) -> Vec<String> {
        unfired(&lock(&self.requested).all)
    }

    /// Returns the effect of the first fault that is due at `moment`. All faults for this moment count the candidate,
    /// but only the due fault fires.
    ///
    /// The text of `statement` is empty for a new connection.
    fn strike(&self, moment: FaultMoment, statement: &Statement) -> Option<FaultEffect> {
        self.strike_if(moment, statement, |_| true).effect
    }

    /// Like [`Self::strike`], but only faults whose effect satisfies `is_possible` count the candidate.
    pub(super) fn strike_if(
        &self,
        moment: FaultMoment,
        statement: &Statement,
        is_possible: impl Fn(&FaultEffect) -> bool,
    ) -> Strike {
        let mut strike = Strike::default();
        let mut requests = lock(&self.requested);
        let Requests { all, by_moment } = &mut *requests;
        for &at in by_moment.get(&moment).into_iter().flatten() {
            let Requested { fault, pattern, candidates, fired, fired_at, statements, .. } = &mut all[at];
            let fits = pattern.as_ref().is_none_or(|pattern| pattern.matches(statement.plain()));
            if !fits || !is_possible(&fault.effect) {
                continue;
            }
            *candidates += 1;
            strike.counted.push(at);
            if strike.hit.is_some() || *candidates < fault.nth || *fired >= fault.times {
                continue;
            }
            *fired += 1;
            fired_at.get_or_insert_with(Instant::now);
            if statements.len() < MOST_STATEMENTS {
                statements.push(shortened(&statement.text).to_owned());
            }
            strike.hit = Some((at, Arc::clone(&statement.text)));
            strike.effect = Some(fault.effect.clone());
        }
        strike
    }

    /// Reverts a strike because the server never ran its statement.
    pub(super) fn take_back(&self, strike: &Strike) {
        let all = &mut lock(&self.requested).all;
        for at in &strike.counted {
            if let Some(requested) = all.get_mut(*at) {
                requested.candidates = requested.candidates.saturating_sub(1);
            }
        }
        if let Some((at, statement)) = &strike.hit
            && let Some(requested) = all.get_mut(*at)
        {
            requested.fired = requested.fired.saturating_sub(1);
            requested.fired_at = requested.fired_at.filter(|_| requested.fired > 0);
            // Since then, the fault might have hit statements in other sessions, so the last text might not be this
            // statement's.
            if let Some(own) = requested.statements.iter().rposition(|other| other == shortened(statement)) {
                requested.statements.remove(own);
            }
        }
    }

    /// Describes what the fault `number` has done, and returns when it first fired.
    pub(crate) fn describe(&self, number: u64) -> Option<(FaultDescription, Option<Instant>)> {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        lock(&self.requested).all.get(at).map(|requested| (requested.describe(number), requested.fired_at))
    }

    /// Lists all faults and what they have done.
    pub(crate) fn list(&self) -> FaultList {
        let all = &lock(&self.requested).all;
        let describe = |(number, requested): (u64, &Requested)| requested.describe(number);
        FaultList { faults: (1..).zip(all).map(describe).collect(), unfired_faults: unfired(all) }
    }
}

/// Returns the beginning of a statement for descriptions: at most [`LONGEST_STATEMENT`] bytes.
fn shortened(statement: &str) -> &str {
    &statement[..statement.floor_char_boundary(LONGEST_STATEMENT)]
}

fn unfired(all: &[Requested]) -> Vec<String> {
    let unfired = all.iter().filter(|requested| requested.fired == 0 && !requested.is_planned);
    unfired.map(Requested::describe_unfired).collect()
}

impl Requested {
    fn describe(&self, number: u64) -> FaultDescription {
        FaultDescription {
            number,
            fault: self.fault.description(),
            times: self.fault.times,
            fired: self.fired,
            candidates: self.candidates,
            statements: self.statements.clone(),
        }
    }

    /// Returns the fault's description, and the reason why the fault never fired.
    fn describe_unfired(&self) -> String {
        let Self { fault, candidates, .. } = self;
        let what = match fault.moment {
            FaultMoment::Connect => "connection",
            FaultMoment::Commit | FaultMoment::BeforeCommit | FaultMoment::AfterCommit => "commit",
            _ => "statement",
        };
        let words = fault.description();
        match candidates {
            0 => format!("{words} (no matching {what})"),
            1 if fault.nth > 1 => format!("{words} (only 1 matching {what})"),
            few if *few < fault.nth => format!("{words} (only {few} matching {what}s)"),
            _ => words,
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::FaultRequest;

    use super::*;

    fn fault(edit: impl FnOnce(&mut FaultRequest)) -> Fault {
        let mut request = FaultRequest { error: Some("40001".to_owned()), ..FaultRequest::default() };
        edit(&mut request);
        request.try_into().unwrap()
    }

    #[test]
    fn fault_fires_from_its_nth_candidate() {
        let faults = LeaseFaults::default();
        faults.add(fault(|request| {
            request.statement = Some("UPDATE accounts".to_owned());
            (request.nth, request.times) = (Some(2), Some(2));
        }));
        let strike = |text| faults.strike(FaultMoment::BeforeStatement, &Statement::named(text)).is_some();
        let texts = [
            "update  accounts set a = 1",
            "SELECT 1",
            "UPDATE\naccounts",
            "UPDATE accounts",
            "UPDATE accounts",
        ];
        assert_eq!(texts.map(strike), [false, false, true, true, false]);
        let list = faults.list();
        assert_eq!((list.faults[0].fired, list.faults[0].candidates), (2, 4));
        assert!(list.unfired_faults.is_empty());
        assert_eq!(list.faults[0].fault, "40001 before statement \"UPDATE accounts\", number 2, 2 times");
    }

    #[test]
    fn unfired_fault_names_its_reason() {
        let faults = LeaseFaults::default();
        faults.add(fault(|request| request.at = Some("commit".to_owned())));
        faults.add(fault(|request| (request.statement, request.nth) = (Some("UPDATE".to_owned()), Some(3))));
        faults.add_planned(fault(|_| ()));
        for text in ["UPDATE a", "update b"] {
            faults.strike(FaultMoment::BeforeStatement, &Statement::named(text));
        }
        let expected = [
            "40001 at commit (no matching commit)",
            "40001 before statement \"UPDATE\", number 3 (only 2 matching statements)",
        ];
        assert_eq!(faults.unfired(), expected);
        faults.strike(FaultMoment::BeforeStatement, &Statement::named("UPDATE c"));
        assert_eq!(faults.list().unfired_faults, expected[..1]);
    }
}
