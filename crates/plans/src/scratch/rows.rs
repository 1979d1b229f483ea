//! Encodes rows for `COPY … FROM STDIN` in text format, and arrays as text.

use server::{AdminConnection, SessionError};

/// Approximate size of a `CopyData` message in bytes.
const CHUNK: usize = 64 << 10;

/// Rows of one table, encoded for the server.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    messages: Vec<Vec<u8>>,
    chunk: Vec<u8>,
}

impl Rows {
    /// Adds a row. `None` is NULL.
    pub(crate) fn add(&mut self, values: &[Option<&str>]) {
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                self.chunk.push(b'\t');
            }
            match value {
                None => self.chunk.extend(b"\\N"),
                Some(text) => self.escape(text),
            }
        }
        self.chunk.push(b'\n');
        if self.chunk.len() >= CHUNK {
            self.finish_chunk();
        }
    }

    fn escape(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                b'\\' => self.chunk.extend(b"\\\\"),
                b'\n' => self.chunk.extend(b"\\n"),
                b'\r' => self.chunk.extend(b"\\r"),
                b'\t' => self.chunk.extend(b"\\t"),
                other => self.chunk.push(other),
            }
        }
    }

    fn finish_chunk(&mut self) {
        if !self.chunk.is_empty() {
            self.messages.push(pgwire::encode(b'd', &self.chunk));
            self.chunk.clear();
        }
    }

    /// Copies all rows to `table`, which may include a column list.
    pub(crate) fn copy_to(mut self, session: &mut AdminConnection, table: &str) -> Result<(), SessionError> {
        self.finish_chunk();
        let messages = self.messages.iter().map(Vec::as_slice);
        session.copy_in(&format!("COPY {table} FROM STDIN"), messages)
    }
}

/// Returns an array in PostgreSQL's text format. Each element is quoted, so that it can't be mistaken for NULL or for
/// an inner array.
pub(crate) fn array(elements: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut text = String::from("{");
    for (index, element) in elements.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push('"');
        for letter in element.as_ref().chars() {
            if matches!(letter, '"' | '\\') {
                text.push('\\');
            }
            text.push(letter);
        }
        text.push('"');
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped() {
        let mut rows = Rows::default();
        rows.add(&[Some("a\tb\\\n"), None, Some("")]);
        assert_eq!(rows.chunk, b"a\\tb\\\\\\n\t\\N\t\n");
        assert_eq!(array(["NULL", "a\"b\\", "{1,2}"]), r#"{"NULL","a\"b\\","{1,2}"}"#);
        assert_eq!(array([""; 0]), "{}");
    }
}
