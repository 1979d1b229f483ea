//! Reads the state of a session that starts to obey faults.

use std::io;

use pgwire::{Frame, columns};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::session::{FaultSession, SYNC, close_own_execution, own_execution};
use crate::stream::Stream;

/// Query for the prepared statements. A last row, whose name is null, contains `standard_conforming_strings`.
const STATE: &[u8] = b"SELECT name, statement FROM pg_catalog.pg_prepared_statements \
    WHERE name <> '_pgfresh_fault' \
    UNION ALL SELECT NULL, pg_catalog.current_setting('standard_conforming_strings')";
/// Disables the client's statement timeout until the gateway's own transaction or savepoint ends.
const NO_TIMEOUT: &[u8] = b"SELECT pg_catalog.set_config('statement_timeout', '0', true)";
/// Statement for sessions that start while the lease is read-only.
const READ_ONLY: &[u8] = b"SET default_transaction_read_only = on";

/// Copies the server's state into `session`: the prepared statements, and how the server parses strings. Returns bytes
/// for the client that arrived meanwhile. `in_block` means that the client has an open transaction block, so a
/// savepoint protects it from errors in the query.
pub(super) async fn read_state(
    inner: &mut Stream,
    session: &mut FaultSession,
    in_block: bool,
) -> io::Result<Vec<u8>> {
    let (begin, end): (&[u8], &[&[u8]]) = if in_block {
        (b"SAVEPOINT _pgfresh_fault", &[b"ROLLBACK TO SAVEPOINT _pgfresh_fault", b"RELEASE _pgfresh_fault"])
    } else {
        (b"BEGIN", &[b"ROLLBACK"])
    };
    let mut between = run(inner, &[begin, NO_TIMEOUT, STATE], |row| {
        let mut values =
            columns(row).map(|value| value.map(|value| String::from_utf8_lossy(value).into_owned()));
        match (values.next().flatten(), values.next().flatten()) {
            (Some(name), Some(text)) => session.know_prepared(name.into_bytes(), text.as_bytes()),
            (None, Some(value)) => session.standard_strings = value == "on",
            _ => {}
        }
    })
    .await?;
    between.extend(run(inner, end, |_| ()).await?);
    Ok(between)
}

/// Makes the session's transactions read-only. Returns bytes for the client that arrived meanwhile.
pub(super) async fn make_read_only(inner: &mut Stream) -> io::Result<Vec<u8>> {
    run(inner, &[READ_ONLY], |_| ()).await
}

/// Runs statements that the client doesn't see, up to the first error. Calls `see` for each row. Returns the server's
/// other messages for the client. If the session ends meanwhile, they include the error that ended it.
async fn run(inner: &mut Stream, all: &[&[u8]], mut see: impl FnMut(&[u8])) -> io::Result<Vec<u8>> {
    // A Query would remove the client's unnamed statement, so use the extended protocol.
    let mut messages = close_own_execution();
    messages.extend(all.iter().flat_map(|sql| own_execution(sql)));
    messages.extend_from_slice(SYNC);
    inner.write_all(&messages).await?;
    let (mut bytes, mut between, mut error) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let mut at = 0;
        while let Some((frame, length)) = Frame::first(&bytes[at..]).map_err(io::Error::other)? {
            match frame.tag {
                b'D' => see(frame.body),
                b'E' => bytes[at..at + length].clone_into(&mut error),
                b'A' | b'S' => between.extend_from_slice(&bytes[at..at + length]),
                b'Z' => {
                    between.extend_from_slice(&bytes[at + length..]);
                    return Ok(between);
                }
                _ => {}
            }
            at += length;
        }
        bytes.drain(..at);
        if inner.read_buf(&mut bytes).await? == 0 {
            between.append(&mut error);
            return Ok(between);
        }
    }
}
