//! RuntimeDefault: what a container may ask the kernel for.
//!
//! Allowed is what programs of containers use: files, memory, processes, signals, time, sockets, and the kernel
//! interfaces that check permissions well by themselves. Refused is what acts on the whole machine (clocks, modules,
//! swap, reboot, accounting), what has a history of holes and little use in containers (keyrings, userfaultfd,
//! io_uring, bpf, perf), and making namespaces. Where a capability stands for a part of that, the calls come with the
//! capability. In effect this is the default of Docker and containerd.

use super::numbers::Arch;
use crate::runtime::capability;
use crate::sys::privileges::Capabilities;
use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompOperator, LinuxSyscall,
};

/// Allowed for everybody, by topic. Names that an architecture does not have are passed over there.
const ALLOWED: &[&str] = &[
    FILES,
    DIRECTORIES,
    METADATA,
    DESCRIPTORS,
    EVENTS,
    MEMORY,
    PROCESSES,
    IDENTITY,
    SIGNALS,
    SCHEDULING,
    TIME,
    SOCKETS,
    IPC,
    SYSTEM,
    SANDBOXING,
    ARM_ONLY,
    X86_ONLY,
];

const FILES: &str = "\
    cachestat close close_range copy_file_range creat fadvise64 fadvise64_64 arm_fadvise64_64 fallocate fdatasync fsync \
    ftruncate ftruncate64 lseek _llseek open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read \
    readahead readv sendfile sendfile64 splice sync sync_file_range arm_sync_file_range syncfs tee truncate truncate64 \
    vmsplice write writev statmount listmount";

const DIRECTORIES: &str = "\
    chdir fchdir getcwd getdents getdents64 link linkat mkdir mkdirat mknod mknodat readlink readlinkat rename \
    renameat renameat2 rmdir symlink symlinkat unlink unlinkat readdir";

const METADATA: &str = "\
    access chmod chown chown32 faccessat faccessat2 fchmod fchmodat fchmodat2 fchown fchown32 fchownat fgetxattr \
    flistxattr fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 futimesat getxattr getxattrat lchown \
    lchown32 lgetxattr listxattr listxattrat llistxattr lremovexattr lsetxattr lstat lstat64 newfstatat oldfstat \
    oldlstat oldstat removexattr removexattrat setxattr setxattrat stat stat64 statfs statfs64 statx umask utime \
    utimensat utimensat_time64 utimes";

const DESCRIPTORS: &str = "dup dup2 dup3 fcntl fcntl64 flock ioctl memfd_create memfd_secret pipe pipe2";

const EVENTS: &str = "\
    epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd \
    eventfd2 fanotify_mark inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy \
    io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit poll ppoll ppoll_time64 pselect6 \
    pselect6_time64 select _newselect timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime \
    timerfd_settime64";

const MEMORY: &str = "\
    brk madvise map_shadow_stack membarrier mincore mlock mlock2 mlockall mmap mmap2 mprotect mremap mseal msync \
    munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_madvise process_mrelease remap_file_pages";

const PROCESSES: &str = "\
    execve execveat exit exit_group fork futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake \
    get_robust_list get_thread_area getrlimit getrusage gettid pidfd_open pidfd_send_signal prctl prlimit64 \
    process_vm_readv process_vm_writev ptrace rseq set_robust_list set_thread_area set_tid_address setrlimit \
    ugetrlimit uretprobe vfork wait4 waitid waitpid getcpu";

const IDENTITY: &str = "\
    capget capset getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getpgid getpgrp getpid \
    getppid getresgid getresgid32 getresuid getresuid32 getsid getuid getuid32 setfsgid setfsgid32 setfsuid \
    setfsuid32 setgid setgid32 setgroups setgroups32 setpgid setregid setregid32 setresgid setresgid32 setresuid \
    setresuid32 setreuid setreuid32 setsid setuid setuid32";

const SIGNALS: &str = "\
    alarm kill pause restart_syscall rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn \
    rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sigaction sigaltstack signal signalfd \
    signalfd4 sigpending sigprocmask sigreturn sigsuspend tgkill tkill";

const SCHEDULING: &str = "\
    getpriority ioprio_get ioprio_set nice sched_get_priority_max sched_get_priority_min sched_getaffinity \
    sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64 \
    sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield setpriority";

const TIME: &str = "\
    adjtimex clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 \
    clock_nanosleep clock_nanosleep_time64 getitimer gettimeofday nanosleep setitimer time timer_create timer_delete \
    timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64 times";

const SOCKETS: &str = "\
    accept accept4 bind connect getpeername getsockname getsockopt listen recv recvfrom recvmmsg recvmmsg_time64 \
    recvmsg send sendmmsg sendmsg sendto setsockopt shutdown socketcall socketpair";

const IPC: &str = "\
    ipc mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 \
    mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop semtimedop semtimedop_time64 shmat shmctl shmdt shmget";

const SYSTEM: &str = "getrandom sysinfo uname lsm_get_self_attr lsm_list_modules";

const SANDBOXING: &str = "landlock_add_rule landlock_create_ruleset landlock_restrict_self seccomp";

const ARM_ONLY: &str = "breakpoint cacheflush set_tls get_tls";

const X86_ONLY: &str = "arch_prctl modify_ldt";

/// Calls that come with a capability, all of them without conditions.
const WITH_CAPABILITY: &[(&str, &str)] = &[
    ("DAC_READ_SEARCH", "name_to_handle_at open_by_handle_at"),
    (
        "SYS_ADMIN",
        "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie lsm_set_self_attr mount \
         mount_setattr move_mount name_to_handle_at open_tree perf_event_open quotactl quotactl_fd \
         setdomainname sethostname setns syslog umount umount2 unshare",
    ),
    ("SYS_BOOT", "reboot"),
    ("SYS_CHROOT", "chroot"),
    ("SYS_MODULE", "delete_module finit_module init_module"),
    ("SYS_PACCT", "acct"),
    ("SYS_PTRACE", "kcmp pidfd_getfd"),
    ("SYS_RAWIO", "ioperm iopl"),
    ("SYS_TIME", "clock_settime clock_settime64 settimeofday stime"),
    ("SYS_TTY_CONFIG", "vhangup"),
    ("SYS_NICE", "get_mempolicy mbind set_mempolicy set_mempolicy_home_node"),
    ("SYSLOG", "syslog"),
    ("BPF", "bpf"),
    ("PERFMON", "perf_event_open"),
];

/// CLONE_NEW* of clone(2): what makes a namespace.
const CLONE_NEW: u64 = 0x7e02_0000;

/// What personality(2) may set: Linux, 32-bit uname, 2.6 uname, both; 0xffffffff asks.
const PERSONALITIES: [u64; 5] = [0x0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// AF_VSOCK: reaches the hypervisor and other machines past every network policy.
const AF_VSOCK: u64 = 40;

/// The profile for a container with these capabilities.
#[must_use]
pub fn default_profile(capabilities: Capabilities) -> LinuxSeccomp {
    let mut names: Vec<&str> = ALLOWED.iter().flat_map(|topic| topic.split_whitespace()).collect();
    for (capability, calls) in WITH_CAPABILITY {
        if has(capabilities, capability) {
            names.extend(calls.split_whitespace());
        }
    }
    names.sort_unstable();
    names.dedup();
    let mut calls = vec![allow(&names, &[])];
    for personality in PERSONALITIES {
        calls.push(allow(&["personality"], &[argument(0, LinuxSeccompOperator::ScmpCmpEq, personality, None)]));
    }
    calls.push(allow(&["socket"], &[argument(0, LinuxSeccompOperator::ScmpCmpNe, AF_VSOCK, None)]));
    if !has(capabilities, "SYS_ADMIN") {
        let no_namespace = argument(0, LinuxSeccompOperator::ScmpCmpMaskedEq, CLONE_NEW, Some(0));
        calls.push(allow(&["clone"], &[no_namespace]));
        // Its flags lie in memory, where a filter cannot look: programs fall back to clone.
        let mut clone3 = LinuxSyscall::default();
        clone3.set_names(vec!["clone3".to_owned()]);
        clone3.set_action(LinuxSeccompAction::ScmpActErrno);
        clone3.set_errno_ret(Some(libc::ENOSYS.cast_unsigned()));
        calls.push(clone3);
    }
    let mut profile = LinuxSeccomp::default();
    profile.set_default_action(LinuxSeccompAction::ScmpActErrno);
    profile.set_default_errno_ret(Some(libc::EPERM.cast_unsigned()));
    profile.set_architectures(Some(Arch::NATIVE.iter().map(|arch| arch.to_oci()).collect()));
    profile.set_syscalls(Some(calls));
    profile
}

fn has(capabilities: Capabilities, name: &str) -> bool {
    capability::parse(name).is_ok_and(|wanted| wanted.without(capabilities) == Capabilities::default())
}

fn allow(names: &[&str], args: &[LinuxSeccompArg]) -> LinuxSyscall {
    let mut call = LinuxSyscall::default();
    call.set_names(names.iter().map(|name| (*name).to_owned()).collect());
    call.set_action(LinuxSeccompAction::ScmpActAllow);
    call.set_args((!args.is_empty()).then(|| args.to_vec()));
    call
}

fn argument(index: usize, op: LinuxSeccompOperator, value: u64, value_two: Option<u64>) -> LinuxSeccompArg {
    let arg = LinuxSeccompArgBuilder::default().index(index).op(op).value(value);
    let arg = match value_two {
        Some(value_two) => arg.value_two(value_two),
        None => arg,
    };
    // Building cannot fail, as every field has a default; the default compares with 0, which refuses more, never less.
    arg.build().unwrap_or_default()
}
