//! COPY of a table, which PostgreSQL does not explain, as a statement with the same locks.

use pgwire::SqlLexer;

/// End of the statement in place of a COPY without columns.
const DEFAULTS: &str = " DEFAULT VALUES";

/// Returns a statement that PostgreSQL explains in place of a COPY of a table. `None` for other statements.
///
/// A COPY without columns stands for one of unknown columns, so the statement gives none a value.
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

/// Returns true for a COPY that fills all columns of a table, so that its values are unknown.
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
