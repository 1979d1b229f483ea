//! Lets other threads terminate the process while the command waits, for example for a template's setup to finish.

use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use crate::failure::Failure;

/// Stack size of the command's thread in bytes, the same as the main thread's.
const STACK: usize = 8 << 20;
/// Exit code after a panic, as in Rust's own runtime.
const PANICKED: u8 = 101;

/// Asks the main thread to exit.
#[derive(Debug, Clone)]
pub(crate) struct ExitRequests(Sender<ExitCode>);

impl ExitRequests {
    /// Terminates the process with this exit code. The guards, processes that outlive this one, then clean up.
    pub(crate) fn send(&self, code: ExitCode) {
        // After an earlier request, the main thread may no longer be listening.
        if self.0.send(code).is_err() {
            tracing::debug!("the process is ending already");
        }
    }
}

/// Runs `command` in its own thread. Returns the command's exit code, or the first exit code that another
/// thread requests.
///
/// # Errors
/// Returns an error if the system can't start another thread.
///
/// The command's thread lives as long as the process, because the kernel kills child processes as soon as the thread
/// that started them exits.
pub(crate) fn run(
    command: impl FnOnce(ExitRequests) -> ExitCode + Send + 'static,
) -> Result<ExitCode, Failure> {
    let (sender, receiver) = channel();
    let requests = ExitRequests(sender);
    let command = move || {
        let code = panic::catch_unwind(AssertUnwindSafe(|| command(requests.clone())));
        requests.send(code.unwrap_or(ExitCode::from(PANICKED)));
    };
    let thread = thread::Builder::new().name("command".to_owned()).stack_size(STACK).spawn(command);
    thread.map_err(|error| {
        let hint = sys::limit_hint(&error).map(str::to_owned);
        Failure::new(format!("could not start a thread: {error}")).hint(hint)
    })?;
    Ok(receiver.recv().unwrap_or(ExitCode::from(PANICKED)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_comes_from_command_or_request() {
        assert_eq!(run(|_| ExitCode::from(3)).unwrap(), ExitCode::from(3));
        // This command never finishes on its own.
        let requested = run(|requests| {
            thread::spawn(move || requests.send(ExitCode::from(4)));
            loop {
                thread::park();
            }
        });
        assert_eq!(requested.unwrap(), ExitCode::from(4));
    }

    #[test]
    fn panic_of_command_yields_exit_code() {
        assert_eq!(run(|_| panic!("planted")).unwrap(), ExitCode::from(PANICKED));
    }
}
