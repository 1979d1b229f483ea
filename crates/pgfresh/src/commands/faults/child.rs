//! Runs a command in a new process group, with a time limit.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sys::{ProcessHandle, Signal};

use crate::failure::Failure;
use crate::foreground::{cannot_run, exit_code};

/// Interval between [`run`]'s checks for signals and for the time limit.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time for a command to exit after SIGTERM, before pgfresh kills it.
const GRACE: Duration = Duration::from_secs(2);

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandEnd {
    /// The command exited with this code, or a signal killed it. In that case, the code is 128 plus the
    /// signal's number.
    Exited(u8),
    /// pgfresh ended the command after the time limit.
    TimedOut,
    /// pgfresh ended the command because pgfresh received a signal.
    Interrupted,
}

/// Runs a command until it exits or reaches `limit`, then ends all processes in the command's group. Calls `look`
/// every [`POLL_INTERVAL`] and once at the end.
///
/// The calling thread must live until the command ends, because Linux kills the command when this thread exits.
pub(super) fn run(
    mut command: Command,
    limit: Option<Duration>,
    interrupted: &AtomicBool,
    mut look: impl FnMut(),
) -> Result<CommandEnd, Failure> {
    command.stdin(Stdio::null()).process_group(0);
    sys::die_with_parent(&mut command);
    sys::restore_open_file_limit(&mut command);
    sys::restore_mask(&mut command);
    let begun = Instant::now();
    let mut child = command.spawn().map_err(|error| cannot_run(command.get_program(), &error))?;
    // `command` holds write ends of the output's pipes, whose readers only finish once all write ends are closed.
    drop(command);
    let handle = ProcessHandle::of(&child).map_err(|error| failed("watch", &error))?;
    let early = loop {
        if sys::wait_readable(&handle, POLL_INTERVAL).map_err(|error| failed("wait for", &error))? {
            break None;
        }
        look();
        if interrupted.load(Ordering::Relaxed) {
            break Some(CommandEnd::Interrupted);
        }
        if limit.is_some_and(|limit| begun.elapsed() > limit) {
            break Some(CommandEnd::TimedOut);
        }
    };
    look();
    if early.is_some() {
        send(&child, Signal::TERM);
        sys::wait_readable(&handle, GRACE).map_err(|error| failed("wait for", &error))?;
    }
    // The child hasn't been reaped yet, so no other process group can have its ID.
    send(&child, Signal::KILL);
    let status = child.wait().map_err(|error| failed("wait for", &error))?;
    Ok(early.unwrap_or(CommandEnd::Exited(exit_code(status))))
}

fn send(child: &Child, signal: Signal) {
    if let Err(error) = sys::signal_group(child, signal) {
        tracing::debug!(%error, ?signal, "no process of the command is left");
    }
}

fn failed(verb: &str, error: &std::io::Error) -> Failure {
    Failure::new(format!("could not {verb} the command: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use super::*;

    /// Runs a shell script whose processes inherit the write end of a pipe. Returns when all of these processes
    /// have exited.
    fn run_script(script: &str, limit: Option<Duration>, interrupted: bool) -> CommandEnd {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(writer);
        let end = run(command, limit, &AtomicBool::new(interrupted), || ()).unwrap();
        reader.read_to_end(&mut Vec::new()).unwrap();
        end
    }

    #[test]
    fn whole_process_group_ends_with_command() {
        for (script, limit, interrupted, expected) in [
            ("sleep 1000 & exit 3", None, false, CommandEnd::Exited(3)),
            ("kill -KILL $$", None, false, CommandEnd::Exited(137)),
            ("sleep 1000 & sleep 1000", Some(Duration::ZERO), false, CommandEnd::TimedOut),
            ("trap '' TERM; sleep 1000 & sleep 1000", Some(Duration::ZERO), false, CommandEnd::TimedOut),
            ("sleep 1000 & sleep 1000", None, true, CommandEnd::Interrupted),
        ] {
            assert_eq!(run_script(script, limit, interrupted), expected, "{script}");
        }
    }
}
