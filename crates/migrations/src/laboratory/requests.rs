//! Splits a request into units: the messages of one statement each.

use std::collections::{HashMap, VecDeque};

use pgwire::{BoundValue, Frame, SentStatement, encode, frames, query, split_statements, split_zero};
use server::identifier;

/// Text of a request that is a function call.
const FUNCTION_CALL: &str = "function call";

/// A part of a request.
#[derive(Debug, PartialEq)]
pub(super) enum Unit {
    /// A statement.
    Run {
        /// Text of the statement.
        sql: String,
        /// Bound values.
        parameters: Vec<BoundValue>,
        /// Messages that run it, without a Sync.
        messages: Vec<u8>,
        /// Whether a Sync must follow.
        is_extended: bool,
        /// Name of the portal in the extended protocol.
        portal: Vec<u8>,
        /// Whether the messages bind the portal. Otherwise the client fetches more rows of an earlier run.
        is_bound: bool,
    },
    /// Messages that run nothing, such as Parse and Describe, and the text of the last Parse.
    Prepare {
        /// The messages, without a Sync.
        messages: Vec<u8>,
        /// Text of the statement that was parsed last. Empty without a Parse.
        sql: String,
    },
}

/// A request as its units.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Request {
    /// The units in their order.
    pub(super) units: Vec<Unit>,
    /// Data of each COPY, with the message that ends them.
    pub(super) copies: VecDeque<Vec<u8>>,
    /// Names of the prepared statements that the request creates.
    pub(super) prepared: Vec<Vec<u8>>,
}

/// Prepared statements and portals of a session's client.
#[derive(Debug, Default)]
pub(super) struct ClientNames {
    statements: HashMap<Vec<u8>, SentStatement>,
    portals: HashMap<Vec<u8>, SentStatement>,
}

impl ClientNames {
    /// Splits the messages of a request.
    pub(super) fn read(&mut self, messages: &[u8]) -> Request {
        let mut request = Request::default();
        let (mut pending, mut bound) = (Vec::new(), Vec::new());
        let (mut copy, mut parsed) = (Vec::new(), String::new());
        for frame in frames(messages) {
            let bytes = encode(frame.tag, frame.body);
            match frame.tag {
                b'Q' => request.units.extend(simple(&frame)),
                b'F' => request.units.push(unit(FUNCTION_CALL, bytes)),
                b'd' => copy.extend(bytes),
                b'c' | b'f' => {
                    copy.extend(bytes);
                    request.copies.push_back(std::mem::take(&mut copy));
                }
                b'E' => {
                    pending.extend(bytes);
                    let portal = split_zero(frame.body).0.to_vec();
                    let sent = self.portals.get(&portal);
                    request.units.push(Unit::Run {
                        sql: sent.map_or_else(|| fetch(&portal), |sent| sent.text.trim().to_owned()),
                        parameters: sent.and_then(SentStatement::parameters).unwrap_or_default(),
                        messages: std::mem::take(&mut pending),
                        is_extended: true,
                        is_bound: bound.contains(&portal),
                        portal,
                    });
                    parsed.clear();
                    bound.clear();
                }
                b'S' | b'H' => {}
                _ => {
                    if frame.tag == b'P' {
                        let (name, rest) = split_zero(frame.body);
                        request.prepared.push(name.to_vec());
                        parsed = String::from_utf8_lossy(split_zero(rest).0).into_owned();
                    }
                    if frame.tag == b'B' {
                        bound.push(split_zero(frame.body).0.to_vec());
                    }
                    self.note(&frame);
                    pending.extend(bytes);
                }
            }
        }
        if !pending.is_empty() {
            request.units.push(Unit::Prepare { messages: pending, sql: parsed });
        }
        request
    }

    /// Notes a prepared statement or a portal.
    fn note(&mut self, frame: &Frame<'_>) {
        let (name, rest) = split_zero(frame.body);
        match frame.tag {
            b'P' => {
                let (text, types) = split_zero(rest);
                let text = String::from_utf8_lossy(text);
                if let Some(sent) = SentStatement::prepared(text.as_bytes(), types) {
                    self.statements.insert(name.to_vec(), sent);
                }
            }
            b'B' => {
                let (statement, values) = split_zero(rest);
                match self.statements.get(statement) {
                    Some(sent) => self.portals.insert(name.to_vec(), sent.bound(values, 0)),
                    None => self.portals.remove(name),
                };
            }
            _ => {}
        }
    }
}

impl Request {
    /// Makes one unit of a whole Query. A syntax error prevents all of its statements.
    pub(super) fn keep_whole(&mut self, messages: &[u8]) {
        for frame in frames(messages).filter(|frame| frame.tag == b'Q') {
            let text = split_zero(frame.body).0;
            self.units = vec![unit(&String::from_utf8_lossy(text), query(text))];
        }
    }
}

/// Returns a text for the portal of a cursor that SQL declared.
fn fetch(portal: &[u8]) -> String {
    format!("FETCH FROM {}", identifier(&String::from_utf8_lossy(portal)))
}

fn unit(sql: &str, messages: Vec<u8>) -> Unit {
    let (parameters, portal) = (Vec::new(), Vec::new());
    Unit::Run { sql: sql.to_owned(), parameters, messages, is_extended: false, portal, is_bound: true }
}

/// Returns the statements of a Query. A text that is not UTF-8 stays whole.
fn simple(frame: &Frame<'_>) -> Vec<Unit> {
    let text = split_zero(frame.body).0;
    match std::str::from_utf8(text) {
        Ok(sql) => split_statements(sql).into_iter().map(|sql| unit(sql, query(sql.as_bytes()))).collect(),
        Err(_) => vec![unit(&String::from_utf8_lossy(text), query(text))],
    }
}
