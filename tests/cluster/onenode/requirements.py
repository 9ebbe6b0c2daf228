"""What a machine must have, found out before anything is started, and said in words that help."""

import ipaddress
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .errors import MissingCapabilityError
from .layout import NODE_INSTANCES, Layout

INSTALL = "tests/cluster/system-packages.sh (as root) installs what is missing"
CONTROL_PLANE_PROGRAMS = ("unshare", "mount", "openssl")
NODE_PROGRAMS = ("ip", "iptables", "nft", "nsenter", "runc")
CNI_DIRECTORIES = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
CNI_PLUGINS = ("bridge", "host-local", "portmap", "loopback")
SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class Route:
    destination: ipaddress.IPv4Network
    device: str


def check(layout: Layout) -> None:
    """Raise MissingCapabilityError if this machine cannot run the instance."""
    if layout.node and os.geteuid():
        raise MissingCapabilityError(
            "a cluster with a node needs root (it makes network links and cgroups); "
            "without root, --control-plane-only works, and HEADWAY_KUBECONFIG=FILE points at another cluster"
        )
    if layout.node and layout.instance not in NODE_INSTANCES:
        raise MissingCapabilityError(f"a node needs an instance from 0 to {max(NODE_INSTANCES)}")
    programs(CONTROL_PLANE_PROGRAMS + (NODE_PROGRAMS if layout.node else ()))
    namespaces(layout)
    if layout.node:
        plugins(CNI_DIRECTORIES)


def programs(names: tuple[str, ...]) -> None:
    """Raise MissingCapabilityError that names the programs which are not on PATH."""
    if missing := [name for name in names if not shutil.which(name, path=SEARCHED)]:
        raise MissingCapabilityError(f"not on this machine: {', '.join(missing)}. {INSTALL}")


def plugins(directories: tuple[Path, ...]) -> None:
    """Raise MissingCapabilityError if no directory has all the plugins of the pod network."""
    if not any(all((directory / name).exists() for name in CNI_PLUGINS) for directory in directories):
        where = " or ".join(map(str, directories))
        raise MissingCapabilityError(f"the CNI plugins {', '.join(CNI_PLUGINS)} are not in {where}. {INSTALL}")


def unshare(layout: Layout) -> list[str]:
    """The command that enters new namespaces; what follows is PID 1 in there."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    network = ["--net"] if layout.node else []
    own = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private"]
    return ["unshare", *user, *own, *network]


def namespaces(layout: Layout) -> None:
    """Raise MissingCapabilityError, with the likely reason, if namespaces or mounts in them are refused."""
    probe = [*unshare(layout), "mount", "-t", "tmpfs", "probe", "/run"]
    answer = subprocess.run(probe, capture_output=True, text=True)
    if answer.returncode == 0:
        return
    said = answer.stderr.strip()
    if os.geteuid() == 0:
        raise MissingCapabilityError(f"root may not make namespaces here (a container without --privileged?): {said}")
    settings = {
        "kernel/unprivileged_userns_clone": "0",
        "kernel/apparmor_restrict_unprivileged_userns": "1",
        "user/max_user_namespaces": "0",
    }
    why = [f"{name.replace('/', '.')}={bad}" for name, bad in settings.items() if _sysctl(name) == bad]
    raise MissingCapabilityError(
        f"user namespaces are not available to this user ({', '.join(why) or said}): "
        "let the machine's owner allow them with sysctl, or run as root"
    )


def _sysctl(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""


def routes() -> list[Route]:
    """The machine's IPv4 routes, without default routes."""
    answer = subprocess.run(["ip", "-json", "-4", "route", "show", "table", "all"], capture_output=True, check=True)
    return parse_routes(answer.stdout)


def parse_routes(text: bytes) -> list[Route]:
    """Routes from `ip -json route`; a destination without a length is one address."""
    entries = json.loads(text or b"[]")
    return [
        Route(ipaddress.IPv4Network(entry["dst"], strict=False), entry.get("dev", "?"))
        for entry in entries
        if entry["dst"] != "default"
    ]


def address_clash(layout: Layout, known: list[Route]) -> tuple[str | None, str | None]:
    """(error, warning) about the instance's addresses: someone else's route inside them, or around them."""
    wanted = ipaddress.IPv4Network(layout.network)
    others = [route for route in known if route.device != layout.link and route.destination.overlaps(wanted)]
    inside = [route for route in others if route.destination.subnet_of(wanted)]
    if inside:
        first = inside[0]
        return (
            f"instance {layout.instance} uses {wanted}, where this machine already has a route: "
            f"{first.destination} by {first.device}. Choose another one with --instance N (0 to {max(NODE_INSTANCES)})"
        ), None
    if others:
        first = others[0]
        return None, f"while the cluster is up, {wanted} goes to it and not by {first.device} ({first.destination})"
    return None, None


def snapshotter(directory: Path, mountinfo: str) -> str:
    """containerd's snapshotter for a store in this directory: overlays cannot be on an overlay file system."""
    return "native" if filesystem(directory, mountinfo) == "overlay" else "overlayfs"


def filesystem(directory: Path, mountinfo: str) -> str:
    """Type of the file system that holds the directory, by the text of /proc/self/mountinfo."""
    best, kind = "", ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        point = left.split()[4]
        if directory.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind
