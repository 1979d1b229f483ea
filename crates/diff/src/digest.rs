//! Digests of large tables: the server computes one over all rows, without sorting or sending them, to find equal
//! tables.

use std::thread;

use crate::relations::{Matching, Relation};
use crate::session::{ReadError, Reader};

/// Bytes from which a table is large. Smaller tables are not worth a digest.
const LARGE: u64 = 1 << 20;

/// Whether both tables have equal rows, each as often, in the columns that both have. False for small tables, without
/// a query.
///
/// The digest is the count and two sums of 64-bit hashes with different seeds, which do not depend on the order of
/// rows.
pub(crate) fn are_equal(
    old: &mut Reader,
    new: &mut Reader,
    template: Option<&Relation>,
    database: Option<&Relation>,
    matching: &Matching,
) -> Result<bool, ReadError> {
    let (Some(template), Some(database)) = (template, database) else { return Ok(false) };
    if template.bytes.min(database.bytes) < LARGE || !template.is_populated || !database.is_populated {
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
    reader.try_apart(&format!(
        "SELECT count(*), sum(hashtextextended(r, 0)::numeric), sum(hashtextextended(r, 1)::numeric) \
         FROM (SELECT {} COLLATE \"C\" AS r FROM {} t OFFSET 0) rows",
        matching.row(),
        relation.source
    ))
}
