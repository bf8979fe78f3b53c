"""A client on a lab machine that asks API servers every 100 ms, one after the other, and writes down every failure.

It does what kubectl does: reads the administrator's kubeconfig of its machine anew each time, makes a new connection,
asks for a Namespace. Nothing is tried twice.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.support.clusters.labcluster import LabCluster

UNIT = "asking-the-api"
LOG = f"/run/{UNIT}.log"
SCRIPT = r"""
import base64, http.client, json, re, ssl, sys, tempfile, time
log, *servers = sys.argv[1:]

def ask(server):
    text = open("/etc/minik8s/admin.kubeconfig").read()
    pem = {name: base64.b64decode(data) for name, data in re.findall(r"(\S+)-data: *(\S+)", text)}
    context = ssl.create_default_context(cadata=pem["certificate-authority"].decode())
    with tempfile.NamedTemporaryFile(dir="/run") as chain:
        chain.write(pem["client-certificate"] + b"\n" + pem["client-key"])
        chain.flush()
        context.load_cert_chain(chain.name)
    connection = http.client.HTTPSConnection(server, 6443, timeout=60, context=context)
    try:
        connection.request("GET", "/api/v1/namespaces/default")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise OSError(f"{answer.status} {body[:200]}")
    finally:
        connection.close()

number, good, gap, since = 0, 0, 0.0, time.monotonic()
failures = []
while True:
    server = servers[number % len(servers)]
    number += 1
    try:
        ask(server)
        good, gap, since = good + 1, max(gap, time.monotonic() - since), time.monotonic()
    except Exception as error:
        failures = [*failures, f"{time.strftime('%H:%M:%S')} {server}: {error!r}"][-200:]
        gap = max(gap, time.monotonic() - since)
    if number % 10 == 0 or failures:
        open(log + ".new", "w").write(json.dumps({"good": good, "gap_s": gap, "failures": failures}))
        __import__("os").replace(log + ".new", log)
    time.sleep(0.1)
"""


class Told(NamedTuple):
    """Requests that succeeded, the longest time without one that did, and what the others died of (the last 200)."""

    good: int
    gap_s: float
    failures: list[str]


class Asking:
    """The client; ``told`` reads what it has written down so far."""

    def __init__(self, cluster: LabCluster, machine: str) -> None:
        self._cluster, self._machine = cluster, machine

    def told(self) -> Told:
        """Return what has come of its requests."""
        return Told(**json.loads(self._cluster.on(self._machine, ["cat", LOG])))


@contextlib.contextmanager
def asking(cluster: LabCluster, machine: str, servers: Sequence[str]) -> Iterator[Asking]:
    """Ask the API servers of the machines ``servers`` from ``machine`` while this lasts."""
    client = Asking(cluster, machine)
    addresses = [cluster.address(name) for name in servers]
    cluster.on(machine, ["systemd-run", f"--unit={UNIT}", "python3", "-c", SCRIPT, LOG, *addresses])
    try:
        cluster.until(lambda: (_quiet(client) or Told(0, 0, [])).good > 0, told="no API server answers the client")
        yield client
    finally:
        cluster.on(machine, ["systemctl", "stop", UNIT])


def _quiet(client: Asking) -> Told | None:
    with contextlib.suppress(Exception):  # the file is not there yet
        return client.told()
    return None
