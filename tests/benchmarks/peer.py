"""The API server beside kube-apiserver, in one run: ``python -m tests.benchmarks.peer``, four minutes.

Machines differ by a factor of three in what Python costs, so only ratios of one run say something. kube-apiserver, its
etcd and a client that drives either server lie beside the checkout (``../shared/peer``); without them there are no
figures. Both servers do the same work in turn, with one client program; ours with audit and roles, the peer without.
CPU is the server's own, without etcd's and the client's. Two comparisons more: ours with two workers, and the peer with
what ours has always: an audit log of metadata, and of bodies where something is written, roles, and Secrets encrypted.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.benchmarks.figures import Figure
from tests.benchmarks.machine import REPOSITORY
from tests.benchmarks.nodes.applying import objects
from tests.support.apiserver import ApiServerProcess, beside
from tests.support.etcd import EtcdServer
from tests.support.kubectl import kubectl_path

PEER = REPOSITORY.parent / "shared" / "peer"
PEER_URL, PEER_TOKEN = "https://127.0.0.1:16443", "peertoken"
ROUNDS = 3
TOLD = "ratio to kube-apiserver 1.20 in the same run"
APPLIED, APPLY_BAR = 1_000, 1.0
_LINE = re.compile(r"n=(?P<count>\d+): (?P<rate>\d+) req/s .*bad=(?P<bad>\d+).* srv_cpu=(?P<cpu>[\d.]+)s")


class Work(NamedTuple):
    """What clients do, how often, and the bars: time and CPU, both as ratios."""

    what: str
    requests: int
    time: float | None
    cpu: float | None
    clients: int = 16


# the peer's throughput at least 0.6 and 0.8 times
WORK = (
    Work("create", 1_500, 1 / 0.6, 2.0),
    Work("get", 5_000, 1 / 0.8, 1.3),
    *(Work(what, 1_000, None, None, clients) for what in ("create", "get") for clients in (1, 64)),
)
SIXTEEN = WORK[:2]
WORKERS = 2
MEDIANS = {"list": (re.compile(r" med=([\d.]+)"), 0.3), "fanout": (re.compile(r"write->last p50=([\d.]+)"), 0.8)}
"""What the client says of 5,000 objects in a list and of 100 watchers, and the bar of the ratio."""


class Cost(NamedTuple):
    """Seconds of time and of CPU for one request."""

    time_s: float
    cpu_s: float


def measure() -> list[Figure]:
    """Start both servers, measure them in turn, stop them; nothing where there is no peer."""
    if not (PEER / "peer.sh").exists():
        return []
    with tempfile.TemporaryDirectory() as directory:
        etcd = EtcdServer(Path(directory) / "etcd").start()
        server = ApiServerProcess(Path(directory) / "api", etcd.endpoint)
        kept = {**os.environ, "PEER_DIR": f"{directory}/peer"}
        try:
            subprocess.run([PEER / "peer.sh", "up"], env=kept, check=True, stdout=subprocess.DEVNULL)
            sides = (_ours(server.start()), _peers(Path(directory) / "peer"))
            found = [figure for work in WORK for figure in _beside(work, *sides)]
            found += [*_medians(*sides), _applied(server, Path(directory))]
            kept["PEER_ARGS"] = " ".join(_with_audit(Path(directory) / "peer"))
            subprocess.run([PEER / "peer.sh", "down"], env=kept, check=True)
            subprocess.run([PEER / "peer.sh", "up"], env=kept, check=True, stdout=subprocess.DEVNULL)
            sides = (sides[0], _peers(Path(directory) / "peer"))
            found += [figure for work in SIXTEEN for figure in _beside(work, *sides, "kube-apiserver with audit")]
            server.stop()
            server = beside(server, Path(directory) / "workers", [etcd.endpoint], "127.0.0.1", workers=WORKERS)
            sides = (_ours(server.start()), sides[1])
            return [*found, *(_workers(work, server, *sides) for work in SIXTEEN)]
        finally:
            subprocess.run([PEER / "peer.sh", "down"], env=kept, check=False)
            server.stop()
            etcd.stop()


def _ours(server: ApiServerProcess) -> Mapping[str, str]:
    worker = psutil.Process(server.pid).children()[0]
    files = {"KC_CA": server.authority.ca, "KC_CERT": server.admin.cert, "KC_KEY": server.admin.key}
    return {"KC_URL": server.url, "SRV_PID": str(worker.pid), **{name: str(path) for name, path in files.items()}}


def _peers(directory: Path) -> Mapping[str, str]:
    pid = (directory / "kube-apiserver.pid").read_text(encoding="utf-8").strip()
    return {"KC_URL": PEER_URL, "KC_TOKEN": PEER_TOKEN, "KC_CA": str(directory / "pki" / "ca.crt"), "SRV_PID": pid}


def _with_audit(directory: Path) -> list[str]:
    """Return the peer's arguments for what ours does always; of authorizers, the first that allows decides for both."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "verbs": ["get", "list", "watch"]}, {"level": "Request"}],
    }
    key = {"name": "key1", "secret": b64encode(b"k" * 32).decode()}
    encryption = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": [{"secretbox": {"keys": [key]}}]}],
    }
    for name, content in (("audit", policy), ("encryption", encryption)):
        (directory / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return [
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        "--authorization-mode=RBAC",
        f"--audit-policy-file={directory}/audit.json",
        f"--audit-log-path={directory}/audit.log",
        f"--encryption-provider-config={directory}/encryption.json",
    ]


def _workers(work: Work, server: ApiServerProcess, ours: Mapping[str, str], peers: Mapping[str, str]) -> Figure:
    """Return the ratio of times of ``WORKERS`` workers, with the CPU of them all."""
    workers = psutil.Process(server.pid).children()
    spent = [sum(sum(each.cpu_times()[:2]) for each in workers)]
    (found, _) = _beside(work, ours, peers)
    spent.append(sum(sum(each.cpu_times()[:2]) for each in workers))
    each_ms = (spent[1] - spent[0]) / (work.requests * (ROUNDS + 0.2)) * 1e3
    name = f"{work.what} by {WORKERS} workers beside kube-apiserver, time"
    return found._replace(name=name, note=f"{found.note}; {each_ms:.2f} ms of CPU each, with the clients' handshakes")


def _beside(
    work: Work, ours: Mapping[str, str], peers: Mapping[str, str], peer: str = "kube-apiserver"
) -> list[Figure]:
    _driven(work, ours, work.requests // 5)  # what is done once is not measured
    _driven(work, peers, work.requests // 5)
    costs = [(_driven(work, ours, work.requests), _driven(work, peers, work.requests)) for _ in range(ROUNDS)]
    mine, theirs = (Cost(*map(sum, zip(*side, strict=True))) for side in zip(*costs, strict=True))
    what = work.what if work.clients == 16 else f"{work.what} by {work.clients}"
    text = f"{TOLD}, {work.clients} clients"
    return [
        Figure(f"{what} beside {peer}, time", mine.time_s / theirs.time_s, "x", work.time, text),
        Figure(f"{what} beside {peer}, CPU", mine.cpu_s / theirs.cpu_s, "x", work.cpu, text),
    ]


def _driven(work: Work, side: Mapping[str, str], count: int) -> Cost:
    return cost(_said(side, work.what, "--threads", str(work.clients), "--procs", "2", "--n", str(count)))


def _said(side: Mapping[str, str], *arguments: str) -> str:
    argv, environment = [sys.executable, str(PEER / "api.py"), *arguments], {**os.environ, **side, "KC_NOSA": "1"}
    return subprocess.run(argv, cwd=PEER, env=environment, check=True, capture_output=True, text=True).stdout


def _medians(*sides: Mapping[str, str]) -> list[Figure]:
    for side in sides:
        _said(side, "fill")
    found = []
    for what, (pattern, bar) in MEDIANS.items():
        mine, theirs = (median(_said(side, what), pattern) for side in sides)
        found.append(Figure(f"{what} beside kube-apiserver, median", mine / theirs, "x", bar, TOLD))
    return found


def median(said: str, pattern: re.Pattern[str]) -> float:
    """Return the milliseconds that the client says.

    Raises:
        ValueError: it says something else.
    """
    found = pattern.search(said)
    if found is None:
        raise ValueError(f"the client says: {said}")
    return float(found[1])


def _applied(server: ApiServerProcess, directory: Path) -> Figure:
    """Have one kubectl apply the same new objects to both."""
    file, config = directory / "objects.yml", directory / "peer.kubeconfig"
    file.write_text("".join(f"---\n{json.dumps(obj)}\n" for obj in islice(objects(), APPLIED)), encoding="utf-8")
    cluster = {"server": PEER_URL, "certificate-authority": str(directory / "peer" / "pki" / "ca.crt")}
    config.write_text(
        json.dumps(
            {
                "clusters": [{"name": "peer", "cluster": cluster}],
                "users": [{"name": "peer", "user": {"token": PEER_TOKEN}}],
                "contexts": [{"name": "peer", "context": {"cluster": "peer", "user": "peer"}}],
                "current-context": "peer",
            }
        ),
        encoding="utf-8",
    )
    theirs = [str(kubectl_path()), f"--kubeconfig={config}", f"--cache-dir={directory}/peer-cache"]
    spent = []
    for argv in (server.kubectl_argv("apply", "-f", str(file)), [*theirs, "apply", "-f", str(file)]):
        began = time.monotonic()
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
        spent.append(time.monotonic() - began)
        assert done.stdout.count(" created") == APPLIED, done.stderr[-2000:]
    text = f"{TOLD}; {spent[0]:.1f} s for {APPLIED:,} new objects"
    return Figure("kubectl apply beside kube-apiserver, time", spent[0] / spent[1], "x", APPLY_BAR, text)


def cost(line: str) -> Cost:
    """Return what one request cost, from the client's line.

    Raises:
        ValueError: the client says something else, or that requests failed.
    """
    found = _LINE.search(line)
    if found is None or int(found["bad"]):
        raise ValueError(f"the client says: {line}")
    return Cost(1 / int(found["rate"]), float(found["cpu"]) / int(found["count"]))


def main() -> None:
    """Print the figures."""
    for figure in measure():
        print(figure.line())


if __name__ == "__main__":
    main()
