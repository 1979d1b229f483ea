//! Compares the values of sequences.

use std::collections::BTreeMap;

use crate::row_texts::texts;
use crate::session::{ReadError, Reader};
use contract::{SequenceChange, SequenceValue};

/// Number of sequences to read with one statement.
const SEQUENCES_PER_QUERY: usize = 200;

const SEQUENCES: &str = "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind = 'S' AND c.relpersistence <> 't' AND c.oid >= 16384";

/// Returns the sequences that exist in both databases with different values.
pub(crate) fn changes(
    template: &mut Reader,
    database: &mut Reader,
) -> Result<Vec<SequenceChange>, ReadError> {
    let (old, new) = (values(template)?, values(database)?);
    let changed = old.into_iter().filter_map(|(name, old)| {
        let new = *new.get(&name)?;
        (old != new).then_some(SequenceChange { name, old, new })
    });
    Ok(changed.collect())
}

fn values(reader: &mut Reader) -> Result<BTreeMap<String, SequenceValue>, ReadError> {
    let names: Vec<_> = reader.query(SEQUENCES)?.into_iter().map(|row| texts(row)()).collect();
    let mut found = BTreeMap::new();
    for some in names.chunks(SEQUENCES_PER_QUERY) {
        let select = |(at, name): (usize, &String)| format!("SELECT {at}, last_value, is_called FROM {name}");
        let selects: Vec<_> = some.iter().enumerate().map(select).collect();
        for row in reader.try_query_in_savepoint(&selects.join(" UNION ALL "))? {
            let mut next = texts(row);
            let Some(name) = next().parse().ok().and_then(|at: usize| some.get(at)) else { continue };
            let last_value = next().parse().unwrap_or(0);
            found.insert(name.clone(), SequenceValue { last_value, is_called: next() == "t" });
        }
    }
    Ok(found)
}
