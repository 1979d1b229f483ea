//! Rows of queries as text.

/// Returns an iterator-like function over the columns of a row as text. NULL and a missing column are empty.
pub(crate) fn texts(row: Vec<Option<String>>) -> impl FnMut() -> String {
    let mut columns = row.into_iter();
    move || columns.next().flatten().unwrap_or_default()
}
