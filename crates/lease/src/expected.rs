//! With which start-up parameters the next clients are expected to come, so that backends wait for them: as the last ones did,
//! and, until there were any, as those of the last server on the same cache entry.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pgwire::StartupParams;
use server::SUPERUSER;
use storage::Entry;

use crate::LeaseError;
use crate::admin::AdminPool;

/// For how many sets of parameters backends wait: a driver's own and its pool's.
const MOST: usize = 2;
/// How often a server notes another set. Clients that never come with the same twice are not noted for ever.
const MOST_NOTES: usize = MOST;
/// What the note is called.
const NOTE: &str = "clients";
/// The longest note that is believed, in bytes: as long as start-up messages may be.
const LONGEST_NOTE: usize = 4 * 10_000;

/// A few sets of parameters, the latest last.
#[derive(Debug, Default)]
pub(crate) struct ExpectedParams {
    sets: Vec<StartupParams>,
    /// What the note of the entry says, or is about to say.
    noted: Vec<StartupParams>,
    notes: usize,
    /// Whether that is still to be written.
    is_note_due: bool,
}

impl ExpectedParams {
    /// What an earlier server on the `entry` has noted. Roles that this one does not have are not expected.
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

    /// All of them.
    pub(crate) fn sets(&self) -> &[StartupParams] {
        &self.sets
    }

    /// Those of the last client.
    pub(crate) fn latest(&self) -> Option<&StartupParams> {
        self.sets.last()
    }

    /// With these no backend has started, or too slowly: none is, until a client comes with them again.
    pub(crate) fn forget(&mut self, params: &StartupParams) {
        self.sets.retain(|known| known != params);
    }

    /// The server has let a client with these begin a session.
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

    /// Whether a note is to be written.
    pub(crate) fn is_note_due(&self) -> bool {
        self.is_note_due
    }

    /// The note that is to be written, once.
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

/// Whether a backend may wait for a client with these: not one that sends the log, for which the server would have to make all copies.
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

/// A line for each set: the version of the protocol, and the parameters in Base64.
fn write(sets: &[StartupParams]) -> String {
    let line = |set: &StartupParams| format!("{:08x} {}\n", set.version(), STANDARD.encode(set.parameters()));
    sets.iter().map(line).collect()
}

/// `None` for what no server has noted.
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
        fn what_is_noted_is_read(sets in prop::collection::vec((0x3_0000..0x4_0000_u32, any::<Vec<u8>>()), 0..=MOST)) {
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
    fn the_last_are_expected_and_the_first_that_are_new_are_noted() {
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
    fn a_session_of_replication_is_neither_expected_nor_noted() {
        let mut expected = ExpectedParams::default();
        expected.served(&StartupParams::new([("user", "a"), ("replication", "database")]));
        assert!(expected.sets().is_empty() && expected.take_note().is_none());
    }

    #[test]
    fn those_that_are_noted_already_are_not_noted_again() {
        let noted = vec![of("a"), of("b")];
        let mut expected = ExpectedParams { sets: noted.clone(), noted, ..ExpectedParams::default() };
        expected.served(&of("a"));
        assert!(!expected.is_note_due());
        expected.served(&of("c"));
        assert_eq!(expected.take_note().and_then(|text| read(&text)), Some(vec![of("b"), of("c")]));
    }
}
