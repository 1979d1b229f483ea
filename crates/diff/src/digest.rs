//! Large tables that are equal: told by one digest of all rows, which the server computes without sorting or sending them.

use std::thread;

use crate::relations::{Matching, Relation};
use crate::session::{ReadError, Reader};

/// Smaller tables are read row by row at once.
const LARGE: u64 = 1 << 20;

/// Whether both tables have the same rows, as often, in the columns that both have. False where it is not worth asking.
///
/// Two sums of hashes of 64 bits with different seeds, and the count, do not depend on the order of rows.
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
    // OFFSET: else each row would be written twice.
    reader.try_apart(&format!(
        "SELECT count(*), sum(hashtextextended(r, 0)::numeric), sum(hashtextextended(r, 1)::numeric) \
         FROM (SELECT {} COLLATE \"C\" AS r FROM {} t OFFSET 0) rows",
        matching.row(),
        relation.source
    ))
}
