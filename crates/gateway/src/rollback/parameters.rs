//! Reports changed settings to the client (ParameterStatus) in the same order as a plain server.
//!
//! PostgreSQL 14 and later report changed values immediately before ReadyForQuery. Versions 14 and 15 sort them by
//! name; later versions start with the most recent change. Older versions report each change immediately. Source:
//! `ReportChangedGUCOptions`.

use super::settings::Restored;
use pgwire::{HEADER, encode, frames, split_zero};
use server::Major;

/// Returns the value of the setting `name` in a startup response, or an empty value if the response doesn't contain
/// this setting.
pub(super) fn parameter<'g>(startup_response: &'g [u8], name: &[u8]) -> &'g [u8] {
    let at = startup_response.windows(name.len()).position(|window| window == name);
    at.map_or(b"", |at| split_zero(&startup_response[at + name.len()..]).0)
}

/// Name and value of a setting.
type Parameter = (Vec<u8>, Vec<u8>);

/// The settings reported to the client, along with changes that the gateway must still report.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    /// Major version of the server.
    major: Major,
    reported: Vec<Parameter>,
    /// Changes that the gateway must still report, in the right order.
    changed: Vec<Parameter>,
    /// Reports sent by the server since its last ReadyForQuery.
    batch: Vec<Parameter>,
}

impl Parameters {
    /// Reads the reports in a startup response. The response must consist of complete messages.
    pub(super) fn new(startup_response: &[u8], major: Major) -> Self {
        let reported = frames(startup_response)
            .filter(|frame| frame.tag == b'S')
            .map(|frame| read(frame.body))
            .collect();
        Self { major, reported, ..Self::default() }
    }

    /// Records a report from the server, or returns the report if the client must receive it immediately. `ours` means
    /// that an injected statement caused the report.
    pub(super) fn record_report<'m>(&mut self, report: &'m [u8], ours: bool) -> Option<&'m [u8]> {
        if !self.major.reports_settings_when_ready() && !ours {
            return Some(report);
        }
        self.batch.push(read(&report[HEADER..]));
        None
    }

    /// Handles a ReadyForQuery: sorts all reports since the last one and returns those that the client must receive
    /// immediately.
    ///
    /// `restored` lists the settings that the gateway has just restored. A plain server would have restored them in a
    /// particular order.
    pub(super) fn server_is_ready(&mut self, restored: &[Restored]) -> Vec<u8> {
        if !restored.is_empty() {
            self.order(restored);
        }
        if !self.major.reports_settings_when_ready() {
            return self.batch.drain(..).flat_map(|parameter| report(&parameter)).collect();
        }
        for (name, value) in self.batch.drain(..).rev() {
            match self.changed.iter_mut().find(|(known, _)| *known == name) {
                Some(known) => known.1 = value,
                None => self.changed.insert(0, (name, value)),
            }
        }
        Vec::new()
    }

    /// Sorts the reports as a plain server does at the end of a transaction. Versions before 16 restore settings in
    /// alphabetical order. Later versions restore the most recent change first and report it last.
    fn order(&mut self, restored: &[Restored]) {
        if !self.major.restores_latest_setting_first() {
            return self.batch.sort_by_cached_key(|(name, _)| name.to_ascii_lowercase());
        }
        self.batch.sort_by_key(|(name, _)| {
            let causes = |(local, _): &Restored| {
                name.eq_ignore_ascii_case(local.as_bytes()) || name == b"is_superuser" && local == "role"
            };
            restored.iter().position(causes)
        });
    }

    /// Removes and returns the reports that the client must receive before ReadyForQuery.
    pub(super) fn take_changes(&mut self) -> Vec<u8> {
        self.server_is_ready(&[]);
        if !self.major.restores_latest_setting_first() {
            self.changed.sort_by_cached_key(|(name, _)| name.to_ascii_lowercase());
        }
        let mut reports = Vec::new();
        for parameter in self.changed.drain(..) {
            let known = self.reported.iter_mut().find(|(name, _)| *name == parameter.0);
            if known.as_ref().is_some_and(|(_, value)| *value == parameter.1) {
                continue;
            }
            reports.extend(report(&parameter));
            match known {
                Some(known) => *known = parameter,
                None => self.reported.push(parameter),
            }
        }
        reports
    }
}

fn report((name, value): &Parameter) -> Vec<u8> {
    encode(b'S', &[&name[..], b"\0", value, b"\0"].concat())
}

fn read(body: &[u8]) -> Parameter {
    (split_zero(body).0.to_vec(), split_zero(split_zero(body).1).0.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter_status(name: &str, value: &str) -> Vec<u8> {
        encode(b'S', format!("{name}\0{value}\0").as_bytes())
    }

    #[test]
    fn changed_parameters_are_reported_once_in_version_order() {
        let startup_response =
            [parameter_status("TimeZone", "UTC"), parameter_status("DateStyle", "ISO"), encode(b'Z', b"I")]
                .concat();
        for (major, names) in [(14, ["a", "DateStyle", "in"]), (16, ["in", "a", "DateStyle"])] {
            let mut parameters = Parameters::new(&startup_response, Major(major));
            // Each batch belongs to one part of a client's string and begins with the most recent change.
            let batches =
                [vec![("DateStyle", "SQL"), ("TimeZone", "CET")], vec![("a", "1")], vec![("in", "2")]];
            for batch in batches {
                for (name, value) in batch {
                    assert_eq!(parameters.record_report(&parameter_status(name, value), false), None);
                }
                parameters.server_is_ready(&[]);
            }
            parameters.record_report(&parameter_status("TimeZone", "UTC"), true);
            let values = [("DateStyle", "SQL"), ("a", "1"), ("in", "2")];
            let value = |name: &str| values.iter().find(|(known, _)| *known == name).unwrap().1;
            let expected: Vec<u8> =
                names.iter().flat_map(|name| parameter_status(name, value(name))).collect();
            assert_eq!(
                parameters.take_changes().escape_ascii().to_string(),
                expected.escape_ascii().to_string()
            );
            assert!(parameters.take_changes().is_empty());
        }
        let mut old = Parameters::new(&startup_response, Major(13));
        let at_once = parameter_status("TimeZone", "CET");
        assert_eq!(old.record_report(&at_once, false), Some(&at_once[..]));
        assert!(old.take_changes().is_empty());
    }

    #[test]
    fn restored_parameters_are_reported_in_version_order() {
        let locals = ["timezone", "role", "datestyle"].map(|name| (name.to_owned(), None));
        for (major, names) in [
            (13, ["DateStyle", "is_superuser", "TimeZone"]),
            (15, ["DateStyle", "is_superuser", "TimeZone"]),
            (18, ["TimeZone", "is_superuser", "DateStyle"]),
        ] {
            let mut parameters = Parameters::new(&[], Major(major));
            for name in ["is_superuser", "TimeZone", "DateStyle"] {
                assert_eq!(parameters.record_report(&parameter_status(name, "x"), true), None);
            }
            let reports = [parameters.server_is_ready(&locals), parameters.take_changes()].concat();
            let expected: Vec<u8> = names.iter().flat_map(|name| parameter_status(name, "x")).collect();
            assert_eq!(reports.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{major}");
        }
    }
}
