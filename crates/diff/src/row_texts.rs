//! Reads the columns of query results as text.

/// Returns a function that yields a row's columns one by one. For NULL and after the last column, this function yields
/// an empty text.
pub(crate) fn texts(row: Vec<Option<String>>) -> impl FnMut() -> String {
    let mut columns = row.into_iter();
    move || columns.next().flatten().unwrap_or_default()
}
