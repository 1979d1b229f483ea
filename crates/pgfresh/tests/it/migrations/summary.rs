//! Provides a laboratory in a test, and formats the facts about a statement in one line.

use migrations::testing::transcript_of;
use migrations::{Laboratory, LockMode, Observations, ObservedStatement};
use plans::RelationName;

use crate::common::provisioner::provisioner;
use crate::common::watchdog::Watchdog;

/// Laboratory that lasts as long as the test.
pub(super) struct Bench {
    pub(super) laboratory: Laboratory,
    _watchdog: Watchdog,
}

impl Bench {
    /// Starts a laboratory whose template is `schema`.
    pub(super) fn new(major: u32, schema: &str) -> Self {
        let (provisioner, watchdog) = provisioner(major, schema);
        Self { laboratory: Laboratory::start(&provisioner).unwrap(), _watchdog: watchdog }
    }

    /// Repeats a migration, which must succeed.
    pub(super) fn observe(mut self, sql: &[&str]) -> Observations {
        let observations = self.laboratory.observe(&transcript_of(sql)).unwrap();
        assert_eq!(observations.unseen, Vec::<String>::new());
        self.laboratory.stop().unwrap();
        observations
    }
}

/// Returns the name without the schema `public`.
fn name(relation: &RelationName) -> String {
    if relation.schema == "public" {
        relation.name.clone()
    } else {
        format!("{}.{}", relation.schema, relation.name)
    }
}

/// Returns all facts about a statement, including locks that are stronger than ROW EXCLUSIVE.
pub(super) fn facts(statement: &ObservedStatement) -> String {
    let strong = statement.locks.iter().filter(|lock| lock.mode > LockMode::RowExclusive);
    let mut facts: Vec<String> =
        strong.map(|lock| format!("{} {}", lock.mode, name(&lock.relation))).collect();
    facts.extend(statement.rewrites.iter().map(|rewrite| {
        format!("{} {}", if rewrite.is_emptied { "empties" } else { "rewrites" }, name(&rewrite.relation))
    }));
    facts.extend(
        statement
            .scans
            .iter()
            .map(|scan| format!("scans {}: {}, {}", name(&scan.relation), scan.scans, scan.rows)),
    );
    facts.join("; ")
}
