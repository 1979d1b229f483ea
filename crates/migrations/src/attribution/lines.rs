//! Finds the line of each statement in the file of its migration.

use std::collections::HashMap;

use pgwire::split_statements;

use super::StatementOrigin;
use super::files::MigrationFiles;
use crate::ObservedStatement;
use crate::sql_text::{normal_form, without_leading_comments};

/// Minimum length of a text to search for in files of languages other than SQL, in bytes.
const MIN_TEXT: usize = 12;

/// Sets the line of each statement whose file contains its text.
pub(super) fn find(
    statements: &[ObservedStatement],
    files: &MigrationFiles<'_>,
    origins: &mut [StatementOrigin],
) {
    let mut open: HashMap<String, Reader> = HashMap::new();
    for (statement, origin) in statements.iter().zip(origins) {
        let Some(file) = &origin.file else { continue };
        let reader = open.entry(file.clone()).or_insert_with(|| Reader::new(files, file));
        origin.line = reader.line_of(&statement.sql);
    }
}

/// Searches a file for statements in the order in which they ran, because several statements can have the same text.
enum Reader {
    Sql {
        /// Normal form and line of each statement in the file.
        statements: Vec<(String, usize)>,
        /// Index of the statement after the last one found.
        next: usize,
    },
    Other {
        text: String,
        /// Position after the last text found.
        next: usize,
    },
}

impl Reader {
    fn new(files: &MigrationFiles<'_>, path: &str) -> Self {
        let text = files.text(path);
        if !path.to_lowercase().ends_with(".sql") {
            return Self::Other { text, next: 0 };
        }
        let place = |part: &str| part.as_ptr().addr() - text.as_ptr().addr();
        let statements = split_statements(&text).into_iter().map(|statement| {
            (normal_form(statement), line_at(&text, place(without_leading_comments(statement))))
        });
        Self::Sql { statements: statements.collect(), next: 0 }
    }

    fn line_of(&mut self, sql: &str) -> Option<usize> {
        match self {
            Self::Sql { statements, next } => {
                let wanted = normal_form(sql);
                let is_it = |(text, _): &(String, usize)| *text == wanted;
                let after = statements[*next..].iter().position(is_it).map(|place| *next + place);
                let found = after.or_else(|| statements.iter().position(is_it))?;
                *next = found + 1;
                Some(statements[found].1)
            }
            Self::Other { text, next } => {
                let first = without_leading_comments(sql).lines().next()?.trim_end_matches([';', ' ', '\r']);
                let wanted = Some(first).filter(|first| first.len() >= MIN_TEXT)?;
                let after = text[*next..].find(wanted).map(|place| *next + place);
                let found = after.or_else(|| text.find(wanted))?;
                *next = found + wanted.len();
                Some(line_at(text, found))
            }
        }
    }
}

/// Returns the line number at byte `place`, starting at 1.
fn line_at(text: &str, place: usize) -> usize {
    1 + text.bytes().take(place).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str, statements: &[&str]) -> Vec<Option<usize>> {
        let paths = [path.to_owned()];
        let read = |_: &str| text.to_owned();
        let files = MigrationFiles::new(&paths, &read);
        let observed =
            |sql: &&str| ObservedStatement { sql: (*sql).to_owned(), ..ObservedStatement::default() };
        let observed: Vec<_> = statements.iter().map(observed).collect();
        let origin = StatementOrigin { file: Some(path.to_owned()), ..StatementOrigin::default() };
        let mut origins = vec![origin; statements.len()];
        find(&observed, &files, &mut origins);
        origins.into_iter().map(|origin| origin.line).collect()
    }

    #[test]
    fn statements_of_sql_files_have_their_lines() {
        let text = "-- x\nBEGIN;\n\nUPDATE a\n  SET b = 1; -- y\n/* z\n*/ UPDATE a SET b = 1;\nCOMMIT;";
        let wanted = ["begin", "update a set b = 1", "UPDATE a SET b = 1;", "SELECT 1", "COMMIT", "BEGIN"];
        let found = [Some(2), Some(4), Some(7), None, Some(8), Some(2)];
        assert_eq!(lines("migrations/1.sql", text, &wanted), found);
    }

    #[test]
    fn statements_in_other_languages_have_their_lines() {
        let text = "def up():\n  op.execute(\"ALTER TABLE a ADD b int\")\n  op.execute(\"ALTER TABLE a\n    ADD c int\")\n";
        let wanted = [
            "ALTER TABLE a ADD b int",
            "ALTER TABLE a\n    ADD c int",
            "ALTER TABLE a ADD COLUMN d int",
            "BEGIN",
        ];
        assert_eq!(lines("versions/1.py", text, &wanted), [Some(2), Some(3), None, None]);
    }
}
