//! The messages that rollback isolation words itself, and what it reads of others.

use std::borrow::Cow;

pub(super) use lease::{
    BEGIN_LEASE as BEGIN, DISCARD_ALL, RELEASE_TRANSACTION as RELEASE, UNDO_TRANSACTION as UNDO,
};

/// The savepoint that stands for the client's transaction.
pub(super) const SAVE: &str = "SAVEPOINT pgfresh_t";
/// Where the check of a string's syntax begins, and how it is undone.
const SYNTAX: &str = "SAVEPOINT pgfresh_s";
pub(super) const SYNTAX_UNDO: [&str; 2] = ["ROLLBACK TO SAVEPOINT pgfresh_s", "RELEASE SAVEPOINT pgfresh_s"];
/// The same, and an error outside of it.
pub(super) const SYNTAX_ABORT: [&str; 3] = [SYNTAX_UNDO[0], SYNTAX_UNDO[1], SYNTAX_UNDO[1]];
/// Stands for BEGIN until it is executed.
pub(super) const BEGIN_PLACEHOLDER: &str = "SAVEPOINT pgfresh_b";
/// Sync, the end of a group of messages.
pub(super) const SYNC: &[u8] = b"S\0\0\0\x04";
/// What to do instead.
pub(super) const INSTEAD: &str =
    "Rollback isolation runs everything in one transaction; use isolation \"clone\" for this.";

/// What to do where a cursor is in the way that a plain server would have copied at the end of its transaction.
const HELD: &str = "In rollback isolation a cursor WITH HOLD keeps its tables in use; close it first, or use isolation \"clone\".";

/// A message with a tag.
pub(super) fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(body.len() + 5);
    message.push(tag);
    message.extend_from_slice(&length.to_be_bytes());
    message.extend_from_slice(body);
    message
}

/// Statements of ours, up to one Sync: each with Parse, Bind, Execute, Close, so that none is left for the client to see.
/// What is closed first is left from one that failed. No simple Query is used, since that would end the client's unnamed
/// statement.
pub(super) fn injection<S: AsRef<str>>(statements: impl IntoIterator<Item = S>) -> Vec<u8> {
    let close = [message(b'C', b"P_pgfresh\0"), message(b'C', b"S_pgfresh\0")].concat();
    let mut bytes = close.clone();
    for sql in statements {
        bytes.extend(message(b'P', &[b"_pgfresh\0", sql.as_ref().as_bytes(), b"\0\0\0"].concat()));
        bytes.extend(message(b'B', b"_pgfresh\0_pgfresh\0\0\0\0\0\0\0"));
        bytes.extend(message(b'E', b"_pgfresh\0\0\0\0\0"));
        bytes.extend_from_slice(&close);
    }
    bytes.extend_from_slice(SYNC);
    bytes
}

/// A Query.
pub(super) fn query(sql: &[u8]) -> Vec<u8> {
    message(b'Q', &[sql, b"\0"].concat())
}

/// The body of a Parse with other text.
pub(super) fn reworded(parse: &[u8], sql: &str) -> Vec<u8> {
    let name = until_zero(parse);
    let types = after_zero(after_zero(parse));
    message(b'P', &[name, b"\0", sql.as_bytes(), b"\0", types].concat())
}

/// A text as SQL wants it, whatever a backslash means.
pub(super) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// A CommandComplete.
pub(super) fn complete(tag: &str) -> Vec<u8> {
    message(b'C', &[tag.as_bytes(), b"\0"].concat())
}

/// A ReadyForQuery.
pub(super) fn ready(status: u8) -> Vec<u8> {
    message(b'Z', &[status])
}

/// A warning or an error of ours. `severity` is the word for both its forms.
pub(super) fn report(severity: &str, sqlstate: &str, text: &str, hint: Option<&str>) -> Vec<u8> {
    let hint = hint.map(|hint| format!("H{hint}\0")).unwrap_or_default();
    let body = format!("S{severity}\0V{severity}\0C{sqlstate}\0M{text}\0{hint}\0");
    message(if severity == "WARNING" { b'N' } else { b'E' }, body.as_bytes())
}

/// An ErrorResponse as the client shall see it: with its position in the whole string of which the server saw the rest
/// from `offset`, in characters, and with what to do where our one transaction is the reason (`ours`), or a cursor WITH HOLD
/// that goes on in it (`holds`).
pub(super) fn explained(error: &[u8], offset: usize, ours: bool, holds: bool) -> Cow<'_, [u8]> {
    let fields =
        || error.get(5..).unwrap_or_default().split(|byte| *byte == 0).filter(|field| !field.is_empty());
    let reasons = [&b"C25001"[..], b"C2D000", b"C55P04"];
    let hint = match () {
        () if ours && fields().any(|field| reasons.contains(&field)) => Some(INSTEAD),
        () if holds && fields().any(|field| field == b"C55006") => Some(HELD),
        () => None,
    };
    if offset == 0 && hint.is_none() {
        return error.into();
    }
    let mut body: Vec<u8> = Vec::with_capacity(error.len() + INSTEAD.len());
    for field in fields().filter(|field| hint.is_none() || field[0] != b'H') {
        match std::str::from_utf8(&field[1..]).ok().and_then(|text| text.parse::<usize>().ok()) {
            Some(place) if field[0] == b'P' => body.extend(format!("P{}", place + offset).bytes()),
            _ => body.extend_from_slice(field),
        }
        body.push(0);
    }
    if let Some(hint) = hint {
        body.extend([b"H", hint.as_bytes(), b"\0"].concat());
    }
    body.push(0);
    message(b'E', &body).into()
}

/// Checks the syntax of a whole string, behind a savepoint of its own if there can be one: the server reads it from end
/// to end before it refuses more than one statement.
pub(super) fn syntax_check(sql: &[u8], saved: bool) -> Vec<u8> {
    let mut bytes = injection(saved.then_some(SYNTAX));
    bytes.truncate(bytes.len() - SYNC.len());
    bytes.extend(message(b'P', &[b"_pgfresh\0", sql, b"\0\0\0"].concat()));
    bytes.extend(message(b'C', b"S_pgfresh\0"));
    bytes.extend_from_slice(SYNC);
    bytes
}

/// A field of an ErrorResponse.
pub(super) fn field(error: &[u8], code: u8) -> Option<&[u8]> {
    let mut fields = error.get(5..)?.split(|byte| *byte == 0);
    fields.find(|field| field.first() == Some(&code)).map(|field| &field[1..])
}

/// The values of a `DataRow`'s body.
pub(super) fn values(row: &[u8]) -> Vec<Option<String>> {
    let mut rest = row.get(2..).unwrap_or_default();
    let mut values = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (value, after) = match usize::try_from(i32::from_be_bytes(*length)) {
            Ok(length) => match after.split_at_checked(length) {
                Some((value, after)) => (Some(String::from_utf8_lossy(value).into_owned()), after),
                None => return values,
            },
            Err(_) => (None, after),
        };
        values.push(value);
        rest = after;
    }
    values
}

/// The bytes before the first zero.
pub(super) fn until_zero(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())]
}

/// What comes after the first zero.
pub(super) fn after_zero(bytes: &[u8]) -> &[u8] {
    bytes.get(until_zero(bytes).len() + 1..).unwrap_or_default()
}
