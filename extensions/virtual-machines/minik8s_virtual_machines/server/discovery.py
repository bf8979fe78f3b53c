"""What the API group says of itself: its resources, its version, its health."""

from __future__ import annotations

import platform
import sys
from http import HTTPStatus

from minik8s_modules.api.objects import JsonObject
from minik8s_virtual_machines import KUBEVIRT_VERSION, __version__
from minik8s_virtual_machines.api.kinds import SUBRESOURCES, VERSION, VM, VMI
from minik8s_virtual_machines.server.asked import ROOT, Answer, as_json

_OF_MACHINES = ("start", "stop", "restart", "migrate", "expand-spec", "portforward")
_OF_INSTANCES = (
    "pause", "unpause", "softreboot", "freeze", "unfreeze", "console", "vnc", "vnc/screenshot", "portforward",
    "guestosinfo", "filesystemlist", "userlist",
)  # fmt: skip


def resources() -> JsonObject:
    """Return the list of resources; subresources have no verbs there, as with KubeVirt."""
    names = [f"{VM.plural}/{each}" for each in _OF_MACHINES] + [f"{VMI.plural}/{each}" for each in _OF_INSTANCES]
    found = [{"name": each, "singularName": "", "namespaced": True, "kind": "", "verbs": []} for each in names]
    whole = {"name": "expand-vm-spec", "singularName": "", "namespaced": True, "kind": "", "verbs": []}
    return {
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{SUBRESOURCES}/{VERSION}",
        "resources": [*found, whole],
    }  # fmt: skip


def version() -> JsonObject:
    """Return the version: whose API this is, and what serves it."""
    return {
        "gitVersion": KUBEVIRT_VERSION,
        "gitCommit": f"minik8s-virtual-machines-{__version__}",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": f"python{platform.python_version()}",
        "compiler": sys.implementation.name,
        "platform": f"{sys.platform}/amd64",
    }


def document(path: str) -> Answer | None:
    """Return what stands at a path that is of no namespace, None where nothing does."""
    whole = f"{SUBRESOURCES}/{VERSION}"
    preferred = {"groupVersion": whole, "version": VERSION}
    group = {
        "kind": "APIGroup", "apiVersion": "v1", "name": SUBRESOURCES, "versions": [preferred],
        "preferredVersion": preferred,
    }  # fmt: skip
    if path in {"/healthz", "/readyz", "/livez"}:
        return Answer(HTTPStatus.OK, b"ok", "text/plain")
    found = {
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]},
        f"/apis/{SUBRESOURCES}": group,
        ROOT: resources(),
        f"{ROOT}/version": version(),
        f"{ROOT}/healthz": {"apiserver": {"connectivity": "ok"}},
    }.get(path.rstrip("/"))
    return as_json(found) if found is not None else None
