//! Finds the statements in a client's messages, by tracking the names of prepared statements and portals.

use std::collections::HashMap;

use crate::frame::{frames, split_zero};
use crate::split::split_statements;

/// The statements of a session, by their names in the protocol.
#[derive(Debug, Default)]
pub struct StatementNames {
    prepared: HashMap<Vec<u8>, String>,
    portals: HashMap<Vec<u8>, String>,
}

impl StatementNames {
    /// Returns the statements that a request runs, in order. If it doesn't run any, returns those that it prepares. The
    /// caller must pass the session's requests in order.
    pub fn read(&mut self, messages: &[u8]) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (mut run, mut prepared) = (Vec::new(), Vec::new());
        for frame in frames(messages) {
            let (first, rest) = split_zero(frame.body);
            match frame.tag {
                b'Q' => run.extend(split_statements(&text(first)).into_iter().map(str::to_owned)),
                b'P' => {
                    let sql = text(split_zero(rest).0);
                    prepared.push(sql.clone());
                    self.prepared.insert(first.to_vec(), sql);
                }
                b'B' => {
                    let sql = self.prepared.get(split_zero(rest).0).cloned().unwrap_or_default();
                    self.portals.insert(first.to_vec(), sql);
                }
                b'E' => run.push(self.portals.get(first).cloned().unwrap_or_default()),
                _ => {}
            }
        }
        if run.is_empty() { prepared } else { run }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{encode, query};

    #[test]
    fn statements_are_found_by_their_names() {
        let mut names = StatementNames::default();
        assert_eq!(names.read(&query(b"BEGIN; SELECT 1")), ["BEGIN", "SELECT 1"]);
        assert_eq!(names.read(&encode(b'P', b"s\0SELECT $1\0\0\0")), ["SELECT $1"]);
        let run = [encode(b'B', b"\0s\0\0\0\0\0\0\0"), encode(b'E', b"\0\0\0\0\0")].concat();
        assert_eq!(names.read(&[run.clone(), run].concat()), ["SELECT $1", "SELECT $1"]);
    }
}
