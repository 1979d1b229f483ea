//! Creates the messages that rollback isolation injects, and parses client and server messages.

use std::borrow::Cow;

use pgwire::{ErrorResponse, HEADER, columns, encode, split_zero};

pub(super) use lease::{
    BEGIN_LEASE as BEGIN, DISCARD_ALL, RELEASE_TRANSACTION as RELEASE, STAY_IDLE, UNBOUNDED,
    UNDO_TRANSACTION as UNDO,
};

/// Creates the savepoint that represents the client's transaction.
pub(super) const BEGIN_SAVEPOINT: &str = "SAVEPOINT pgfresh_t";
/// Makes the server read the statistics views anew, as after the end of a transaction.
pub(super) const CLEAR_STATISTICS: &str = "SELECT pg_catalog.pg_stat_clear_snapshot()";
/// Creates the savepoint for a syntax check or for closing large objects. [`SYNTAX_UNDO`] removes it.
pub(super) const SYNTAX_SAVEPOINT: &str = "SAVEPOINT pgfresh_s";
pub(super) const SYNTAX_UNDO: [&str; 2] = ["ROLLBACK TO SAVEPOINT pgfresh_s", "RELEASE SAVEPOINT pgfresh_s"];
/// Removes a syntax check's savepoint and then fails on purpose, by releasing it once more.
pub(super) const SYNTAX_ABORT: [&str; 3] = [SYNTAX_UNDO[0], SYNTAX_UNDO[1], SYNTAX_UNDO[1]];
/// Statement prepared in place of the client's BEGIN. The server never executes this placeholder, because the gateway
/// handles the client's Execute itself.
pub(super) const BEGIN_PLACEHOLDER: &str = "SAVEPOINT pgfresh_b";
/// Sync message, which ends a group of extended-protocol messages.
pub(super) const SYNC: &[u8] = b"S\0\0\0\x04";
/// Hint for statements that can't run in rollback isolation.
pub(super) const USE_CLONE_HINT: &str =
    "Rollback isolation runs everything in one transaction; use isolation \"clone\" for this.";

/// Hint for errors caused by an open cursor WITH HOLD. A plain server copies the rows at the end of the transaction, so
/// that the cursor no longer needs its tables.
const HELD_CURSOR_HINT: &str = "In rollback isolation a cursor WITH HOLD keeps its tables in use; close it first, or use isolation \"clone\".";

/// Returns the messages that run injected statements, with one Sync at the end.
///
/// Each statement has its own Parse, Bind, Execute and Close messages with a name that no client uses. The first two
/// Close messages remove any leftovers of a failed injection. A simple Query would be shorter but would destroy the
/// client's unnamed statement.
pub(super) fn injection<S: AsRef<str>>(statements: impl IntoIterator<Item = S>) -> Vec<u8> {
    let close = [encode(b'C', b"P_pgfresh\0"), encode(b'C', b"S_pgfresh\0")].concat();
    let mut bytes = close.clone();
    for sql in statements {
        bytes.extend(encode(b'P', &[b"_pgfresh\0", sql.as_ref().as_bytes(), b"\0\0\0"].concat()));
        bytes.extend(encode(b'B', b"_pgfresh\0_pgfresh\0\0\0\0\0\0\0"));
        bytes.extend(encode(b'E', b"_pgfresh\0\0\0\0\0"));
        bytes.extend_from_slice(&close);
    }
    bytes.extend_from_slice(SYNC);
    bytes
}

/// Replaces the SQL text in a Parse message.
pub(super) fn with_sql(parse: &[u8], sql: &str) -> Vec<u8> {
    let (name, rest) = split_zero(parse);
    let (_, types) = split_zero(rest);
    encode(b'P', &[name, b"\0", sql.as_bytes(), b"\0", types].concat())
}

/// Returns true if `sql` contains `word`, in upper or lower case.
pub(super) fn mentions(sql: &[u8], word: &[u8]) -> bool {
    sql.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

/// Returns `text` as a string literal whose meaning doesn't depend on `standard_conforming_strings`.
pub(super) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// Returns a CommandComplete message.
pub(super) fn command_complete(tag: &str) -> Vec<u8> {
    encode(b'C', &[tag.as_bytes(), b"\0"].concat())
}

/// Returns a ReadyForQuery message.
pub(super) fn ready_for_query(status: u8) -> Vec<u8> {
    encode(b'Z', &[status])
}

/// Returns a warning or an error from the gateway itself. `severity` goes into both severity fields.
pub(super) fn report(severity: &str, sqlstate: &str, text: &str, hint: Option<&str>) -> Vec<u8> {
    let hint = hint.map(|hint| format!("H{hint}\0")).unwrap_or_default();
    let body = format!("S{severity}\0V{severity}\0C{sqlstate}\0M{text}\0{hint}\0");
    encode(if severity == "WARNING" { b'N' } else { b'E' }, body.as_bytes())
}

/// Adapts an ErrorResponse for the client.
///
/// Shifts the error position by `offset` characters, because the server received only a part of the client's query
/// string. Adds a hint if the cause might be the lease's transaction (`ours`) or a cursor WITH HOLD that is still open
/// in this transaction (`holds`).
pub(super) fn adapt_error(error: &[u8], offset: usize, ours: bool, holds: bool) -> Cow<'_, [u8]> {
    let fields = || ErrorResponse::fields(error.get(HEADER..).unwrap_or_default());
    let reasons = [&b"25001"[..], b"2D000", b"55P04"];
    let sqlstate = fields().find_map(|(code, value)| (code == b'C').then_some(value)).unwrap_or_default();
    let hint = match () {
        () if ours && reasons.contains(&sqlstate) => Some(USE_CLONE_HINT),
        () if holds && sqlstate == b"55006" => Some(HELD_CURSOR_HINT),
        () => None,
    };
    if offset == 0 && hint.is_none() {
        return error.into();
    }
    let mut body: Vec<u8> = Vec::with_capacity(error.len() + USE_CLONE_HINT.len());
    for (code, value) in fields().filter(|(code, _)| hint.is_none() || *code != b'H') {
        body.push(code);
        match std::str::from_utf8(value).ok().and_then(|text| text.parse::<usize>().ok()) {
            Some(place) if code == b'P' => body.extend((place + offset).to_string().bytes()),
            _ => body.extend_from_slice(value),
        }
        body.push(0);
    }
    if let Some(hint) = hint {
        body.extend([b"H", hint.as_bytes(), b"\0"].concat());
    }
    body.push(0);
    encode(b'E', &body).into()
}

/// Returns the messages that check the syntax of a string with several statements. With `saved`, they set a savepoint
/// first, which is impossible in a failed transaction. The check itself is a Parse of the whole string: the server
/// always refuses to parse several statements, but it checks their syntax first.
pub(super) fn syntax_check(sql: &[u8], saved: bool) -> Vec<u8> {
    let mut bytes = injection(saved.then_some(SYNTAX_SAVEPOINT));
    bytes.truncate(bytes.len() - SYNC.len());
    bytes.extend(encode(b'P', &[b"_pgfresh\0", sql, b"\0\0\0"].concat()));
    bytes.extend(encode(b'C', b"S_pgfresh\0"));
    bytes.extend_from_slice(SYNC);
    bytes
}

/// Returns the value of a field in an ErrorResponse.
pub(super) fn field(error: &[u8], code: u8) -> Option<&[u8]> {
    ErrorResponse::fields(error.get(HEADER..)?).find_map(|(found, value)| (found == code).then_some(value))
}

/// Returns the values in the body of a `DataRow`.
pub(super) fn values(row: &[u8]) -> Vec<Option<String>> {
    let text = |value| String::from_utf8_lossy(value).into_owned();
    columns(row).map(|value| value.map(text)).collect()
}

/// Returns the error for a session after the server has ended its lease's transaction.
pub(super) fn transaction_lost() -> ErrorResponse {
    ErrorResponse::fatal(
        "25000",
        "terminating connection because the server has ended the lease's transaction",
    )
    .hint(USE_CLONE_HINT)
}
