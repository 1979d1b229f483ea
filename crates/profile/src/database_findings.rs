//! Finds suites that create and drop databases with SQL.

use report::{Finding, as_f64};

use crate::circumstances::seconds;
use crate::findings::{Analysis, MIN_SHARE};
use crate::ranking::DATABASES;
use crate::time::Time;
use pgwire::StatementKind;

/// Creating databases is also worth a finding if it takes up at least [`MIN_SHARE_OF_DATABASE_TIME`] of the time in the
/// database and [`MIN_SHARE_OF_WHOLE_TIME`] of the whole time.
const MIN_SHARE_OF_DATABASE_TIME: f64 = 0.5;
const MIN_SHARE_OF_WHOLE_TIME: f64 = 0.03;

impl Analysis<'_> {
    /// Returns the time of CREATE and DROP DATABASE and the time of the sessions that only exist for these statements.
    /// Returns `None` if their sum is too small for a finding, i.e., if it reaches neither [`MIN_SHARE`] nor both
    /// [`MIN_SHARE_OF_DATABASE_TIME`] and [`MIN_SHARE_OF_WHOLE_TIME`].
    fn made_databases(&self) -> Option<[Time; 2]> {
        let statements = self.attribution.kinds.get(&StatementKind::Database).copied()?;
        let sessions = self.waiting_for_sessions(self.for_databases().1);
        let all = self.waiting_for_sessions(self.connecting().map_or(0.0, |(_, spent)| spent));
        let together = statements.saved + sessions.saved;
        let share = self.attribution.share(together);
        let is_most = together >= MIN_SHARE_OF_DATABASE_TIME * (self.attribution.database.saved + all.saved);
        (share >= MIN_SHARE || is_most && share >= MIN_SHARE_OF_WHOLE_TIME).then_some([statements, sessions])
    }

    pub(crate) fn has_made_databases(&self) -> bool {
        self.made_databases().is_some()
    }

    /// Returns how many sessions only exist because the suite creates databases with SQL, and how many seconds clients
    /// waited for these sessions.
    pub(crate) fn for_databases(&self) -> (f64, f64) {
        let made = self.recording.exact.as_ref().map(|exact| &exact.made);
        made.map_or((0.0, 0.0), |made| (as_f64(made.sessions), made.waited))
    }

    pub(crate) fn databases(&self) -> Option<Finding> {
        let [statements, sessions] = self.made_databases()?;
        let (made, _) = self.for_databases();
        let count = self.recording.exact.as_ref().map_or(0.0, |exact| as_f64(exact.made.count));
        let mut evidence =
            format!("{} of the time goes into CREATE and DROP DATABASE", self.share(statements));
        if made > 0.0 {
            evidence = format!(
                "{evidence}, and {} into {made:.0} sessions that exist for that",
                self.share(sessions)
            );
        }
        let fresh = self.circumstances.fresh_database;
        let fresh_time = fresh.map(|fresh| format!(" A new database takes {} here.", seconds(fresh)));
        // The suite would use a fresh database wherever it now creates one.
        let instead = self.waiting_for_sessions(fresh.unwrap_or(0.0) * count);
        let saved = statements.saved + sessions.saved - instead.saved;
        Some(Finding {
            name: DATABASES.to_owned(),
            evidence: format!("{evidence}.{}", fresh_time.unwrap_or_default()),
            gain: (saved > 0.0).then(|| self.gain(saved)),
            remedy: "Use fresh databases instead: under \"pgfresh run\", connect each test to its own database name, \
                     without CREATE and DROP DATABASE. pgfresh keeps databases ready."
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
    use crate::ranking::SESSIONS;

    /// CREATE and DROP DATABASE alone take too little time for a finding, as do the sessions for them. Together, they
    /// make up most of the time in the database.
    #[test]
    fn databases_per_test_are_one_finding_before_pool() {
        let of_database = samples(&["a:CREATE DATABASE d:cpu"], 6, &[], 100);
        let mut recording = recording(&of_database);
        let mut exact = GatewayTimes::new(Instant::now());
        let wait = |exact: &mut GatewayTimes, session, milliseconds, database: &str| {
            let user = &"app".into();
            exact.session_started(session, Duration::from_millis(milliseconds), user, &database.into(), 7);
        };
        for test in 0..10 {
            wait(&mut exact, 3 * test, 2, "postgres");
            exact.made.statement_completed(
                3 * test,
                &format!("CREATE DATABASE d{test}"),
                StatementKind::Database,
            );
            wait(&mut exact, 3 * test + 1, 3, &format!("d{test}"));
            wait(&mut exact, 3 * test + 2, 0, "postgres");
            exact.made.statement_completed(
                3 * test + 2,
                &format!("DROP DATABASE d{test}"),
                StatementKind::Database,
            );
        }
        // From here on, the statements only appear in the samples.
        exact.incomplete = true;
        recording.exact = Some(exact);
        let findings = found(&recording, &Circumstances::default());
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].name, DATABASES);
        assert!(findings[0].evidence.contains("30 sessions that exist for that"), "{findings:?}");
        assert!((after(&findings[0]) - 0.89).abs() < 1e-9, "{findings:?}");
        // Fresh databases would need some of that time, too.
        let fresh = Circumstances { fresh_database: Some(0.001), ..Circumstances::default() };
        assert!((after(&found(&recording, &fresh)[0]) - 0.90).abs() < 1e-9);
        // With longer times, the remaining sessions become a finding about a pool, which must come second.
        let exact = recording.exact.as_mut().unwrap();
        for session in 100..300 {
            wait(exact, session, 1, "app");
            exact.session_ended(session, Instant::now(), &mut recording.statements);
        }
        let names: Vec<_> =
            found(&recording, &Circumstances::default()).into_iter().map(|one| one.name).collect();
        assert_eq!(names, [DATABASES, SESSIONS]);
    }
}
