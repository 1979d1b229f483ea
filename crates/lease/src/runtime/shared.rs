//! Watches the state shared by all databases on a server, such as roles. Since copies don't isolate this state, a test
//! that changes it affects all other tests.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;

use crate::admin::{AdminPool, Prepared};
use crate::error::{LeaseError, chain};

/// Changes to one kind of shared state, along with the leases that may have caused them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SharedStateChange {
    /// The kind of state that changed, for example "roles" or "server settings (ALTER SYSTEM)".
    pub what: &'static str,
    /// Names of at most a hundred leased databases, which include the cause of each change.
    pub suspects: Vec<String>,
    /// How many times pgfresh found a change of this kind.
    pub count: u64,
}

/// Maximum number of suspects remembered for a change.
const MOST_SUSPECTS: usize = 100;

/// The kinds of shared state, in the order of the columns below.
const KINDS: [&str; 8] = [
    "roles",
    "memberships of roles",
    "tablespaces",
    "subscriptions",
    "replication origins",
    "rights on parameters",
    SLOTS,
    SYSTEM,
];
const SLOTS: &str = "replication slots";
const SYSTEM: &str = "server settings (ALTER SYSTEM)";

/// A query returning one row, with one text for each kind of shared state. The text changes whenever something of that
/// kind does. The query reads whole rows, because their columns differ between major versions. However, it reads only
/// the names of subscriptions, because the rest belongs to one database. Their replication origins (`pg_` and a number)
/// are skipped, because these come and go with the subscriptions.
macro_rules! facts {
    ($rights:literal) => {
        concat!(
            "SELECT concat_ws('|', ",
            "(SELECT string_agg(concat(a), ',' ORDER BY oid) FROM pg_authid a), ",
            "(SELECT string_agg(concat(s), ',' ORDER BY setrole) FROM pg_db_role_setting s WHERE setdatabase = 0), ",
            facts!(of "pg_authid"),
            "), (SELECT string_agg(concat(m), ',' ORDER BY roleid, member, grantor) FROM pg_auth_members m), ",
            "concat_ws('|', (SELECT string_agg(concat(t), ',' ORDER BY oid) FROM pg_tablespace t), ",
            facts!(of "pg_tablespace"),
            "), (SELECT string_agg(subname, ',' ORDER BY oid) FROM pg_subscription), ",
            "concat_ws('|', (SELECT string_agg(concat(o), ',' ORDER BY roident) FROM pg_replication_origin o \
              WHERE NOT starts_with(roname, 'pg_')), \
             (SELECT string_agg(external_id || remote_lsn, ',' ORDER BY local_id) FROM pg_show_replication_origin_status() \
              WHERE NOT starts_with(external_id, 'pg_'))), ",
            $rights,
            ", (SELECT string_agg(slot_name, ',' ORDER BY slot_name) FROM pg_replication_slots WHERE NOT temporary), \
             pg_read_file('postgresql.auto.conf')",
        )
    };
    // Comments and security labels.
    (of $catalog:literal) => {
        concat!(
            "(SELECT string_agg(concat(d), ',' ORDER BY objoid) FROM pg_shdescription d WHERE classoid = '",
            $catalog,
            "'::regclass), (SELECT string_agg(concat(l), ',' ORDER BY objoid, provider) FROM pg_shseclabel l WHERE classoid = '",
            $catalog,
            "'::regclass)"
        )
    };
}

/// Returns the query for the server's major version. PostgreSQL 15 introduced privileges on parameters.
const fn facts_in(major: u32) -> &'static Prepared {
    const BEFORE_15: Prepared = Prepared { name: "facts", types: &[], sql: facts!("NULL") };
    const SINCE_15: Prepared = Prepared {
        name: "facts",
        types: &[],
        sql: facts!("(SELECT string_agg(concat(p), ',' ORDER BY oid) FROM pg_parameter_acl p)"),
    };
    if server::Major(major).has_parameter_privileges() { &SINCE_15 } else { &BEFORE_15 }
}

/// The shared state at the last check, the leases ended since then, and the changes so far.
#[derive(Debug, Default)]
pub(crate) struct SharedWatch {
    facts: Vec<Option<String>>,
    ended: BTreeSet<String>,
    /// Modification time, inode and length of the files checked by [`Self::have_files_changed`].
    files: Option<[Option<(SystemTime, u64, u64)>; 2]>,
    found: Vec<SharedStateChange>,
}

/// Reads the server's shared state.
pub(crate) fn facts(admin: &AdminPool, major: u32) -> Result<Vec<Option<String>>, LeaseError> {
    let rows = admin.execute("look for leaks", facts_in(major), &[])?;
    Ok(rows.into_iter().next().unwrap_or_default())
}

impl SharedWatch {
    /// Reads the state before any client has a database and starts watching it. If the
    /// server doesn't respond, the state at the first successful check counts instead.
    pub(crate) fn begin(admin: &AdminPool, major: u32, data: &Path, is_closed: impl Fn() -> bool) -> Self {
        let facts = facts(admin, major).unwrap_or_else(|error| {
            // The server of a short run may stop before the first look. Then there is nothing left to watch.
            if !is_closed() {
                tracing::warn!(error = chain(&error), "could not look at what all databases share");
            }
            Vec::new()
        });
        let mut watch = Self { facts, ..Self::default() };
        watch.have_files_changed(data);
        watch
    }

    /// Records that the lease with this name has ended.
    pub(crate) fn ended(&mut self, name: &str) {
        if !name.is_empty() {
            self.ended.insert(name.to_owned());
        }
    }

    /// Begins a check. Returns the names of the leases that have ended since the last one.
    pub(crate) fn take_ended(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.ended)
    }

    /// Ends a check that failed to read the state, leaving its suspects to the next check.
    pub(crate) fn put_back(&mut self, ended: BTreeSet<String>) {
        self.ended.extend(ended);
    }

    /// Returns true if server settings or replication slots have changed since the
    /// last call. Checks their files, because the log doesn't cover these changes.
    pub(crate) fn have_files_changed(&mut self, data: &Path) -> bool {
        let now = ["postgresql.auto.conf", "pg_replslot"].map(|name| {
            let about = fs::symlink_metadata(data.join(name)).ok()?;
            Some((about.modified().ok()?, about.ino(), about.len()))
        });
        let changed = self.files.as_ref().is_some_and(|before| *before != now);
        self.files = Some(now);
        changed
    }

    /// Ends a check that read these `facts` and records each change with its suspects. If the log shows which leases
    /// changed shared state (`guilty`), only these are suspects. Otherwise, all leases since the last check are: those
    /// that had `ended` before this check, those in `leased`, and those that ended during the check.
    pub(crate) fn compare(
        &mut self,
        facts: Vec<Option<String>>,
        ended: BTreeSet<String>,
        leased: impl Iterator<Item = String>,
        guilty: &[String],
    ) {
        let suspects: BTreeSet<_> =
            ended.into_iter().chain(leased).chain(self.ended.iter().cloned()).collect();
        for ((what, before), now) in KINDS.iter().zip(std::mem::take(&mut self.facts)).zip(&facts) {
            if before != *now {
                let suspects: Vec<_> = match (what, guilty) {
                    // The log doesn't show changes to these files, so every lease is a suspect.
                    (&SLOTS | &SYSTEM, _) | (_, []) => suspects.iter().cloned().collect(),
                    _ => guilty.to_vec(),
                };
                self.note(what, suspects);
            }
        }
        self.facts = facts;
    }

    /// Records a change. Changes of the same kind share one entry,
    /// because many leases may cause the same kind of change.
    fn note(&mut self, what: &'static str, suspects: Vec<String>) {
        let at = self.found.iter().position(|found| found.what == what).unwrap_or_else(|| {
            self.found.push(SharedStateChange { what, suspects: Vec::new(), count: 0 });
            self.found.len() - 1
        });
        let found = &mut self.found[at];
        found.count += 1;
        for suspect in suspects {
            if found.suspects.len() < MOST_SUSPECTS && !found.suspects.contains(&suspect) {
                found.suspects.push(suspect);
            }
        }
    }

    /// Returns all changes so far, grouped by kind.
    pub(crate) fn found(&self) -> Vec<SharedStateChange> {
        self.found.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(roles: &str) -> Vec<Option<String>> {
        let mut facts = vec![None; KINDS.len()];
        facts[0] = Some(roles.to_owned());
        facts
    }

    #[test]
    fn shared_change_is_counted_once_with_its_suspects() {
        let mut watch = SharedWatch { facts: facts("a"), ..SharedWatch::default() };
        watch.ended("early");
        let early = watch.take_ended();
        watch.compare(facts("a"), early, std::iter::empty(), &[]);
        watch.ended("one");
        let ended = watch.take_ended();
        // This lease ends while pgfresh reads the state.
        watch.ended("two");
        watch.compare(facts("ab"), ended, ["three".to_owned()].into_iter(), &[]);
        let ended = watch.take_ended();
        watch.compare(facts("ab"), ended, std::iter::empty(), &[]);
        let suspects = ["one", "three", "two"].map(str::to_owned).to_vec();
        assert_eq!(watch.found(), [SharedStateChange { what: "roles", suspects, count: 1 }]);
    }

    #[test]
    fn shared_changes_merge_by_kind_with_limited_suspects() {
        let mut watch = SharedWatch { facts: facts("0"), ..SharedWatch::default() };
        for number in 1..=1000 {
            let ended = [format!("lease {number}"), "always".to_owned()].into();
            watch.compare(facts(&number.to_string()), ended, std::iter::empty(), &[]);
        }
        let [found] = &watch.found()[..] else { panic!("one kind was changed: {:?}", watch.found()) };
        assert_eq!((found.what, found.count, found.suspects.len()), ("roles", 1000, MOST_SUSPECTS));
    }
}
