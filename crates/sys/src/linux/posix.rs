//! POSIX shared memory: files in `/dev/shm` under names of their own, which outlive a killed process.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Refuses POSIX shared memory to the child of `command` and to all that it starts: there, `shm_open(3)` that makes a
/// segment fails with `EACCES`. Where the kernel has no filters for system calls, nothing is refused.
///
/// What tells that call from others is `O_NOFOLLOW` with `O_CREAT` and `O_EXCL`, which the C libraries add or pass on.
#[allow(unsafe_code)]
pub fn refuse_posix_segments(command: &mut Command) {
    // SAFETY: the closure only makes prctl(2) calls, which are async-signal-safe; it neither allocates nor locks.
    unsafe { command.pre_exec(filter::install) };
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod filter {
    use std::io;

    use libc::{
        BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W,
        SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, sock_filter, sock_fprog,
    };

    /// Source: `AUDIT_ARCH_…` in Linux's `audit.h`.
    #[cfg(target_arch = "x86_64")]
    const ARCHITECTURE: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    const ARCHITECTURE: u32 = 0xc000_00b7;
    /// Where `struct seccomp_data` has the number of the call, the architecture, and the low half of arguments.
    const NUMBER: u32 = 0;
    const ARCH: u32 = 4;
    const SECOND_ARGUMENT: u32 = 24;
    const THIRD_ARGUMENT: u32 = 32;
    /// What `shm_open` alone opens with.
    const FLAGS: u32 = (libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW).cast_unsigned();
    /// The older call, which musl makes where there is one.
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

    /// Skips `yes` statements if what was loaded is `k`, else `no`.
    const fn equals(k: u32, yes: u8, no: u8) -> sock_filter {
        instruction(BPF_JMP | BPF_JEQ | BPF_K, k, yes, no)
    }

    // A code has 16 bits, in constants of 32.
    #[allow(clippy::cast_possible_truncation)]
    const fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
        sock_filter { code: code as u16, jt, jf, k }
    }

    /// The flags are the second argument of open(2), and the third of openat(2).
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

    /// Puts the filter on this process, for good.
    #[allow(unsafe_code, clippy::cast_possible_truncation)]
    pub(super) fn install() -> io::Result<()> {
        let program = sock_fprog { len: PROGRAM.len() as u16, filter: PROGRAM.as_ptr().cast_mut() };
        // SAFETY: the kernel only reads the program, which is static. Who may not gain rights may filter its own calls.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        };
        // A kernel without filters says EINVAL.
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

    /// Runs `script` with perl, refused or not, and returns whether it succeeded.
    fn perl(script: &str, refused: bool) -> bool {
        let mut command = Command::new("perl");
        command.args(["-e", script]);
        if refused {
            refuse_posix_segments(&mut command);
        }
        command.status().unwrap().success()
    }

    #[test]
    fn what_shm_open_does_is_refused_and_other_new_files_are_not() {
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
        // Children are filtered as well.
        let child = |name: &str| format!("exec('perl', '-e', \"{}\")", open(name, libc::O_NOFOLLOW));
        assert!(perl(&child("unrefused-child"), false));
        assert!(!perl(&child("child"), true));
    }
}
