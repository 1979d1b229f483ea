//! Attribution of what real tools sent.
//!
//! `recorded/` has the sessions in which each tool ran the last six migrations of its project in
//! `crates/pgfresh/tests/migration_tools`, as a proxy saw them. In the files that end with `_failed`, the ninth migration had
//! an error.
//!
//! Each line has five parts: the expected migration, the number of the session, `ok` or `error`, the text, and the
//! parameters as `text` or `binary`. The tool's own statements have `=` instead of a migration, and unknown ones `-`.
//! `INSTA_UPDATE=always` writes the migrations again.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use pgwire::{StatementError, split_statements};
use plans::BoundValue;

use super::*;

/// Folder with the recorded sessions.
fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/attribution/recorded")
}

fn project(tool: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../pgfresh/tests/migration_tools").join(tool)
}

fn walk(folder: &Path, below: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder.join(below)).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        if entry.file_type().unwrap().is_dir() { walk(folder, &path, found) } else { found.push(path) }
    }
    found.sort();
}

/// A request of a recorded session.
struct Request<'a> {
    line: &'a str,
    session: usize,
    failed: bool,
    sql: String,
    parameters: Vec<BoundValue>,
}

impl<'a> Request<'a> {
    fn read(line: &'a str) -> Self {
        let mut parts = line.split('\t').skip(1);
        let session = parts.next().unwrap().parse().unwrap();
        let failed = parts.next().unwrap() == "error";
        let sql = parts.next().unwrap().replace("\\n", "\n").replace("\\t", "\t");
        let parameters = parts.map(|part| {
            let (format, value) = part.split_once(':').unwrap();
            let bytes = |hex: &str| {
                let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
                (0..hex.len()).step_by(2).map(byte).collect()
            };
            let (format, value) = match format {
                "text" => (0, Some(value.into())),
                "binary" => (1, Some(bytes(value))),
                _ => (0, None),
            };
            BoundValue { type_oid: 0, format, value }
        });
        Self { line, session, failed, sql, parameters: parameters.collect() }
    }
}

/// Returns the statements of the requests, each with the number of its request.
fn observed(requests: &[Request<'_>]) -> (Observations, Vec<usize>) {
    let (mut statements, mut numbers, mut open, mut transactions) =
        (Vec::new(), Vec::new(), HashMap::new(), 0);
    for (number, request) in requests.iter().enumerate() {
        for sql in split_statements(&request.sql) {
            let in_block = open.contains_key(&request.session);
            if !in_block {
                transactions += 1;
            }
            let transaction = *open.entry(request.session).or_insert(transactions);
            if ends(sql) || !in_block && !begins(sql) {
                open.remove(&request.session);
            }
            let error =
                request.failed.then(|| StatementError { sqlstate: String::new(), message: String::new() });
            statements.push(ObservedStatement {
                session: request.session,
                sql: sql.to_owned(),
                parameters: request.parameters.clone(),
                transaction,
                error,
                ..ObservedStatement::default()
            });
            numbers.push(number);
        }
    }
    (Observations { statements, ..Observations::default() }, numbers)
}

#[test]
fn statements_of_each_tool_have_their_migration() {
    let mut tools = 0;
    for entry in fs::read_dir(recorded()).unwrap().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap();
        let name = entry.file_name().into_string().unwrap();
        let tool = name.split(['_', '.']).next().unwrap();
        let requests: Vec<_> = text.lines().map(Request::read).collect();
        let (observations, numbers) = observed(&requests);
        let (mut paths, folder) = (Vec::new(), project(tool));
        walk(&folder, "", &mut paths);
        let read = |path: &str| fs::read_to_string(folder.join(path)).unwrap();
        let found = attribute(&observations, &MigrationFiles::new(&paths, &read));
        let mut lines = Vec::new();
        for (number, request) in requests.iter().enumerate() {
            let here = numbers.iter().zip(&found).filter(|(of, _)| **of == number);
            let mut names: Vec<_> = here
                .map(
                    |(_, one)| if one.is_bookkeeping { "=" } else { one.migration.as_deref().unwrap_or("-") },
                )
                .collect();
            names.dedup();
            let rest = request.line.split_once('\t').unwrap().1;
            lines.push(format!("{}\t{rest}\n", names.join(" ")));
        }
        if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
            fs::write(entry.path(), lines.concat()).unwrap();
        } else {
            lines
                .iter()
                .zip(text.lines())
                .for_each(|(line, expected)| assert_eq!(line.trim_end(), expected.trim_end(), "{name}"));
        }
        tools += 1;
    }
    assert!(tools >= 22, "{tools}");
}
