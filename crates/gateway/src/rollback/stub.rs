//! Provides a stub server for tests, which can serve a connection and send its responses in pieces.
//!
//! The stub doesn't parse SQL, but it tracks whether its transaction has failed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::net::UnixStream;

use pgwire::{Frame, encode, split_zero};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::yield_now;

use super::message::ready_for_query;
use crate::stream::Stream;

/// A server that derives a statement's result from the text. A statement containing the word "fail" is an error. "ROWS
/// n m" returns n rows of m bytes. COPY accepts data, except that a "broken" table rejects the first piece.
#[derive(Debug, Default)]
pub(super) struct StubServer {
    status: u8,
    /// Names of deferrable constraints, as returned by a real server.
    pub(super) deferrable: Option<&'static str>,
    /// Text of a function that can change settings.
    pub(super) source: Option<&'static str>,
    /// Names of open cursors.
    pub(super) cursors: &'static [&'static str],
    /// Statements that have run. Those sent in the extended protocol, including all injected ones, are in brackets.
    pub(super) ran: Vec<String>,
    statements: HashMap<Vec<u8>, String>,
    portals: HashMap<Vec<u8>, String>,
    /// Whether the stub ignores all messages until the next Sync, because of an error.
    skips: bool,
    /// Number of bytes that the running COPY has received.
    copied: Option<usize>,
}

impl StubServer {
    pub(super) fn new() -> Self {
        Self { status: b'I', ..Self::default() }
    }

    /// Processes a message and returns the responses.
    pub(super) fn receive(&mut self, tag: u8, body: &[u8]) -> Vec<Vec<u8>> {
        let (name, rest) = split_zero(body);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match tag {
            b'S' => {
                self.skips = false;
                vec![ready_for_query(self.status)]
            }
            _ if self.skips => Vec::new(),
            b'Q' => {
                let mut answers = self.run(&text(name));
                if self.copied.is_none() {
                    answers.push(ready_for_query(self.status));
                }
                answers
            }
            b'P' => {
                let sql = text(split_zero(rest).0);
                // Only a syntax check sends several statements.
                if sql.contains(';') && !sql.starts_with("DO ") {
                    return self.answer(&format!("[{sql}]"));
                }
                self.statements.insert(name.to_vec(), sql);
                vec![encode(b'1', b"")]
            }
            b'B' => {
                let sql = self.statements.get(split_zero(rest).0).cloned().unwrap_or_default();
                self.portals.insert(name.to_vec(), sql);
                vec![encode(b'2', b"")]
            }
            b'D' => vec![encode(b'n', b"")],
            b'E' => {
                let sql = format!("[{}]", self.portals.get(name).cloned().unwrap_or_default());
                self.answer(&sql)
            }
            b'C' => vec![encode(b'3', b"")],
            b'd' if self.copied.is_some() && self.ran.last().is_some_and(|sql| sql.contains("broken")) => {
                self.copied = None;
                vec![self.fail(), ready_for_query(self.status)]
            }
            b'd' => {
                self.copied = self.copied.map(|copied| copied + body.len());
                Vec::new()
            }
            b'c' | b'f' => match self.copied.take() {
                Some(copied) if tag == b'c' => {
                    vec![encode(b'C', format!("COPY {copied}\0").as_bytes()), ready_for_query(self.status)]
                }
                Some(_) => vec![self.fail(), ready_for_query(self.status)],
                None => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Processes an extended-protocol message, which can fail.
    fn answer(&mut self, sql: &str) -> Vec<Vec<u8>> {
        let answers = self.run(sql);
        self.skips = answers.iter().any(|answer| answer[0] == b'E');
        answers
    }

    fn run(&mut self, sql: &str) -> Vec<Vec<u8>> {
        let word = if sql.contains("pg_cursor()") {
            "[look]"
        } else if sql.contains("pg_show_all_settings()") {
            "[settings]"
        } else if sql.contains("pg_get_ruledef") {
            "[sources]"
        } else if sql.contains("pg_constraint") {
            "[constraints]"
        } else {
            sql
        };
        self.ran.push(word.to_owned());
        if sql.contains("ROLLBACK TO") {
            self.status = b'T';
        }
        if self.status == b'E' || sql.contains("fail") {
            return vec![self.fail()];
        }
        self.status = b'T';
        if sql.starts_with("COPY") {
            self.copied = Some(0);
            return vec![encode(b'G', b"\0\0\0")];
        }
        let mut answers = match word {
            "[look]" => {
                let ours = ["_pgfresh"].into_iter();
                let cursors = ours.chain(std::mem::take(&mut self.cursors).iter().copied());
                cursors.map(|name| row(&[Some("0"), Some(name), Some("f"), None])).collect()
            }
            "[constraints]" => vec![row(&[self.deferrable, None])],
            "[sources]" => self.source.map(|text| row(&[Some(text), Some("f")])).into_iter().collect(),
            "[settings]" => vec![row(&[Some("session_authorization"), Some("")])],
            _ => rows(word),
        };
        answers.push(encode(b'C', &[until_space(sql).as_bytes(), b"\0"].concat()));
        answers
    }

    fn fail(&mut self) -> Vec<u8> {
        self.status = b'E';
        encode(b'E', b"SERROR\0VERROR\0C23503\0Mit failed\0\0")
    }
}

fn row(values: &[Option<&str>]) -> Vec<u8> {
    let mut body = u16::try_from(values.len()).unwrap().to_be_bytes().to_vec();
    for value in values {
        body.extend(value.map_or(-1, |value| i32::try_from(value.len()).unwrap()).to_be_bytes());
        body.extend(value.unwrap_or_default().bytes());
    }
    encode(b'D', &body)
}

/// Returns a statement's rows.
fn rows(sql: &str) -> Vec<Vec<u8>> {
    let mut words = sql.trim_matches(['[', ']', ' ']).split(' ');
    if words.next() != Some("ROWS") {
        return Vec::new();
    }
    let mut number = || words.next().unwrap().parse::<usize>().unwrap();
    let (count, length) = (number(), number());
    let letters = "Z\u{0}\u{0}\u{0}\u{5}I-abcdefghijklm".repeat(length / 20 + 2);
    (0..count).map(|at| row(&[Some(&letters[at % 20..at % 20 + length])])).collect()
}

fn until_space(sql: &str) -> &str {
    sql.trim_start_matches(['[', ' ']).split([' ', ']']).next().unwrap_or_default()
}

/// Places to cut a stream of bytes.
#[derive(Debug, Clone)]
pub(super) enum Cuts {
    /// Don't cut.
    None,
    /// Cut once, at this byte.
    At(usize),
    /// Cut into pieces of these lengths, repeatedly.
    Into(Vec<usize>),
}

impl Cuts {
    /// Yields the lengths of the pieces in order.
    pub(super) fn pieces(&self) -> Box<dyn Iterator<Item = usize> + '_> {
        match self {
            Self::None => Box::new(std::iter::repeat(usize::MAX)),
            Self::At(at) => Box::new(std::iter::once(*at).chain(std::iter::repeat(usize::MAX))),
            Self::Into(lengths) => Box::new(lengths.iter().copied().cycle()),
        }
    }
}

/// Writes the pieces in turn, waiting until the other side has read each one.
pub(super) async fn write_pieces(
    to: &mut (impl AsyncWriteExt + Unpin),
    mut bytes: &[u8],
    pieces: &mut dyn Iterator<Item = usize>,
    reader: &UnixStream,
) {
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(pieces.next().unwrap().min(bytes.len()));
        to.write_all(piece).await.unwrap();
        bytes = rest;
        while !sys::is_idle_socket(reader) {
            yield_now().await;
        }
    }
}

/// Responds until the other side closes the connection. Cuts the responses into pieces as if they were one stream.
pub(super) async fn serve_in_pieces(
    server: &mut Stream,
    stub: &RefCell<StubServer>,
    pieces: &mut dyn Iterator<Item = usize>,
    reader: &UnixStream,
) {
    let (mut received, mut chunk, mut left) = (Vec::new(), vec![0; 4096], 0);
    loop {
        match server.read(&mut chunk).await.unwrap() {
            0 => return,
            count => received.extend_from_slice(&chunk[..count]),
        }
        let mut answers = Vec::new();
        while let Ok(Some((frame, length))) = Frame::first(&received) {
            answers.extend(stub.borrow_mut().receive(frame.tag, frame.body).concat());
            received.drain(..length);
        }
        // The pieces continue where the earlier responses ended.
        let mut lengths = Vec::new();
        let mut rest = answers.len();
        while rest > 0 {
            left = if left == 0 { pieces.next().unwrap() } else { left };
            let length = left.min(rest);
            lengths.push(length);
            (left, rest) = (left - length, rest - length);
        }
        write_pieces(server, &answers, &mut lengths.into_iter(), reader).await;
    }
}

/// Like [`serve_in_pieces`], but doesn't cut the responses.
pub(super) async fn serve(server: &mut Stream, stub: &RefCell<StubServer>) {
    let (silent, _open) = UnixStream::pair().unwrap();
    serve_in_pieces(server, stub, &mut std::iter::repeat(usize::MAX), &silent).await;
}

pub(super) fn parse(name: &str, sql: &str) -> Vec<u8> {
    encode(b'P', format!("{name}\0{sql}\0\0\0").as_bytes())
}

/// Returns a Bind message whose names are followed by a parameter value of `value` bytes.
pub(super) fn bind(portal: &str, name: &str, value: usize) -> Vec<u8> {
    let names = format!("{portal}\0{name}\0\0\0\0\x01");
    let length = u32::try_from(value).unwrap().to_be_bytes();
    encode(b'B', &[names.as_bytes(), &length, &vec![0; value], b"\0\0"].concat())
}

pub(super) fn execute(portal: &str) -> Vec<u8> {
    encode(b'E', format!("{portal}\0\0\0\0\0").as_bytes())
}

pub(super) fn sync() -> Vec<u8> {
    encode(b'S', b"")
}
