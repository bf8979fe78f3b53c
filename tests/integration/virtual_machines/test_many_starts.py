"""Twenty starts and stops of one guest, on one disk, leave nothing but the disk."""

from __future__ import annotations

from pathlib import Path

from tests.integration.virtual_machines.conftest import Guests


def test_twenty_starts_and_stops_leave_nothing(guests: Guests, tmp_path: Path):
    volume = {"name": "data", "hostDisk": {"path": f"{tmp_path}/data.img", "type": "DiskOrCreate", "capacity": "1Mi"}}
    vmi = guests.vmi("often", volume)
    for number in range(20):
        name = guests.boot(vmi)
        if number:
            assert str(guests.http(name, "/ubdb")).startswith(f"start {number - 1}\n")
        guests.type(name, f"echo 'start {number}' > /tmp/x; dd if=/tmp/x of=/dev/ubdb conv=fsync,notrunc")
        guests.delete(name)
    assert guests.cluster.node.ids() == []
    assert guests.cluster.addresses() == []
    assert [path.name for path in tmp_path.iterdir()] == ["data.img"]
