"""Fetches and makes ahead what tests make once and keep; ``.ci/run`` does it beside the installation, which waits much.

    make ahead

Nothing depends on it: whoever needs a thing first makes it, or waits for the one who is at it. So a failure is told
here, and fails the test that meets it again. Docker and the packages that the playbooks install are not there yet.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.lab.host import Host
from tests.lab.parts import image, kernels
from tests.lab.places import Places
from tests.support.clients import kubectl_sid, node_exporter, prometheus, promtool, python_clients
from tests.support.docker import cni_plugins
from tests.support.docker.envoy import envoy_program
from tests.support.docker.vm_guests import uml_disk
from tests.support.kubectl import kubectl_path
from tests.support.servers import slurm

REPOSITORY = Path(__file__).resolve().parents[2]


def compile_tests() -> str:
    """Have one process compile all tests, instead of each process that runs some."""
    argv = [sys.executable, "-m", "pytest", "tests", "--collect-only", "--quiet", "--quiet", "-p", "no:cacheprovider"]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout.rstrip().rpartition("\n")[2]


THINGS: dict[str, Callable[[], object]] = {
    "the image of lab machines": lambda: image.get(Host(), Places.from_environment()),
    "compiled tests": compile_tests,
    "Python clients": python_clients,
    "kubectl 1.32": kubectl_path,
    "the kernel of lab machines": lambda: kernels.find(Host(), Places.from_environment()).folder,
    "CNI plugins": cni_plugins.plugins,
    "kubectl of sid": kubectl_sid,
    "a Slurm": slurm.tree,
    "Prometheus": prometheus,
    "promtool": promtool,
    "node exporter": node_exporter,
    "Envoy": envoy_program,
    "the disk of a guest": uml_disk,
}


def main() -> None:
    """Make each thing, and tell how long it took."""
    for what, make in THINGS.items():
        begun = time.monotonic()
        try:
            result = str(make())
        except Exception as error:  # noqa: BLE001  # whatever it is, the test that needs the thing meets it as well
            result = f"{type(error).__name__}: {error}"
        print(f"{time.monotonic() - begun:6.1f} s  {what}: {result}", flush=True)


if __name__ == "__main__":
    main()
