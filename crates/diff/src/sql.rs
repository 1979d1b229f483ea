//! Rows as text.

/// The columns of a row, as text; NULL and what is missing are empty.
pub(crate) fn texts(row: Vec<Option<String>>) -> impl FnMut() -> String {
    let mut columns = row.into_iter();
    move || columns.next().flatten().unwrap_or_default()
}
