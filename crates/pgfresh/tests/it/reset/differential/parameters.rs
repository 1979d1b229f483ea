//! Finds every parameter that a client can set when it connects, each with a value that isn't its default.

use crate::common::connection::{Address, Connection};

/// Parameter, and a value that the server accepts for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Parameters that have only one value on a stock server, or that a client can't set.
pub(crate) const WITHOUT_ANOTHER_VALUE: [&str; 12] = [
    // PostgreSQL has only one access method.
    "default_table_access_method",
    // Libraries must be in a folder that doesn't contain any.
    "local_preload_libraries",
    // Builds without lz4 only have pglz.
    "default_toast_compression",
    // This parameter only exists in builds with assertions.
    "debug_discard_caches",
    // A snapshot or transaction determines their values.
    "transaction_deferrable",
    "transaction_isolation",
    "transaction_read_only",
    // Connections over a unix socket ignore these parameters.
    "tcp_keepalives_count",
    "tcp_keepalives_idle",
    "tcp_keepalives_interval",
    "tcp_user_timeout",
    // These parameters have only one value since 19.
    "standard_conforming_strings",
];

/// Parameters that `pg_settings` doesn't list. A client can't set `session_authorization` at the start.
const HIDDEN: [(&str, &str); 1] = [("role", "guest")];

/// Values of string parameters that the server accepts.
const STRINGS: [(&str, &str); 23] = [
    ("application_name", "someone"),
    ("backtrace_functions", "foo"),
    ("client_encoding", "LATIN1"),
    ("createrole_self_grant", "set"),
    ("datestyle", "SQL, DMY"),
    ("default_tablespace", "pg_default"),
    ("default_text_search_config", "simple"),
    ("dynamic_library_path", "$libdir:/nowhere"),
    ("extension_control_path", "$system:/nowhere"),
    ("lc_messages", "POSIX"),
    ("lc_monetary", "POSIX"),
    ("lc_numeric", "POSIX"),
    ("log_min_messages", "error"),
    ("lc_time", "POSIX"),
    ("local_preload_libraries", "auto_explain"),
    ("log_connections", "all"),
    ("restrict_nonsystem_relation_kind", "view"),
    ("search_path", "other"),
    ("session_preload_libraries", "auto_explain"),
    ("temp_tablespaces", "pg_default"),
    ("timezone", "Asia/Tokyo"),
    ("timezone_abbreviations", "India"),
    ("wal_consistency_checking", "heap"),
];

const SETTABLE: &str = "SELECT name, vartype, setting, min_val, max_val, array_to_string(enumvals, ',') FROM pg_settings \
    WHERE context IN ('user', 'superuser', 'backend', 'superuser-backend') ORDER BY name";

impl Parameter {
    /// Returns the parameter as a word in `options`.
    pub(crate) fn option(&self) -> String {
        let escaped = self.value.replace('\\', "\\\\").replace(' ', "\\ ");
        format!("-c {}={escaped}", self.name)
    }

    /// Whether a session with the parameter keeps running and responds like other sessions.
    pub(crate) fn is_harmless(&self) -> bool {
        !self.name.ends_with("_timeout") && self.name != "exit_on_error" && self.name != "post_auth_delay"
    }

    /// Returns all parameters that the server at `address` lets a superuser set, and the names of parameters that
    /// don't accept another value.
    pub(crate) fn all(address: &Address) -> (Vec<Self>, Vec<String>) {
        let mut session = Connection::open(address, "postgres", &[]).unwrap();
        let (mut all, mut without) = (Vec::new(), Vec::new());
        for row in session.rows(SETTABLE).unwrap() {
            let mut columns = row.into_iter().map(Option::unwrap_or_default);
            let mut next = || columns.next().unwrap_or_default();
            let (name, kind, now) = (next(), next(), next());
            let values = candidates(&name, &kind, &now, [&next(), &next(), &next()]);
            let parameters = values.into_iter().map(|value| Self { name: name.clone(), value });
            match parameters.into_iter().find(|parameter| parameter.is_accepted(address, &now)) {
                Some(parameter) => all.push(parameter),
                None => without.push(name),
            }
        }
        session.close();
        all.extend(HIDDEN.map(|(name, value)| Self { name: name.to_owned(), value: value.to_owned() }));
        (all, without)
    }

    /// Whether the server opens a session with the parameter, whose value must then differ from `now`.
    fn is_accepted(&self, address: &Address, now: &str) -> bool {
        let Ok(mut session) = Connection::open(address, "postgres", &[("options", &self.option())]) else {
            return false;
        };
        let value = session.value(&format!("SELECT setting FROM pg_settings WHERE name = '{}'", self.name));
        session.close();
        value.is_ok_and(|value| value != now)
    }
}

fn candidates(name: &str, kind: &str, now: &str, [low, high, labels]: [&str; 3]) -> Vec<String> {
    match kind {
        "bool" => vec![if now == "on" { "off" } else { "on" }.to_owned()],
        "enum" => labels.split(',').filter(|label| *label != now).map(str::to_owned).collect(),
        "string" => {
            let known = STRINGS.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
            known.map(|(_, value)| (*value).to_owned()).chain(["x".to_owned()]).collect()
        }
        // The timeout is long enough for some statements.
        _ if name.ends_with("_timeout") => vec!["500".to_owned()],
        _ if name == "post_auth_delay" => vec!["1".to_owned()],
        _ => {
            let now: f64 = now.parse().unwrap_or(0.0);
            [now * 2.0, now + 1.0, now / 2.0, now - 1.0]
                .map(|value| if kind == "integer" { format!("{value:.0}") } else { format!("{value}") })
                .into_iter()
                .chain([low.to_owned(), high.to_owned()])
                .collect()
        }
    }
}
