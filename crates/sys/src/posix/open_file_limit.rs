//! Raises the limit on open files, and gives advice on errors caused by a user's limits.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The process's limit before [`raise_open_file_limit`] was called. Empty until that call.
static ORIGINAL_LIMIT: OnceLock<Rlimit> = OnceLock::new();

/// The limit that macOS grants every process. Source: `OPEN_MAX` in macOS's `sys/syslimits.h`.
pub(crate) const OPEN_MAX: u16 = 10_240;

/// Raises our limit on open files to the maximum, because many systems start at 1024. Ignores failures.
#[expect(clippy::let_underscore_must_use, reason = "the call that needs more files fails then")]
pub fn raise_open_file_limit() {
    let usual = *ORIGINAL_LIMIT.get_or_init(|| getrlimit(Resource::Nofile));
    let raise = |current| setrlimit(Resource::Nofile, Rlimit { current, ..usual });
    // macOS reports no maximum, but refuses any limit above `OPEN_MAX`.
    let _ = raise(usual.maximum).or_else(|_| raise(Some(OPEN_MAX.into())));
}

/// Restores the original limit in the child of `command`. A higher limit can break programs that use `select`
/// and slow down programs that close every possible descriptor.
#[allow(unsafe_code)]
pub fn restore_open_file_limit(command: &mut Command) {
    let Some(usual) = ORIGINAL_LIMIT.get().copied() else { return };
    // SAFETY: setrlimit(2) is a system call without any state in this process, and the closure does nothing
    // else.
    unsafe {
        command.pre_exec(move || setrlimit(Resource::Nofile, usual).map_err(Into::into));
    }
}

/// Returns the maximum size of a file that this process may write, in bytes. `None` means no limit. The kernel ends a
/// process that exceeds the limit (SIGXFSZ).
#[must_use]
pub fn file_size_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Returns advice for an error caused by a limit on files, processes or threads. Don't use this for calls
/// with a timeout, because an expired timeout has the same error number.
#[must_use]
pub fn limit_hint(error: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(error)? {
        Errno::MFILE => Some("Raise the limit of open files: ulimit -n 1024."),
        Errno::AGAIN => Some("Raise the limit of processes and threads (ulimit -u), or end some."),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "macOS allows fewer files than the hard limit")]
    fn command_gets_the_original_open_file_limit() {
        let usual = getrlimit(Resource::Nofile);
        raise_open_file_limit();
        raise_open_file_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, usual.maximum);
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n"]);
        restore_open_file_limit(&mut command);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let wanted = usual.current.map_or("unlimited".to_owned(), |files| files.to_string());
        assert_eq!(said.trim(), wanted);
    }
}
