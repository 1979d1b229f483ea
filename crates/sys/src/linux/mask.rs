//! File mode creation mask.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::fs::{Mode, fchmod};
use rustix::process::umask;

/// Mask before [`make_private`]; empty until then.
static USUAL: OnceLock<Mode> = OnceLock::new();

/// Sets a mask that makes new files private. Code that creates files for other users must set their modes.
pub fn make_private() {
    let before = umask(Mode::RWXG | Mode::RWXO);
    USUAL.get_or_init(|| before);
}

/// Gives the child of `command` the original mask.
pub fn leave_usual_mask(command: &mut Command) {
    if let Some(usual) = USUAL.get().copied() {
        set_mask(command, usual);
    }
}

/// Gives the child of `command` a mask that lets other users read new files but not write them.
pub fn let_others_read(command: &mut Command) {
    set_mask(command, Mode::WGRP | Mode::WOTH);
}

#[allow(unsafe_code)]
fn set_mask(command: &mut Command, mask: Mode) {
    // SAFETY: umask(2) is async-signal-safe, and the closure does nothing else.
    unsafe {
        command.pre_exec(move || {
            umask(mask);
            Ok(())
        });
    }
}

/// Gives a new file of the user's the mode that the original mask allows. It is for files outside of the cache.
pub fn leave_usual_mode(file: &File) -> io::Result<()> {
    let all = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
    match USUAL.get() {
        Some(&usual) => Ok(fchmod(file, all.difference(usual))?),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_makes_files_as_it_is_told() {
        let mut command = Command::new("sh");
        command.args(["-c", "umask"]);
        let_others_read(&mut command);
        assert_eq!(String::from_utf8(command.output().unwrap().stdout).unwrap().trim(), "0022");
    }
}
