//! Pseudo-terminals for tests.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Pseudo-terminal. Dropping it hangs up.
pub(crate) struct Terminal {
    keyboard: File,
    name: String,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let keyboard = openpt(flags).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap().into_string().unwrap();
        Self { keyboard: keyboard.into(), name }
    }

    /// Starts `command` as the first process of the terminal's session, as a login does.
    pub(crate) fn start(&self, mut command: Command) -> Child {
        let no_ctty = i32::try_from(OFlags::NOCTTY.bits()).unwrap();
        let screen =
            OpenOptions::new().read(true).write(true).custom_flags(no_ctty).open(&self.name).unwrap();
        command.stdin(Stdio::from(screen.try_clone().unwrap()));
        command.stdout(Stdio::from(screen.try_clone().unwrap())).stderr(Stdio::from(screen));
        command.spawn().unwrap()
    }

    /// Types Ctrl-C.
    pub(crate) fn interrupt(&mut self) {
        self.keyboard.write_all(b"\x03").unwrap();
    }
}
