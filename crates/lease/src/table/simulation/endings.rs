//! Ends a simulation: some tasks fail until a repair, then all work comes to an end.

use super::*;

/// How long a request may wait while the tasks that it needs fail. The documentation gives clients 30 s; the rest is
/// for requests that wait for others in their queue.
const LONGEST_ANSWER: Duration = Duration::from_secs(40);
/// After the repair, all names work again within this time.
const REPAIR_TIME: Duration = Duration::from_secs(10);

impl Simulation {
    /// Makes some kinds of tasks fail until a repair. Checks that each request gets an answer in time, and that all
    /// names work after the repair.
    pub(super) fn fail_until_repaired(&mut self) {
        self.calm = true;
        let name = || String::new();
        let kinds = [
            TaskKind::Create(Source::Template(name())),
            TaskKind::Name { to: name(), isolation: Isolation::Clone, params: None },
            TaskKind::Unname,
            TaskKind::Reset { in_place: true },
            TaskKind::Keep { to: name() },
            TaskKind::Copy { to: name() },
            TaskKind::Drop,
        ];
        self.broken = vec![discriminant(&self.random.pick(&kinds))];
        for kind in kinds {
            if self.random.one_in(4) {
                self.broken.push(discriminant(&kind));
            }
        }
        for _ in 0..3 {
            for _ in 0..self.random.below(20) {
                self.request();
            }
            self.answer_all();
            self.now += Duration::from_secs(self.random.pick(&[0, 1, 30]));
        }
        self.broken.clear();
        let repaired = self.now;
        while self.now < repaired + REPAIR_TIME {
            self.work_calmly();
        }
        let blocked = self.answered.get("blocked").copied();
        for _ in 0..20 {
            self.request();
        }
        self.answer_all();
        assert_eq!(self.answered.get("blocked").copied(), blocked, "a name stays blocked after the repair");
    }

    /// Returns how a task of a broken kind ends.
    pub(super) fn broken_outcome(&mut self, kind: &TaskKind) -> Outcome {
        let is_unfit = matches!(kind, TaskKind::Create(_) | TaskKind::Name { .. }) && self.random.one_in(3);
        if is_unfit { Outcome::Stale } else { Outcome::Failed(LeaseError::NoServers) }
    }

    /// Lets time pass until all requests have their answers, which must be soon.
    fn answer_all(&mut self) {
        let begun = self.now;
        while !self.waiters.is_empty() {
            self.work_calmly();
            assert!(
                self.now < begun + LONGEST_ANSWER,
                "requests wait for broken tasks: {:?}\n{:?}",
                self.waiters,
                self.table
            );
        }
    }

    /// Lets a short time pass in which some tasks finish and all sessions end.
    fn work_calmly(&mut self) {
        self.now += Duration::from_millis(100);
        self.raise(Event::Tick);
        for _ in 0..6 {
            self.pull();
            self.finish_a_task();
        }
        while let Some(Session { database, leaving, .. }) = self.sessions.pop() {
            self.raise(Event::Disconnected { database, leaving });
        }
        self.check();
    }

    /// Closes all sessions, without new clients or faults, and checks that all work comes to an end.
    pub(super) fn settle(&mut self) {
        self.calm = true;
        while let Some(Session { database, leaving, .. }) = self.sessions.pop() {
            self.raise(Event::Disconnected { database, leaving });
        }
        for name in NAMES {
            self.ask(name.to_owned(), Want::Release);
        }
        for _ in 0..20_000 {
            if self.tasks.is_empty() && self.waiters.is_empty() {
                self.now += Duration::from_secs(1);
            }
            self.now += Duration::from_millis(100);
            self.raise(Event::Tick);
            self.pull();
            self.finish_a_task();
            while let Some(Session { database, leaving, .. }) = self.sessions.pop() {
                self.raise(Event::Disconnected { database, leaving });
            }
            self.check();
            let leases = self.table.leases();
            if self.waiters.is_empty()
                && leases.iter().all(|lease| lease.name.contains("_failed_"))
                && self.tasks.is_empty()
                && self.closes.is_empty()
            {
                break;
            }
        }
        assert!(self.waiters.is_empty(), "a client waits for ever: {:?}", self.waiters);
        let leases: Vec<_> =
            self.table.leases().into_iter().filter(|lease| !lease.name.contains("_failed_")).collect();
        assert!(
            leases.is_empty() || leases.iter().all(|lease| lease.terms.retained),
            "leases stay: {leases:?}"
        );
        for oid in self.server.databases.keys() {
            let Oid::Made(id) = oid else { continue };
            assert!(self.table.databases.get(*id).is_some(), "{id:?} was forgotten in the server");
        }
    }
}
