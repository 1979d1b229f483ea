//! Quotes and unquotes SQL names.

/// Keywords that PostgreSQL doesn't accept as a table or column name without quotes. Source: `kwlist.h` of versions 13
/// to 18, the reserved keywords and those allowed as function or type names.
pub(crate) const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "binary",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "group",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "intersect",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "natural",
    "not",
    "notnull",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "outer",
    "overlaps",
    "placing",
    "primary",
    "references",
    "returning",
    "right",
    "select",
    "session_user",
    "similar",
    "some",
    "symmetric",
    "system_user",
    "table",
    "tablesample",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
];

/// Returns `name` in SQL notation, quoted if necessary.
pub(crate) fn sql_name(name: &str) -> String {
    let is_plain = |(index, byte): (usize, u8)| {
        byte.is_ascii_lowercase() || byte == b'_' || index > 0 && (byte.is_ascii_digit() || byte == b'$')
    };
    if !name.is_empty() && name.bytes().enumerate().all(is_plain) && !RESERVED.contains(&name) {
        name.to_owned()
    } else {
        server::identifier(name)
    }
}

/// Returns a qualified name in SQL notation. Omits the schema if it is `public`.
pub(crate) fn short_name(schema: &str, name: &str) -> String {
    if schema == "public" { sql_name(name) } else { full_name(schema, name) }
}

/// Returns a qualified name in SQL notation, always with the schema.
pub(crate) fn full_name(schema: &str, name: &str) -> String {
    format!("{}.{}", sql_name(schema), sql_name(name))
}

/// Returns the name that an SQL token stands for.
pub(crate) fn unquoted(token: &str) -> String {
    match token.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(name) => name.replace("\"\"", "\""),
        None => token.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_quotes_only_where_needed() {
        for (name, sql) in [
            ("customer_id", "customer_id"),
            ("a$1", "a$1"),
            ("Mixed", "\"Mixed\""),
            ("user", "\"user\""),
            ("1a", "\"1a\""),
            ("", "\"\""),
            ("a\"b", "\"a\"\"b\""),
            ("straße", "\"straße\""),
            ("name", "name"),
        ] {
            assert_eq!(sql_name(name), sql);
            assert_eq!(unquoted(sql), name);
        }
        assert_eq!((short_name("public", "a"), short_name("s", "a")), ("a".to_owned(), "s.a".to_owned()));
    }
}
