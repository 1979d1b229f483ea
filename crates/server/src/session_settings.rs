//! Settings for pgfresh's own sessions. They override the settings of templates, roles, databases and `ALTER
//! SYSTEM`.
//!
//! pgfresh passes these settings as startup options. Startup options need no additional message, and the server
//! applies them before login triggers run.

use pgwire::StartupParams;

use crate::SUPERUSER;

/// The first major version with login triggers and the setting `event_triggers`.
const FIRST_MAJOR_WITH_LOGIN_TRIGGERS: u32 = 17;
/// Disables login triggers, which are meant for clients. Otherwise, the template and each copy would contain
/// the rows that these triggers write.
const NO_TRIGGERS: (&str, &str, u32) = ("event_triggers", "off", FIRST_MAJOR_WITH_LOGIN_TRIGGERS);

/// Names, values, and the first major version that has the setting. An older version would reject the session. With
/// these settings, no timeout ends the session, SQL means the same everywhere, and each value has exactly one text
/// form, so pgfresh can compare texts. The server writes commits immediately to the WAL, which pgfresh reads.
const ADMIN_SETTINGS: [(&str, &str, u32); 27] = [
    NO_TRIGGERS,
    ("statement_timeout", "0", 0),
    ("lock_timeout", "0", 0),
    ("idle_in_transaction_session_timeout", "0", 0),
    ("idle_session_timeout", "0", 14),
    ("transaction_timeout", "0", 17),
    ("default_transaction_read_only", "off", 0),
    ("default_transaction_isolation", "read committed", 0),
    ("synchronous_commit", "on", 0),
    ("role", "none", 0),
    ("row_security", "off", 0),
    ("search_path", "pg_catalog", 0),
    ("standard_conforming_strings", "on", 0),
    ("client_encoding", "UTF8", 0),
    ("client_min_messages", "error", 0),
    ("quote_all_identifiers", "off", 0),
    ("extra_float_digits", "3", 0),
    ("bytea_output", "hex", 0),
    ("datestyle", "ISO, MDY", 0),
    ("timezone", "UTC", 0),
    ("intervalstyle", "postgres", 0),
    ("lc_monetary", "C", 0),
    ("array_nulls", "on", 0),
    ("xmloption", "content", 0),
    ("lo_compat_privileges", "off", 0),
    ("default_tablespace", "", 0),
    ("default_toast_compression", "pglz", 14),
];

/// A setting and its value.
pub type Setting = (&'static str, &'static str);

/// Returns the startup parameters for pgfresh's sessions on a server with major version `major`. If `more`
/// repeats a setting, the last value applies.
#[must_use]
pub fn admin_params(major: u32, more: &[Setting]) -> StartupParams {
    params(available_settings(&ADMIN_SETTINGS, major).chain(more.iter().copied()))
}

/// Returns SQL that gives a superuser's session the settings in [`admin_params`] for major version `major`, except for
/// settings that only work at the start of a session.
#[must_use]
pub fn set_admin_settings(major: u32, more: &[Setting]) -> String {
    let set = |(name, value)| format!("SET {name} = '{value}'");
    available_settings(&ADMIN_SETTINGS, major)
        .chain(more.iter().copied())
        .map(set)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Returns the startup parameters for a superuser's session that has a client's settings but doesn't fire
/// login triggers.
pub(crate) fn client_like_params(major: u32, more: &[Setting]) -> StartupParams {
    params(available_settings(&[NO_TRIGGERS], major).chain(more.iter().copied()))
}

/// Returns true if the setting has a different value in a session with [`client_like_params`] than in a
/// client's session.
pub(crate) fn is_hidden(name: &str) -> bool {
    name.eq_ignore_ascii_case(NO_TRIGGERS.0)
}

fn available_settings(
    settings: &'static [(&'static str, &'static str, u32)],
    major: u32,
) -> impl Iterator<Item = Setting> {
    settings.iter().filter(move |(.., since)| major >= *since).map(|(name, value, _)| (*name, *value))
}

fn params(settings: impl Iterator<Item = Setting>) -> StartupParams {
    let option = |(name, value): Setting| format!("-c {name}={}", value.replace(' ', "\\ "));
    let options = settings.map(option).collect::<Vec<_>>().join(" ");
    StartupParams::new([("user", SUPERUSER), ("application_name", "pgfresh"), ("options", &options)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(params: &StartupParams) -> String {
        let options = params.iter().find(|(name, _)| *name == b"options");
        String::from_utf8(options.unwrap().1.to_vec()).unwrap()
    }

    #[test]
    fn each_major_gets_only_known_settings() {
        for (major, [triggers, transaction, idle]) in
            [(13, [false; 3]), (14, [false, false, true]), (16, [false, false, true]), (17, [true; 3])]
        {
            for text in [options(&admin_params(major, &[])), set_admin_settings(major, &[])] {
                assert_eq!(text.contains("event_triggers"), triggers, "{major}");
                assert_eq!(text.contains(" transaction_timeout"), transaction, "{major}");
                assert_eq!(text.contains("idle_session_timeout"), idle, "{major}");
            }
            assert_eq!(options(&client_like_params(major, &[])).contains("event_triggers"), triggers);
        }
    }

    #[test]
    fn further_settings_come_last_and_escaped() {
        let options = options(&admin_params(18, &[("lock_timeout", "5s")]));
        assert!(options.ends_with(" -c lock_timeout=5s"), "{options}");
        assert!(options.contains("-c datestyle=ISO,\\ MDY -c timezone=UTC"), "{options}");
    }
}
