//! Prevents a server from creating POSIX shared memory. Its segments are files in `/dev/shm` that would
//! persist after the server is killed.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Installs a seccomp filter in the child of `command` and in its descendants. The filter makes `shm_open(3)`
/// return `EACCES` instead of creating a segment. Does nothing if the kernel doesn't support seccomp filters.
///
/// The filter recognizes `shm_open(3)` by the flags `O_NOFOLLOW`, `O_CREAT`
/// and `O_EXCL`. C libraries don't use this combination anywhere else.
#[allow(unsafe_code)]
pub fn refuse_posix_segments(command: &mut Command) {
    // SAFETY: the closure only makes prctl(2) calls, which are async-signal-safe. It neither allocates nor
    // locks.
    unsafe { command.pre_exec(filter::install) };
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod filter {
    use std::io;

    use libc::{
        BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W,
        SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, sock_filter, sock_fprog,
    };

    /// The audit architecture. Source: `AUDIT_ARCH_…` in Linux's `audit.h`.
    #[cfg(target_arch = "x86_64")]
    const ARCHITECTURE: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    const ARCHITECTURE: u32 = 0xc000_00b7;
    /// Offsets in `struct seccomp_data`: system call number, architecture, and the low halves of two
    /// arguments.
    const NUMBER: u32 = 0;
    const ARCH: u32 = 4;
    const SECOND_ARGUMENT: u32 = 24;
    const THIRD_ARGUMENT: u32 = 32;
    /// The combination of flags that only `shm_open` uses.
    const FLAGS: u32 = (libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW).cast_unsigned();
    /// The older system call that musl uses on x86-64.
    #[cfg(target_arch = "x86_64")]
    const OPEN: u32 = number(libc::SYS_open);
    #[cfg(not(target_arch = "x86_64"))]
    const OPEN: u32 = u32::MAX;
    const OPENAT: u32 = number(libc::SYS_openat);

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    const fn number(call: libc::c_long) -> u32 {
        call as u32
    }

    const fn statement(code: u32, k: u32) -> sock_filter {
        instruction(code, k, 0, 0)
    }

    const fn load(offset: u32) -> sock_filter {
        statement(BPF_LD | BPF_W | BPF_ABS, offset)
    }

    /// Skips `yes` instructions if the loaded value is `k`, and `no` instructions otherwise.
    const fn equals(k: u32, yes: u8, no: u8) -> sock_filter {
        instruction(BPF_JMP | BPF_JEQ | BPF_K, k, yes, no)
    }

    // BPF codes are 16 bits wide, but libc's constants are 32 bits wide.
    #[allow(clippy::cast_possible_truncation)]
    const fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
        sock_filter { code: code as u16, jt, jf, k }
    }

    /// The filter program. The flags are the second argument of open(2) and the third argument of openat(2).
    static PROGRAM: [sock_filter; 12] = [
        load(ARCH),
        equals(ARCHITECTURE, 0, 9),
        load(NUMBER),
        equals(OPENAT, 3, 0),
        equals(OPEN, 0, 6),
        load(SECOND_ARGUMENT),
        statement(BPF_JMP | BPF_JA, 1),
        load(THIRD_ARGUMENT),
        statement(BPF_ALU | BPF_AND | BPF_K, FLAGS),
        equals(FLAGS, 0, 1),
        statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | libc::EACCES.cast_unsigned()),
        statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    ];

    /// Installs the filter in this process, permanently.
    #[allow(unsafe_code, clippy::cast_possible_truncation)]
    pub(super) fn install() -> io::Result<()> {
        let program = sock_fprog { len: PROGRAM.len() as u16, filter: PROGRAM.as_ptr().cast_mut() };
        // SAFETY: the kernel only reads the program, which is static. An unprivileged process must set
        // `PR_SET_NO_NEW_PRIVS` before it can install a filter.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        };
        // A kernel without seccomp filters returns EINVAL.
        let error = io::Error::last_os_error();
        if refused && error.raw_os_error() != Some(libc::EINVAL) { Err(error) } else { Ok(()) }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod filter {
    pub(super) fn install() -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;

    /// Runs `script` with perl, optionally under the filter. Returns true if the script succeeded.
    fn perl(script: &str, refused: bool) -> bool {
        let mut command = Command::new("perl");
        command.args(["-e", script]);
        if refused {
            refuse_posix_segments(&mut command);
        }
        command.status().unwrap().success()
    }

    #[test]
    fn seccomp_filter_refuses_only_shm_open() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str, more: i32| {
            let (path, flags) =
                (folder.path().join(name), libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | more);
            format!("use Fcntl; sysopen(F, '{}', {flags}) or exit 1", path.display())
        };
        assert!(perl(&open("unrefused", libc::O_NOFOLLOW), false));
        assert!(!perl(&open("refused", libc::O_NOFOLLOW | libc::O_CLOEXEC), true));
        assert!(!folder.path().join("refused").exists());
        assert!(perl(&open("another", 0), true));
        // Descendants inherit the filter.
        let child = |name: &str| format!("exec('perl', '-e', \"{}\")", open(name, libc::O_NOFOLLOW));
        assert!(perl(&child("unrefused-child"), false));
        assert!(!perl(&child("child"), true));
    }
}
