//! Merges two sorted streams of rows, to find the rows that are in only one of the streams and the rows that differ.

/// A row in a stream: its key, a digest of its values, and its location in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Values of the key columns, which determine the stream's order. Rows with equal keys form a pair.
    pub(crate) key: Vec<KeyPart>,
    /// Digest of all columns that exist on both sides.
    pub(crate) digest: String,
    pub(crate) place: RowLocation,
}

/// Position of a row in its table, valid only within one snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RowLocation {
    /// Oid of the table or partition.
    pub(crate) table: String,
    /// The row's `ctid`.
    pub(crate) row: String,
}

/// The value of one key column. Values compare in the server's sort order. Both sides always use the same variant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KeyPart {
    Number(i64),
    /// A text that sorts by its bytes, as on the server.
    Text(String),
}

/// Result of the merge for a single row or for a pair of rows with the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowStep {
    Same,
    Inserted(Entry),
    Updated(Entry, Entry),
    Deleted(Entry),
}

/// Calls `each` for every row or pair of rows in the two streams. Rows with equal keys form a pair. A stream returns
/// `None` at its end.
pub(crate) fn merge<E>(
    mut template: impl FnMut() -> Result<Option<Entry>, E>,
    mut database: impl FnMut() -> Result<Option<Entry>, E>,
    mut each: impl FnMut(RowStep),
) -> Result<(), E> {
    let (mut old, mut new) = (template()?, database()?);
    loop {
        let step = match (old.take(), new.take()) {
            (None, None) => return Ok(()),
            (Some(before), None) => {
                old = template()?;
                RowStep::Deleted(before)
            }
            (None, Some(after)) => {
                new = database()?;
                RowStep::Inserted(after)
            }
            (Some(before), Some(after)) if before.key < after.key => {
                (old, new) = (template()?, Some(after));
                RowStep::Deleted(before)
            }
            (Some(before), Some(after)) if before.key > after.key => {
                (old, new) = (Some(before), database()?);
                RowStep::Inserted(after)
            }
            (Some(before), Some(after)) => {
                (old, new) = (template()?, database()?);
                if before.digest == after.digest { RowStep::Same } else { RowStep::Updated(before, after) }
            }
        };
        each(step);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    fn entry(key: i64, value: u8) -> Entry {
        Entry { key: vec![KeyPart::Number(key)], digest: value.to_string(), place: RowLocation::default() }
    }

    /// Returns the keys and values of all inserted, updated and deleted rows.
    fn changes(old: Vec<Entry>, new: Vec<Entry>) -> [Vec<(i64, String)>; 3] {
        let mut found = [Vec::new(), Vec::new(), Vec::new()];
        let of = |entry: &Entry| match entry.key[0] {
            KeyPart::Number(key) => (key, entry.digest.clone()),
            KeyPart::Text(_) => unreachable!("no test makes one"),
        };
        let (mut old, mut new) = (old.into_iter(), new.into_iter());
        let Ok::<_, Infallible>(()) = merge(
            || Ok(old.next()),
            || Ok(new.next()),
            |step| match step {
                RowStep::Same => {}
                RowStep::Inserted(entry) => found[0].push(of(&entry)),
                RowStep::Updated(_, entry) => found[1].push(of(&entry)),
                RowStep::Deleted(entry) => found[2].push(of(&entry)),
            },
        );
        found
    }

    proptest! {
        #[test]
        fn keyed_merge_matches_map_comparison(
            old in prop::collection::btree_map(0..30_i64, 0..3_u8, 0..30),
            new in prop::collection::btree_map(0..30_i64, 0..3_u8, 0..30),
        ) {
            let entries = |map: &BTreeMap<i64, u8>| map.iter().map(|(key, value)| entry(*key, *value)).collect();
            let pick = |from: &BTreeMap<i64, u8>, keep: &dyn Fn(i64, u8) -> bool| -> Vec<(i64, String)> {
                from.iter().filter(|(key, value)| keep(**key, **value)).map(|(key, value)| (*key, value.to_string())).collect()
            };
            let expected = [
                pick(&new, &|key, _| !old.contains_key(&key)),
                pick(&new, &|key, value| old.get(&key).is_some_and(|before| *before != value)),
                pick(&old, &|key, _| !new.contains_key(&key)),
            ];
            prop_assert_eq!(changes(entries(&old), entries(&new)), expected);
        }

        #[test]
        fn merge_without_key_counts_rows(
            old in prop::collection::vec(0..6_i64, 0..30),
            new in prop::collection::vec(0..6_i64, 0..30),
        ) {
            let entries = |rows: &[i64]| {
                let mut rows = rows.to_vec();
                rows.sort_unstable();
                rows.into_iter().map(|row| entry(row, 0)).collect::<Vec<_>>()
            };
            let [inserted, updated, deleted] = changes(entries(&old), entries(&new));
            prop_assert_eq!(updated, []);
            for value in 0..6 {
                let count = |rows: &[i64]| rows.iter().filter(|row| **row == value).count();
                let among = |rows: &[(i64, String)]| rows.iter().filter(|(row, _)| *row == value).count();
                prop_assert_eq!(among(&inserted), count(&new).saturating_sub(count(&old)));
                prop_assert_eq!(among(&deleted), count(&old).saturating_sub(count(&new)));
            }
        }
    }
}
