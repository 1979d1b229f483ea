//! Contains the questions: queries of the laboratory that a repeated session runs in the client's transaction. Parses
//! their results.

use std::collections::HashMap;
use std::time::Duration;

use plans::RelationName;
use server::{Rows, literal};

use crate::LockMode;

/// A query about the session that runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    /// Reads the session's locks on relations, and the file and counters of each relation. The first row contains
    /// `lock_timeout`.
    ///
    /// Relations of PostgreSQL itself count only if they are locked in a strong mode, because each statement locks many
    /// of them in weak modes.
    Held,
    /// Reads the counters from before the transaction that the session hasn't reported yet. The first row contains
    /// `lock_timeout`.
    Counters,
    /// Returns a row if any trigger can be deferred, including new triggers.
    Deferrable,
    /// Returns the backend's pid.
    Pid,
}

/// First row of [`Question::Held`] and [`Question::Counters`].
const SETTINGS: &str = "\
SELECT NULL::pg_catalog.text, pg_catalog.current_setting('lock_timeout'), NULL::pg_catalog.text, NULL::pg_catalog.text, \
 NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text ";
const HELD: &str = "\
SELECT l.relation::pg_catalog.text, pg_catalog.string_agg(DISTINCT l.mode, ','), \
 pg_catalog.pg_relation_filenode(l.relation)::pg_catalog.text, \
 pg_catalog.pg_stat_get_xact_numscans(l.relation)::pg_catalog.text, \
 pg_catalog.pg_stat_get_xact_tuples_returned(l.relation)::pg_catalog.text, \
 pg_catalog.pg_relation_size(l.relation)::pg_catalog.text, pg_catalog.min(n.nspname::pg_catalog.text), \
 pg_catalog.min(c.relname::pg_catalog.text), \
 (pg_catalog.pg_stat_get_xact_tuples_updated(l.relation) + pg_catalog.pg_stat_get_xact_tuples_deleted(l.relation))::pg_catalog.text \
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_class c ON c.oid = l.relation \
LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'relation' AND l.granted \
 AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()) \
 AND (l.relation >= 16384 OR l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')) \
GROUP BY l.relation";
const COUNTERS: &str = "\
SELECT c.oid::pg_catalog.text, NULL, NULL, pg_catalog.pg_stat_get_xact_numscans(c.oid)::pg_catalog.text, \
 pg_catalog.pg_stat_get_xact_tuples_returned(c.oid)::pg_catalog.text, NULL, NULL, NULL, \
 (pg_catalog.pg_stat_get_xact_tuples_updated(c.oid) + pg_catalog.pg_stat_get_xact_tuples_deleted(c.oid))::pg_catalog.text \
FROM pg_catalog.pg_class c WHERE c.oid >= 16384 AND c.relkind IN ('r', 'm') \
 AND pg_catalog.pg_stat_get_xact_numscans(c.oid) + pg_catalog.pg_stat_get_xact_tuples_updated(c.oid) \
 + pg_catalog.pg_stat_get_xact_tuples_deleted(c.oid) > 0";
/// Lists the functions with the names `$1` and those that they call.
const FUNCTIONS: &str = "\
WITH RECURSIVE called AS (SELECT p.oid, p.prosrc, p.proconfig FROM pg_catalog.pg_proc p \
 WHERE p.oid >= 16384 AND p.proname::pg_catalog.text = ANY ($1) \
UNION SELECT p.oid, p.prosrc, p.proconfig FROM called JOIN pg_catalog.pg_proc p ON p.oid >= 16384 \
 AND p.proname::pg_catalog.text = ANY (pg_catalog.regexp_split_to_array(called.prosrc, '[^[:alnum:]_]+'))) \
SELECT prosrc, (SELECT pg_catalog.split_part(setting, '=', 2) FROM pg_catalog.unnest(proconfig) setting \
 WHERE setting LIKE 'lock_timeout=%') FROM called";
/// Counts scans and rows even if the client has switched this off. Only a superuser may change the setting.
const COUNT: &str = "SELECT pg_catalog.set_config('track_counts', 'on', false); ";
/// Keeps event triggers of the template from firing. Functions of `pg_catalog` survive a DROP SCHEMA.
const BEFORE_FUNCTIONS: &str = "BEGIN; SET LOCAL session_replication_role = replica; ";

impl Question {
    const ALL: [Self; 4] = [Self::Held, Self::Counters, Self::Deferrable, Self::Pid];

    fn query(self) -> String {
        match self {
            Self::Held => format!("{SETTINGS} UNION ALL {HELD}"),
            Self::Counters => format!("{SETTINGS} UNION ALL {COUNTERS}"),
            Self::Deferrable => "SELECT 1 FROM pg_catalog.pg_trigger WHERE tgdeferrable LIMIT 1".to_owned(),
            Self::Pid => "SELECT pg_catalog.pg_backend_pid()".to_owned(),
        }
    }

    /// Returns the question's function, which answers any role. A migration's role may lack the privilege to read the
    /// catalogs itself.
    fn function(self) -> &'static str {
        match self {
            Self::Held => "pg_catalog.pgfresh_held()",
            Self::Counters => "pg_catalog.pgfresh_counters()",
            Self::Deferrable => "pg_catalog.pgfresh_deferrable()",
            Self::Pid => "pg_catalog.pgfresh_pid()",
        }
    }

    /// Returns SQL for a session. `has_functions` means that its database has the functions of [`create_functions`].
    pub(super) fn sql(self, has_functions: bool) -> String {
        if has_functions { format!("SELECT * FROM {}", self.function()) } else { self.query() }
    }
}

/// SQL that returns true if a database has the functions.
pub(super) const HAS_FUNCTIONS: &str =
    "SELECT pg_catalog.to_regprocedure('pg_catalog.pgfresh_pid()') IS NOT NULL";

/// Returns SQL that creates the functions of all questions, for a superuser.
pub(super) fn create_functions() -> String {
    let text = "pg_catalog.text";
    let columns: Vec<_> = (1..=9).map(|number| format!("answer_{number} {text}")).collect();
    let create = |question: Question| {
        let (result, count) = match question {
            Question::Held | Question::Counters => (format!("TABLE ({})", columns.join(", ")), COUNT),
            Question::Deferrable | Question::Pid => ("SETOF pg_catalog.int4".to_owned(), ""),
        };
        let (function, query) = (question.function(), question.query());
        format!(
            "CREATE FUNCTION {function} RETURNS {result} LANGUAGE sql SECURITY DEFINER \
             AS $pgfresh$ {count}{query} $pgfresh$; GRANT EXECUTE ON FUNCTION {function} TO PUBLIC; "
        )
    };
    let functions: String = Question::ALL.into_iter().map(create).collect();
    format!(
        "{BEFORE_FUNCTIONS}{functions}\
         CREATE FUNCTION pg_catalog.pgfresh_functions({text}[]) RETURNS TABLE (body {text}, timeout {text}) \
         LANGUAGE sql SECURITY DEFINER AS $pgfresh$ {FUNCTIONS} $pgfresh$; \
         GRANT EXECUTE ON FUNCTION pg_catalog.pgfresh_functions({text}[]) TO PUBLIC; COMMIT"
    )
}

/// A relation's locks, file and counters as seen in a transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RelationState {
    /// Lock modes that the transaction holds.
    pub(super) modes: Vec<LockMode>,
    /// Number of the relation's file. `None` if it is unknown, or if the relation has no files.
    pub(super) file: Option<u32>,
    pub(super) counters: Counters,
    pub(super) bytes: u64,
    /// Name as seen in the transaction. `None` if the transaction dropped the relation.
    pub(super) name: Option<RelationName>,
}

/// Counters of a table's sequential scans and changed rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) scans: u64,
    /// Number of rows that the scans read.
    pub(super) rows: u64,
    /// Number of updated and deleted rows.
    pub(super) changed: u64,
}

/// Result of [`Question::Held`] or [`Question::Counters`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SessionState {
    /// Relations, keyed by object identifier.
    pub(super) relations: HashMap<u32, RelationState>,
    /// The session's `lock_timeout`. `None` if it is off.
    pub(super) lock_timeout: Option<Duration>,
}

impl SessionState {
    /// Parses the rows of a result.
    pub(super) fn read(rows: &Rows) -> Self {
        let mut state = Self::default();
        for row in rows {
            let text = |column: usize| row.get(column).and_then(Option::as_deref);
            let number = |column: usize| text(column).and_then(|text| text.parse().ok()).unwrap_or(0);
            match text(0).and_then(|oid| oid.parse().ok()) {
                None => state.lock_timeout = text(1).and_then(duration),
                Some(oid) => {
                    let modes = text(1).unwrap_or_default().split(',').filter_map(LockMode::from_catalog);
                    let relation = RelationState {
                        modes: modes.collect(),
                        file: text(2).and_then(|file| file.parse().ok()),
                        counters: Counters { scans: number(3), rows: number(4), changed: number(8) },
                        bytes: number(5),
                        name: text(6).zip(text(7)).map(|(schema, name)| RelationName {
                            schema: schema.to_owned(),
                            name: name.to_owned(),
                        }),
                    };
                    state.relations.insert(oid, relation);
                }
            }
        }
        state
    }
}

/// Returns SQL for the functions with these names and for those that they call: the body and the function's own
/// `lock_timeout` of each.
pub(super) fn functions_of(names: &[String], has_functions: bool) -> String {
    let names: Vec<_> = names.iter().map(|name| literal(name)).collect();
    let names = format!("ARRAY[{}]::pg_catalog.text[]", names.join(", "));
    if has_functions {
        format!("SELECT * FROM pg_catalog.pgfresh_functions({names})")
    } else {
        FUNCTIONS.replace("$1", &names)
    }
}

/// Parses a setting such as `5s`. Returns `None` for 0, which means no timeout.
pub(super) fn duration(setting: &str) -> Option<Duration> {
    let digits = setting.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(setting.len());
    let (number, unit) = setting.split_at(digits);
    let unit = match unit {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let milliseconds = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_their_units() {
        for (setting, milliseconds) in [
            ("0", 0),
            ("250ms", 250),
            ("5s", 5000),
            ("2min", 120_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("x", 0),
        ] {
            assert_eq!(duration(setting).map_or(0, |one| one.as_millis()), milliseconds, "{setting}");
        }
    }

    #[test]
    fn rows_become_a_state() {
        let row = |cells: [Option<&str>; 9]| cells.map(|cell| cell.map(str::to_owned)).to_vec();
        let state = SessionState::read(&vec![
            row([None, Some("2s"), None, None, None, None, None, None, None]),
            row([
                Some("16400"),
                Some("AccessShareLock,ShareLock"),
                Some("7"),
                Some("1"),
                Some("9"),
                Some("8192"),
                None,
                None,
                Some("4"),
            ]),
        ]);
        assert_eq!(state.lock_timeout, Some(Duration::from_secs(2)));
        let relation = RelationState {
            modes: vec![LockMode::AccessShare, LockMode::Share],
            file: Some(7),
            counters: Counters { scans: 1, rows: 9, changed: 4 },
            bytes: 8192,
            name: None,
        };
        assert_eq!(state.relations, HashMap::from([(16400, relation)]));
    }
}
