//! What follows from where the time went, and what each remedy would gain.
//!
//! A prediction takes the time of sessions that goes away, divides it among the sessions that are at work at once, and
//! leaves at least what the processors need. Each is made as if it were the only remedy: their gains do not add up.

use report::{Basis, Factor, Finding, Gain, Quantity, Unit};

use crate::attribution::{Attribution, Time};
use crate::profile::{Circumstances, percent, seconds};
use crate::recording::Recording;
use crate::statement::Kind;
use crate::wait::Cause;

/// A share of the whole time that is worth a finding.
const WORTH: f64 = 0.1;
/// Below this share of the whole time, the database is not the problem.
const SLIGHT: f64 = 0.25;

/// What findings are made from.
pub(crate) struct Case<'a> {
    pub(crate) recording: &'a Recording,
    pub(crate) attribution: &'a Attribution,
    pub(crate) circumstances: &'a Circumstances,
}

impl Case<'_> {
    /// All findings, the greatest gain first.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = [
            self.clean_up(),
            self.syncs(),
            self.migrations(),
            self.databases(),
            self.sessions(),
            self.locks(),
            self.clients(),
        ]
        .into_iter()
        .flatten()
        .collect();
        if findings.is_empty() {
            findings.push(self.no_problem());
        }
        Finding::rank(&mut findings);
        findings
    }

    /// Seconds that the whole would take if sessions spent so much less.
    fn without(&self, time: Time) -> f64 {
        let Attribution { wall, width, .. } = *self.attribution;
        let busy = self
            .recording
            .machine
            .map_or(0.0, |machine| (machine.suite_cpu + machine.backend_cpu) / machine.processors.max(1.0));
        (wall - time.sessions / width).max(busy).min(wall)
    }

    fn gain(&self, after: f64) -> Gain {
        let wall = self.attribution.wall;
        let quantity = |value| Quantity::new(value, Unit::Seconds);
        Gain {
            of: "the suite".to_owned(),
            factor: Factor::Point(Quantity::new(wall / after, Unit::Ratio)),
            basis: Basis::Predicted,
            change: Some([quantity(wall), quantity(after)]),
        }
    }

    fn is_worth(&self, time: Time) -> bool {
        self.attribution.share(time.sessions / self.attribution.width) >= WORTH
    }

    fn share(&self, time: Time) -> String {
        percent(self.attribution.share(time.sessions / self.attribution.width))
    }

    fn clean_up(&self) -> Option<Finding> {
        let spent = self.attribution.clean_up;
        if !self.is_worth(spent.time) {
            return None;
        }
        let kinds = |kind| self.attribution.kinds.get(&kind).copied().unwrap_or_default().sessions;
        let truncates = kinds(Kind::Truncate) >= kinds(Kind::Delete);
        let each = spent.each();
        let mut evidence = format!(
            "{} of the time goes into about {:.0} runs of it, {} each with its commit.",
            self.share(spent.time),
            spent.runs,
            seconds(each)
        );
        let fresh = self.circumstances.fresh_database.filter(|fresh| *fresh < each);
        if let Some(fresh) = fresh {
            evidence = format!("{evidence} A new database takes {} here.", seconds(fresh));
        }
        let (saved, instead) = (spent.time.sessions, fresh.unwrap_or(0.0) * spent.runs);
        let time = Time { sessions: saved - instead, ..spent.time };
        let what = if truncates { "TRUNCATE" } else { "DELETE" };
        Some(Finding {
            name: format!("Tests clean up by {what}"),
            evidence,
            gain: Some(self.gain(self.without(time))),
            remedy: "Take a fresh database for each test instead of emptying one: under \"pgfresh run\", connect to \
                     a name of its own, or reset it."
                .to_owned(),
        })
    }

    fn syncs(&self) -> Option<Finding> {
        let time = self.attribution.syncing;
        if !self.is_worth(time) {
            return None;
        }
        let causes = Attribution::ranked(&self.attribution.causes);
        let parts: Vec<String> = causes
            .into_iter()
            .filter(|(cause, time)| cause.is_sync() && self.attribution.share(time.sessions) >= 0.01)
            .map(|(cause, time)| format!("{cause} {}", self.share(time)))
            .collect();
        let remedy = if self.circumstances.ours {
            "Let the server flush nothing: \"--preset fast\", which is the default."
        } else {
            "Run the suite on a server that flushes nothing: \"pgfresh run -- COMMAND\"."
        };
        Some(Finding {
            name: "The server waits for the disk".to_owned(),
            evidence: format!("{} of the time goes into syncs ({}).", self.share(time), parts.join(", ")),
            gain: Some(self.gain(self.without(time))),
            remedy: remedy.to_owned(),
        })
    }

    fn migrations(&self) -> Option<Finding> {
        let time = self.attribution.kinds.get(&Kind::Ddl).copied()?;
        self.is_worth(time).then(|| Finding {
            name: "The schema is made during the tests".to_owned(),
            evidence: format!("{} of the time goes into CREATE, ALTER and DROP.", self.share(time)),
            gain: Some(self.gain(self.without(time))),
            remedy: "Make the schema once, as a template: \"setup\" and \"inputs\" in pgfresh.toml."
                .to_owned(),
        })
    }

    fn databases(&self) -> Option<Finding> {
        let time = self.attribution.kinds.get(&Kind::Database).copied()?;
        self.is_worth(time).then(|| Finding {
            name: "Databases are made and dropped by SQL".to_owned(),
            evidence: format!("{} of the time goes into CREATE and DROP DATABASE.", self.share(time)),
            gain: Some(self.gain(self.without(time))),
            remedy: "Under \"pgfresh run\", connect to any name: ready databases wait for it.".to_owned(),
        })
    }

    /// What connecting costs; only where it is known how often that was.
    fn sessions(&self) -> Option<Finding> {
        let (count, spent) = self.connecting()?;
        let time = Time { wall: spent, sessions: spent };
        self.is_worth(time).then(|| Finding {
            name: "Sessions are begun again and again".to_owned(),
            evidence: format!(
                "{count} sessions at {} each are {} of the time.",
                seconds(spent / count.max(1.0)),
                self.share(time)
            ),
            gain: Some(self.gain(self.without(time))),
            remedy: "Keep connections open across tests, in a pool of the suite's own.".to_owned(),
        })
    }

    /// How many sessions were begun, and the seconds that took.
    pub(crate) fn connecting(&self) -> Option<(f64, f64)> {
        self.circumstances.connecting.or_else(|| {
            // Ours is one of them, and those that told what a session costs came later.
            let count = (self.recording.counters.sessions? - 1.0).max(0.0);
            Some((count, count * self.recording.session_cost?))
        })
    }

    fn locks(&self) -> Option<Finding> {
        let time = self.attribution.causes.get(&Cause::Lock).copied()?;
        self.is_worth(time).then(|| Finding {
            name: "Sessions wait for each other's locks".to_owned(),
            evidence: format!("{} of the time goes into waiting for locks.", self.share(time)),
            gain: None,
            remedy: "Give each worker, or each test, a database of its own.".to_owned(),
        })
    }

    fn clients(&self) -> Option<Finding> {
        let time = self.attribution.causes.get(&Cause::Client).copied()?;
        self.is_worth(time).then(|| Finding {
            name: "The server waits for its clients in the midst of statements".to_owned(),
            evidence: format!(
                "{} of the time goes into that: COPY, or results that are read slowly.",
                self.share(time)
            ),
            gain: None,
            remedy: "Make the client send and read more at once.".to_owned(),
        })
    }

    /// Nothing is to be gained from a remedy of ours.
    fn no_problem(&self) -> Finding {
        let Attribution { wall, database, .. } = self.attribution;
        let share = self.attribution.share(database.wall);
        let slight = share < SLIGHT;
        let cpu = self.recording.machine.map(|machine| machine.suite_cpu).filter(|cpu| *cpu > 0.0);
        let cpu = cpu.map_or_else(String::new, |cpu| {
            format!(" The suite itself used processors for {}.", seconds(cpu))
        });
        let evidence = format!(
            "The server is at work for {} of the time; if that took no time at all, {} would become {}.{cpu}",
            percent(share),
            seconds(*wall),
            seconds(self.without(*database))
        );
        let (name, remedy) = if slight {
            (
                "The database is not the problem",
                "Look at the suite itself: what it computes, waits for, or could do at the same time.",
            )
        } else {
            (
                "The database is at work, and waits for nothing",
                "Look at the statements that take longest, or run tests at the same time.",
            )
        };
        Finding { name: name.to_owned(), evidence, gain: None, remedy: remedy.to_owned() }
    }
}
