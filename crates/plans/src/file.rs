//! Parses and writes statistics files. Reads two formats: pgfresh's own JSON format, with a line for each relation and
//! column, and the output of `pg_dump --statistics-only`.

mod dump;
pub(crate) mod validation;

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::ser::{Formatter, Serializer};

use crate::Statistics;
use crate::statistics::FORMAT;

/// Reason why a file doesn't contain valid statistics. The messages don't contain column values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatisticsFileError {
    /// The file isn't UTF-8.
    #[error("line {line}: a byte is not UTF-8")]
    Encoding {
        /// Line number, from 1.
        line: usize,
    },
    /// The text doesn't have the expected form.
    #[error("line {line}: {reason}")]
    Syntax {
        /// Line number, from 1.
        line: usize,
        /// Reason, without column values.
        reason: String,
    },
    /// A field has a value that PostgreSQL can't have written.
    #[error("{place}: {reason}")]
    Invalid {
        /// Relation and column that the field belongs to.
        place: String,
        /// Reason, without column values.
        reason: String,
    },
    /// A pgfresh with a different format version wrote the file.
    #[error("the file has format {0}, but this pgfresh reads format {FORMAT}")]
    Format(u32),
}

/// JSON depths at which each element gets its own line: the file's fields (1), settings and relations (2), and the
/// columns of a relation (4).
const LINES: [usize; 3] = [1, 2, 4];

impl Statistics {
    /// Parses a file in pgfresh's format, or the output of `pg_dump --statistics-only`, and checks all fields.
    ///
    /// # Errors
    ///
    /// Returns an error that names the position (line, or relation and column) and describes the problem.
    pub fn parse(file: &[u8]) -> Result<Self, StatisticsFileError> {
        let text = std::str::from_utf8(file)
            .map_err(|error| StatisticsFileError::Encoding { line: line(&file[..error.valid_up_to()]) })?;
        let mut statistics = if text.trim_start().starts_with('{') {
            let format = serde_json::from_str::<Head>(text).ok().and_then(|head| head.format);
            if let Some(format) = format.filter(|format| *format != FORMAT) {
                return Err(StatisticsFileError::Format(format));
            }
            serde_json::from_str(text).map_err(|error| syntax(&error))?
        } else {
            dump::parse(text)?
        };
        validation::check(&statistics)?;
        statistics.sort();
        Ok(statistics)
    }

    /// Returns the statistics in pgfresh's file format. Equal statistics produce equal files.
    ///
    /// # Panics
    ///
    /// Never panics, because all fields can be written as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut bytes = Vec::new();
        let mut serializer = Serializer::with_formatter(&mut bytes, Lines { depth: 0 });
        self.serialize(&mut serializer).expect("all keys are strings");
        bytes.push(b'\n');
        String::from_utf8(bytes).expect("JSON is UTF-8")
    }
}

/// The field that determines whether this pgfresh can read the file.
#[derive(Deserialize)]
struct Head {
    format: Option<u32>,
}

/// Returns the line number, from 1, of the position after `before`.
fn line(before: &[u8]) -> usize {
    before.split(|byte| *byte == b'\n').count()
}

/// Describes a JSON error. Omits the part before ", expected", where the message of `serde_json` may quote a value.
fn syntax(error: &serde_json::Error) -> StatisticsFileError {
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    let reason = message.rsplit_once(", expected ").map(|(_, expected)| format!("this is not {expected}"));
    StatisticsFileError::Syntax { line: error.line(), reason: reason.unwrap_or_else(|| message.to_owned()) }
}

/// JSON formatter that starts a new line for each element at the depths in [`LINES`].
struct Lines {
    depth: usize,
}

impl Lines {
    fn element<W: ?Sized + Write>(&self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        if !LINES.contains(&self.depth) {
            return Ok(());
        }
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(b" "))
    }

    fn begin<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(bracket)
    }

    fn end<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.depth == 0 {
            writer.write_all(b"\n")?;
        }
        writer.write_all(bracket)
    }
}

impl Formatter for Lines {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.element(writer, first)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.element(writer, first)
    }
}

#[cfg(test)]
mod tests;
