//! Replaces texts with tokens, which have the same order as the texts and reveal nothing else about them.
//!
//! A token is a letter followed by digits, such as `c07`. All tokens of a column have the same length, so nearly every
//! collation sorts them in the same order (Hawaiian's doesn't). Letters that some languages sort differently, or sort
//! together with the next letter, aren't used. Tokens spread over the alphabet, so that a range of real texts includes
//! a realistic number of tokens.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

/// First letters of tokens.
const LETTERS: &[u8] = b"abcdefghiklmnoprstu";

/// Tokens of a column.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// Distinct values with a known order, in this order.
    ordered: Vec<String>,
    /// Values without a known order.
    others: Vec<String>,
    /// Token of each value.
    assigned: HashMap<String, String>,
}

impl Tokens {
    /// Adds values that the server has sorted, and keeps their order.
    pub(super) fn add_sorted(&mut self, values: &[String]) {
        let positions: HashMap<&String, usize> =
            self.ordered.iter().enumerate().map(|(at, value)| (value, at)).collect();
        // Values that occur in both lists in the same order divide both lists into sections. Merge each section
        // separately.
        let mut common = Vec::new();
        let mut least = 0;
        for (index, value) in values.iter().enumerate() {
            if let Some(&at) = positions.get(value).filter(|at| **at >= least) {
                common.push((index, at));
                least = at + 1;
            }
        }
        common.push((values.len(), self.ordered.len()));
        let order = Collation::of(&[&self.ordered, values]);
        let mut merged = Vec::with_capacity(self.ordered.len() + values.len());
        let (mut ours, mut theirs) = (0, 0);
        for (index, at) in common {
            let new = values[theirs..index].iter().filter(|value| !positions.contains_key(value));
            let mut old = self.ordered[ours..at].iter().peekable();
            for value in new {
                while let Some(before) = old.next_if(|old| order.compare(old, value) == Ordering::Less) {
                    merged.push(before.clone());
                }
                merged.push(value.clone());
            }
            merged.extend(old.chain(values.get(index)).cloned());
            (theirs, ours) = (index + 1, at + 1);
        }
        let mut seen = HashSet::new();
        merged.retain(|value| seen.insert(value.clone()));
        self.ordered = merged;
    }

    /// Adds values whose order isn't known.
    pub(super) fn add<'a>(&mut self, values: impl Iterator<Item = &'a String>) {
        self.others.extend(values.cloned());
    }

    /// Assigns a token to each value. A value whose order isn't known gets a probable position.
    pub(super) fn assign(&mut self) {
        let order = Collation::of(&[&self.ordered]);
        let mut others = std::mem::take(&mut self.others);
        others.sort_by(|a, b| order.compare(a, b));
        self.add_sorted(&others);
        let (count, letters) = (self.ordered.len(), LETTERS.len());
        let (mut digits, mut of_letter) = (1, 10);
        while letters * of_letter < count {
            (digits, of_letter) = (digits + 1, of_letter * 10);
        }
        for (rank, value) in self.ordered.iter().enumerate() {
            let place = rank * letters * of_letter / count;
            let (letter, number) = (char::from(LETTERS[place / of_letter]), place % of_letter);
            self.assigned.insert(value.clone(), format!("{letter}{number:0digits$}"));
        }
    }

    /// Returns the token of a value. `None` if the value hasn't been added.
    pub(super) fn token(&self, value: &str) -> Option<String> {
        self.assigned.get(value).cloned()
    }
}

/// Guessed collation of sorted lists.
#[derive(Clone, Copy)]
enum Collation {
    /// Compares bytes, as the collation "C" does.
    Bytes,
    /// Compares letters and digits without regard to case, roughly as dictionaries do.
    Language,
}

impl Collation {
    fn of(lists: &[&[String]]) -> Self {
        if lists.iter().all(|list| list.is_sorted()) { Self::Bytes } else { Self::Language }
    }

    fn compare(self, one: &str, other: &str) -> Ordering {
        let letters = |text: &str| -> String {
            text.chars()
                .filter(|character| character.is_alphanumeric())
                .flat_map(char::to_lowercase)
                .collect()
        };
        match self {
            Self::Bytes => one.cmp(other),
            Self::Language => letters(one).cmp(&letters(other)).then_with(|| one.cmp(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|&text| text.to_owned()).collect()
    }

    fn tokens(sorted: &[&[String]], others: &[String]) -> Tokens {
        let mut tokens = Tokens::default();
        for list in sorted {
            tokens.add_sorted(list);
        }
        tokens.add(others.iter());
        tokens.assign();
        tokens
    }

    fn of(tokens: &Tokens, values: &[String]) -> Vec<String> {
        values.iter().map(|value| tokens.token(value).unwrap()).collect()
    }

    #[test]
    fn tokens_spread_over_the_alphabet() {
        let bounds = texts(&["ann", "Bob", "carl"]);
        let tokens = tokens(&[&bounds], &texts(&["bill", "carl"]));
        assert_eq!(of(&tokens, &bounds), ["a0", "k5", "p2"]);
        assert_eq!(tokens.token("bill").unwrap(), "e7");
        assert_eq!(tokens.token("dave"), None);
    }

    proptest! {
        /// Short texts with few letters make equal values and contradictory orders likely.
        #[test]
        fn tokens_keep_the_order_of_each_list(
            mut first in proptest::collection::vec("[a-cA-C ]{0,3}", 0..60),
            mut second in proptest::collection::vec("[a-cA-C ]{0,3}", 0..60),
            others in proptest::collection::vec("[a-cA-C ]{0,3}", 0..60),
            by_bytes: bool,
        ) {
            let order = if by_bytes { Collation::Bytes } else { Collation::Language };
            for list in [&mut first, &mut second] {
                list.sort_by(|a, b| order.compare(a, b));
                list.dedup();
            }
            let tokens = tokens(&[&first, &second], &others);
            for list in [&first, &second] {
                let tokens = of(&tokens, list);
                prop_assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
            }
            let all: HashSet<&String> = first.iter().chain(&second).chain(&others).collect();
            let distinct: HashSet<String> = all.iter().map(|value| tokens.token(value).unwrap()).collect();
            prop_assert_eq!(distinct.len(), all.len());
        }

        #[test]
        fn contradicting_lists_give_tokens(lists in proptest::collection::vec(
            proptest::collection::vec("[a-d]", 0..9), 0..4,
        )) {
            let lists: Vec<&[String]> = lists.iter().map(Vec::as_slice).collect();
            let tokens = tokens(&lists, &[]);
            for list in lists {
                let _ = of(&tokens, list);
            }
        }

        #[test]
        fn tokens_have_one_length(count in 1..5000_usize) {
            let values: Vec<String> = (0..count).map(|number| format!("{number:05}")).collect();
            let tokens = of(&tokens(&[&values], &[]), &values);
            prop_assert!(tokens.is_sorted_by(|a, b| a < b));
            prop_assert!(tokens.iter().all(|token| token.len() == tokens[0].len()));
            let (first, last) = (&tokens[0], &tokens[count - 1]);
            prop_assert!(first.starts_with('a') && (count < LETTERS.len() || last.as_str() >= "s"), "{last}");
        }
    }
}
