//! Stores the inputs of a fingerprint, each under its own key. pgfresh compares two such sets to explain why it has to
//! rebuild a template.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Fingerprint;

/// Maps each input's key to its value. For a large or secret input, the value is a digest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FingerprintInputs(BTreeMap<String, String>);

impl FingerprintInputs {
    /// Adds an input. Each key must have only one meaning.
    pub(crate) fn add(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// Returns all inputs, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Computes the fingerprint of a template with these inputs.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut builder = Fingerprint::of("template");
        for (name, value) in self.iter() {
            builder.part(name, value);
        }
        builder.finish()
    }

    /// Describes the differences from `before`, one per line, input files first.
    #[must_use]
    pub fn differences(&self, before: &Self) -> Vec<String> {
        let mut lines: Vec<_> =
            self.changes(before).map(|(name, change)| change_line(name, change)).collect();
        lines.sort();
        lines.into_iter().map(|(_, line)| line).collect()
    }

    /// Determines how to turn a template with the inputs `before` into one with these inputs. Returns the names of the
    /// files to run on the earlier template.
    ///
    /// # Errors
    /// Returns an error if running new files at the end isn't enough. The error has one line per reason, in the style
    /// of [`Self::differences`].
    pub(crate) fn added_to(&self, before: &Self) -> Result<Vec<String>, Vec<String>> {
        let (mut added, mut reasons) = (Vec::new(), Vec::new());
        for (name, change) in self.changes(before) {
            match name.strip_prefix(INPUT) {
                Some(path) if change == Change::Added && !self.is_of_dump(path) => {
                    added.push(path.to_owned());
                }
                None if name == SQL_FILES => {}
                _ => reasons.push(change_line(name, change)),
            }
        }
        reasons.sort();
        let mut reasons: Vec<_> = reasons.into_iter().map(|(_, line)| line).collect();
        if reasons.is_empty() {
            reasons.extend(self.out_of_order(before, &added));
        }
        if reasons.is_empty() { Ok(added) } else { Err(reasons) }
    }

    /// Checks that a full build would run the new files last, and returns the reason if it wouldn't. SQL files run
    /// before the dump and the setup.
    fn out_of_order(&self, before: &Self, added: &[String]) -> Option<String> {
        let (old, new) = (before.sql_files(), self.sql_files());
        let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        let is_input = |file: &&str| self.0.contains_key(&format!("{INPUT}{file}"));
        if let (Some(ran), Some(first)) = (old.get(same), new.get(same).filter(|first| !old.contains(first)))
        {
            return Some(format!("{first} comes before {ran}, which has run"));
        }
        // The list of SQL files is a single text, so a file name with a line feed would look like two names.
        if same < old.len() || !new.iter().all(is_input) {
            return Some(change_line(SQL_FILES, Change::Changed).1);
        }
        // An incremental build doesn't run the prepare command, which may read all files in a folder.
        let is_read = |file: &&String| !new.contains(&file.as_str());
        if let Some(file) = added.iter().find(is_read)
            && self.0.contains_key(PREPARE_COMMAND)
        {
            return Some(format!("{file} added, and the prepare command has run"));
        }
        let later = ["dump", "setup command"].into_iter().find(|name| self.0.contains_key(*name));
        match (new.get(same), later) {
            (Some(first), Some(later)) => Some(format!("{first} comes before the {later}, which has run")),
            // The new files aren't SQL files, and no new step reads them. But a step that has
            // already run may have read all files in a folder, so it would have to run again.
            (None, None) => added.first().map(|file| format!("{file} added, which no new step reads")),
            _ => None,
        }
    }

    /// Returns the SQL files in execution order.
    pub(crate) fn sql_files(&self) -> Vec<&str> {
        self.0.get(SQL_FILES).map_or_else(Vec::new, |list| list.split('\n').collect())
    }

    /// Returns true if the file is the dump or part of it.
    fn is_of_dump(&self, path: &str) -> bool {
        let dump = self.0.get("dump").map(|dump| dump.trim_end_matches('/'));
        dump.and_then(|dump| path.strip_prefix(dump))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns the names of all inputs that differ from `before`, with their changes.
    fn changes<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (&'a str, Change)> {
        let names = self.0.keys().chain(before.0.keys().filter(|name| !self.0.contains_key(*name)));
        names.filter_map(|name| {
            let change = match (before.0.get(name), self.0.get(name)) {
                (Some(old), Some(new)) if old == new => return None,
                (Some(_), Some(_)) => Change::Changed,
                (None, _) => Change::Added,
                (_, None) => Change::Removed,
            };
            Some((name.as_str(), change))
        })
    }
}

/// Key for the fingerprint of the template that this one extends.
pub(crate) const GOES_ON_FROM: &str = "template it goes on from";
/// Prefix for the keys of input files.
pub(crate) const INPUT: &str = "input ";
/// Key for the prepare command.
pub(crate) const PREPARE_COMMAND: &str = "prepare command";
/// Key for the list of SQL files, one per line in execution order.
pub(crate) const SQL_FILES: &str = "list of SQL files";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Added,
    Changed,
    Removed,
}

/// Describes a change in one line. The first value is for sorting: it puts lines about input files before all others.
fn change_line(name: &str, change: Change) -> (bool, String) {
    let word = match change {
        Change::Added => "added",
        Change::Changed => "changed",
        Change::Removed => "removed",
    };
    let path = name.strip_prefix(INPUT);
    (path.is_none(), format!("{} {word}", path.unwrap_or(name)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn inputs() -> impl Strategy<Value = FingerprintInputs> {
        prop::collection::btree_map("(input )?[ab]{1,2}", "[ab]{0,2}", 0..5).prop_map(FingerprintInputs)
    }

    proptest! {
        #[test]
        fn changed_input_changes_fingerprint_and_is_named(one in inputs(), other in inputs()) {
            prop_assert_eq!(one.fingerprint() == other.fingerprint(), one == other);
            prop_assert_eq!(one.differences(&other).is_empty(), one == other);
        }

        #[test]
        fn only_added_files_differ_from_parent(
            before in files(),
            after in files(),
            later in prop::sample::subsequence(vec!["dump", "setup command"], 0..2),
        ) {
            let [before, after] = [before, after].map(|files| {
                of_files(&files.iter().map(String::as_str).collect::<Vec<_>>(), &later)
            });
            let Ok(added) = after.added_to(&before) else { return Ok(()) };
            prop_assert!(after.sql_files().starts_with(&before.sql_files()));
            let mut without = after.clone();
            for file in added {
                let name = format!("{INPUT}{file}");
                prop_assert!(without.0.remove(&name).is_some());
            }
            without.0.remove(SQL_FILES);
            without.0.extend(before.0.get_key_value(SQL_FILES).map(|(name, list)| (name.clone(), list.clone())));
            prop_assert_eq!(without, before);
        }
    }

    /// Generates names of input files. A name with a digit isn't a SQL file. The case of the letter represents the
    /// file's contents.
    fn files() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[a-cA][1]?", 0..5)
    }

    /// Builds the inputs of a template with these files and keys.
    fn of_files(files: &[&str], keys: &[&str]) -> FingerprintInputs {
        let mut all = FingerprintInputs::default();
        let sql: Vec<_> =
            files.iter().filter(|file| !file.ends_with('1')).map(|file| file.to_lowercase()).collect();
        if !sql.is_empty() {
            all.add(SQL_FILES, sql.join("\n"));
        }
        for file in files {
            all.add(format!("{INPUT}{}", file.to_lowercase()), *file);
        }
        for key in keys {
            all.add(*key, "d");
        }
        all
    }

    #[test]
    fn appended_files_are_found_or_rejected_with_reason() {
        let (sql, setup) = (&[][..], &["setup command"][..]);
        for (before, after, keys, expected) in [
            (&["a"][..], &["a", "b"][..], sql, Ok(&["b"][..])),
            (&[], &["b"], sql, Ok(&["b"])),
            (&["a"], &["a", "b", "x1"], sql, Ok(&["b", "x1"])),
            (&["x1"], &["x1", "a1", "z1"], setup, Ok(&["a1", "z1"])),
            (&["b"], &["a", "b"], sql, Err("a comes before b, which has run")),
            (&["a", "b"], &["b", "a"], sql, Err("list of SQL files changed")),
            (&["a"], &["A"], sql, Err("a changed")),
            (&["a", "b"], &["a"], sql, Err("b removed")),
            (&["a"], &["b"], sql, Err("a removed")),
            (&["a"], &["a", "x1"], sql, Err("x1 added, which no new step reads")),
            (&["a"], &["a", "b"], setup, Err("b comes before the setup command, which has run")),
            (&["a"], &["a", "b"], &["dump"], Err("b comes before the dump, which has run")),
            (&["a"], &["a", "d/x1"], &["dump"], Err("d/x1 added")),
        ] {
            let added = of_files(after, keys).added_to(&of_files(before, keys));
            let expected = expected.map(|files| files.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(added, expected.map_err(|reason| vec![reason.to_owned()]), "{before:?} {after:?}");
        }
        let prepared = |files| of_files(files, &[PREPARE_COMMAND]);
        assert_eq!(prepared(&["a", "b"]).added_to(&prepared(&["a"])), Ok(vec!["b".to_owned()]));
        let reason = "x1 added, and the prepare command has run".to_owned();
        assert_eq!(prepared(&["a", "b", "x1"]).added_to(&prepared(&["a"])), Err(vec![reason]));
        let (before, mut after) = (of_files(&["a"], &[]), of_files(&["a", "b"], &[]));
        after.add("setting jit", "off");
        assert_eq!(after.added_to(&before), Err(vec!["setting jit added".to_owned()]));
        // The new file's name contains a line feed, so it looks like two new files in the list.
        let mut odd = of_files(&["a"], &[]);
        odd.add(SQL_FILES, "a\nb\nc");
        odd.add(format!("{INPUT}b\nc"), "x");
        assert_eq!(odd.added_to(&before), Err(vec!["list of SQL files changed".to_owned()]));
    }

    #[test]
    fn differences_list_input_files_first() {
        let of = |pairs: &[(&str, &str)]| {
            FingerprintInputs(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
        };
        let before = of(&[("input b", "1"), ("input c", "1"), ("a", "1")]);
        let after = of(&[("input b", "2"), ("input d", "1"), ("a", "2")]);
        assert_eq!(after.differences(&before), ["b changed", "c removed", "d added", "a changed"]);
    }
}
