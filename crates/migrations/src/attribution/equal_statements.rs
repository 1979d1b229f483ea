//! Finds a run's statements in the project's SQL files.

use std::collections::HashMap;

use pgwire::split_statements;

use super::files::MigrationFiles;
use crate::sql_text::normal_form;

/// Maximum total size of all files, in bytes. Migrations stay far below it; a dump with rows might not.
const MAX_BYTES: usize = 32 << 20;

/// Index of the statements in the project's SQL files.
pub(super) struct SqlFiles<'a> {
    files: Vec<SqlFile<'a>>,
    /// For each text: the index of every file that contains it, with the statement's index in the file.
    places: HashMap<String, Vec<(usize, usize)>>,
}

struct SqlFile<'a> {
    path: &'a str,
    rank: (bool, bool),
    statements: Vec<String>,
}

impl<'a> SqlFiles<'a> {
    pub(super) fn read(files: &MigrationFiles<'a>) -> Self {
        let mut left = MAX_BYTES;
        let mut found = Self { files: Vec::new(), places: HashMap::new() };
        for (path, text) in files.sql() {
            let Some(rest) = left.checked_sub(text.len()) else { continue };
            left = rest;
            let statements: Vec<_> = split_statements(&text).into_iter().map(normal_form).collect();
            for (at, statement) in statements.iter().enumerate() {
                found.places.entry(statement.clone()).or_default().push((found.files.len(), at));
            }
            found.files.push(SqlFile { path, rank: files.rank(path), statements });
        }
        found
    }

    /// Returns the file of each statement, or `None` if no file contains it. `statements` are those of one run, in
    /// their order. If several files contain a statement, selects the file with the longest sequence of matching
    /// statements. If these are equally long, prefers the file that follows the previous one.
    pub(super) fn of(&self, statements: &[&str]) -> Vec<Option<&'a str>> {
        let texts: Vec<_> = statements.iter().map(|sql| normal_form(sql)).collect();
        let mut found = vec![None; texts.len()];
        let (mut at, mut last) = (0, 0);
        while at < texts.len() {
            let places = self.places.get(&texts[at]).map_or(&[][..], Vec::as_slice);
            let length = |&(file, start): &(usize, usize)| {
                let in_file = &self.files[file].statements[start..];
                in_file.iter().zip(&texts[at..]).take_while(|(one, other)| one == other).count()
            };
            let preference = |place: &&(usize, usize)| {
                let file = place.0;
                (length(place), self.files[file].rank, file >= last, std::cmp::Reverse(file))
            };
            let best = places.iter().max_by_key(preference);
            let length = best.map_or(0, length);
            if let Some((file, start)) = best
                && texts[at..at + length].iter().any(|text| is_specific(text))
            {
                last = *file;
                let path = Some(self.files[*file].path);
                found[at..at + length].fill(path);
                // The preceding statements of the file ran too, even if psql variables made their text differ.
                let before = found[at.saturating_sub(*start)..at].iter_mut().rev();
                before.take_while(|found| found.is_none()).for_each(|found| *found = path);
            }
            at += length.max(1);
        }
        found
    }
}

/// Returns false for statements that many files contain, such as BEGIN.
fn is_specific(words: &str) -> bool {
    let first = words.split(' ').next().unwrap_or_default();
    !["begin", "start", "commit", "end", "rollback", "set", "reset", ""].contains(&first)
}
