//! What all databases share, and no copy isolates: state of the whole server that a test has changed for all others.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;

use crate::LeaseError;
use crate::admin::{AdminPool, Prepared};

/// One such change, and whose it may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SharedStateChange {
    /// What was changed, in the plural: "roles", "server settings (ALTER SYSTEM)".
    pub what: &'static str,
    /// The databases that were leased meanwhile: one of them it was, each time. The first hundred.
    pub suspects: Vec<String>,
    /// How often that was seen.
    pub count: u64,
}

/// Databases of which it is known that they may have made such changes.
const MOST_SUSPECTS: usize = 100;

/// What can leak, in the order of the columns below.
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

/// One row of texts: each changes when something of its kind does. Rows are read whole, whatever columns a major version has. Of a
/// subscription, which is in one database, nothing but its name is for all, and its origin (`pg_` and a number) goes with it.
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
    // Comments and labels.
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

/// Reads them in a server of that major version. With PostgreSQL 15 came rights on parameters.
const fn facts_in(major: u32) -> &'static Prepared {
    const BEFORE_15: Prepared = Prepared { name: "facts", types: &[], sql: facts!("NULL") };
    const SINCE_15: Prepared = Prepared {
        name: "facts",
        types: &[],
        sql: facts!("(SELECT string_agg(concat(p), ',' ORDER BY oid) FROM pg_parameter_acl p)"),
    };
    if major < 15 { &BEFORE_15 } else { &SINCE_15 }
}

/// The server's state when it was last looked at, and who has given a database back since.
#[derive(Debug, Default)]
pub(crate) struct SharedWatch {
    facts: Vec<Option<String>>,
    ended: BTreeSet<String>,
    /// Of the files of [`Self::have_files_changed`]: time, inode and length.
    files: Option<[Option<(SystemTime, u64, u64)>; 2]>,
    found: Vec<SharedStateChange>,
}

/// Looks at the server's state.
pub(crate) fn facts(admin: &AdminPool, major: u32) -> Result<Vec<Option<String>>, LeaseError> {
    let rows = admin.execute("look for leaks", facts_in(major), &[])?;
    Ok(rows.into_iter().next().unwrap_or_default())
}

impl SharedWatch {
    /// Begins with the facts as they are before a client has a database. Where these cannot be read, the next that are read
    /// count as such.
    pub(crate) fn begin(admin: &AdminPool, major: u32, data: &Path) -> Self {
        let facts = facts(admin, major).unwrap_or_else(|error| {
            tracing::warn!(%error, "could not look at what all databases share");
            Vec::new()
        });
        let mut watch = Self { facts, ..Self::default() };
        watch.have_files_changed(data);
        watch
    }

    /// The lease of that name has ended.
    pub(crate) fn ended(&mut self, name: &str) {
        if !name.is_empty() {
            self.ended.insert(name.to_owned());
        }
    }

    /// Begins a look: returns whose leases have ended before.
    pub(crate) fn take_ended(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.ended)
    }

    /// Ends a look that could not read the facts: the next one is about the same.
    pub(crate) fn put_back(&mut self, ended: BTreeSet<String>) {
        self.ended.extend(ended);
    }

    /// Whether files have changed of which the log does not tell: settings of the server, and replication slots.
    pub(crate) fn have_files_changed(&mut self, data: &Path) -> bool {
        let now = ["postgresql.auto.conf", "pg_replslot"].map(|name| {
            let about = fs::symlink_metadata(data.join(name)).ok()?;
            Some((about.modified().ok()?, about.ino(), about.len()))
        });
        let changed = self.files.as_ref().is_some_and(|before| *before != now);
        self.files = Some(now);
        changed
    }

    /// Ends a look, which found these facts: what changed since the last time is due to one of those who had a database
    /// meanwhile: whose leases had `ended` before, who are `leased` now, and whose leases have ended since.
    /// `guilty` are those who, by the log, have changed something of that kind.
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
                    // A file, of which the log does not tell.
                    (&SLOTS | &SYSTEM, _) | (_, []) => suspects.iter().cloned().collect(),
                    _ => guilty.to_vec(),
                };
                self.note(what, suspects);
            }
        }
        self.facts = facts;
    }

    /// Adds it to what was found of the same kind before: there may be one for each lease.
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

    /// All leaks so far, each kind once.
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
    fn a_change_is_named_once_with_those_who_may_have_made_it() {
        let mut watch = SharedWatch { facts: facts("a"), ..SharedWatch::default() };
        watch.ended("early");
        let early = watch.take_ended();
        watch.compare(facts("a"), early, std::iter::empty(), &[]);
        watch.ended("one");
        let ended = watch.take_ended();
        // Its lease ends while the state is read.
        watch.ended("two");
        watch.compare(facts("ab"), ended, ["three".to_owned()].into_iter(), &[]);
        let ended = watch.take_ended();
        watch.compare(facts("ab"), ended, std::iter::empty(), &[]);
        let suspects = ["one", "three", "two"].map(str::to_owned).to_vec();
        assert_eq!(watch.found(), [SharedStateChange { what: "roles", suspects, count: 1 }]);
    }

    #[test]
    fn of_each_kind_one_is_kept_however_often_it_was_changed() {
        let mut watch = SharedWatch { facts: facts("0"), ..SharedWatch::default() };
        for number in 1..=1000 {
            let ended = [format!("lease {number}"), "always".to_owned()].into();
            watch.compare(facts(&number.to_string()), ended, std::iter::empty(), &[]);
        }
        let [found] = &watch.found()[..] else { panic!("one kind was changed: {:?}", watch.found()) };
        assert_eq!((found.what, found.count, found.suspects.len()), ("roles", 1000, MOST_SUSPECTS));
    }
}
