//! Declares structures that the kernel fills, and constants of its calls.
//!
//! Two checks verify the numbers below: `scripts/check-structures` compares them with Apple's
//! headers, and the Rust compiler compares them with the sizes and offsets of the Rust types.

use std::mem::offset_of;

/// A type whose values can consist of any bytes.
///
/// # Safety
/// The type consists of integers.
#[allow(unsafe_code)]
pub(super) unsafe trait KernelStructure: Copy {
    /// Returns a structure of zeros.
    fn zeroed() -> Self {
        // SAFETY: any bytes are valid.
        unsafe { std::mem::zeroed() }
    }
}

/// An entry in the list of a process's threads.
#[allow(unsafe_code)]
// SAFETY: it is an integer.
unsafe impl KernelStructure for u64 {}

/// Description of a descriptor that refers to a file.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct VnodeFile {
    _before: [u8; 24],
    pub(super) device: u32,
    _mode: u32,
    pub(super) inode: u64,
    _after: [u64; 17],
}

/// Description of a descriptor that refers to a socket. The ports and the addresses are valid only if `kind` is
/// [`SOCKINFO_TCP`].
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct SocketFile {
    _before: [u64; 32],
    pub(super) kind: i32,
    _reserved: u32,
    pub(super) remote_port: i32,
    pub(super) local_port: i32,
    _generation: [u64; 2],
    pub(super) versions: u8,
    _lifetime: [u8; 7],
    pub(super) remote: [u8; 16],
    pub(super) local: [u8; 16],
    _after: [u64; 58],
}

/// Declares constants that the crate `libc` lacks. Each line has the header in which C declares the constant.
macro_rules! constants {
    ($($name:ident: $type:ty = $value:literal in $header:literal,)*) => {
        $(pub(super) const $name: $type = $value;)*
    };
}

constants! {
    PROC_FLAG_INEXIT: u32 = 4 in "sys/proc_info.h",
    PROC_PIDLISTTHREADS: i32 = 6 in "sys/proc_info.h",
    PROC_PIDFDVNODEINFO: i32 = 1 in "sys/proc_info.h",
    PROC_PIDFDSOCKETINFO: i32 = 3 in "sys/proc_info.h",
    PROX_FDTYPE_VNODE: u32 = 1 in "sys/proc_info.h",
    PROX_FDTYPE_SOCKET: u32 = 2 in "sys/proc_info.h",
    SOCKINFO_TCP: i32 = 2 in "sys/proc_info.h",
    INI_IPV4: u8 = 1 in "sys/proc_info.h",
    TH_STATE_WAITING: i32 = 3 in "mach/thread_info.h",
    SYNC_VOLUME_FULLSYNC: i32 = 1 in "unistd.h",
    SYNC_VOLUME_WAIT: i32 = 2 in "unistd.h",
}

/// Declares structures. Each entry has the Rust type, the name in C, the header, and the size in bytes. Each field has
/// the name in C and the offset in bytes.
macro_rules! structures {
    ($($type:ty as $name:literal in $header:literal is $size:literal { $($field:ident is $c:literal at $offset:literal,)* })*) => {
        $(
            // SAFETY: it consists of integers.
            #[allow(unsafe_code)]
            unsafe impl KernelStructure for $type {}
            const _: () = assert!(size_of::<$type>() == $size, $name);
            $(const _: () = assert!(offset_of!($type, $field) == $offset, $c);)*
        )*
    };
}

structures! {
    libc::proc_bsdinfo as "struct proc_bsdinfo" in "sys/proc_info.h" is 136 {
        pbi_flags is "pbi_flags" at 0,
        pbi_status is "pbi_status" at 4,
        pbi_ppid is "pbi_ppid" at 16,
        pbi_nfiles is "pbi_nfiles" at 96,
        pbi_start_tvsec is "pbi_start_tvsec" at 120,
        pbi_start_tvusec is "pbi_start_tvusec" at 128,
    }
    libc::proc_bsdshortinfo as "struct proc_bsdshortinfo" in "sys/proc_info.h" is 64 {
        pbsi_uid is "pbsi_uid" at 36,
        pbsi_ruid is "pbsi_ruid" at 44,
        pbsi_svuid is "pbsi_svuid" at 52,
    }
    libc::proc_taskinfo as "struct proc_taskinfo" in "sys/proc_info.h" is 96 {
        pti_threadnum is "pti_threadnum" at 84,
    }
    libc::proc_threadinfo as "struct proc_threadinfo" in "sys/proc_info.h" is 112 {
        pth_run_state is "pth_run_state" at 24,
    }
    libc::proc_fdinfo as "struct proc_fdinfo" in "sys/proc_info.h" is 8 {
        proc_fd is "proc_fd" at 0,
        proc_fdtype is "proc_fdtype" at 4,
    }
    VnodeFile as "struct vnode_fdinfo" in "sys/proc_info.h" is 176 {
        device is "pvi.vi_stat.vst_dev" at 24,
        inode is "pvi.vi_stat.vst_ino" at 32,
    }
    SocketFile as "struct socket_fdinfo" in "sys/proc_info.h" is 792 {
        kind is "psi.soi_kind" at 256,
        remote_port is "psi.soi_proto.pri_tcp.tcpsi_ini.insi_fport" at 264,
        local_port is "psi.soi_proto.pri_tcp.tcpsi_ini.insi_lport" at 268,
        versions is "psi.soi_proto.pri_tcp.tcpsi_ini.insi_vflag" at 288,
        remote is "psi.soi_proto.pri_tcp.tcpsi_ini.insi_faddr" at 296,
        local is "psi.soi_proto.pri_tcp.tcpsi_ini.insi_laddr" at 312,
    }
    libc::shmid_ds as "struct shmid_ds" in "sys/shm.h" is 76 {
        shm_perm is "shm_perm" at 0,
        shm_cpid is "shm_cpid" at 36,
        shm_nattch is "shm_nattch" at 40,
    }
    libc::semid_ds as "struct semid_ds" in "sys/sem.h" is 72 {
        sem_perm is "sem_perm" at 0,
        sem_nsems is "sem_nsems" at 28,
    }
    libc::ipc_perm as "struct ipc_perm" in "sys/ipc.h" is 24 {
        uid is "uid" at 0,
        _key is "_key" at 20,
    }
}
