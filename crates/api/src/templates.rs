//! The templates that integresql's clients have made: their names, how far they are, and the numbers of their tests.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use sys::lock;
use tokio::sync::watch;

use crate::problem::Problem;

/// What the names of templates begin with, and their databases'.
pub(crate) const PREFIX: &str = "integresql_";
/// Letters of a hash that go into names; a number makes them unique.
const LETTERS: usize = 12;

/// All templates that clients have made, by hash.
#[derive(Debug, Default)]
pub(crate) struct IntegresqlTemplates(Mutex<Templates>);

#[derive(Debug, Default)]
struct Templates {
    by_hash: HashMap<String, Arc<Template>>,
    /// Of the last one made.
    serial: u64,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) hash: String,
    /// The name that the template has at the databases, and its databases' names begin with.
    pub(crate) name: String,
    pub(crate) phase: watch::Sender<Phase>,
    tests: Mutex<BTreeSet<usize>>,
    /// Held while it is finalised or discarded.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

/// How far a template is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Filling,
    Ready,
    Discarded,
}

impl IntegresqlTemplates {
    /// Puts a template there, to be filled; `None` if there is one of that hash.
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
            hash: hash.to_owned(),
            name: format!("{PREFIX}{}_{serial}", letters.to_ascii_lowercase()),
            phase: watch::Sender::new(Phase::Filling),
            tests: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// The database that the client fills.
    pub(crate) fn building(&self) -> String {
        format!("{}_template", self.name)
    }

    pub(crate) fn test(&self, id: usize) -> String {
        format!("{}_test_{id}", self.name)
    }

    /// Takes the lowest free number.
    pub(crate) fn number(&self) -> usize {
        let mut tests = lock(&self.tests);
        let free = (0..).zip(&*tests).find(|(free, id)| free != *id).map_or(tests.len(), |(free, _)| free);
        tests.insert(free);
        free
    }

    pub(crate) fn has(&self, id: usize) -> bool {
        lock(&self.tests).contains(&id)
    }

    /// Takes all numbers back.
    pub(crate) fn take_all(&self) -> BTreeSet<usize> {
        std::mem::take(&mut *lock(&self.tests))
    }

    pub(crate) fn free(&self, id: usize) {
        lock(&self.tests).remove(&id);
    }
}

pub(crate) fn no_template() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "3D000", "template not found")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_there_once_and_its_names_are_never_used_again() {
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
}
