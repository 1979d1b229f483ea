//! All that shapes a template, each thing under its name: the fingerprint's parts, and the reason for a rebuild.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Fingerprint;

/// Names and values. A value may be the digest of something larger, or of something secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FingerprintInputs(BTreeMap<String, String>);

impl FingerprintInputs {
    /// Adds one. A name stands for one thing only.
    pub(crate) fn add(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The name of what is made of these.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut builder = Fingerprint::of("template");
        for (name, value) in self.iter() {
            builder.part(name, value);
        }
        builder.finish()
    }

    /// What is different from `before`, one line for each, what users change most first.
    #[must_use]
    pub fn differences(&self, before: &Self) -> Vec<String> {
        let names = self.0.keys().chain(before.0.keys().filter(|name| !self.0.contains_key(*name)));
        let mut lines: Vec<_> = names
            .filter_map(|name| {
                let word = match (before.0.get(name), self.0.get(name)) {
                    (Some(old), Some(new)) if old == new => return None,
                    (Some(_), Some(_)) => "changed",
                    (None, _) => "added",
                    (_, None) => "removed",
                };
                let shown = name.strip_prefix(INPUT);
                Some((shown.is_none(), format!("{} {word}", shown.unwrap_or(name))))
            })
            .collect();
        lines.sort();
        lines.into_iter().map(|(_, line)| line).collect()
    }
}

/// What the name of an input file begins with.
pub(crate) const INPUT: &str = "input ";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some() -> impl Strategy<Value = FingerprintInputs> {
        prop::collection::btree_map("(input )?[ab]{1,2}", "[ab]{0,2}", 0..5).prop_map(FingerprintInputs)
    }

    proptest! {
        #[test]
        fn any_change_changes_the_fingerprint_and_is_named(one in some(), other in some()) {
            prop_assert_eq!(one.fingerprint() == other.fingerprint(), one == other);
            prop_assert_eq!(one.differences(&other).is_empty(), one == other);
        }
    }

    #[test]
    fn inputs_are_named_first_and_by_their_paths() {
        let of = |pairs: &[(&str, &str)]| {
            FingerprintInputs(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
        };
        let before = of(&[("input b", "1"), ("input c", "1"), ("a", "1")]);
        let after = of(&[("input b", "2"), ("input d", "1"), ("a", "2")]);
        assert_eq!(after.differences(&before), ["b changed", "c removed", "d added", "a changed"]);
    }
}
