//! Pseudo-terminals for tests.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Pseudo-terminal. Dropping it hangs up.
pub(crate) struct Terminal {
    keyboard: File,
    name: String,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        // Not all systems document this flag for terminals, but all accept it.
        let flags = flags | OpenptFlags::from_bits_retain(OFlags::CLOEXEC.bits());
        let keyboard = openpt(flags).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap().into_string().unwrap();
        Self { keyboard: keyboard.into(), name }
    }

    /// Creates a terminal that is `columns` wide.
    pub(crate) fn of_width(columns: u16) -> Self {
        let terminal = Self::new();
        let size = Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal.keyboard, size).unwrap();
        terminal
    }

    /// Runs `command` until it ends. Returns its exit code and everything that it and its child processes wrote.
    pub(crate) fn run(&self, command: Command) -> (Option<i32>, String) {
        let (mut child, mut text) = (self.start(command), Vec::new());
        let mut screen = self.keyboard.try_clone().unwrap();
        let mut part = [0; 4096];
        // The read fails once no process has the terminal open.
        while let Ok(length @ 1..) = screen.read(&mut part) {
            text.extend_from_slice(&part[..length]);
        }
        (child.wait().unwrap().code(), String::from_utf8_lossy(&text).into_owned())
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
