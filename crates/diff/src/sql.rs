//! Words of SQL.

/// A name as SQL wants it.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The columns of a row, as text; NULL and what is missing are empty.
pub(crate) fn texts(row: Vec<Option<String>>) -> impl FnMut() -> String {
    let mut columns = row.into_iter();
    move || columns.next().flatten().unwrap_or_default()
}
