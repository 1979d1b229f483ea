//! Finds the server program behind a script or link, such as those of asdf and mise.
//!
//! A version manager selects a server based on the current directory and on files that can change. Its script
//! or link doesn't reveal which server that is, so pgfresh runs the script and examines the process.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sys::NarrowPipe;

/// Timeout for a script to start its server.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// First bytes of a program: ELF (elf(5)), Mach-O for one architecture, and Mach-O for several (`mach-o/loader.h`,
/// `mach-o/fat.h`).
const PROGRAM_MAGICS: [[u8; 4]; 3] = [*b"\x7fELF", [0xcf, 0xfa, 0xed, 0xfe], [0xca, 0xfe, 0xba, 0xbe]];

/// Returns true if the file is a program for Linux or macOS, and false for a script or for a link to a program
/// with a different name.
pub(crate) fn is_own_program(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    let keeps_its_name = |real: PathBuf| real.file_name() == path.file_name();
    read.is_ok() && PROGRAM_MAGICS.contains(&magic) && path.canonicalize().is_ok_and(keeps_its_name)
}

/// Returns the executable of the server that `postgres` starts in `folder`, or `None` if no server starts in time.
pub(crate) fn resolve_server(postgres: &Path, folder: &Path) -> Option<PathBuf> {
    let seen = observe_server(postgres, folder);
    seen.inspect_err(|error| tracing::debug!(%error, ?postgres, "could not see what a script starts")).ok()?
}

/// Makes the server write more than its pipe can hold, so that it blocks and pgfresh has time to examine its process.
fn observe_server(postgres: &Path, folder: &Path) -> io::Result<Option<PathBuf>> {
    let (output, writer) = NarrowPipe::open()?;
    let mut command = Command::new(postgres);
    command.arg("--describe-config").current_dir(folder);
    let mut child = command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null()).spawn()?;
    // Close pgfresh's copy of the write end.
    drop(command);
    let server = match output.wait_for_output(START_TIMEOUT) {
        Ok(true) => find_server(child.id(), &output),
        _ => None,
    };
    // If the script forked the server, killing the script isn't enough. But the server exits at its next write if the
    // pipe is closed, so close it.
    drop(output);
    child.kill()?;
    child.wait()?;
    Ok(server)
}

/// Looks for a server among the process and its descendants. The server must write into the pipe itself. If a filter
/// changes the server's output instead, pgfresh must continue to run the script.
fn find_server(pid: u32, output: &NarrowPipe) -> Option<PathBuf> {
    let is_server = |path: &PathBuf| {
        path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.contains("postgres"))
    };
    let own = sys::executable(pid).filter(is_server).filter(|_| output.is_output_of(pid));
    own.or_else(|| sys::children_of(pid).into_iter().find_map(|child| find_server(child, output)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn programs_of_each_system_are_no_scripts() {
        let folder = tempfile::tempdir().unwrap();
        let postgres = folder.path().join("postgres");
        for (bytes, is_program) in [
            (&b"\x7fELF\x02\x01"[..], true),
            // MH_MAGIC_64 in the byte order of arm64 and x86-64.
            (&0xfeed_facf_u32.to_le_bytes()[..], true),
            // FAT_MAGIC, which is big-endian on all machines.
            (&0xcafe_babe_u32.to_be_bytes()[..], true),
            (&b"#!/bin/sh\n"[..], false),
            (&b""[..], false),
        ] {
            fs::write(&postgres, bytes).unwrap();
            assert_eq!(is_own_program(&postgres), is_program, "{bytes:x?}");
        }
    }

    #[test]
    fn server_behind_a_filter_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let server = folder.path().join("real-postgres");
        fs::copy("/bin/cat", &server).unwrap();
        let held = folder.path().join("held");
        assert!(Command::new("mkfifo").arg(&held).status().unwrap().success());
        let (server, held) = (server.display(), held.display());
        // The server writes one line, and then runs until the test writes into the FIFO.
        for (filter, is_followed) in [("| { read z; echo \"$z\"; cat >/dev/null; }", false), ("", true)] {
            let script = folder.path().join("postgres");
            let text =
                format!("#!/bin/sh\n{{ echo x; read y <\"{held}\"; }} | \"{server}\" {filter} &\nwait\n");
            fs::write(&script, text).unwrap();
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
            let found = resolve_server(&script, folder.path());
            fs::write(held.to_string(), "end\n").unwrap();
            assert_eq!(found.is_some(), is_followed, "{filter}");
        }
    }
}
