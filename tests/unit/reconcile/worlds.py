"""Builders of the values reconcile decides about, from the short words of the case files.

Times in cases are seconds after ``T0``. ``observations`` takes ``{"sandbox": 0, "state": "running", "created": 1}`` and
``{"container": "app", "attempt": 0, "state": "exited", "created": 1, "started": 1, "finished": 9, "exit_code": 1}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.module_utils.minik8s.pods.devices import parse
from minik8s_modules.reconcile.pods.observed import ObservedContainer, ObservedPod, group
from minik8s_modules.reconcile.values.node_file import Declared
from minik8s_modules.reconcile.values.values import CheckResult, PodInputs, PullState, Settings, TokenNeed, Tokens

T0 = datetime(2026, 1, 1, tzinfo=UTC)
UID = "11111111-2222-4333-8444-555555555555"
IMAGE = "minik8s/busybox:1"
PAUSE = "minik8s/pause:1"
SETTINGS = Settings(hmac_key=b"test key")
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "uid": "node-uid"},
    "spec": {"podCIDR": "10.244.0.0/24"},
    "status": {
        "addresses": [{"type": "InternalIP", "address": "192.0.2.10"}],
        "allocatable": {"cpu": "2", "memory": "4Gi", "hugepages-2Mi": "64Mi"},
    },
}


def at(seconds: float | None) -> datetime | None:
    """Return T0 and so many seconds, None for None."""
    return None if seconds is None else T0 + timedelta(seconds=seconds)


def pod(
    spec: JsonObject | None = None, metadata: JsonObject | None = None, status: JsonObject | None = None
) -> JsonObject:
    """Return a bound pod named web in namespace default."""
    containers = [{"name": "app", "image": IMAGE}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web",
            "namespace": "default",
            "uid": UID,
            "creationTimestamp": rfc3339(T0),
            **(metadata or {}),
        },
        "spec": {"restartPolicy": "Always", "nodeName": "n1", "containers": containers, **(spec or {})},
        "status": status or {"phase": "Pending"},
    }


def observed_container(short: Mapping[str, Any], uid: str = UID) -> ObservedContainer:
    """Return the observation a case wrote down."""
    sandbox = "sandbox" in short
    name = "" if sandbox else short["container"]
    attempt = short["sandbox"] if sandbox else short.get("attempt", 0)
    state = short.get("state", "running")
    created = short.get("created", 1)
    started = short.get("started", None if state == "created" else created)
    return ObservedContainer(
        id=short.get("id", f"{name or 'pause'}-{attempt}"),
        type="sandbox" if sandbox else short.get("type", "app"),
        pod_uid=uid,
        pod_name="web",
        pod_namespace="default",
        container=name,
        attempt=attempt,
        state=state,
        exit_code=short.get("exit_code", 0),
        oom_killed=short.get("oom_killed", False),
        error=short.get("error", ""),
        created_at=at(created),
        started_at=at(started),
        finished_at=at(short.get("finished")),
        image=short.get("image", "minik8s/pause:1" if sandbox else IMAGE),
        image_id="sha256:" + "0" * 64,
        ip="10.244.0.2" if sandbox and state == "running" else "",
        message=short.get("message"),
    )


def observations(shorts: Iterable[Mapping[str, Any]]) -> ObservedPod:
    """Return one pod's observations."""
    return group(observed_container(short) for short in shorts)


def _declared(short: Mapping[str, Any]) -> dict[str, Declared]:
    return {"n1": Declared(devices=parse(short["devices"], "devices"))} if "devices" in short else {}


def inputs(short: Mapping[str, Any]) -> PodInputs:
    """Return the inputs a case wrote down; the images are there and the address is claimed unless it says otherwise."""
    pulls = {
        image: PullState(
            active=state.get("active", False),
            failures=state.get("failures", 0),
            finished_at=at(state.get("finished")),
            reason=state.get("reason", ""),
            message=state.get("message", ""),
        )
        for image, state in short.get("pulls", {}).items()
    }
    return PodInputs(
        node=short.get("node", NODE),
        configmaps={f"default/{name}": body for name, body in short.get("configmaps", {}).items()},
        secrets={f"default/{name}": body for name, body in short.get("secrets", {}).items()},
        images=frozenset(short.get("images", [IMAGE])) | set(short.get("pause", [PAUSE])),
        pulls=pulls,
        address=short.get("address", "10.244.0.2"),
        errors=short.get("errors", {}),
        settings=SETTINGS._replace(declared=_declared(short), **short.get("settings", {})),
        address_error=short.get("address_error", ""),
        checks={name: CheckResult(**known) for name, known in short.get("checks", {}).items()},
        tokens=Tokens(
            {TokenNeed(audience, s): token.encode() for audience, s, token in short.get("tokens", [])},
            {TokenNeed(audience, s): why for audience, s, why in short.get("token_errors", [])},
        ),
        links=short.get("links", {}),
        beside=short.get("beside"),
        claims={f"default/{name}": body for name, body in short.get("claims", {}).items()},
        volumes=short.get("volumes", {}),
        drivers=short.get("drivers", {}),
        attachments=short.get("attachments", {}),
        neighbours=tuple(short.get("neighbours", ())),
        unenforced=short.get("unenforced", ""),
        confirmed={f"{UID}/{name}": entry for name, entry in short.get("confirmed", {}).items()},
    )


def mismatch(wanted: Any, actual: Any, where: str = "") -> str:
    """Return where ``actual`` lacks what ``wanted`` has, "" when it has all; maps are compared by the wanted keys."""
    if isinstance(wanted, Mapping) and isinstance(actual, Mapping):
        found = (mismatch(value, actual.get(key), f"{where}.{key}") for key, value in wanted.items())
        return next((text for text in found if text), "")
    return "" if wanted == actual else f"{where}: wanted {wanted!r}, got {actual!r}"
