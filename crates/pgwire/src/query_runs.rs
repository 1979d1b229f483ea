//! Counts a query's runs and determines whether it repeats with identical or with different values. This
//! helps users find N+1 queries.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::sql::{SqlLexer, TokenKind};

/// Minimum number of runs for a query to count as repeated.
const MANY: u64 = 5;
/// Maximum number of a query's different values that are counted separately.
const VALUES: usize = 1000;

/// Whether only the query repeats, or also its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepeatedPart {
    /// The query repeats with different values. A single query could replace all these runs (N+1).
    Query,
    /// The query repeats with identical values.
    Values,
}

/// The runs of a query, counted in total and for each set of values.
#[derive(Debug, Clone, Default)]
pub struct QueryRuns {
    count: u64,
    /// Number of runs for each digest of values.
    values: HashMap<u64, u64>,
}

impl QueryRuns {
    /// Counts one run. `values` is a digest of the bound values, and `text` is the statement's text with all
    /// other values.
    pub fn add(&mut self, values: Option<u64>, text: &str) {
        self.count += 1;
        let values = digest(values, text);
        if self.values.len() < VALUES || self.values.contains_key(&values) {
            *self.values.entry(values).or_default() += 1;
        }
    }

    /// Returns the number of runs.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns which part of the query repeats, or `None` if there are too few repetitions.
    #[must_use]
    pub fn repeated(&self) -> Option<RepeatedPart> {
        if self.values.len() as u64 >= MANY {
            return Some(RepeatedPart::Query);
        }
        self.values.values().any(|count| *count >= MANY).then_some(RepeatedPart::Values)
    }
}

/// Returns a digest of all values in a run: the bound values and those in its text. Comments are ignored,
/// because they may contain a different number in each run. The digest is valid only within this process.
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
    fn only_different_values_are_n_plus_one() {
        assert_eq!(runs(0..4).repeated(), None);
        assert_eq!(runs(0..5).repeated(), Some(RepeatedPart::Query));
        assert_eq!(runs([7; 4]).repeated(), None);
        assert_eq!(runs([7; 5]).repeated(), Some(RepeatedPart::Values));
        assert_eq!(runs((0..3000).chain([0; 9])).count(), 3009);
    }

    #[test]
    fn values_in_the_text_count_in_both_protocols() {
        // In the extended protocol, all runs of a query without parameters have the same bound values.
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
