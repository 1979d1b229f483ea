//! Sets the file mode creation mask (umask) of this process and its children.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::fs::{Mode, fchmod};
use rustix::process::umask;

/// The process's mask before [`make_private`] was called. Empty until that call.
static ORIGINAL_MASK: OnceLock<Mode> = OnceLock::new();

/// Makes new files private by changing the mask. Code that creates files for other users must set their modes
/// explicitly.
pub fn make_private() {
    let before = umask(Mode::RWXG | Mode::RWXO);
    ORIGINAL_MASK.get_or_init(|| before);
}

/// Restores the original mask in the child of `command`.
pub fn restore_mask(command: &mut Command) {
    if let Some(usual) = ORIGINAL_MASK.get().copied() {
        set_mask(command, usual);
    }
}

/// Sets a mask in the child of `command` that lets other users read new files, but not write to them.
pub fn allow_others_to_read(command: &mut Command) {
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

/// Gives a new file the mode that the original mask allows. Use this for the user's own files outside the
/// cache.
pub fn apply_original_mask(file: &File) -> io::Result<()> {
    let all = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
    match ORIGINAL_MASK.get() {
        Some(&usual) => Ok(fchmod(file, all.difference(usual))?),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_creates_files_with_requested_mask() {
        let mut command = Command::new("sh");
        command.args(["-c", "umask"]);
        allow_others_to_read(&mut command);
        assert_eq!(String::from_utf8(command.output().unwrap().stdout).unwrap().trim(), "0022");
    }
}
