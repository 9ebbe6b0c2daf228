"""Landlock: from now on, files are reached only beneath the given paths. See `landlock(7)`.

The kernel's version of the interface (its *ABI*) says which rights it knows; rights it does not know are left out of
what is asked, and `promises` says what that costs. No path gets the right to execute: a shared library is mapped, not
executed, so torch's are found all the same. TCP is denied as a whole, the listeners being bound before.

A rule belongs to an inode. The file system of processes makes a new inode for the same path once its cache is dropped,
so the descriptors that the rules were made with stay open, which holds the path in the cache.
"""

import ctypes
import os
import stat
from enum import IntFlag
from pathlib import Path

from headway_runtime.sandbox import kernel
from headway_runtime.sandbox.files import Files


class Right(IntFlag):
    """Rights on files and folders: `LANDLOCK_ACCESS_FS_*`."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


READ = Right.READ_FILE | Right.READ_DIR
WRITE = (
    READ
    | (Right.WRITE_FILE | Right.TRUNCATE)
    | (Right.MAKE_REG | Right.MAKE_DIR | Right.REMOVE_FILE | Right.REMOVE_DIR)
)
"""Files and folders; links, sockets, pipes and devices are not made."""
DEVICE = Right.READ_FILE | Right.WRITE_FILE | Right.IOCTL_DEV
OF_FILES = Right.EXECUTE | Right.WRITE_FILE | Right.READ_FILE | Right.TRUNCATE | Right.IOCTL_DEV
"""The rights that a rule on something else than a folder may grant."""

_SINCE = {1: Right.MAKE_SYM, 2: Right.REFER, 3: Right.TRUNCATE, 5: Right.IOCTL_DEV}
"""The last right that each ABI added: it knows all up to that one."""

_TCP, _TCP_ABI = 0b11, 4  # bind and connect
_SCOPES, _SCOPES_ABI = 0b11, 6  # abstract sockets and signals of processes that are not confined with this one
_VERSION = 1
_PATH_BENEATH = 1


class _Ruleset(ctypes.Structure):
    """`struct landlock_ruleset_attr`; a kernel wants no more of it than it knows."""

    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    """`struct landlock_path_beneath_attr`."""

    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """The kernel's ABI, at least 1. Raises OSError: ENOSYS, EOPNOTSUPP (not enabled), EPERM (a filter denies it)."""
    return kernel.call("landlock_create_ruleset", None, 0, _VERSION)


def handled(abi: int) -> Right:
    """The rights that this ABI can deny: whatever of these no rule grants is refused."""
    return Right((max(last for since, last in _SINCE.items() if since <= abi) << 1) - 1)


def restrict(files: Files, abi: int) -> None:
    """Confine this thread and those it makes. Needs no_new_privs. Paths that do not exist grant nothing.

    Raises OSError.
    """
    rights = handled(abi)
    ruleset = _ruleset(rights, abi)
    try:
        for granted, paths in ((READ, files.read), (WRITE, files.write), (DEVICE, files.devices)):
            for path in paths:
                _grant(ruleset, path, granted & rights)
        kernel.call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _ruleset(rights: Right, abi: int) -> int:
    attributes = _Ruleset(rights, _TCP if abi >= _TCP_ABI else 0, _SCOPES if abi >= _SCOPES_ABI else 0)
    size = 24 if abi >= _SCOPES_ABI else 16 if abi >= _TCP_ABI else 8
    return kernel.call("landlock_create_ruleset", attributes, size, 0)


def _grant(ruleset: int, path: Path, rights: Right) -> None:
    try:
        anchor = os.open(path, os.O_PATH | os.O_CLOEXEC)  # stays open, see above
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # for this process, it is not there
    if not stat.S_ISDIR(os.fstat(anchor).st_mode):
        rights &= OF_FILES
    kernel.call("landlock_add_rule", ruleset, _PATH_BENEATH, _PathBeneath(rights, anchor), 0)
