"""seccomp: refuse system calls, in all later code of the process.

The kernel runs a short program of the classic Berkeley Packet Filter before each system call; it
sees the number and the arguments, but no memory. https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator

# Machine -> its number in linux/audit.h, and the column of the tables below.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_NEWEST = 470  # later system calls do not exist for the process
_X32 = 0x40000000  # first number of a second set of calls on x86_64

# System call -> its number on x86_64 and on aarch64. Refused to every process in a sandbox: the
# kernel's configuration, mounts and namespaces, other processes' memory, keys, and io_uring, which
# makes calls that no filter sees.
_ALWAYS = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
# Refused to a process that runs foreign host code: programs and processes, sockets, memory that no
# limit counts, everything that names another process, and what Landlock does not restrict: rights,
# owners, times and attributes of files, and who reads them.
_ALONE = {
    "chmod": (90, None),
    "chown": (92, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "file_setattr": (469, 469),
    "fork": (57, None),
    "fremovexattr": (199, 16),
    "fsetxattr": (190, 7),
    "futimesat": (261, None),
    "inotify_add_watch": (254, 27),
    "ioprio_set": (251, 30),
    "lchown": (94, None),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semget": (64, 190),
    "setpriority": (141, 140),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "shmat": (30, 196),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),  # a datagram socket of a pair also sends to others
    "tkill": (200, 130),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
    "vfork": (58, None),
}
_CLONE, _CLONE3, _FCNTL, _IOCTL = (56, 220), (435, 435), (72, 25), (16, 29)
_KILL, _TGKILL, _PRLIMIT = (62, 129), (234, 131), (302, 261)
_PRCTL, _SOCKET = (157, 167), (41, 198)
_THREAD = 0x10000  # CLONE_THREAD
# fcntl: F_SETOWN, F_SETOWN_EX (whom the kernel sends SIGIO), F_SETLEASE, F_NOTIFY
_FCNTLS = (8, 15, 1024, 1026)
_PRCTLS = (1,)  # PR_SET_PDEATHSIG: the process would outlive the judge
# ioctl: FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR
_IOCTLS = (0x8901, 0x8902, 0x5412, 0x541C, 0x40086602, 0x401C5820)
_UNIX = 1  # AF_UNIX

# BPF: load a word; jump if equal, greater or equal, any bit set; return.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_REFUSED, _ABSENT = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
_SET_MODE, _FILTER, _ALL_THREADS = 317, 1, 1  # seccomp(2)

Step = tuple[int, int, int, int]  # code, jump if true, jump if false, constant


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def available() -> bool:
    """Whether the kernel filters system calls and the machine's numbers are known."""
    return platform.machine() in _MACHINES and os.path.exists("/proc/sys/kernel/seccomp")


def restrict(alone: bool) -> None:
    """Refuse system calls from now on.

    With `alone`, the process may start no process, make no connection and signal only itself.
    Requires no-new-privileges. Raises OSError.
    """
    code = b"".join(struct.pack("HBBI", *step) for step in _program(alone))
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    number = _SET_MODE if platform.machine() == "x86_64" else 277
    if libc.syscall(number, _FILTER, _ALL_THREADS, ctypes.byref(program)):
        raise OSError(ctypes.get_errno(), "seccomp refused the filter")


def _program(alone: bool) -> Iterator[Step]:
    machine, column = _MACHINES[platform.machine()]
    yield from [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, machine), (_RETURN, 0, 0, _KILL_PROCESS)]
    yield from [(_LOAD, 0, 0, 0), (_AT_LEAST, 0, 1, _NEWEST), (_RETURN, 0, 0, _ABSENT)]
    for numbers in (*_ALWAYS.values(), *(_ALONE.values() if alone else ())):
        if numbers[column] is not None:
            yield from [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _REFUSED)]
    own = os.getpid()
    if alone:
        yield from _only(_KILL[column], 0, own)
        yield from _only(_TGKILL[column], 0, own)
        yield from _only(_PRLIMIT[column], 0, 0, own)
        yield from _none_of(_PRCTL[column], 0, _PRCTLS)
        yield from [(_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _ABSENT)]  # libc then clones
        threads = [(_ANY_BIT, 1, 0, _THREAD), (_RETURN, 0, 0, _REFUSED)]
        yield from _checked(_CLONE[column], 0, threads)
    else:
        yield from _only(_SOCKET[column], 0, _UNIX)  # drivers talk to services of this machine
    yield from _none_of(_FCNTL[column], 1, _FCNTLS)
    yield from _none_of(_IOCTL[column], 1, _IOCTLS)
    yield (_RETURN, 0, 0, _ALLOW)


def _only(number: int, argument: int, *allowed: int) -> Iterator[Step]:
    """Refuse the call unless its argument is one of these."""
    checks = [(_EQUAL, len(allowed) - i, 0, value) for i, value in enumerate(allowed)]
    return _checked(number, argument, [*checks, (_RETURN, 0, 0, _REFUSED)])


def _none_of(number: int, argument: int, refused: tuple[int, ...]) -> Iterator[Step]:
    """Refuse the call if its argument is one of these."""
    pairs = [[(_EQUAL, 0, 1, value), (_RETURN, 0, 0, _REFUSED)] for value in refused]
    return _checked(number, argument, [step for pair in pairs for step in pair])


def _checked(number: int, argument: int, checks: list[Step]) -> Iterator[Step]:
    """Run the checks on the low word of an argument of this call; other calls skip them.

    After the checks the call is allowed.
    """
    yield (_EQUAL, 0, len(checks) + 2, number)
    yield (_LOAD, 0, 0, 16 + 8 * argument)
    yield from checks
    yield (_RETURN, 0, 0, _ALLOW)
