//! Saves failed tests' last statements together with their databases, to help users find out why the tests failed.
//!
//! ```text
//! KEPT/statements    names and statements as JSON. The run writes this file, and the background server that takes over
//!                    reads it.
//! ```

use std::fs;
use std::path::Path;

use contract::{ExecutedStatement, SqlError};
use gateway::KeptDatabase;
use report::{Quantity, Unit};
use server::printable;
use storage::Attempt;

use crate::failure::Failure;
use crate::notice::notice;

const FILE: &str = "statements";
/// Number of statements to show for each test.
const SHOWN: usize = 5;
/// Maximum width of a statement, in columns.
const WIDTH: usize = 100;

/// Writes a list of the kept databases into the run directory `kept`, for the server that takes over.
pub(crate) fn write(kept: &Path, databases: &[KeptDatabase]) -> Result<(), Failure> {
    let path = kept.join(FILE);
    let text = serde_json::to_string(databases).map_err(|error| Failure::new(error.to_string()))?;
    Ok(fs::write(&path, text).attempt("write", &path)?)
}

/// Reads the file written by [`write()`]. Returns an empty list if the file is missing or unreadable.
pub(crate) fn read(kept: &Path) -> Vec<KeptDatabase> {
    let text = fs::read_to_string(kept.join(FILE)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Prints each failed test's database: its URL, the test, the test's last statements, and the command that shows what
/// the test changed.
pub(crate) fn print(kept: &[KeptDatabase], url: impl Fn(&str) -> String) {
    match kept.len() {
        1 => notice!("pgfresh: kept the database of a failed test"),
        count => notice!("pgfresh: kept the databases of {count} failed tests"),
    }
    for KeptDatabase { name, test, statements, .. } in kept {
        notice!("{}  {}", printable(test), url(name));
        print_statements(statements);
    }
    let name = if let [one] = kept { &one.name } else { "NAME" };
    notice!("HINT:  \"pgfresh diff {name}\" shows what its test changed.");
    notice!("       \"pgfresh psql {name}\" opens it.");
    notice!("       \"pgfresh release {name}\" removes it.");
}

fn print_statements(statements: &[ExecutedStatement]) {
    for ExecutedStatement { statement, seconds, error, .. } in
        &statements[statements.len().saturating_sub(SHOWN)..]
    {
        notice!("{:>10}  {}", Quantity::new(*seconds, Unit::Seconds).to_string(), line(statement));
        if let Some(SqlError { code, message }) = error {
            notice!("{:>10}  ERROR {code}: {}", "", line(message));
        }
    }
}

/// Shortens a text to one line.
fn line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.chars().count() <= WIDTH {
        return words;
    }
    words.chars().take(WIDTH - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_one_line() {
        assert_eq!(line("SELECT 1,\n\t 2"), "SELECT 1, 2");
        assert_eq!(line(&"x".repeat(200)).chars().count(), WIDTH);
    }
}
