"""What the machine must have: decided from text, without touching the machine."""

import json
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from onenode import requirements
from onenode.errors import MissingCapabilityError
from onenode.layout import Layout
from onenode.requirements import Route

MOUNTS = """\
22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:20 / /home rw - overlay overlay rw,lowerdir=/a
24 22 0:21 / /home/ann/.cache rw - xfs /dev/vdb rw
25 22 0:22 / /homes rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/root/.cache", "ext4"),
        ("/home/bob/.cache", "overlay"),
        ("/home/ann/.cache/headway", "xfs"),
        ("/homes", "tmpfs"),
    ],
)
def test_the_file_system_of_a_directory_is_that_of_its_nearest_mount(directory: str, kind: str) -> None:
    assert requirements.filesystem(Path(directory), MOUNTS) == kind


def test_a_store_on_an_overlay_copies_its_images() -> None:
    assert requirements.snapshotter(Path("/home/bob"), MOUNTS) == "native"
    assert requirements.snapshotter(Path("/root"), MOUNTS) == "overlayfs"


def test_routes_are_read_from_ip_and_default_routes_are_not_among_them() -> None:
    text = json.dumps([{"dst": "default", "dev": "eth0"}, {"dst": "10.1.2.3"}, {"dst": "10.249.1.0/24", "dev": "tun0"}])
    assert requirements.parse_routes(text.encode()) == [
        Route(IPv4Network("10.1.2.3/32"), "?"),
        Route(IPv4Network("10.249.1.0/24"), "tun0"),
    ]
    assert requirements.parse_routes(b"") == []


@pytest.mark.parametrize(
    ("destination", "device", "error", "warning"),
    [
        ("192.168.0.0/16", "eth0", False, False),
        ("10.250.0.0/16", "onenode1", False, False),  # another instance's
        ("10.249.1.0/24", "onenode0", False, False),  # its own, of a start that was cut short
        ("10.249.5.0/24", "tun0", True, False),
        ("10.249.0.0/16", "tun0", True, False),
        ("10.0.0.0/8", "tun0", False, True),
    ],
)
def test_addresses_in_use_are_refused_and_wider_routes_are_named(
    destination: str, device: str, error: bool, warning: bool
) -> None:
    said = requirements.address_clash(Layout(0), [Route(IPv4Network(destination), device)])
    assert [bool(part) for part in said] == [error, warning]
    assert all(device in part for part in said if part)


def test_missing_programs_are_all_named_with_the_script_that_installs_them() -> None:
    with pytest.raises(MissingCapabilityError, match=r"no-such-1, no-such-2\..*system-packages\.sh"):
        requirements.programs(("sh", "no-such-1", "no-such-2"))


def test_missing_plugins_of_the_pod_network_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingCapabilityError, match="bridge"):
        requirements.plugins((tmp_path,))
    for name in requirements.CNI_PLUGINS:
        (tmp_path / name).touch()
    requirements.plugins((Path("/nowhere"), tmp_path))


def test_instances_have_addresses_of_their_own() -> None:
    networks = [IPv4Network(Layout(number).network) for number in range(7)]
    assert len(set(networks)) == 7
    for number, network in enumerate(networks):
        layout = Layout(number)
        inside = [
            IPv4Network(layout.pods),
            IPv4Network(layout.services),
            IPv4Network(f"{layout.host_ip}/30", strict=False),
        ]
        assert all(part.subnet_of(network) for part in inside)
        assert not any(a.overlaps(b) for a in inside for b in inside if a != b)
