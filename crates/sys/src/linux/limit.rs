//! How many files a process may have open, and what to do where a limit of the user's is reached.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What we began with, once that was changed.
static USUAL: OnceLock<Rlimit> = OnceLock::new();

/// Raises our limit of open files as far as it may be. Many a system starts with 1024; where there cannot be more,
/// the call that needs them fails then.
#[expect(clippy::let_underscore_must_use, reason = "the call that needs more files fails then")]
pub fn raise_files() {
    let usual = *USUAL.get_or_init(|| getrlimit(Resource::Nofile));
    let _ = setrlimit(Resource::Nofile, Rlimit { current: usual.maximum, ..usual });
}

/// Gives the child of `command` the limit that we began with: programs that use `select` cannot have more, and some
/// close every file that there may be.
#[allow(unsafe_code)]
pub fn leave_usual_files(command: &mut Command) {
    let Some(usual) = USUAL.get().copied() else { return };
    // SAFETY: setrlimit(2) is a system call without state in this process, and the closure does nothing else.
    unsafe {
        command.pre_exec(move || setrlimit(Resource::Nofile, usual).map_err(Into::into));
    }
}

/// What to do where a file could not be opened, or a process or thread could not be started, for want of a user's rights to
/// have as many. Not for what may time out: that has the same number.
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
    fn a_command_has_the_limit_that_we_began_with() {
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
