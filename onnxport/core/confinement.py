"""Confine a process that reads files of others: limits of the system, no writing but in given folders, no network.

Linux's Landlock refuses writes and TCP (https://docs.kernel.org/userspace-api/landlock.html), a seccomp filter every
other socket that leaves the machine. Both hold for the process and all that it starts, and it cannot lift them.
Reading stays allowed: libraries load files from many places. `onnxport doctor` says whether it holds here.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import platform
import struct
import sys
from collections.abc import Sequence

# linux/landlock.h; the numbers of its system calls are the same on all architectures.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_WRITE_FILE, _REMOVE_AND_MAKE, _REFER, _TRUNCATE = 1 << 1, 0x1FF0, 1 << 13, 1 << 14
_TCP, _ABSTRACT_SOCKETS_AND_SIGNALS = 0b11, 0b11
# Rights by the version of Landlock that brought them.
_FILES = {1: _WRITE_FILE | _REMOVE_AND_MAKE, 2: _REFER, 3: _TRUNCATE}
_NETWORK_SINCE, _SCOPES_SINCE = 4, 6
# What libraries open for writing in any case: the graphics drivers of litert-gpu, and the sink of messages.
_DEVICES = ("/dev/null", "/dev/dri", "/dev/nvidia*", "/dev/kfd")

_NO_NEW_PRIVILEGES, _SECCOMP, _SECCOMP_FILTER = 38, 22, 2  # prctl
# Machine -> its number in linux/audit.h, and that of socket(2).
_SOCKET = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_IO_URING_SETUP, _FOREIGN = 425, 0x40000000  # io_uring opens sockets too; from here on x32's system calls
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 13  # EACCES
_LOAD, _IF_EQUAL, _IF_GREATER_EQUAL, _RETURN = 0x20, 0x15, 0x35, 0x06  # linux/filter.h
_UNIX = 1


def limit_resources(memory: int, file: int) -> None:
    """Limit the process's memory and each file that it writes, in bytes, and forbid core dumps.

    The memory is RLIMIT_DATA: RLIMIT_AS would count what runtimes reserve and never use.
    """
    with contextlib.suppress(ImportError):
        import resource

        for kind, most in (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_DATA, memory),
            (resource.RLIMIT_FSIZE, file),
        ):
            with contextlib.suppress(ValueError, OSError):
                hard = resource.getrlimit(kind)[1]
                low = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.setrlimit(kind, (low, low))


def limit_seconds(wall: float) -> None:
    """Let the process use as much processor time from now on as all cores have in `wall` seconds."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        most = int(used.ru_utime + used.ru_stime + wall * (os.cpu_count() or 1)) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def confine(folders: Sequence[str] | None) -> None:
    """Refuse this thread, and all that it starts, the network and writes outside of `folders`, as far as known here.

    To be called before other threads exist. With None for `folders`, it may write everywhere.
    """
    if not sys.platform.startswith("linux"):
        return
    kernel = ctypes.CDLL(None, use_errno=True)
    if kernel.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return
    _forbid_writing(kernel, folders)
    _forbid_sockets(kernel)


def _forbid_writing(kernel: ctypes.CDLL, folders: Sequence[str] | None) -> None:
    version = _call(kernel, _CREATE_RULESET, None, 0, _VERSION)
    if version < 1:
        return
    rights = 0 if folders is None else sum(each for since, each in _FILES.items() if version >= since)
    network = _TCP if version >= _NETWORK_SINCE else 0
    scopes = _ABSTRACT_SOCKETS_AND_SIGNALS if version >= _SCOPES_SINCE else 0
    # An older kernel knows a shorter struct.
    fields = [rights, *([network] if network else []), *([scopes] if scopes else [])]
    if not any(fields):  # before Landlock knew of more than files
        return
    handled = struct.pack(f"={len(fields)}Q", *fields)
    rules = _call(kernel, _CREATE_RULESET, handled, len(handled), 0)
    if rules < 0:
        return
    devices = [path for pattern in _DEVICES for path in glob.glob(pattern)]
    for path in (*folders, *devices) if folders is not None else ():
        with contextlib.suppress(OSError):
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = rights if os.path.isdir(path) else rights & (_WRITE_FILE | _TRUNCATE)
            _call(kernel, _ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", allowed, opened), 0)
            os.close(opened)
    _call(kernel, _RESTRICT_SELF, rules, 0)
    os.close(rules)


def _call(kernel: ctypes.CDLL, *arguments: int | bytes | None) -> int:
    result: int = kernel.syscall(
        *(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    )
    return result


def _forbid_sockets(kernel: ctypes.CDLL) -> None:
    """Allow sockets of the family AF_UNIX only."""
    known = _SOCKET.get(platform.machine())
    if known is None or sys.byteorder != "little":
        return
    architecture, socket = known
    # Offsets in struct seccomp_data: 0 the call, 4 the architecture, 16 the first argument. A jump's two numbers are
    # how many instructions it skips where the test holds, and where not.
    program = (
        (_LOAD, 0, 0, 4),
        (_IF_EQUAL, 0, 7, architecture),
        (_LOAD, 0, 0, 0),
        (_IF_GREATER_EQUAL, 5, 0, _FOREIGN),
        (_IF_EQUAL, 4, 0, _IO_URING_SETUP),
        (_IF_EQUAL, 0, 2, socket),
        (_LOAD, 0, 0, 16),
        (_IF_EQUAL, 0, 1, _UNIX),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in program))
    header = struct.pack("@HP", len(program), ctypes.addressof(code))
    kernel.prctl(_SECCOMP, _SECCOMP_FILTER, header, 0, 0)
