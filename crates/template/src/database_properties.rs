//! Restores a dumped database's own properties: its owner, comment, privileges, connection limit and settings.
//!
//! Each `pg_dump` archive contains them, but `pg_restore` restores them only into a database that it creates under the
//! dumped name. This module turns them into statements for a database with any name.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use server::{identifier, literal};

/// A statement about a database, without the database's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DatabaseProperty {
    before: String,
    after: String,
}

impl DatabaseProperty {
    /// Returns the statement for the database called `name`.
    pub(crate) fn for_database(&self, name: &str) -> String {
        format!("{}{}{}", self.before, identifier(name), self.after)
    }

    /// Returns a statement for the current database. If the statement fails, for example because a role is missing, it
    /// merely raises a warning.
    pub(crate) fn for_current_database(&self) -> String {
        let [before, after] = [&self.before, &self.after].map(|text| literal(text));
        let body = format!(
            "BEGIN EXECUTE {before} || quote_ident(current_database()) || {after}; \
             EXCEPTION WHEN OTHERS THEN RAISE WARNING '%', sqlerrm; END"
        );
        let tags = (0..).map(|number| format!("$property{number}$"));
        let tag = tags.into_iter().find(|tag| !body.contains(tag)).unwrap_or_default();
        format!("DO {tag} {body} {tag};\n")
    }
}

/// Reads the properties of the database in `archive`. `options` are the `pg_restore` options that exclude something. If
/// `pg_restore` fails, its output is returned as the inner error.
pub(crate) fn read(
    pg_restore: &Path,
    options: &[&str],
    archive: &Path,
) -> io::Result<Result<Vec<DatabaseProperty>, Output>> {
    let listed = Command::new(pg_restore).args(["--create", "--list"]).arg(archive).output()?;
    if !listed.status.success() {
        return Ok(Err(listed));
    }
    let contents = String::from_utf8_lossy(&listed.stdout);
    let entries: Vec<_> = contents.lines().filter(|line| is_about_the_database(line)).collect();
    let mut command = Command::new(pg_restore);
    command.args(["--create", "--use-list=/dev/stdin", "--file=-"]).args(options).arg(archive);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(mut list) = child.stdin.take() {
        list.write_all(entries.join("\n").as_bytes())?;
    }
    let restored = child.wait_with_output()?;
    if !restored.status.success() {
        return Ok(Err(restored));
    }
    Ok(Ok(properties(&String::from_utf8_lossy(&restored.stdout))))
}

/// Returns true if a line of an archive's table of contents describes the database itself rather than an object in it.
/// The line consists of the entry's number, two oids, the kind, the schema ("-" for none) and the name.
fn is_about_the_database(line: &str) -> bool {
    let Some(entry) = line.splitn(4, ' ').nth(3) else { return false };
    [
        "DATABASE - ",
        "DATABASE PROPERTIES - ",
        "COMMENT - DATABASE ",
        "ACL - DATABASE ",
        "SECURITY LABEL - DATABASE ",
    ]
    .iter()
    .any(|kind| entry.starts_with(kind))
}

/// Selects the statements about the database from a `pg_dump` script.
fn properties(script: &str) -> Vec<DatabaseProperty> {
    let mut found = Vec::new();
    let mut rest = script;
    while let Some(begin) = rest.find(|sign: char| !sign.is_whitespace()) {
        rest = &rest[begin..];
        // Comments and psql commands aren't statements.
        if rest.starts_with("--") || rest.starts_with('\\') {
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
            continue;
        }
        let statement =
            &rest[..tokens(rest).find(|word| *word == ";").map_or(rest.len(), |end| offset(rest, end))];
        rest = rest[statement.len()..].trim_start_matches(';');
        found.extend(property(statement));
    }
    found
}

/// Splits a statement at the name after the keyword DATABASE. Returns `None` for other statements, for `CREATE
/// DATABASE`, and for a statement that sets `IS_TEMPLATE`, which would let every role copy the new database.
fn property(statement: &str) -> Option<DatabaseProperty> {
    if statement.starts_with("CREATE ") {
        return None;
    }
    let mut words = tokens(statement);
    words.find(|word| *word == "DATABASE")?;
    let name = words.next()?;
    let end = offset(statement, name) + name.len();
    let (before, after) = (&statement[..end - name.len()], &statement[end..]);
    (!after.starts_with(" IS_TEMPLATE"))
        .then(|| DatabaseProperty { before: before.into(), after: after.into() })
}

/// Returns the position of `part` in `text`, in bytes. `part` must be a slice of `text`.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

/// Splits SQL from `pg_dump` into words, quoted names, quoted texts and other characters.
fn tokens(sql: &str) -> impl Iterator<Item = &str> {
    let mut rest = sql;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let first = rest.chars().next()?;
        let is_part = |sign: char| sign.is_alphanumeric() || sign == '_';
        let length = match first {
            'E' if rest[1..].starts_with('\'') => 1 + quoted_length(&rest[1..], '\'', true),
            '\'' | '"' => quoted_length(rest, first, false),
            _ if is_part(first) => rest.find(|sign| !is_part(sign)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let word = &rest[..length];
        rest = &rest[length..];
        Some(word)
    })
}

/// Returns the length of the quoted text at the beginning of `sql` in bytes, including the quotes.
fn quoted_length(sql: &str, quote: char, has_escapes: bool) -> usize {
    let mut signs = sql.char_indices().skip(1).peekable();
    while let Some((at, sign)) = signs.next() {
        let is_doubled = sign == quote && signs.peek().is_some_and(|(_, next)| *next == quote);
        if is_doubled || (has_escapes && sign == '\\') {
            signs.next();
        } else if sign == quote {
            return at + 1;
        }
    }
    sql.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_statements_are_renamed() {
        let script = "--\n-- Name: a;b; Type: DATABASE\n--\n\n\\restrict x'y\nSET client_encoding = 'UTF8';\n\
            CREATE DATABASE \"a;b\" WITH TEMPLATE = template0;\nALTER DATABASE \"a;b\" OWNER TO bob;\n\
            \\connect -reuse-previous=on \"dbname='a;b'\"\nCOMMENT ON DATABASE \"a;b\" IS 'it''s; DATABASE x';\n\
            ALTER DATABASE \"a;b\" IS_TEMPLATE = true;\n\
            ALTER DATABASE \"a;b\" SET \"app.x\" TO E'\\\\'';\nALTER DATABASE y';\n\
            ALTER ROLE \"DATABASE\"\"\" IN DATABASE \"a;b\" SET work_mem TO '7MB';\n\
            REVOKE CONNECT,TEMPORARY ON DATABASE \"a;b\" FROM PUBLIC;\n";
        let found: Vec<_> = properties(script).iter().map(|property| property.for_database("c\"d")).collect();
        let expected = [
            "ALTER DATABASE \"c\"\"d\" OWNER TO bob",
            "COMMENT ON DATABASE \"c\"\"d\" IS 'it''s; DATABASE x'",
            "ALTER DATABASE \"c\"\"d\" SET \"app.x\" TO E'\\\\'';\nALTER DATABASE y'",
            "ALTER ROLE \"DATABASE\"\"\" IN DATABASE \"c\"\"d\" SET work_mem TO '7MB'",
            "REVOKE CONNECT,TEMPORARY ON DATABASE \"c\"\"d\" FROM PUBLIC",
        ];
        assert_eq!(found, expected);
        let cut_short = properties("ALTER DATABASE \"a' IS");
        assert_eq!(cut_short[0].for_database("b"), "ALTER DATABASE \"b\"");
    }

    #[test]
    fn archive_entries_about_database_are_recognized() {
        for (entry, expected) in [
            ("3339; 1262 16385 DATABASE - Sh op bob", true),
            ("3340; 0 0 COMMENT - DATABASE \"Sh op\" bob", true),
            ("3342; 0 0 DATABASE PROPERTIES - Sh op bob", true),
            ("3343; 0 0 ACL - SCHEMA DATABASE bob", false),
            ("215; 1259 16386 TABLE DATABASE - postgres", false),
            (";     dbname: x", false),
        ] {
            assert_eq!(is_about_the_database(entry), expected, "{entry}");
        }
    }
}
