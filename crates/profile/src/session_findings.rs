//! Finds suites that spend much time on new sessions or on waits for new databases.

use report::{Finding, as_f64};

use crate::circumstances::{LingerWait, seconds};
use crate::findings::Analysis;
use crate::ranking::SESSIONS;

/// Minimum number of new sessions for a finding about them. The server also counts the sessions of other programs.
const MIN_SESSIONS: f64 = 10.0;

impl Analysis<'_> {
    /// Returns a finding about the sessions that a pool would spare. Returns `None` if their number is unknown.
    pub(crate) fn sessions(&self) -> Option<Finding> {
        let (count, spent) = self.spared_sessions()?;
        let time = self.waiting_for_sessions(spent);
        let reused = if self.recording.exact.is_some() {
            " that follow an earlier one of their user and database,"
        } else {
            ""
        };
        (count >= MIN_SESSIONS && self.is_significant(time)).then(|| Finding {
            name: SESSIONS.to_owned(),
            evidence: format!(
                "{count} sessions{reused} at {} each are {} of the time.",
                seconds(spent / count.max(1.0)),
                self.share(time)
            ),
            gain: Some(self.gain(time.saved)),
            remedy: "Keep connections open across tests, in the suite's own pool.".to_owned(),
        })
    }

    /// Returns the number of sessions that a pool would spare, and how many seconds clients waited for them. Without a
    /// gateway, the server only counts all sessions, so the result is about all of them.
    fn spared_sessions(&self) -> Option<(f64, f64)> {
        let Some(exact) = &self.recording.exact else { return self.connecting() };
        // Fresh databases would save the sessions for created databases, too.
        let made = if self.has_made_databases() { exact.made.spared } else { (0, 0.0) };
        let count = exact.spared.count.saturating_sub(made.0);
        Some((as_f64(count), (exact.spared.waited - made.1).max(0.0)))
    }

    /// Returns a finding about names that wait for new databases while databases of earlier names linger.
    pub(crate) fn linger(&self) -> Option<Finding> {
        let LingerWait { names, waited } = self.circumstances.linger?;
        let time = self.waiting_for_sessions(waited);
        self.is_significant(time).then(|| Finding {
            name: "Names wait for databases that linger".to_owned(),
            evidence: format!(
                "{names} names waited {} in all for new databases, and no client reused a name after its last session.",
                seconds(waited)
            ),
            gain: Some(self.gain(time.saved)),
            remedy: "Recycle a database as soon as its last session ends: linger = \"0\" under [database] in \
                     pgfresh.toml."
                .to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::attribution::tests::recording;
    use crate::circumstances::Circumstances;
    use crate::findings::tests::{after, found, samples};
    use crate::gateway_times::GatewayTimes;
    use crate::interner::Interner;
    use crate::recording::Recording;

    /// Returns a recording of a second with 100 sessions one after another, each of which a client waits 5 ms for.
    fn visits(database: impl Fn(u64) -> String) -> Recording {
        let (mut exact, mut statements) = (GatewayTimes::new(Instant::now()), Interner::default());
        for session in 0..100 {
            let database = database(session).into();
            exact.session_started(session, Duration::from_millis(5), &"app".into(), &database, 7);
            exact.session_ended(session, Instant::now(), &mut statements);
        }
        Recording { exact: Some(exact), ..recording(&samples(&[], 0, &[], 100)) }
    }

    #[test]
    fn pool_is_advised_only_where_it_works() {
        let findings = found(&visits(|_| "app".to_owned()), &Circumstances::default());
        assert_eq!(findings[0].name, SESSIONS);
        assert!(findings[0].evidence.starts_with("99 sessions that follow"), "{findings:?}");
        assert!((after(&findings[0]) - 0.505).abs() < 1e-9, "{findings:?}");
        // A connection to one test's database can't serve another test.
        let findings = found(&visits(|test| format!("test_{test}")), &Circumstances::default());
        assert!(findings.iter().all(|finding| finding.name != SESSIONS), "{findings:?}");
    }

    #[test]
    fn waits_for_lingering_databases_are_a_finding() {
        let recording = visits(|test| format!("test_{test}"));
        let with = |waited| Circumstances {
            linger: Some(LingerWait { names: 100, waited }),
            ..Circumstances::default()
        };
        let findings = found(&recording, &with(0.4));
        assert!(findings[0].remedy.contains("linger = \"0\""), "{findings:?}");
        assert!(findings[0].evidence.starts_with("100 names waited 400 ms in all"), "{findings:?}");
        assert!((after(&findings[0]) - 0.6).abs() < 1e-9, "{findings:?}");
        let findings = found(&recording, &with(0.05));
        assert!(findings.iter().all(|finding| !finding.remedy.contains("linger")), "{findings:?}");
    }
}
