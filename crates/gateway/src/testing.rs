//! Helpers for this crate's tests.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use tokio::time::timeout;

use crate::stream::{Socket, Stream};

/// Timeout long enough for every test, even on a busy machine.
const HANG: Duration = Duration::from_mins(1);

/// Runs an asynchronous test on one thread.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(HANG, test).await.expect("something never comes") });
}

/// Creates the two sides of a connection. With `room`, the kernel buffers only about that many bytes.
pub(crate) fn pair(room: Option<usize>) -> (Stream, Stream) {
    let (one, other) = UnixStream::pair().unwrap();
    (stream(one, room), stream(other, room))
}

fn stream(end: UnixStream, room: Option<usize>) -> Stream {
    let same = end.try_clone().unwrap();
    let socket = Socket::unix(end).unwrap();
    if let Some(room) = room {
        sys::set_send_buffer(&same, room).unwrap();
    }
    Stream::new(socket, Vec::new()).unwrap()
}
