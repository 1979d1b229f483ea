//! Creates user namespaces. Inside a user namespace, a child sees our account
//! under a different uid, even if we aren't allowed to change to that uid.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Returns true if this process could change to `uid` and `gid`, which requires that its user namespace maps both.
#[must_use]
pub fn may_become(uid: u32, gid: u32) -> bool {
    let mapped = |table: &str, id: u32| {
        // If the file doesn't exist, the kernel doesn't support namespaces, so every id is mapped.
        fs::read_to_string(table).map_or(true, |table| contains_id(&table, id))
    };
    mapped("/proc/self/uid_map", uid) && mapped("/proc/self/gid_map", gid)
}

/// Returns true if a uid map or gid map contains `id`. Each line consists of the first id inside, the first
/// id outside, and a count. Source: `user_namespaces(7)`.
fn contains_id(table: &str, id: u32) -> bool {
    table.lines().any(|line| {
        let mut numbers = line.split_ascii_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        first.zip(count).is_some_and(|(first, count)| (first..first + count).contains(&u64::from(id)))
    })
}

/// Runs the child of `command` in a new user namespace that maps our user and group to `uid` and `gid`. We
/// own the child's files and can send it signals. Spawning returns an error if the system forbids user
/// namespaces.
#[allow(unsafe_code)]
pub fn run_in_user_namespace(command: &mut Command, uid: u32, gid: u32) {
    // Allocate the strings now, because the child must not allocate between fork and exec.
    let steps = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{uid} {} 1", geteuid().as_raw())),
        ("/proc/self/gid_map", format!("{gid} {} 1", getegid().as_raw())),
    ];
    let enter = move || -> io::Result<()> {
        // SAFETY: unsharing the user namespace changes neither this process's open files nor its mapped
        // memory.
        unsafe { unshare_unsafe(UnshareFlags::NEWUSER)? };
        for (path, text) in &steps {
            let file = openat(CWD, *path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::io::write(&file, text.as_bytes())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec, the closure only makes system calls with preallocated strings. rustix
    // converts paths as short as these to C strings on the stack.
    unsafe { command.pre_exec(enter) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_table_shows_mapped_ids() {
        assert!(contains_id("         0          0 4294967295\n", 101));
        assert!(contains_id("0 1000 1\n1 100000 65536\n", 101));
        assert!(!contains_id("         0       1000          1\n", 101));
        assert!(!contains_id("", 0) && !contains_id("broken", 0));
    }

    #[test]
    fn child_in_namespace_has_the_given_user_id() {
        let mut command = Command::new("id");
        command.arg("-u");
        run_in_user_namespace(&mut command, 4711, 4712);
        match command.output() {
            Ok(output) => assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "4711"),
            Err(error) => eprintln!("This system allows no user namespaces: not tested: {error}"),
        }
    }
}
