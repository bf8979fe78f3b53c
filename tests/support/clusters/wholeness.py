"""Is a cluster on lab machines whole: nothing lost, nothing doubled, nothing left over?

    assert_whole(cluster)       # waits until the faults
    found = faults(cluster)     # one look

Compared are the API's pods with Docker's containers on every node (by labels), pod directories and PodAddresses with
the pods that own them, what each node answers under addresses and names of services with the pods behind them, and, by
``minik8s drift``, every section of every node with what is declared.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import PLAN
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.cli.output import Paint
from minik8s_modules.cli.plans import drifting
from tests.lab.errors import LabError
from tests.support.clusters.labcluster import CommandFailed, LabCluster, is_true

LABEL = "minik8s.io/"
OVER = {"Succeeded", "Failed"}
WHOLE_S = 300.0  # at a load of 50 the reconciler alone takes two minutes to begin
# On a node, with what every Debian machine has: its containers, its pod directories, and what services answer there.
LOOK = """
import json, os, socket, subprocess, sys
asked = json.load(sys.stdin)
ids = subprocess.run(["docker", "ps", "-aq", "--filter", "label=minik8s.io/node"], capture_output=True, text=True, check=True).stdout.split()
found = json.loads(subprocess.run(["docker", "inspect", *ids], capture_output=True, text=True).stdout) if ids else []
def answers(address, port):
    try:
        with socket.create_connection((address, port), timeout=3) as one:
            return "yes"
    except OSError as error:
        return str(error)
def address(name):
    question = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + bytes([0, 0, 1, 0, 1])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(3)
        try:
            one.sendto(bytes([7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + question, ("169.254.20.10", 53))
            told = one.recv(4096)
        except OSError as error:
            return str(error)
    at = 12 + len(question)  # the first record: a pointer or the name again, then type, class, ttl, length
    at += 2 if told[at:at + 1] >= bytes([192]) else len(question) - 4
    return socket.inet_ntoa(told[at + 10:at + 14]) if told[7] else "code %d" % (told[3] & 15)
pods = "/var/lib/minik8s/pods"
json.dump({
    "containers": [{"id": one["Id"], "state": one["State"]["Status"], "started": one["State"]["StartedAt"],
                    "labels": one["Config"]["Labels"]} for one in found],
    "folders": os.listdir(pods) if os.path.isdir(pods) else [],
    "names": {name: address(name) for name in asked["names"]},
    "answers": {f"{ip}:{port}": answers(ip, port) for ip, port in asked["places"]},
}, sys.stdout)
"""  # noqa: E501 - a program of its own


class Container(NamedTuple):
    """A container of ours on a node; ``name`` is that in its pod, "" for the sandbox."""

    node: str
    id: str
    uid: str
    name: str
    attempt: int
    running: bool
    started: str


class Picture(NamedTuple):
    """What was seen at one moment: objects of the API, and of each node what ``LOOK`` prints."""

    pods: list[JsonObject]
    addresses: list[JsonObject]
    services: list[JsonObject]
    slices: list[JsonObject]
    nodes: dict[str, JsonObject]


def look(cluster: LabCluster, node: str, services: Iterable[JsonObject] = ()) -> JsonObject:
    """Return what a node holds and what its services answer there.

    Raises:
        LabError: the node does not answer.
    """
    names = [f"{one['metadata']['name']}.{one['metadata']['namespace']}.svc.cluster.local" for one in services]
    places = [(ip, port["port"]) for one in services if (ip := _address(one)) for port in _tcp(one)]
    asked = json.dumps({"names": names, "places": places})
    found: JsonObject = json.loads(cluster.on(node, ["python3", "-c", LOOK], text=asked, timeout_s=120))
    return found


def containers(node: str, seen: JsonObject) -> list[Container]:
    """Return the containers in what a node told."""
    return [
        Container(
            node,
            one["id"],
            one["labels"].get(LABEL + "pod-uid", ""),
            "" if one["labels"].get(LABEL + "type") == "sandbox" else one["labels"].get(LABEL + "container", ""),
            int(one["labels"].get(LABEL + "attempt", -1)),
            one["state"] in {"running", "paused", "restarting"},
            one["started"],
        )
        for one in seen["containers"]
    ]


def picture(cluster: LabCluster) -> Picture:
    """Look at everything.

    Raises:
        CommandFailed: the API did not answer.
        LabError: a node did not answer.
    """
    listed = cluster.get("pods,services,endpointslices", "-A")["items"]
    kinds = {kind: [one for one in listed if one["kind"] == kind] for kind in ("Pod", "Service", "EndpointSlice")}
    addresses = cluster.get("podaddresses")["items"]
    nodes = {node: look(cluster, node, kinds["Service"]) for node in cluster.nodes}
    return Picture(kinds["Pod"], addresses, kinds["Service"], kinds["EndpointSlice"], nodes)


def doubled(found: Iterable[Container]) -> list[str]:
    """Return pods with containers on two nodes, and containers that run twice: never allowed, at no moment."""
    places: dict[str, set[str]] = {}
    alive: Counter[tuple[str, str]] = Counter()
    for one in found:
        places.setdefault(one.uid, set()).add(one.node)
        alive[one.uid, one.name] += one.running
    text = [
        f"pod {uid} has containers on {', '.join(sorted(nodes))}" for uid, nodes in places.items() if len(nodes) > 1
    ]
    return text + [
        f"{name or 'sandbox'} of pod {uid} runs {count} times" for (uid, name), count in alive.items() if count > 1
    ]


def compare(seen: Picture) -> list[str]:
    """Return what is wrong in a picture, as sentences; pure."""
    everything = [one for node, each in seen.nodes.items() for one in containers(node, each)]
    pods = {pod["metadata"]["uid"]: pod for pod in seen.pods}
    each = doubled(everything)
    each += [
        f"{one.node}: container {one.name} of pod {one.uid}, which does not exist"
        for one in everything
        if one.uid not in pods
    ]
    each += [
        f"{node}: directory of pod {uid}, which does not exist"
        for node, found in seen.nodes.items()
        for uid in found["folders"]
        if uid not in pods
    ]
    for pod in seen.pods:
        each += _of_pod(pod, everything)
    return each + _of_addresses(seen.addresses, pods) + _of_services(seen)


def _of_pod(pod: JsonObject, everything: Iterable[Container]) -> list[str]:
    metadata, spec = pod["metadata"], pod["spec"]
    name = f"pod {metadata['namespace']}/{metadata['name']} on {spec.get('nodeName')}"
    if metadata.get("deletionTimestamp"):
        return [f"{name} is still ending"]
    own = [one for one in everything if one.uid == metadata["uid"]]
    if pod["status"].get("phase") in OVER:
        return [f"{name} is over, and {one.name or 'its sandbox'} runs" for one in own if one.running]
    if not is_true(pod, "Ready"):
        return [f"{name} is not ready"]
    wanted = {"", *(one["name"] for one in spec["containers"])}
    alive = {one.name for one in own if one.running}
    listed = [f"{name} lacks {missing or 'its sandbox'}" for missing in sorted(wanted - alive)]
    return listed + [f"{name}: {one.id} is on {one.node}" for one in own if one.node != spec.get("nodeName")]


def _of_addresses(addresses: Iterable[JsonObject], pods: Mapping[str, JsonObject]) -> list[str]:
    owners = {one["spec"]["podUID"]: one["metadata"]["name"] for one in addresses}
    listed = [
        f"address {ip} is kept for pod {uid}, which does not exist" for uid, ip in owners.items() if uid not in pods
    ]
    for uid, pod in pods.items():
        ip = pod["status"].get("podIP", "")
        live = not pod["spec"].get("hostNetwork") and pod["status"].get("phase") not in OVER
        if live and owners.get(uid, "") != ip:
            listed.append(f"pod {pod['metadata']['name']} has {ip or 'no address'}, kept for it is {owners.get(uid)}")
    return listed


def _of_services(seen: Picture) -> list[str]:
    collected = []
    for one in seen.services:
        metadata, ip = one["metadata"], _address(one)
        name = f"{metadata['name']}.{metadata['namespace']}.svc.cluster.local"
        served = _has_endpoints(one, seen.slices)
        for node, found in seen.nodes.items():
            if ip and found["names"].get(name) != ip:
                collected.append(f"{node}: {name} is {found['names'].get(name)}, not {ip}")
            for port in _tcp(one) if ip and served else ():
                answer = found["answers"].get(f"{ip}:{port['port']}")
                if answer != "yes":
                    collected.append(f"{node}: service {name} port {port['port']}: {answer}")
    return collected


def _address(service: JsonObject) -> str:
    ip = str(service["spec"].get("clusterIP") or "")
    return "" if ip == "None" else ip


def _tcp(service: JsonObject) -> list[JsonObject]:
    return [port for port in service["spec"].get("ports") or [] if port.get("protocol", "TCP") == "TCP"]


def _has_endpoints(service: JsonObject, slices: Iterable[JsonObject]) -> bool:
    metadata = service["metadata"]
    return any(
        endpoint.get("conditions", {}).get("ready")
        for one in slices
        if one["metadata"]["namespace"] == metadata["namespace"]
        and one["metadata"].get("labels", {}).get("kubernetes.io/service-name") == metadata["name"]
        for endpoint in one.get("endpoints") or []
    )


def drift(cluster: LabCluster) -> list[str]:
    """Return what ``minik8s drift`` says differs on the nodes, none where all is as declared."""
    body = {"apiVersion": PLAN.api_version, "kind": PLAN.kind, "metadata": {"name": "plan"}, "spec": {"objects": []}}
    with contextlib.closing(cluster.client()) as client:
        status = client.create(PLAN, body).get("status", {})
    reported = drifting.render(status, Paint(), full=True)
    unrealized = any(part.get("faults") for part in status.get("nodes", {}).values())
    missing = set(cluster.nodes) - set(status.get("nodes") or {})
    return [reported] if drifting.differs(status) or unrealized or missing else []


def faults(cluster: LabCluster) -> list[str]:
    """Return what is wrong now, as sentences."""
    try:
        nodes = {node["metadata"]["name"]: node for node in cluster.get("nodes")["items"]}
        listed = [f"node {node} is not ready" for node in cluster.nodes if not is_true(nodes.get(node, {}), "Ready")]
        listed += [f"node {name} has taints" for name, node in nodes.items() if node["spec"].get("taints")]
        return listed or compare(picture(cluster)) or drift(cluster)
    except (CommandFailed, LabError, StatusError, TemporaryError) as error:
        return [str(error)]


def assert_whole(cluster: LabCluster, timeout_s: float = WHOLE_S) -> None:
    """Fail unless, within ``timeout_s``, nothing is wrong."""
    deadline = time.monotonic() + timeout_s
    while result := faults(cluster):
        assert time.monotonic() < deadline, "the cluster is not whole:\n" + "\n".join(result) + "\n" + cluster.report()
        time.sleep(0.5)
