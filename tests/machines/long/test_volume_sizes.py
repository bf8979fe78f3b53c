"""Sizes of volumes by a kernel's own project quotas, of ext4 and XFS: on a machine whose kernel has them, no cluster.

MINIK8S_LAB_KERNEL names a kernel with CONFIG_QFMT_V2 and CONFIG_XFS_QUOTA where the lab's has none.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.errors import LabError
from tests.lab.lab import Lab
from tests.lab.records import NodeSpec
from tests.support.docker.debian import unpack
from tests.support.waiting import until

MACHINE, ROOT, MIB = "node1", "/srv/limited", 1 << 20
MODULES = Path(__file__).resolve().parents[3] / "minik8s_modules" / "module_utils"
PASS = """
import json, sys
sys.path.insert(0, "/mnt/host/code")
from minik8s_modules.module_utils.minik8s.core.section import Request, context_for, run_pass
from minik8s_modules.module_utils.minik8s.volumes.folders import Folders
request = Request("n", entries=json.loads(sys.argv[1]), state_dir="/tmp/state", run_dir="/tmp/run")
print(json.dumps(run_pass(Folders(), request, context_for(request)), default=str))
"""
IMAGE = "limited.img"
MOUNT = f"""
set -e
cp --sparse=always /mnt/host/{IMAGE} /{IMAGE}
mkdir -p {ROOT}
mount -o loop,prjquota /{IMAGE} {ROOT}
"""
XFS = ("xfsprogs", "libinih1", "liburcu8")


def make_ext4(image: Path) -> None:
    """Make a file system with project quotas."""
    os.truncate(image, 128 * MIB)
    subprocess.run(["/sbin/mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota", image], check=True)


def make_xfs(image: Path) -> None:
    """Make the smallest there is, by Debian's program."""
    os.truncate(image, 304 * MIB)
    with tempfile.TemporaryDirectory(prefix="xfsprogs-") as folder:
        tree = unpack("bookworm", XFS, Path(folder))
        libraries = {"LD_LIBRARY_PATH": str(tree / "usr/lib/x86_64-linux-gnu")}
        subprocess.run([tree / "sbin/mkfs.xfs", "-q", image], env=libraries, check=True)


@pytest.fixture(scope="module", params=[make_ext4, make_xfs], ids=["ext4", "xfs"])
def lab(lab_name: str, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A machine with a file system that has project quotas."""
    made = Lab(lab_name)
    try:
        made.up([NodeSpec(MACHINE, "uml", 512)])
        code = made.folder / "share" / "code" / "minik8s_modules"
        shutil.copytree(MODULES, code / "module_utils", ignore=shutil.ignore_patterns("__pycache__"))
        (code / "__init__.py").touch()
        try:
            image = made.folder / "share" / IMAGE
            image.touch()
            request.param(image)
            made.run(MACHINE, ["sh", "-c", MOUNT])
        except LabError as error:
            pytest.skip(f"the lab's kernel has no project quotas: {error}")
        yield made
    finally:
        made.down()


def folder(lab: Lab, state: str = "present", root: str = ROOT, **size: int) -> Any:
    """Run a pass over one folder and return its result."""
    entries = {"v": {"root": root, "name": "v", "owner": "u1", "state": state, **size}}
    return json.loads(lab.run(MACHINE, ["python3", "-c", PASS, json.dumps(entries)]))


def written(lab: Lab, name: str, mebibytes: int) -> int:
    """Have nobody write a file of that size; return how much of it there is."""
    script = f"dd if=/dev/zero of={ROOT}/v/{name} bs=64k count={mebibytes * 16} 2>/dev/null; stat -c %s {ROOT}/v/{name}"
    return int(lab.run(MACHINE, ["su", "nobody", "-s", "/bin/sh", "-c", script]))


def test_nobody_writes_more_than_the_size_and_the_limit_grows(lab: Lab) -> None:
    assert [step["action"] for step in folder(lab, size_bytes=8 * MIB)["steps"]] == ["make"]
    assert folder(lab, size_bytes=8 * MIB)["steps"] == []
    assert 7 * MIB < written(lab, "first", 16) <= 8 * MIB
    blocks, size = map(int, lab.run(MACHINE, ["stat", "-f", "-c", "%b %S", f"{ROOT}/v"]).split())
    assert blocks * size == 8 * MIB, "df shows the limit"
    assert [step["action"] for step in folder(lab, size_bytes=12 * MIB)["steps"]] == ["limit"]
    assert 3 * MIB < written(lab, "second", 16) < 5 * MIB


def test_a_folder_that_is_there_without_a_size_gets_one_with_all_in_it(lab: Lab) -> None:
    lab.run(MACHINE, ["rm", "-r", f"{ROOT}/v"])
    lab.run(MACHINE, ["install", "-d", "-m", "0777", f"{ROOT}/v", f"{ROOT}/v/below"])
    assert written(lab, "below/before", 4) == 4 * MIB
    assert [step["action"] for step in folder(lab, size_bytes=8 * MIB)["steps"]] == ["limit"]
    assert 3 * MIB < written(lab, "below/after", 16) < 5 * MIB


def test_a_folder_that_goes_takes_its_limit_along(lab: Lab) -> None:
    until(lambda: not folder(lab, "absent")["due"])
    assert set(lab.run(MACHINE, ["ls", ROOT]).split()) <= {"lost+found"}


def test_where_there_are_no_quotas_nothing_is_promised(lab: Lab) -> None:
    result = folder(lab, root="/srv/plain", size_bytes=8 * MIB)
    assert result["errors"]["v"]["reason"] == "QuotaUnavailable"
    assert "v" not in lab.run(MACHINE, ["ls", "-A", "/srv/plain"]).split()
