//! Start-up parameters of the next clients, as pgfresh expects them, so that backends can wait for these clients. They are those of
//! the last clients, and, before the first, those in a note of the last server on the same cache entry.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pgwire::StartupParams;
use server::SUPERUSER;
use storage::Entry;

use crate::LeaseError;
use crate::admin::AdminPool;

/// Most sets of parameters for which backends wait: those of a driver and of its pool.
const MOST: usize = 2;
/// Most sets that a server adds to the note. Otherwise clients that never come with the same set twice would cause a note each.
const MOST_NOTES: usize = MOST;
/// Name of the note in the cache entry.
const NOTE: &str = "clients";
/// Most bytes of a note that pgfresh trusts: as long as start-up messages may be.
const LONGEST_NOTE: usize = 4 * 10_000;

/// Some sets of parameters, the latest last.
#[derive(Debug, Default)]
pub(crate) struct ExpectedParams {
    sets: Vec<StartupParams>,
    /// Sets in the note of the entry, once it is written.
    noted: Vec<StartupParams>,
    notes: usize,
    /// Whether the note is still to be written.
    is_note_due: bool,
}

impl ExpectedParams {
    /// Recalls the note that an earlier server on the `entry` has left. Leaves out the sets of roles that this server does not have.
    pub(crate) fn recall(entry: Option<&Entry>, admin: &AdminPool) -> Result<Self, LeaseError> {
        let noted = entry.and_then(|entry| entry.recall(NOTE)).and_then(|text| read(&text));
        let mut noted = noted.unwrap_or_default();
        noted.retain(may_come_again);
        let mut sets = noted.clone();
        if sets.iter().any(|set| set.user() != Some(SUPERUSER.as_bytes())) {
            let roles =
                admin.run("look for roles", "SELECT rolname FROM pg_roles WHERE rolcanlogin")?.concat();
            let has = |user: &[u8]| roles.iter().flatten().any(|role| role.as_bytes() == user);
            sets.retain(|set| set.user().is_some_and(has));
        }
        Ok(Self { sets, noted, ..Self::default() })
    }

    /// Returns all sets.
    pub(crate) fn sets(&self) -> &[StartupParams] {
        &self.sets
    }

    /// Returns the parameters of the last client.
    pub(crate) fn latest(&self) -> Option<&StartupParams> {
        self.sets.last()
    }

    /// Forgets parameters for which a backend has not started, or too slowly, until a client comes with them again.
    pub(crate) fn forget(&mut self, params: &StartupParams) {
        self.sets.retain(|known| known != params);
    }

    /// Notes parameters with which the server has begun a client's session.
    pub(crate) fn served(&mut self, params: &StartupParams) {
        if !may_come_again(params) {
            return;
        }
        put_last(&mut self.sets, params);
        if self.notes < MOST_NOTES && !self.noted.contains(params) {
            put_last(&mut self.noted, params);
            self.notes += 1;
            self.is_note_due = true;
        }
    }

    /// Whether the note is still to be written.
    pub(crate) fn is_note_due(&self) -> bool {
        self.is_note_due
    }

    /// Returns the note that is still to be written, once.
    pub(crate) fn take_note(&mut self) -> Option<String> {
        std::mem::take(&mut self.is_note_due).then(|| write(&self.noted))
    }
}

/// Leaves a note for the next server on the same entry.
pub(crate) fn note(entry: &Entry, text: &str) {
    if let Err(error) = entry.remember(NOTE, text) {
        tracing::debug!(%error, "could not note with which parameters clients come");
    }
}

/// Whether a backend may wait for a client with these parameters. A session for replication must not: while one is open, only the
/// server itself may make copies.
pub(crate) fn may_come_again(params: &StartupParams) -> bool {
    !params.has_replication()
}

fn put_last(sets: &mut Vec<StartupParams>, params: &StartupParams) {
    if sets.last() != Some(params) {
        sets.retain(|known| known != params);
        sets.push(params.clone());
        if sets.len() > MOST {
            sets.remove(0);
        }
    }
}

/// Writes a line for each set: the version of the protocol, and the parameters in Base64.
fn write(sets: &[StartupParams]) -> String {
    let line = |set: &StartupParams| format!("{:08x} {}\n", set.version(), STANDARD.encode(set.parameters()));
    sets.iter().map(line).collect()
}

/// Reads the text of a note; `None` if no server has written it.
fn read(text: &str) -> Option<Vec<StartupParams>> {
    let set = |line: &str| {
        let (version, parameters) = line.split_once(' ')?;
        let version = u32::from_str_radix(version, 16).ok().filter(|version| version >> 16 == 3)?;
        Some(StartupParams::read(version, STANDARD.decode(parameters).ok()?))
    };
    let sets = (text.len() <= LONGEST_NOTE).then(|| text.lines().map(set).collect::<Option<Vec<_>>>())??;
    (sets.len() <= MOST).then_some(sets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(user: &str) -> StartupParams {
        StartupParams::new([("user", user)])
    }

    proptest! {
        #[test]
        fn expected_params_note_round_trips(sets in prop::collection::vec((0x3_0000..0x4_0000_u32, any::<Vec<u8>>()), 0..=MOST)) {
            let sets: Vec<_> =
                sets.into_iter().map(|(version, parameters)| StartupParams::read(version, parameters)).collect();
            prop_assert_eq!(read(&write(&sets)), Some(sets));
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            prop_assert!(read(&text).is_none_or(|sets| sets.len() <= MOST));
        }
    }

    #[test]
    fn latest_params_are_expected_and_first_new_noted() {
        let mut expected = ExpectedParams::default();
        for user in ["a", "b", "a", "c", "d"] {
            expected.served(&of(user));
        }
        assert_eq!(expected.sets(), [of("c"), of("d")]);
        assert_eq!(expected.latest(), Some(&of("d")));
        assert_eq!(expected.take_note().and_then(|text| read(&text)), Some(vec![of("a"), of("b")]));
        assert_eq!(expected.take_note(), None);
    }

    #[test]
    fn replication_session_is_neither_expected_nor_noted() {
        let mut expected = ExpectedParams::default();
        expected.served(&StartupParams::new([("user", "a"), ("replication", "database")]));
        assert!(expected.sets().is_empty() && expected.take_note().is_none());
    }

    #[test]
    fn noted_params_are_not_noted_again() {
        let noted = vec![of("a"), of("b")];
        let mut expected = ExpectedParams { sets: noted.clone(), noted, ..ExpectedParams::default() };
        expected.served(&of("a"));
        assert!(!expected.is_note_due());
        expected.served(&of("c"));
        assert_eq!(expected.take_note().and_then(|text| read(&text)), Some(vec![of("b"), of("c")]));
    }
}
