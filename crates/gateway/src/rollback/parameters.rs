//! The settings that a server reports (ParameterStatus), in the order in which a plain server would.
//!
//! From version 14 on it reports them right before it is ready: those of which the value has changed since the last report,
//! in 14 and 15 by name, later beginning with what was changed last. Before 14 it reports each change at once.
//! Source: `ReportChangedGUCOptions`.

use super::message::{after_zero, message, until_zero};

/// What comes behind `name` in a greeting; nothing if that is not in it.
pub(super) fn parameter<'g>(greeting: &'g [u8], name: &[u8]) -> &'g [u8] {
    let at = greeting.windows(name.len()).position(|window| window == name);
    at.map_or(b"", |at| until_zero(&greeting[at + name.len()..]))
}

/// A setting's name and its value.
type Parameter = (Vec<u8>, Vec<u8>);

/// What the client knows of the settings, and what it does not know yet.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    /// The server's version.
    major: u32,
    reported: Vec<Parameter>,
    /// In the order in which they are to be reported.
    changed: Vec<Parameter>,
    /// What the server has reported since it was last ready.
    batch: Vec<Parameter>,
}

impl Parameters {
    /// What a `greeting` says: complete messages all.
    pub(super) fn new(greeting: &[u8], major: u32) -> Self {
        let (mut reported, mut rest) = (Vec::new(), greeting);
        while let Some((header, _)) = rest.split_first_chunk::<5>() {
            let [tag, length @ ..] = *header;
            let end = 1 + (u32::from_be_bytes(length) as usize).max(4);
            let Some((found, after)) = rest.split_at_checked(end) else { break };
            if tag == b'S' {
                reported.push(read(&found[5..]));
            }
            rest = after;
        }
        Self { major, reported, ..Self::default() }
    }

    /// Takes note of a report, unless the client is to hear it at once: then it is returned.
    pub(super) fn hear<'m>(&mut self, report: &'m [u8]) -> Option<&'m [u8]> {
        if self.major < 14 {
            return Some(report);
        }
        self.batch.push(read(&report[5..]));
        None
    }

    /// The server is ready: what it has reported is in the order of that time.
    pub(super) fn server_is_ready(&mut self) {
        for (name, value) in self.batch.drain(..).rev() {
            match self.changed.iter_mut().find(|(known, _)| *known == name) {
                Some(known) => known.1 = value,
                None => self.changed.insert(0, (name, value)),
            }
        }
    }

    /// The reports that the client is to get before it hears that the server is ready.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.server_is_ready();
        if self.major < 16 {
            self.changed.sort_by_cached_key(|(name, _)| name.to_ascii_lowercase());
        }
        let mut reports = Vec::new();
        for (name, value) in self.changed.drain(..) {
            let report = message(b'S', &[&name[..], b"\0", &value, b"\0"].concat());
            match self.reported.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) if *known == value => continue,
                Some(known) => known.1 = value,
                None => self.reported.push((name, value)),
            }
            reports.extend(report);
        }
        reports
    }
}

fn read(body: &[u8]) -> Parameter {
    (until_zero(body).to_vec(), until_zero(after_zero(body)).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str, value: &str) -> Vec<u8> {
        message(b'S', format!("{name}\0{value}\0").as_bytes())
    }

    #[test]
    fn what_has_changed_is_reported_once_and_in_the_order_of_the_version() {
        let greeting = [report("TimeZone", "UTC"), report("DateStyle", "ISO"), message(b'Z', b"I")].concat();
        for (major, names) in [(14, ["a", "DateStyle", "in"]), (16, ["in", "a", "DateStyle"])] {
            let mut parameters = Parameters::new(&greeting, major);
            // Of one string, which the server got in parts; the last name of a batch is that which was changed first.
            let batches =
                [vec![("DateStyle", "SQL"), ("TimeZone", "CET")], vec![("a", "1")], vec![("in", "2")]];
            for batch in batches {
                for (name, value) in batch {
                    assert_eq!(parameters.hear(&report(name, value)), None);
                }
                parameters.server_is_ready();
            }
            parameters.hear(&report("TimeZone", "UTC"));
            let values = [("DateStyle", "SQL"), ("a", "1"), ("in", "2")];
            let value = |name: &str| values.iter().find(|(known, _)| *known == name).unwrap().1;
            let expected: Vec<u8> = names.iter().flat_map(|name| report(name, value(name))).collect();
            assert_eq!(parameters.take().escape_ascii().to_string(), expected.escape_ascii().to_string());
            assert!(parameters.take().is_empty());
        }
        let mut old = Parameters::new(&greeting, 13);
        let at_once = report("TimeZone", "CET");
        assert_eq!(old.hear(&at_once), Some(&at_once[..]));
        assert!(old.take().is_empty());
    }
}
