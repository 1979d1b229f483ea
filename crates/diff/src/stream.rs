//! Streams a table's rows in batches, as digests in key order. The server sorts the rows or reads them from an index,
//! so pgfresh itself only needs a little memory.

use std::vec::IntoIter;

use crate::merge::{Entry, KeyPart, RowLocation};
use crate::relations::{KeyOrder, Matching, Relation};
use crate::row_texts::texts;
use crate::session::{ReadError, Reader};

/// Number of rows in each batch.
const ROWS_PER_BATCH: usize = 2000;
/// SQL that undoes [`RowStream::begin`], even if the transaction has failed.
const RESTORE_SESSION: &str = "ROLLBACK TO SAVEPOINT rows; RELEASE SAVEPOINT rows";

/// A stream of a table's rows, which is empty if the table doesn't exist on this side.
#[derive(Debug)]
pub(crate) struct RowStream<'a> {
    reader: &'a mut Reader,
    batch: IntoIter<Vec<Option<String>>>,
    orders: Vec<KeyOrder>,
    /// True if the server may have more rows after this batch.
    has_more: bool,
    last: Option<Vec<KeyPart>>,
    began: bool,
}

impl<'a> RowStream<'a> {
    /// Starts reading `relation` if it exists on this side and has rows.
    pub(crate) fn begin(
        reader: &'a mut Reader,
        relation: Option<&Relation>,
        matching: &Matching,
    ) -> Result<Self, ReadError> {
        let orders = matching.key.iter().map(|column| column.order).collect();
        let mut stream =
            Self { reader, batch: Vec::new().into_iter(), orders, has_more: false, last: None, began: false };
        let Some(relation) = relation.filter(|relation| relation.is_populated) else { return Ok(stream) };
        stream.reader.query("SAVEPOINT rows")?;
        stream.began = true;
        let select = select(relation, matching);
        let sql = format!("DECLARE rows NO SCROLL CURSOR FOR {select}; FETCH {ROWS_PER_BATCH} FROM rows");
        match stream.fetch(&sql) {
            Ok(()) => Ok(stream),
            Err(error) => stream.end().and(Err(error)),
        }
    }

    /// Ends the stream and restores the session's state.
    pub(crate) fn end(self) -> Result<(), ReadError> {
        if self.began {
            self.reader.query(RESTORE_SESSION)?;
        }
        Ok(())
    }

    fn fetch(&mut self, sql: &str) -> Result<(), ReadError> {
        let rows = self.reader.try_query(sql)?;
        self.has_more = rows.len() == ROWS_PER_BATCH;
        self.batch = rows.into_iter();
        Ok(())
    }

    fn entry(&self, row: Vec<Option<String>>) -> Option<Entry> {
        let mut next = texts(row);
        let key: Option<Vec<_>> = self
            .orders
            .iter()
            .map(|order| match order {
                KeyOrder::Number => next().parse().ok().map(KeyPart::Number),
                KeyOrder::Text | KeyOrder::Bytes => Some(KeyPart::Text(next())),
            })
            .collect();
        let place = RowLocation { table: next(), row: next() };
        let digest = next();
        let key = key
            .filter(|key| !key.is_empty())
            .or_else(|| self.orders.is_empty().then(|| vec![KeyPart::Text(digest.clone())]))?;
        Some(Entry { key, digest, place })
    }

    /// Returns the next row, or `None` at the end of the stream.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, ReadError> {
        if self.batch.len() == 0 && self.has_more {
            self.fetch(&format!("FETCH {ROWS_PER_BATCH} FROM rows"))?;
        }
        let Some(row) = self.batch.next() else { return Ok(None) };
        let entry = self.entry(row).ok_or_else(|| ReadError::Refused("its key cannot be read".to_owned()))?;
        // If rows came in a different order, the merge would report equal rows as deleted and inserted.
        if self.last.as_ref().is_some_and(|last| *last > entry.key) {
            return Err(ReadError::Refused("its rows do not come in the order of their key".to_owned()));
        }
        self.last = Some(entry.key.clone());
        Ok(Some(entry))
    }
}

/// Returns SQL for each row's key, location and digest, in key order.
fn select(relation: &Relation, matching: &Matching) -> String {
    let digest = format!("md5({}) COLLATE \"C\"", matching.row());
    let key: Vec<_> = matching.key.iter().map(|column| column.expression() + ", ").collect();
    let order = match key.concat() {
        key if key.is_empty() => digest.clone(),
        key => key.trim_end_matches(", ").to_owned(),
    };
    format!("SELECT {}t.tableoid, t.ctid, {digest} FROM {} t ORDER BY {order}", key.concat(), relation.source)
}
