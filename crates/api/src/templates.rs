//! Tracks the templates of integresql's clients: their names, phases, and test database numbers.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use contract::ErrorCode;
use sys::lock;
use tokio::sync::watch;

use crate::problem::Problem;

/// Prefix for the names of these templates and their databases.
pub(crate) const PREFIX: &str = "integresql_";
/// Number of the hash's characters in a template name. A serial number makes the name unique.
const LETTERS: usize = 12;

/// The templates of all clients, by hash.
#[derive(Debug, Default)]
pub(crate) struct IntegresqlTemplates(Mutex<Templates>);

#[derive(Debug, Default)]
struct Templates {
    by_hash: HashMap<String, Arc<Template>>,
    /// Serial number of the newest template.
    serial: u64,
}

/// A client's template.
#[derive(Debug)]
pub(crate) struct Template {
    /// The template's name in pgfresh. The names of the template's databases begin with this name.
    pub(crate) name: String,
    pub(crate) phase: watch::Sender<Phase>,
    tests: Mutex<BTreeMap<usize, Number>>,
    /// Lock that prevents two requests from finalizing or discarding the template at the same time.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

/// Phase of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Filling,
    Ready,
    Discarded,
}

/// State of a number that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    /// pgfresh is leasing or releasing the database with this number, or a user has created one of this name with SQL.
    Busy,
    /// A client has the database.
    HandedOut,
}

/// Returns true if only this API leases databases with this name. The name contains the name of the database's template.
/// Such a lease lasts until the client returns the database.
pub(crate) fn is_ours(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
    let Some((letters, (serial, kind))) =
        parts.and_then(|(letters, rest)| Some((letters, rest.split_once('_')?)))
    else {
        return false;
    };
    letters.len() <= LETTERS
        && letters.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        && number(serial)
        && (kind == "template" || kind.strip_prefix("test_").is_some_and(number))
}

impl IntegresqlTemplates {
    /// Adds a template that a client must still fill. Returns `None` if there already is a template for this hash.
    pub(crate) fn add(&self, hash: &str) -> Option<Arc<Template>> {
        let mut templates = lock(&self.0);
        if templates.by_hash.contains_key(hash) {
            return None;
        }
        templates.serial += 1;
        let template = Arc::new(Template::new(hash, templates.serial));
        templates.by_hash.insert(hash.to_owned(), Arc::clone(&template));
        Some(template)
    }

    pub(crate) fn get(&self, hash: &str) -> Result<Arc<Template>, Problem> {
        lock(&self.0).by_hash.get(hash).cloned().ok_or_else(no_template)
    }

    pub(crate) fn remove(&self, hash: &str) -> Result<Arc<Template>, Problem> {
        lock(&self.0).by_hash.remove(hash).ok_or_else(no_template)
    }

    pub(crate) fn hashes(&self) -> Vec<String> {
        lock(&self.0).by_hash.keys().cloned().collect()
    }
}

impl Template {
    fn new(hash: &str, serial: u64) -> Self {
        let letters: String = hash.chars().filter(char::is_ascii_alphanumeric).take(LETTERS).collect();
        Self {
            name: format!("{PREFIX}{}_{serial}", letters.to_ascii_lowercase()),
            phase: watch::Sender::new(Phase::Filling),
            tests: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the name of the database where the client prepares the template.
    pub(crate) fn building(&self) -> String {
        format!("{}_template", self.name)
    }

    pub(crate) fn test(&self, id: usize) -> String {
        format!("{}_test_{id}", self.name)
    }

    /// Reserves the lowest free number.
    pub(crate) fn number(&self) -> usize {
        let mut tests = lock(&self.tests);
        let free = (0..).zip(tests.keys()).find(|(free, id)| free != *id);
        let free = free.map_or(tests.len(), |(free, _)| free);
        tests.insert(free, Number::Busy);
        free
    }

    /// Records that a client has received the database with a reserved number.
    pub(crate) fn hand_out(&self, id: usize) {
        if let Some(number) = lock(&self.tests).get_mut(&id) {
            *number = Number::HandedOut;
        }
    }

    /// Reclaims a number from its client but leaves it reserved. Returns false if no client has the number, so only the
    /// first of several such requests succeeds.
    pub(crate) fn take_back(&self, id: usize) -> bool {
        let mut tests = lock(&self.tests);
        tests.get_mut(&id).is_some_and(|number| std::mem::replace(number, Number::Busy) == Number::HandedOut)
    }

    /// Reclaims all numbers from their clients and frees them.
    pub(crate) fn take_all(&self) -> impl Iterator<Item = usize> {
        std::mem::take(&mut *lock(&self.tests)).into_keys()
    }

    pub(crate) fn free(&self, id: usize) {
        lock(&self.tests).remove(&id);
    }
}

pub(crate) fn no_template() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, ErrorCode::NotFound, "template not found")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_hash_is_unique_and_names_never_reused() {
        let shelf = IntegresqlTemplates::default();
        let first = shelf.add("3F9a-0c12").unwrap();
        assert!(shelf.add("3F9a-0c12").is_none());
        assert_eq!(first.building(), "integresql_3f9a0c12_1_template");
        assert_eq!(shelf.remove("3F9a-0c12").unwrap().test(7), "integresql_3f9a0c12_1_test_7");
        assert_eq!(shelf.get("3F9a-0c12").unwrap_err(), no_template());
        assert_eq!(shelf.add("3F9a-0c12").unwrap().name, "integresql_3f9a0c12_2");
        let long = shelf.add(&"ü'x".repeat(99)).unwrap();
        assert_eq!(long.name, "integresql_xxxxxxxxxxxx_3");
        assert_eq!(shelf.hashes().len(), 2);
    }

    #[test]
    fn the_lowest_free_number_is_taken() {
        let template = Template::new("a", 1);
        assert_eq!([template.number(), template.number(), template.number()], [0, 1, 2]);
        template.free(1);
        assert_eq!([template.number(), template.number()], [1, 3]);
        template.free(0);
        assert_eq!(template.number(), 0);
    }

    #[test]
    fn test_number_returns_once_and_recurs_after_free() {
        let template = Template::new("a", 1);
        let id = template.number();
        assert!(!template.take_back(id), "no client has heard of it");
        template.hand_out(id);
        assert_eq!([template.take_back(id), template.take_back(id)], [true, false]);
        assert_eq!(template.number(), 1, "its database may still be there");
        template.free(id);
        assert!(!template.take_back(id));
        assert_eq!(template.number(), id);
    }

    #[test]
    fn only_databases_of_integresql_templates_are_recognized() {
        for hash in ["3F9a-0c12", "", "ü", &"x".repeat(99)] {
            let template = Template::new(hash, 12);
            assert!(
                is_ours(&template.building()) && is_ours(&template.test(0)) && is_ours(&template.test(10)),
                "{hash}"
            );
            assert!(!is_ours(&template.name));
        }
        for other in [
            "",
            "integresql",
            "integresql_",
            "integresql_app",
            "integresql_app_test_1",
            "integresql_app_1_tests",
            "integresql_app_1_test_",
            "integresql_app_1_test_x",
            "integresql_App_1_template",
            "integresql_abcdefghijklm_1_template",
            "my_integresql_app_1_template",
        ] {
            assert!(!is_ours(other), "{other}");
        }
    }
}
