"""What a volume on NFS adds to a Pod's start beside the mount itself: ``python -m tests.benchmarks.nodes.mounting``.

Two lab machines with kernels of their own, a minute in all; one exports a folder. On the other, the same export is
mounted in turn by ``mount`` alone and by a pass of the section ``volumes`` in a warm interpreter, as a Pod's start has
it; each is taken away before the next. The kernel of User-Mode Linux makes all of it several times slower.
"""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from statistics import median

from tests.benchmarks.figures import Figure
from tests.lab.lab import Lab
from tests.lab.records import NodeSpec

SERVER, CLIENT, SHARE, TIMES = "node1", "node2", "/srv/share", 15
BAR_MS = 200.0
MODULES = Path(__file__).resolve().parents[3] / "minik8s_modules" / "module_utils"
EXPORT = f"""
set -e
mkdir -p /etc/exports.d
install -d -m 0777 {SHARE}
echo '{SHARE} *(rw,sync,no_subtree_check)' >/etc/exports.d/bench.exports
systemctl start nfs-server
exportfs -ra
"""
MEASURE = """
import json, subprocess, sys, time
sys.path.insert(0, "/mnt/host/code")
from minik8s_modules.module_utils.minik8s.core.section import Request, context_for, run_pass
from minik8s_modules.module_utils.minik8s.volumes.volumes import Volumes
server, share, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
entry = {"kind": "nfs", "server": server, "path": share}

def timed(action):
    begun = time.monotonic()
    action()
    return (time.monotonic() - begun) * 1000

def ours(entries):
    request = Request("n", entries=entries, state_dir="/tmp/state", run_dir="/tmp/run")
    result = run_pass(Volumes(), request, context_for(request))
    assert not result["errors"], result["errors"]

def bare():
    subprocess.run(["mount", "-t", "nfs", "-o", "retry=0", f"{server}:{share}", "/mnt/bare"], check=True)

subprocess.run(["mkdir", "-p", "/mnt/bare"], check=True)
found = {"bare": [], "ours": []}
number = 0
while len(found["ours"]) < times:
    number += 1
    one = timed(bare)
    subprocess.run(["umount", "/mnt/bare"], check=True)
    key = f"4ab1c2d3-0000-4000-8000-{number:012d}/data"
    try:
        two = timed(lambda: ours({key: entry}))
    except AssertionError:  # starved of CPU it does not answer within a second; the next pass tries again
        assert number < 5 * times
        continue
    finally:
        ours({})
    if number > 1:  # the first has modules to load
        found["bare"].append(one)
        found["ours"].append(two)
print(json.dumps(found))
"""


def measure() -> list[Figure]:
    """Return how much longer our mount takes than the bare one."""
    lab = Lab(f"b{uuid.uuid4().hex[:7]}")
    try:
        lab.up([NodeSpec(name, "uml", 512) for name in (SERVER, CLIENT)])
        code = lab.folder / "share" / "code" / "minik8s_modules"
        shutil.copytree(MODULES, code / "module_utils", ignore=shutil.ignore_patterns("__pycache__"))
        (code / "__init__.py").touch()
        lab.run(SERVER, ["sh", "-c", EXPORT], timeout_s=300)
        words = ["python3", "-c", MEASURE, lab.machine(SERVER).address, SHARE, str(TIMES)]
        found = json.loads(lab.run(CLIENT, words, timeout_s=600))
    finally:
        lab.down()
    bare, ours = median(found["bare"]), median(found["ours"])
    told = f"n={TIMES}, in User-Mode Linux; bare {bare:.0f} ms, ours {ours:.0f} ms"
    return [Figure("volumes: a mount of NFS over a bare one, median", ours - bare, "ms", BAR_MS, told)]


if __name__ == "__main__":
    for figure in measure():
        print(figure.line(), flush=True)
