//! Keeps the end of a command's output, where test runners name the failed tests.

use std::io::{self, PipeReader, Read, Write as _};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::failure::Failure;

/// Maximum number of bytes to keep.
const KEPT: usize = 4 << 20;
/// Timeout for the rest of the output. Processes that the command left behind can keep the pipe open.
const REST_TIMEOUT: Duration = Duration::from_secs(2);

/// The output of a running command.
#[derive(Debug)]
pub(crate) struct OutputCopy {
    end: Arc<Mutex<Vec<u8>>>,
    closed: Receiver<()>,
}

impl OutputCopy {
    /// Redirects standard output and standard error of a command that is about to start. With `is_shown`, also copies
    /// both to pgfresh's standard error.
    pub(crate) fn of(command: &mut Command, is_shown: bool) -> Result<Self, Failure> {
        let cannot = |error: io::Error| Failure::new(format!("could not read the command's output: {error}"));
        let (reader, writer) = io::pipe().map_err(cannot)?;
        command.stdout(writer.try_clone().map_err(cannot)?).stderr(writer);
        let end = Arc::<Mutex<Vec<u8>>>::default();
        let (closing, closed) = channel();
        let kept = Arc::clone(&end);
        let copy = move || {
            follow(reader, &kept, is_shown);
            drop(closing);
        };
        thread::Builder::new().spawn(copy).map_err(cannot)?;
        Ok(Self { end, closed })
    }

    /// Returns the end of the command's output. The command must have exited.
    pub(crate) fn end(self) -> String {
        // Either the pipe is closed, or the timeout has passed. Both end the wait.
        let _closed = self.closed.recv_timeout(REST_TIMEOUT);
        String::from_utf8_lossy(&sys::lock(&self.end)).into_owned()
    }
}

fn follow(mut reader: PipeReader, kept: &Mutex<Vec<u8>>, is_shown: bool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = reader.read(&mut buffer) {
        if is_shown && let Err(error) = io::stderr().write_all(&buffer[..length]) {
            tracing::debug!(%error, "could not show the command's output");
        }
        let mut kept = sys::lock(kept);
        kept.extend_from_slice(&buffer[..length]);
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
    }
}
