"""What a sidecar holds: ``python -m tests.benchmarks.network.sidecar_memory``, seconds, as root.

A real Envoy in a network of its own begins with the bootstrap of sidecars, then one with a thousand Services of five
Pods in it, as a pilot tells them. They stand in its file here, not in answers of a pilot, so the names of xDS are not
in the figure. RssAnon is what no other Envoy of the machine shares.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from minik8s_modules.mesh.mapping import Declared, decide_mapping
from minik8s_modules.mesh.resources import CLUSTER, ENDPOINTS, LISTENER, ROUTES, resources
from tests.benchmarks.figures import Figure
from tests.benchmarks.network.mesh import PODS, SERVICES, service, slice_of
from tests.support.docker.envoy import ROLE, envoy_program
from tests.support.waiting import until

ALONE_MB, MORE_MB, PATIENCE_S = 25.0, 15.0, 120.0
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def configuration(folder: str, services: int) -> dict[str, Any]:
    """Return the bootstrap with so many Services in it."""
    for file in ("ca.crt", "token"):
        Path(folder, file).write_text("")
    text = (ROLE / "files/bootstrap.yaml").read_text()
    whole: dict[str, Any] = yaml.safe_load(text.replace("/var/run/secrets/kubernetes.io/serviceaccount", folder))
    for each in ("lds_config", "cds_config"):
        whole["dynamic_resources"][each]["initial_fetch_timeout"] = "0.1s"
    numbers = range(services)
    mapped = decide_mapping(
        Declared([service(each) for each in numbers], [slice_of(each) for each in numbers], [], [], [])
    )
    for place, port in mapped.ports.items():
        told = {each.type_url: each.body for each in resources("shop", place, port)}
        http = told[LISTENER]["filter_chains"][0]["filters"][0]["typed_config"]
        del http["rds"]
        http["route_config"] = told[ROUTES]
        whole["static_resources"]["listeners"].append(told[LISTENER])
        cluster = {key: value for key, value in told[CLUSTER].items() if key != "eds_cluster_config"}
        whole["static_resources"]["clusters"].append({**cluster, "type": "STATIC", "load_assignment": told[ENDPOINTS]})
    return whole


def anonymous_mb(services: int) -> float:
    """Return the RssAnon of an Envoy that has so many Services and is ready."""
    with tempfile.TemporaryDirectory(prefix="mk8s-") as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, "bootstrap.yaml")
        file.write_text(yaml.dump(configuration(folder, services), Dumper=_DUMPER))
        own = [
            "unshare",
            "--net",
            "sh",
            "-c",
            'ip link set lo up && exec setpriv --reuid 1337 --clear-groups "$@"',
            "run",
        ]
        options = ["--config-path", str(file), "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "error"]
        process = subprocess.Popen([*own, str(envoy_program()), *options])
        try:
            until(lambda: process.poll() is not None or _is_ready(process.pid), PATIENCE_S)
            status = Path(f"/proc/{process.pid}/status").read_text()
        finally:
            process.kill()
            process.wait()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:")) / 1024


def _is_ready(pid: int) -> bool:
    ask = ["nsenter", f"--net=/proc/{pid}/ns/net", "curl", "-sf", "-m", "5", "http://127.0.0.1:15000/ready"]
    return subprocess.run(ask, capture_output=True, check=False).returncode == 0


def measure() -> Iterator[Figure]:
    """Yield the figures."""
    alone = anonymous_mb(0)
    yield Figure("RssAnon of a sidecar", alone, "MB", ALONE_MB, "without Services")
    more = anonymous_mb(SERVICES) - alone
    yield Figure(
        "RssAnon more with all of a large namespace", more, "MB", MORE_MB, f"{SERVICES} Services of {PODS} Pods"
    )


def main() -> None:
    """Measure and print."""
    for figure in measure():
        print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
