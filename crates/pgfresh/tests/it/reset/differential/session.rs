//! Reads the complete state of a session, for comparison with a new connection to the server.

use std::collections::BTreeMap;
use std::fs;

use crate::common::connection::{Connection, SqlError};

/// Queries that each return one value, which is the same in each new session. Those that load a library come last.
const PROBES: [(&str, &str); 17] = [
    ("session_user", "SELECT session_user"),
    ("current_user", "SELECT current_user"),
    ("role", "SELECT current_setting('role')"),
    ("is_superuser", "SELECT current_setting('is_superuser')"),
    ("lastval", "SELECT lastval()"),
    ("currval", "SELECT currval('public.ticket'), currval('other.used'), currval('public.cycling')"),
    ("prepared statements", "SELECT string_agg(name, ', ') FROM pg_prepared_statements"),
    ("cursors", "SELECT string_agg(name, ', ') FROM pg_cursors WHERE name <> ''"),
    ("channels", "SELECT string_agg(c, ', ') FROM pg_listening_channels() c"),
    ("temporary schema", "SELECT pg_my_temp_schema()"),
    (
        "advisory locks",
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database \
         WHERE datname = current_database())",
    ),
    ("replication origin", "SELECT pg_replication_origin_session_is_setup()"),
    ("transaction", "SELECT pg_current_xact_id_if_assigned()"),
    // Clients can see waiting backends (docs/isolation.md), but no statement from other clients in them.
    (
        "other sessions",
        "SELECT string_agg(application_name || ' ' || coalesce(query, ''), ', ') FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' \
         AND application_name NOT LIKE 'pgfresh%' AND application_name NOT IN ('comparison', 'pg_dump') \
         AND NOT (state IN ('idle', 'disabled') AND (query IN ('', 'DISCARD ALL') OR query LIKE 'BEGIN READ WRITE; SET LOCAL sync%'))",
    ),
    ("prepared transactions", "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"),
    ("search path", "SELECT current_schemas(true)"),
    ("modules", "SELECT string_agg(file_name, ', ' ORDER BY file_name) FROM pg_get_loaded_modules()"),
];

/// Query for every setting with its value, the value's source, and the value that RESET would give.
const SETTINGS: &str =
    "SELECT name, concat_ws(' | ', setting, source, reset_val, sourcefile, sourceline) FROM pg_settings";

/// Query for settings with a dot that the cases' statements set. A setting's value is NULL if it isn't set.
const CUSTOM: &str = "SELECT n, coalesce(current_setting(n, true), 'NULL') FROM unnest('{app.tester,app.tenant,app.x,\
    auto_explain.log_min_duration,plpgsql.variable_conflict}'::text[]) n UNION ALL SELECT n, coalesce(current_setting(n, true), 'NULL') \
    FROM (SELECT 'app.' || k || '_' || i FROM unnest('{a,b}'::text[]) k, generate_series(1, 11) i) x(n)";

/// First random numbers in a session after `setseed` with the values that the cases use.
pub(crate) struct SeededNumbers(Vec<String>);

impl SeededNumbers {
    pub(crate) fn read(session: &mut Connection) -> Result<Self, SqlError> {
        let mut numbers = Vec::new();
        for n in 1..12 {
            session.rows(&format!("SELECT setseed(0.{n})"))?;
            numbers.extend(
                session.rows("SELECT random() FROM generate_series(1, 50)")?.into_iter().flatten().flatten(),
            );
        }
        Ok(Self(numbers))
    }
}

/// A session's state, by probe.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SessionState(BTreeMap<String, String>);

impl SessionState {
    /// Reads the state of a session that hasn't run a query yet.
    pub(crate) fn read(session: &mut Connection, seeded: &SeededNumbers) -> Result<Self, SqlError> {
        let mut state = BTreeMap::new();
        state.insert("transaction status".to_owned(), session.status.to_string());
        for (name, value) in &session.parameters {
            state.insert(format!("ParameterStatus {name}"), value.clone());
        }
        // This query must come first, before a probe loads a library.
        let pid = session.value("SELECT pg_backend_pid()")?;
        state.insert("libraries".to_owned(), libraries(&pid));
        let random = session.value("SELECT random()")?;
        state.insert("random() is that of a seed".to_owned(), seeded.0.contains(&random).to_string());
        for row in session.rows(SETTINGS)?.into_iter().chain(session.rows(CUSTOM)?) {
            let mut columns = row.into_iter().map(Option::unwrap_or_default);
            let name = columns.next().unwrap_or_default();
            state.insert(format!("setting {name}"), columns.next().unwrap_or_default());
        }
        for (name, sql) in PROBES {
            let value = match session.rows(sql) {
                Ok(rows) => format!("{:?}", rows.first()),
                Err(error) if error.sqlstate == "08006" => return Err(error),
                Err(error) => error.sqlstate,
            };
            state.insert(name.to_owned(), value);
        }
        Ok(Self(state))
    }

    /// Returns a line for each probe where `other` differs from this state.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, value) in &self.0 {
            let others = other.0.get(name);
            if others != Some(value) {
                found.push(format!("{name}: {others:?} instead of {value:?}"));
            }
        }
        let more = other.0.iter().filter(|(name, _)| !self.0.contains_key(*name));
        found.extend(more.map(|(name, value)| format!("{name}: {value:?} instead of nothing")));
        found
    }
}

/// Returns the names of PostgreSQL's libraries, and of libpq, that a backend has loaded.
fn libraries(pid: &str) -> String {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let ours = files.filter(|file| file.contains(".so"));
    let ours = ours.filter(|file| file.contains("/postgresql/") || file.contains("/libpq.so"));
    let mut names: Vec<&str> = ours.filter_map(|file| file.rsplit('/').next()).collect();
    names.sort_unstable();
    names.dedup();
    names.join(" ")
}
