"""Which files the serving process reaches, as a value: for reading, for writing, and devices."""

import os
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import headway_api

import headway_runtime

_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64", "/etc/ld.so.cache")

_FACTS = (
    *("/etc/localtime", "/usr/share/zoneinfo", "/usr/share/locale", "/etc/mime.types"),
    *("/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf", "/etc/crypto-policies"),  # read by OpenSSL, for its digests
    *("/dev/random", "/dev/urandom", "/dev/zero"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm/overcommit_memory"),
    *("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup"),
)
"""What the C library, OpenMP, torch and OpenSSL read to know the machine."""

_GPU = ("/usr/local/nvidia", "/proc/driver/nvidia", "/sys/module/nvidia", "/sys/bus/pci", "/sys/devices/pci0000:00")
_GPU_DEVICES = "nvidia*"  # in /dev


@dataclass(frozen=True, slots=True)
class Files:
    """Everything beneath these paths, and nothing else: `read`; `write`, which includes reading; `devices`, which are
    read, written and sent the commands of their drivers. A path that does not exist grants nothing.
    """

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    devices: tuple[Path, ...] = ()


def files_of_this_process(*, read: Iterable[Path], scratch: Path, gpu: bool) -> Files:
    """What any serving process needs on this machine, with `read` beside it: the interpreter, its packages, the
    system's libraries, facts about the machine; for writing `scratch` alone. `gpu`: NVIDIA's devices.
    """
    devices = sorted(Path("/dev").glob(_GPU_DEVICES)) if gpu else ()
    system = map(Path, (*_LIBRARIES, *_FACTS, *(_GPU if gpu else ())))
    found = (*_packages(), *_library_path(), *system, *read)
    return Files(read=tuple(dict.fromkeys(found)), write=(scratch, Path(os.devnull)), devices=tuple(devices))


def _packages() -> Iterable[Path]:
    """Where modules are imported from. An editable installation may be known to an import hook only."""
    paths = sysconfig.get_paths()
    yield from (Path(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    yield from (Path(prefix) / "lib" for prefix in (sys.prefix, sys.base_prefix))
    yield from (Path(entry) for entry in sys.path if os.path.isabs(entry))
    yield from (Path(file).parent for file in (headway_api.__file__, headway_runtime.__file__) if file)


def _library_path() -> Iterable[Path]:
    """Folders that the loader was told to look in."""
    return (Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if os.path.isabs(entry))
