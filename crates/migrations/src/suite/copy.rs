//! Replaces COPY, which PostgreSQL doesn't explain, by a statement that takes the same locks.

use pgwire::SqlLexer;

/// End of the replacement for a COPY without a column list.
const DEFAULTS: &str = " DEFAULT VALUES";

/// Returns a statement that PostgreSQL can explain in place of a COPY from or to a table. `None` for other statements.
///
/// pgfresh doesn't know which columns a COPY without a column list fills, so the replacement sets none of them.
pub(super) fn in_place_of_copy(statement: &str) -> Option<String> {
    let mut lexer = SqlLexer::new(statement.as_bytes(), true);
    lexer.token().filter(|first| first.is_word(b"copy"))?;
    let table_start = lexer.position();
    let mut table_end = table_start;
    let mut columns = None;
    while let Some(token) = lexer.token() {
        let table = statement[table_start..table_end].trim();
        if token.is_word(b"from") {
            return (!table.is_empty()).then(|| match columns {
                Some(columns) => format!("INSERT INTO {table} ({columns}) SELECT {columns} FROM {table}"),
                None => format!("INSERT INTO {table}{DEFAULTS}"),
            });
        }
        if token.is_word(b"to") {
            return (!table.is_empty()).then(|| format!("SELECT {} FROM {table}", columns.unwrap_or("*")));
        }
        if token.is_sign(b'(') {
            let start = lexer.position();
            while !lexer.token()?.is_sign(b')') {}
            columns = Some(statement[start..lexer.position() - 1].trim());
        } else if columns.is_none() {
            table_end = lexer.position();
        }
    }
    None
}

/// Returns true if the statement is a COPY without a column list. It fills all columns with unknown values.
pub(super) fn fills_all_columns(statement: &str) -> bool {
    in_place_of_copy(statement).is_some_and(|text| text.ends_with(DEFAULTS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_a_statement_with_their_locks() {
        for (copy, expected) in [
            ("COPY orders FROM STDIN", Some("INSERT INTO orders DEFAULT VALUES")),
            (
                "copy shop.\"my orders\" ( \"a\", b ) from stdin binary;",
                Some("INSERT INTO shop.\"my orders\" (\"a\", b) SELECT \"a\", b FROM shop.\"my orders\""),
            ),
            ("COPY orders (id) TO STDOUT WITH (FORMAT csv)", Some("SELECT id FROM orders")),
            ("COPY public . orders TO '/tmp/from'", Some("SELECT * FROM public . orders")),
            ("COPY (SELECT 1) TO STDOUT", None),
            ("COPY orders", None),
            ("COPY orders (id", None),
            ("SELECT 1", None),
        ] {
            assert_eq!(in_place_of_copy(copy).as_deref(), expected, "{copy}");
        }
    }
}
