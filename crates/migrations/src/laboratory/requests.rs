//! Splits a request into units. A unit contains the messages that run one statement.

use std::collections::{HashMap, VecDeque};

use pgwire::{BoundValue, Frame, SentStatement, encode, frames, query, split_statements, split_zero};
use server::identifier;

/// Text that stands for a request that is a function call.
const FUNCTION_CALL: &str = "function call";

/// A part of a request.
#[derive(Debug, PartialEq)]
pub(super) enum Unit {
    /// Messages that run a statement.
    Run {
        /// SQL of the statement.
        sql: String,
        /// Values that Bind assigns to the parameters.
        parameters: Vec<BoundValue>,
        /// Messages that run the statement, without a Sync.
        messages: Vec<u8>,
        /// Whether the messages use the extended protocol, so that a Sync must follow.
        is_extended: bool,
        /// Name of the portal. Empty for the unnamed portal and in the simple protocol.
        portal: Vec<u8>,
        /// Whether the messages bind the portal. If not, the client fetches more rows from a portal that it bound
        /// before.
        is_bound: bool,
    },
    /// Messages that run nothing, such as Parse and Describe.
    Prepare {
        /// The messages, without a Sync.
        messages: Vec<u8>,
        /// SQL of the last Parse. Empty if there is no Parse.
        sql: String,
    },
}

/// A request, split into units.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Request {
    /// The units, in their order.
    pub(super) units: Vec<Unit>,
    /// Data of each COPY, including the message that ends it.
    pub(super) copies: VecDeque<Vec<u8>>,
    /// Names of the prepared statements that the request creates.
    pub(super) prepared: Vec<Vec<u8>>,
}

/// The prepared statements and portals that the session's client has created.
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

    /// Records a prepared statement or a portal that a message creates.
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
    /// Adds a whole Query message as one unit, because a syntax error prevents all of its statements.
    pub(super) fn keep_whole(&mut self, messages: &[u8]) {
        for frame in frames(messages).filter(|frame| frame.tag == b'Q') {
            let text = split_zero(frame.body).0;
            self.units = vec![unit(&String::from_utf8_lossy(text), query(text))];
        }
    }
}

/// Returns SQL that represents a fetch from a portal, for a cursor that SQL declared.
fn fetch(portal: &[u8]) -> String {
    format!("FETCH FROM {}", identifier(&String::from_utf8_lossy(portal)))
}

fn unit(sql: &str, messages: Vec<u8>) -> Unit {
    let (parameters, portal) = (Vec::new(), Vec::new());
    Unit::Run { sql: sql.to_owned(), parameters, messages, is_extended: false, portal, is_bound: true }
}

/// Returns the statements of a Query message. A text that isn't valid UTF-8 isn't split.
fn simple(frame: &Frame<'_>) -> Vec<Unit> {
    let text = split_zero(frame.body).0;
    match std::str::from_utf8(text) {
        Ok(sql) => split_statements(sql).into_iter().map(|sql| unit(sql, query(sql.as_bytes()))).collect(),
        Err(_) => vec![unit(&String::from_utf8_lossy(text), query(text))],
    }
}
