//! Limits on open files, and advice for errors that come from a user's limits.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limit before [`raise_files`]; empty until then.
static USUAL: OnceLock<Rlimit> = OnceLock::new();

/// Raises our limit of open files to the maximum, because many systems start with 1024. Ignores failures.
#[expect(clippy::let_underscore_must_use, reason = "the call that needs more files fails then")]
pub fn raise_files() {
    let usual = *USUAL.get_or_init(|| getrlimit(Resource::Nofile));
    let _ = setrlimit(Resource::Nofile, Rlimit { current: usual.maximum, ..usual });
}

/// Gives the child of `command` the original limit. Programs that use `select` fail with a higher one, and some
/// programs close every possible descriptor.
#[allow(unsafe_code)]
pub fn leave_usual_files(command: &mut Command) {
    let Some(usual) = USUAL.get().copied() else { return };
    // SAFETY: setrlimit(2) is a system call without state in this process, and the closure does nothing else.
    unsafe {
        command.pre_exec(move || setrlimit(Resource::Nofile, usual).map_err(Into::into));
    }
}

/// Returns advice for an error that comes from a limit on files, processes or threads. Do not use it for errors of
/// calls with a timeout, because those have the same number.
#[must_use]
pub fn remedy(error: &io::Error) -> Option<&'static str> {
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
    fn command_gets_the_original_open_file_limit() {
        let usual = getrlimit(Resource::Nofile);
        raise_files();
        raise_files();
        assert_eq!(getrlimit(Resource::Nofile).current, usual.maximum);
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n"]);
        leave_usual_files(&mut command);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let wanted = usual.current.map_or("unlimited".to_owned(), |files| files.to_string());
        assert_eq!(said.trim(), wanted);
    }
}
