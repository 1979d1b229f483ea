//! A server's settings, which come from a preset and from the user.
//!
//! pgfresh writes these settings to `postgresql.conf`, so that tests can override them with `ALTER SYSTEM`.
//! The settings that keep the server private are on the command line instead, where nothing can override
//! them.

use std::collections::BTreeMap;

use crate::Installation;
use crate::error::SettingError;
use crate::preset::{COMMON, FAST, LOCALE, PERSISTENT, Preset};

/// Settings that keep a server private. Users can't change them.
const PRIVATE: [&str; 14] = [
    "config_file",
    "data_directory",
    "external_pid_file",
    "hba_file",
    "ident_file",
    "listen_addresses",
    "log_destination",
    "log_directory",
    "log_filename",
    "logging_collector",
    "port",
    "unix_socket_directories",
    "unix_socket_group",
    "unix_socket_permissions",
];

/// Minimum and maximum of `max_wal_size`, in MB.
const WAL_MB: (u64, u64) = (64, 1024);

/// Names and values of settings. Each name occurs once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Returns the settings of `preset`, without those that `installation` lacks. The server can write up to
    /// `budget` bytes.
    #[must_use]
    pub fn preset(preset: Preset, installation: &Installation, budget: u64) -> Self {
        let fast: &[_] = if preset == Preset::Fast { &FAST } else { &[] };
        let mut settings = Self::default();
        for (name, value) in LOCALE.iter().chain(&COMMON).chain(fast) {
            if installation.has_setting(name) {
                settings.0.insert((*name).to_owned(), (*value).to_owned());
            }
        }
        // The WAL can use a quarter of the free space.
        let wal = (budget / 4 / (1 << 20)).clamp(WAL_MB.0, WAL_MB.1);
        let wal = if wal == 1024 { "1GB".to_owned() } else { format!("{wal}MB") };
        settings.0.insert("max_wal_size".to_owned(), wal);
        settings
    }

    /// Returns the settings for a server with persistent data that can write up to `budget` bytes. They are
    /// as durable as `PostgreSQL`'s defaults.
    #[must_use]
    pub fn persistent(installation: &Installation, budget: u64) -> Self {
        let mut settings = Self::preset(Preset::Durable, installation, budget);
        settings.0.extend(PERSISTENT.map(|(name, value)| (name.to_owned(), value.to_owned())));
        settings
    }

    /// Sets the value of `name`, replacing the previous value if there is one.
    ///
    /// # Errors
    /// Returns an error if the name is invalid, or if this setting keeps the server private. The server
    /// itself rejects unknown names and invalid values when it starts.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let name = name.trim().to_ascii_lowercase();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
        if name.is_empty() || name.as_bytes()[0].is_ascii_digit() || !name.bytes().all(plain) {
            return Err(SettingError::Name(name));
        }
        if PRIVATE.contains(&name.as_str()) {
            return Err(SettingError::Private(name));
        }
        if value.contains(['\n', '\r', '\0']) {
            return Err(SettingError::Value { name, value: value.to_owned() });
        }
        self.0.insert(name, value.to_owned());
        Ok(())
    }

    /// Adds pgfresh's own settings, which replace earlier values.
    pub(crate) fn with(mut self, more: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        self.0.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
        self
    }

    /// Adds those of pgfresh's own settings that have no value yet.
    pub(crate) fn with_missing(
        mut self,
        more: impl IntoIterator<Item = (&'static str, &'static str)>,
    ) -> Self {
        for (name, value) in more {
            self.0.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
        self
    }

    /// Returns all settings, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the contents of a `postgresql.conf`.
    #[must_use]
    pub fn to_conf(&self) -> String {
        let mut text =
            "# Written by pgfresh for this one server; ALTER SYSTEM goes to postgresql.auto.conf.\n"
                .to_owned();
        for (name, value) in self.iter() {
            text.push_str(&format!("{name} = '{}'\n", value.replace('\\', "\\\\").replace('\'', "''")));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_and_the_last_wins() {
        let mut settings = Settings::default();
        settings.set("Work_Mem", "1MB").unwrap();
        settings.set("work_mem", "8MB").unwrap();
        settings.set("app.motto", r"it's a \").unwrap();
        let conf = settings.to_conf();
        assert!(conf.ends_with("app.motto = 'it''s a \\\\'\nwork_mem = '8MB'\n"), "{conf}");
    }

    #[test]
    fn private_settings_cannot_be_set() {
        let mut settings = Settings::default();
        let pairs = [
            ("Port", "5432"),
            ("listen_addresses", "*"),
            ("", "x"),
            ("1x", "2"),
            ("a b", "c"),
            ("a", "b\nc=d"),
        ];
        for (name, value) in pairs {
            assert!(settings.set(name, value).is_err(), "{name:?}");
        }
        assert_eq!(settings, Settings::default());
    }
}
