//! Builds messages that make the server's transaction fail.

use pgwire::{Frame, encode, split_zero};

/// Name of the session's own statement and portal, which clients don't use.
const OWN: &[u8] = b"_pgfresh_fault\0";
pub(super) const FLUSH: &[u8] = b"H\0\0\0\x04";
pub(in crate::faults) const SYNC: &[u8] = b"S\0\0\0\x04";
/// SQLSTATE of the error that [`failing`] raises, because the statement refers to a column of a table that it doesn't
/// list.
pub(super) const MISSING_TABLE: &[u8] = b"42P01";

/// Returns a statement that always fails during the server's analysis. Its text explains the failure to readers of the
/// server log.
pub(super) fn failing(sqlstate: &str) -> String {
    format!("SELECT pgfresh.\"fault {sqlstate}\"")
}

/// Returns messages that fail in place of an Execute. Afterwards, the server skips everything until the client's Sync.
pub(super) fn failing_execute(sqlstate: &str) -> Vec<u8> {
    [parse(OWN, failing(sqlstate).as_bytes()), FLUSH.to_vec()].concat()
}

/// Returns messages that replace the Execute of a COMMIT: they roll the transaction back and then fail. The server
/// responds to all messages except the last with 1, 2, C, 3, 3.
pub(super) fn failing_commit_execute(sqlstate: &str) -> Vec<u8> {
    [own_execution(b"ROLLBACK"), failing_execute(sqlstate)].concat()
}

/// Returns messages that run the gateway's own statement. The server responds with 1, 2, the rows, C, 3, 3.
pub(in crate::faults) fn own_execution(sql: &[u8]) -> Vec<u8> {
    let messages = [
        parse(OWN, sql),
        encode(b'B', &[OWN, OWN, b"\0\0\0\0\0\0"].concat()),
        encode(b'E', &[OWN, b"\0\0\0\0"].concat()),
        close_own_execution(),
    ];
    messages.concat()
}

/// Returns messages that close the portal and the statement of an own execution, even a failed one.
pub(in crate::faults) fn close_own_execution() -> Vec<u8> {
    [encode(b'C', &[b"P", OWN].concat()), encode(b'C', &[b"S", OWN].concat())].concat()
}

/// Returns messages that describe the statement of a Query and then fail. The server responds to the description with
/// 1, t, and T or n. Like a Query, these messages remove the client's unnamed statement.
pub(super) fn failing_query(sqlstate: &str, sql: &[u8]) -> Vec<u8> {
    let messages =
        [parse(b"\0", sql), encode(b'D', b"S\0"), parse(b"\0", failing(sqlstate).as_bytes()), SYNC.to_vec()];
    messages.concat()
}

fn parse(name: &[u8], sql: &[u8]) -> Vec<u8> {
    encode(b'P', &[name, sql, b"\0\0\0"].concat())
}

/// Returns the tag of a message, and as much of its body as is present.
pub(super) fn parts(message: &[u8]) -> Frame<'_> {
    let (header, body) = message.split_at(pgwire::HEADER.min(message.len()));
    Frame { tag: header.first().copied().unwrap_or_default(), body }
}

/// Returns the first string in a message body.
pub(super) fn name(body: &[u8]) -> &[u8] {
    split_zero(body).0
}
