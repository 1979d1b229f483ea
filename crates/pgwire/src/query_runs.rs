//! The runs of one query, and what of it was run over and over.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::sql::{SqlLexer, TokenKind};

/// Runs of one query from which on it counts as run over and over.
const MANY: u64 = 5;
/// Different values of one query that are told apart.
const VALUES: usize = 1000;

/// What of a query is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepeatedPart {
    /// The query, with other values each time: one query could do. This is called an N+1.
    Query,
    /// The query with its values.
    Values,
}

/// How often one query ran, and with which values.
#[derive(Debug, Clone, Default)]
pub struct QueryRuns {
    count: u64,
    /// How many times each value was met.
    values: HashMap<u64, u64>,
}

impl QueryRuns {
    /// Counts one run. `values` stands for what was bound; `text` is what was sent, which has the values that were not.
    pub fn add(&mut self, values: Option<u64>, text: &str) {
        self.count += 1;
        let values = digest(values, text);
        if self.values.len() < VALUES || self.values.contains_key(&values) {
            *self.values.entry(values).or_default() += 1;
        }
    }

    /// How often it ran.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// What of it was repeated, if that was often enough.
    #[must_use]
    pub fn repeated(&self) -> Option<RepeatedPart> {
        if self.values.len() as u64 >= MANY {
            return Some(RepeatedPart::Query);
        }
        self.values.values().any(|count| *count >= MANY).then_some(RepeatedPart::Values)
    }
}

/// Stands for the values of a run: those that were bound, and those in its text. Comments are none, which may have a number each time.
fn digest(bound: Option<u64>, text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    bound.hash(&mut hasher);
    let mut lexer = SqlLexer::new(text.as_bytes(), true);
    while let Some(token) = lexer.token() {
        if matches!(token.kind, TokenKind::Text | TokenKind::Number) {
            token.text.hash(&mut hasher);
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(values: impl IntoIterator<Item = u64>) -> QueryRuns {
        let mut runs = QueryRuns::default();
        values.into_iter().for_each(|value| runs.add(Some(value), "SELECT $1"));
        runs
    }

    #[test]
    fn other_values_make_an_n_plus_one_and_the_same_ones_do_not() {
        assert_eq!(runs(0..4).repeated(), None);
        assert_eq!(runs(0..5).repeated(), Some(RepeatedPart::Query));
        assert_eq!(runs([7; 4]).repeated(), None);
        assert_eq!(runs([7; 5]).repeated(), Some(RepeatedPart::Values));
        assert_eq!(runs((0..3000).chain([0; 9])).count(), 3009);
    }

    #[test]
    fn values_in_the_text_count_in_both_protocols() {
        // A query of the extended protocol that binds nothing binds the same each time.
        for bound in [None, Some(7)] {
            let repeated = |text: &dyn Fn(u64) -> String| {
                let mut runs = QueryRuns::default();
                (0..5).for_each(|number| runs.add(bound, &text(number)));
                runs.repeated()
            };
            assert_eq!(repeated(&|number| format!("SELECT {number}")), Some(RepeatedPart::Query));
            assert_eq!(repeated(&|number| format!("SELECT 'a{number}', $1")), Some(RepeatedPart::Query));
            let comment = |number| format!("SELECT 1 /* request {number} */ -- {number}");
            assert_eq!(repeated(&comment), Some(RepeatedPart::Values));
        }
    }
}
