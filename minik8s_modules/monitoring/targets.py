"""Whom Prometheus scrapes, decided of one node or Pod: the content of its file for ``file_sd``. Pure.

A node's file has the form of the original MiniK8s: ``<address>:8090``, cAdvisor's port there. Nothing listens at it
here: the role's configuration puts the kubelet's port in its place, which leads to the API servers
(apiserver/nodes/kubelet_hosts.py). The node's name is that of the file.

A Pod is scraped for the original's labels ``monitor: prometheus`` and ``monitorPort``, or for the annotations
``prometheus.io/scrape``, ``prometheus.io/port``, ``prometheus.io/path`` and ``prometheus.io/scheme``, as long as it
has an address and has not ended. What somebody wrote there is a port, a path and one of two schemes, or is left out.

The Envoys of Pods with a sidecar and of Gateways tell statistics of the Services that they call, at a port of theirs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.network.gateway_api import GATEWAY_NAME
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sidecar_images import has_envoy, has_sidecar
from minik8s_modules.base.places import place

CADVISOR_PORT = 8090
ENVOY_PORT = 15090
"""Of roles/envoy/files/bootstrap.yaml."""
_LARGEST_PORT = 65535
_LONGEST_PATH = 1024
_SCHEMES = frozenset({"http", "https"})
_ENDED = frozenset({"Succeeded", "Failed"})
_PREFIX = "prometheus.io/"
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Decision(NamedTuple):
    """The content of a file, "" for no file, and why something that asks to be scraped is not."""

    content: str
    problem: str = ""


class _Asked(NamedTuple):
    port: str
    path: str = ""
    scheme: str = ""


def decide_node(node: JsonObject) -> Decision:
    """Return the file of a node: exactly the original's, without a last line break."""
    found = objects.status(node).get("addresses") or []
    addresses = {each.get("type"): str(each.get("address") or "") for each in reversed(found)}
    address = addresses.get("InternalIP", "")
    measured = address and not is_virtual(node)  # no cAdvisor is on a virtual one
    return Decision(_file([{"targets": [place(address, CADVISOR_PORT)]}]) if measured else "")


def decide_pod(pod: JsonObject) -> Decision:
    """Return the file of a Pod: an entry for the labels and one for the annotations, where they name two ports."""
    status = objects.status(pod)
    address, asked = str(status.get("podIP") or ""), [*_by_labels(pod), *_by_annotations(pod)]
    if not asked or not address or status.get("phase") in _ENDED:
        return Decision("")
    labels = {"namespace": objects.namespace(pod), "pod": objects.name(pod)}
    node = str(objects.spec(pod).get("nodeName") or "")
    entries: list[JsonObject] = []
    problems = []
    for each in asked:
        problem = _problem(each)
        if problem:
            problems.append(problem)
            continue
        own = {"__metrics_path__": each.path, "__scheme__": each.scheme, "node": node}
        entry = {
            "targets": [place(address, int(each.port))],
            "labels": labels | {name: value for name, value in own.items() if value},
        }
        if entry not in entries:
            entries.append(entry)
    return Decision(_file(entries) if entries else "", "; ".join(problems))


def decide_envoy(pod: JsonObject) -> Decision:
    """Return the file of a Pod whose Envoy tells statistics: its sidecar, or the Pod is of a Gateway, named then."""
    status, gateway = objects.status(pod), objects.labels(pod).get(GATEWAY_NAME, "")
    address, told = str(status.get("podIP") or ""), has_sidecar(objects.spec(pod))
    if not told and not (gateway and has_envoy(objects.spec(pod))):
        return Decision("")
    if objects.spec(pod).get("hostNetwork") or not address or status.get("phase") in _ENDED:
        return Decision("")
    labels = {"namespace": objects.namespace(pod), "pod": objects.name(pod)}
    if not told:
        labels["gateway"] = gateway
    return Decision(_file([{"targets": [place(address, ENVOY_PORT)], "labels": labels}]))


def _by_labels(pod: JsonObject) -> list[_Asked]:
    labels = objects.labels(pod)
    port = labels.get("monitorPort", "")
    return [_Asked(port)] if labels.get("monitor") == "prometheus" and port else []


def _by_annotations(pod: JsonObject) -> list[_Asked]:
    notes = objects.annotations(pod)
    if notes.get(f"{_PREFIX}scrape") != "true":
        return []
    port = notes.get(f"{_PREFIX}port") or _first_port(pod)
    return [_Asked(port, notes.get(f"{_PREFIX}path", ""), notes.get(f"{_PREFIX}scheme", ""))]


def _first_port(pod: JsonObject) -> str:
    for container in objects.spec(pod).get("containers") or []:
        for port in container.get("ports") or []:
            if port.get("protocol", "TCP") == "TCP" and port.get("containerPort"):
                return str(port["containerPort"])
    return ""


def _problem(asked: _Asked) -> str:
    if not asked.port:
        return "no port to scrape: set the annotation prometheus.io/port, or a containerPort"
    if not _is_port(asked.port):
        return f"port {asked.port[:80]!r} to scrape is not a number from 1 to {_LARGEST_PORT}"
    if asked.path and not (
        asked.path.startswith("/") and asked.path.isprintable() and len(asked.path) <= _LONGEST_PATH
    ):
        return f"prometheus.io/path {asked.path[:80]!r} is not a path that begins with /"
    if asked.scheme and asked.scheme not in _SCHEMES:
        return f"prometheus.io/scheme {asked.scheme[:80]!r} is neither http nor https"
    return ""


def _is_port(text: str) -> bool:
    few = len(text) <= len(str(_LARGEST_PORT))
    return few and text.isascii() and text.isdecimal() and 0 < int(text) <= _LARGEST_PORT


def _file(entries: list[JsonObject]) -> str:
    text: Any = yaml.dump(entries, Dumper=_DUMPER, default_flow_style=False, sort_keys=False, allow_unicode=True)
    return str(text).removesuffix("\n")
