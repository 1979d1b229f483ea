//! Reads the state of a session that starts to obey faults.

use pgwire::{Frame, columns};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::session::{FaultSession, SYNC, close_own_execution, own_execution};
use crate::frame_buffer::FrameBuffer;
use crate::stream::Stream;

/// Query for the prepared statements. A last row, whose name is null, contains `standard_conforming_strings`.
const STATE: &[u8] = b"SELECT name, statement FROM pg_catalog.pg_prepared_statements \
    WHERE name <> '_pgfresh_fault' \
    UNION ALL SELECT NULL, pg_catalog.current_setting('standard_conforming_strings')";
/// Disables the client's statement timeout until the gateway's own transaction or savepoint ends.
const NO_TIMEOUT: &[u8] = b"SELECT pg_catalog.set_config('statement_timeout', '0', true)";
/// Statement for sessions that start while the lease is read-only.
const READ_ONLY: &[u8] = b"SET default_transaction_read_only = on";

/// Copies the server's state into `session`: the prepared statements, and how the server parses strings. `in_block`
/// means that the client has an open transaction block, so a savepoint protects it from errors in the query. `down`
/// contains the server's bytes for the client before and after the call.
pub(super) async fn read_state(
    inner: &mut Stream,
    down: &mut FrameBuffer,
    session: &mut FaultSession,
    in_block: bool,
) {
    let (begin, end): (&[u8], &[&[u8]]) = if in_block {
        (b"SAVEPOINT _pgfresh_fault", &[b"ROLLBACK TO SAVEPOINT _pgfresh_fault", b"RELEASE _pgfresh_fault"])
    } else {
        (b"BEGIN", &[b"ROLLBACK"])
    };
    run(inner, down, &[begin, NO_TIMEOUT, STATE], |row| {
        let mut values =
            columns(row).map(|value| value.map(|value| String::from_utf8_lossy(value).into_owned()));
        match (values.next().flatten(), values.next().flatten()) {
            (Some(name), Some(text)) => session.know_prepared(name.into_bytes(), text.as_bytes()),
            (None, Some(value)) => session.standard_strings = value == "on",
            _ => {}
        }
    })
    .await;
    run(inner, down, end, |_| ()).await;
}

/// Makes the session's transactions read-only. `down` contains the server's bytes for the client before and after the
/// call.
pub(super) async fn make_read_only(inner: &mut Stream, down: &mut FrameBuffer) {
    run(inner, down, &[READ_ONLY], |_| ()).await;
}

/// Runs statements that the client doesn't see, up to the first error. Calls `see` for each row. Leaves the server's
/// other messages in `down`, including the error of a session that ends.
async fn run(inner: &mut Stream, down: &mut FrameBuffer, all: &[&[u8]], mut see: impl FnMut(&[u8])) {
    // A Query would remove the client's unnamed statement, so use the extended protocol.
    let mut messages = close_own_execution();
    messages.extend(all.iter().flat_map(|sql| own_execution(sql)));
    messages.extend_from_slice(SYNC);
    if let Err(error) = inner.write_all(&messages).await {
        tracing::debug!(%error, "a session has stopped reading, and is about to send the reason");
    }
    // The server's last message can be incomplete, so begin with the bytes of an earlier call.
    let mut bytes = std::mem::take(down).left().to_vec();
    let (mut others, mut error) = (Vec::new(), Vec::new());
    loop {
        let mut at = 0;
        while let Ok(Some((frame, length))) = Frame::first(&bytes[at..]) {
            let message = &bytes[at..at + length];
            at += length;
            match frame.tag {
                b'D' => see(frame.body),
                b'E' => message.clone_into(&mut error),
                b'A' | b'S' => others.extend_from_slice(message),
                b'Z' => {
                    others.extend_from_slice(&bytes[at..]);
                    return down.add(&others);
                }
                _ => {}
            }
        }
        bytes.drain(..at);
        if !matches!(inner.read_buf(&mut bytes).await, Ok(1..)) {
            others.append(&mut error);
            others.append(&mut bytes);
            return down.add(&others);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pgwire::{ErrorResponse, encode, frames};

    use super::super::lease_faults::LeaseFaults;
    use super::super::session::SwitchedState;
    use super::*;
    use crate::testing::{self, pair};

    /// Responds to each Sync with a ReadyForQuery between two notifications. Sends only `cut` bytes of the second
    /// notification before the next Sync. After `syncs` Syncs, sends `end` and ends the session.
    async fn serve(mut server: Stream, notification: &[u8], (syncs, cut): (usize, usize), end: &[u8]) {
        let ready = encode(b'Z', b"I");
        let (early, late) = notification.split_at(cut);
        for sync in 0..=syncs {
            let mut received = Vec::new();
            while sync < syncs && frames(&received).all(|frame| frame.tag != b'S') {
                assert!(server.read_buf(&mut received).await.unwrap() > 0);
            }
            let rest = if sync == 0 { &[] } else { late };
            let answer = if sync < syncs { [notification, &ready, early].concat() } else { end.to_vec() };
            server.write_all(&[rest, &answer].concat()).await.unwrap();
        }
    }

    /// Returns the client's bytes after a session has become read-only and its state has been read.
    async fn bytes_for_client(mut inner: Stream) -> Vec<u8> {
        let start = SwitchedState { status: b'I', major: 15, process: 1, standard_strings: true };
        let mut session = FaultSession::new(Arc::new(LeaseFaults::default()), start);
        let mut down = FrameBuffer::default();
        make_read_only(&mut inner, &mut down).await;
        read_state(&mut inner, &mut down, &mut session, false).await;
        let mut bytes = down.left().to_vec();
        inner.read_to_end(&mut bytes).await.unwrap();
        bytes
    }

    #[test]
    fn messages_between_own_statements_arrive_whole() {
        // Longer than the first read.
        let notification = encode(b'A', &[1; 100]);
        let end = ErrorResponse::fatal("57P01", "terminating".to_owned()).to_bytes();
        for syncs in 0..=3 {
            for cut in 0..=notification.len() {
                testing::run(async {
                    let (inner, server) = pair(None);
                    let server = serve(server, &notification, (syncs, cut), &end);
                    let (bytes, ()) = tokio::join!(bytes_for_client(inner), server);
                    let expected = [notification.repeat(2 * syncs), end.clone()].concat();
                    assert_eq!(bytes, expected, "{cut} bytes, {syncs} times");
                });
            }
        }
    }
}
