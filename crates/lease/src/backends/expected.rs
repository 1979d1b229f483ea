//! Predicts the startup parameters of the next clients, so that pgfresh can start backends before the clients come.
//!
//! The prediction is simple: the next clients will use the same parameters as the last ones. Until the first client
//! comes, pgfresh relies on the note that the last server left in the cache entry.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pgwire::StartupParams;
use storage::Entry;

use crate::admin::AdminPool;
use crate::backends::backend::{is_for_superuser, params_id};
use crate::error::LeaseError;
use crate::table::ParamsId;

/// Maximum number of parameter sets for which pgfresh keeps idle backends. Two are
/// enough for a driver and its connection pool, which may use different parameters.
const MOST: usize = 2;
/// Maximum number of sets that a server may add to the note. Without this limit, pgfresh would rewrite the note for
/// every client if all clients used different parameters.
const MOST_NOTES: usize = MOST;
/// Name of the note in the cache entry.
const NOTE: &str = "clients";
/// Maximum size of a note, in bytes, with room for startup messages of the maximum length.
const LONGEST_NOTE: usize = 4 * 10_000;

/// Sets of startup parameters, ordered by last use.
#[derive(Debug, Default)]
pub(crate) struct ExpectedParams {
    sets: Vec<StartupParams>,
    /// The sets that the note will contain once it is written.
    noted: Vec<StartupParams>,
    notes: usize,
    /// Whether the note must be rewritten.
    is_note_due: bool,
}

impl ExpectedParams {
    /// Reads the note that an earlier server left in the cache `entry`. Sets with a role that doesn't exist in this
    /// server are ignored.
    pub(crate) fn recall(entry: Option<&Entry>, admin: &AdminPool) -> Result<Self, LeaseError> {
        let noted = entry.and_then(|entry| entry.recall(NOTE)).and_then(|text| read(&text));
        let mut noted = noted.unwrap_or_default();
        noted.retain(may_come_again);
        let mut sets = noted.clone();
        if sets.iter().any(|set| !is_for_superuser(set)) {
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

    /// Returns the ids of all sets.
    pub(crate) fn ids(&self) -> Vec<ParamsId> {
        self.sets.iter().map(params_id).collect()
    }

    /// Returns the parameters of the most recent client.
    pub(crate) fn latest(&self) -> Option<&StartupParams> {
        self.sets.last()
    }

    /// Removes a parameter set whose backend failed to start or started
    /// too slowly. If a client uses the set later, the set counts again.
    pub(crate) fn forget(&mut self, params: &StartupParams) {
        self.sets.retain(|known| known != params);
    }

    /// Records that a client's session with these parameters has started.
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

    /// Returns true if the note must be written.
    pub(crate) fn is_note_due(&self) -> bool {
        self.is_note_due
    }

    /// Returns the note's text if the note must be written. Later calls return `None` until the text changes.
    pub(crate) fn take_note(&mut self) -> Option<String> {
        std::mem::take(&mut self.is_note_due).then(|| write(&self.noted))
    }
}

/// Writes the note for the next server using the same cache entry.
pub(crate) fn note(entry: &Entry, text: &str) {
    if let Err(error) = entry.remember(NOTE, text) {
        tracing::debug!(%error, "could not save the startup parameters of the clients");
    }
}

/// Returns true if backends may wait for clients with these parameters. Replication backends must not,
/// because pgfresh can't copy templates from the files in the cache while a replication session is open.
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

/// Formats each set as a line with the protocol version and the parameters in Base64.
fn write(sets: &[StartupParams]) -> String {
    let line = |set: &StartupParams| format!("{:08x} {}\n", set.version(), STANDARD.encode(set.parameters()));
    sets.iter().map(line).collect()
}

/// Parses a note. Returns `None` if its format is wrong.
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
