//! Quickly recognizes large tables with equal rows. Instead of sorting and sending the rows, the server computes a
//! single digest of all rows.

use std::thread;

use crate::relations::{Matching, Relation};
use crate::session::{ReadError, Reader};

/// Minimum size of a large table, in bytes. For a smaller table, a digest isn't worth the additional query.
const MIN_LARGE_TABLE_BYTES: u64 = 1 << 20;

/// Returns true if two tables contain the same rows, each with the same frequency. Compares only the columns that both
/// tables have. For small tables, returns false without a query.
///
/// The digest consists of the number of rows and two sums of 64-bit hashes with different seeds. It doesn't depend on
/// the order of the rows.
pub(crate) fn are_equal(
    old: &mut Reader,
    new: &mut Reader,
    template: Option<&Relation>,
    database: Option<&Relation>,
    matching: &Matching,
) -> Result<bool, ReadError> {
    let (Some(template), Some(database)) = (template, database) else { return Ok(false) };
    if template.bytes.min(database.bytes) < MIN_LARGE_TABLE_BYTES
        || !template.is_populated
        || !database.is_populated
    {
        return Ok(false);
    }
    let (before, after) = thread::scope(|scope| {
        let before = scope.spawn(|| digest(old, template, matching));
        let after = digest(new, database, matching);
        (before.join(), after)
    });
    let before = before.map_err(|_| ReadError::Refused("a thread of pgfresh has panicked".to_owned()))?;
    Ok(before? == after?)
}

fn digest(
    reader: &mut Reader,
    relation: &Relation,
    matching: &Matching,
) -> Result<Vec<Vec<Option<String>>>, ReadError> {
    // OFFSET keeps the server from computing the text of each row twice.
    reader.try_query_in_savepoint(&format!(
        "SELECT count(*), sum(hashtextextended(r, 0)::numeric), sum(hashtextextended(r, 1)::numeric) \
         FROM (SELECT {} COLLATE \"C\" AS r FROM {} t OFFSET 0) rows",
        matching.row(),
        relation.source
    ))
}
