"""A node in memory that answers like the modules and the gateway: for tests of what stands above them.

``realize`` plays the modules of all sections with their contract (full, delta, base mismatch, fencing,
errors, due). ``tell`` receives the gateway's messages. ``effects_left`` kills the module before an effect,
as a fault test does to the real ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.core.digests import section_digest
from minik8s_modules.module_utils.minik8s.core.documents import apply_delta
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS

_ATTEMPTS_KEPT = 2


class Killed(Exception):
    """The module died before an effect."""


class FakeNode:
    """Thread-safe. ``now`` is the node's clock."""

    def __init__(self, name: str, images: list[str], now: Callable[[], datetime] | None = None) -> None:
        self.name = name
        self.images = images
        self.containers: dict[str, JsonObject] = {}
        self.documents: dict[str, dict[str, Any]] = {}
        self.tell: Callable[[JsonObject], None] = lambda _message: None
        self.token = [0, 0]
        self.errors: dict[str, JsonObject] = {}
        self.meddled: dict[str, list[JsonObject]] = {}
        """Steps by section that the next pass over their keys finds to do, or holds."""
        self.secret_blobs: list[str] = []
        addresses = {"internal_ip": "192.0.2.10", "internal_ipv6": "2001:db8::10"}
        self.facts: JsonObject = {"cpus": 2, "memory_bytes": 1 << 30, **addresses}
        self.effects_left: int | None = None
        self.stopped: list[tuple[str, int]] = []
        self.calls: list[tuple[str, str]] = []
        self.double_starts = 0
        self._now = now or (lambda: datetime.now(UTC))
        self._lock = threading.RLock()
        self._serial = 0

    # the modules

    def realize(self, _node: str, section: str, options: JsonObject, check: bool) -> JsonObject:  # noqa: FBT001
        """Play the module of ``section``."""
        with self._lock:
            self.calls.append((section, options.get("mode", "")))
            if section == "facts":
                return {"changed": False, "facts": dict(self.facts)}
            if section not in SECTIONS:  # housekeeping asks: there is nothing to count, to collect or to register
                return {"changed": False}
            token = options.get("token") or self.token
            if token < self.token:
                return self._result(section, fenced=True)
            self.token = token
            if "blob" in options:
                self.secret_blobs.append(options["blob"])
            before = self.documents.get(section, {})
            if options["mode"] == "full":
                declared, keys = dict(options["entries"]), None
            elif options["base"] != section_digest(before):
                return self._result(section, base_mismatch=True)
            else:
                declared = apply_delta(before, options["upsert"], options["delete"])
                keys = set(options["upsert"]) | set(options["delete"])
            found = [step for step in self.meddled.get(section, []) if keys is None or step["key"] in keys]
            held = [step for step in found if step["key"] in options.get("hold", ())]
            steps = [step for step in found if step not in held]
            if check:
                return self._checked(section, before, declared, steps, held)
            errors: dict[str, JsonObject] = {}
            due: list[JsonObject] = []
            if section in {"sandboxes", "containers"}:
                self._converge(section, declared, keys, errors, due)
            self.documents[section] = declared
            status = {key: self._status(section, key, declared.get(key)) for key in keys or declared}
            if section in self.meddled:
                self.meddled[section] = [step for step in self.meddled[section] if step not in steps]
            fields: JsonObject = {"steps": steps, "held": held}
            return self._result(section, declared=declared, status=status, errors=errors, due=due, **fields)

    def _checked(
        self, section: str, before: JsonObject, declared: JsonObject, meddled: list[JsonObject], held: list[JsonObject]
    ) -> JsonObject:
        changed = {key for key in {*before, *declared} if before.get(key) != declared.get(key)}
        found = {
            "before": {key: before.get(key) for key in sorted(changed)},
            "after": {key: declared.get(key) for key in sorted(changed)},
        }
        steps = [*({"action": "converge", "key": key, "detail": ""} for key in sorted(changed)), *meddled]
        return {
            **self._result(section, declared=declared, held=held),
            "changed": bool(steps),
            "differences": found,
            "steps": steps,
        }

    def _converge(
        self,
        section: str,
        declared: Mapping[str, Any],
        keys: set[str] | None,
        errors: JsonObject,
        due: list[JsonObject],
    ) -> None:
        present = {
            self._key(one) for one in self.containers.values() if (one["type"] == "sandbox") == (section == "sandboxes")
        }
        for key in sorted(present - set(declared)):
            if keys is None or key in keys:
                for one in self._of(key):
                    self._destroy(one)
        for key, entry in declared.items():
            if keys is not None and key not in keys:
                continue
            if key in self.errors:
                errors[key] = self.errors[key]
                continue
            self._one(section, key, entry, due)

    def _one(self, section: str, key: str, entry: JsonObject, due: list[JsonObject]) -> None:
        found = self._of(key)
        current = next((one for one in found if one["attempt"] == entry["attempt"]), None)
        if section == "sandboxes":
            self._sandbox(entry, found, current)
        elif entry.get("stop") is not None:
            self._stop(key, entry, current, due)
        elif entry["state"] == "running":
            self._container(key, entry, found, current)

    def _sandbox(self, entry: JsonObject, found: list[JsonObject], current: JsonObject | None) -> None:
        for one in found:
            if one is not current:
                self._destroy(one)
        current = current or self._create(entry, "sandbox", "", entry["image"])
        if current["state"] == "created":
            self._start(current, entry["ip"] or (entry.get("ipv6") or {}).get("ip", ""))

    def _stop(self, key: str, entry: JsonObject, current: JsonObject | None, due: list[JsonObject]) -> None:
        if current is None or current["state"] != "running":
            return
        asked = (current["id"], entry["stop"]["grace_s"])
        if asked not in self.stopped:
            self._effect()
            self.stopped.append(asked)
        due.append({"key": key, "after_s": entry["stop"]["grace_s"], "reason": "GracePeriod"})

    def _container(self, key: str, entry: JsonObject, found: list[JsonObject], current: JsonObject | None) -> None:
        for one in found:
            if one["attempt"] < entry["attempt"] and one["state"] == "running":
                self.die(one["id"], 137)
        current = current or self._create(entry, entry["type"], entry["name"], entry["image"])
        if current["state"] == "created":
            self._start(current)
        for one in self._of(key)[:-_ATTEMPTS_KEPT]:
            self._destroy(one)

    def _effect(self) -> None:
        if self.effects_left is not None:
            if self.effects_left <= 0:
                raise Killed("killed")
            self.effects_left -= 1

    def _create(self, entry: JsonObject, kind: str, name: str, image: str) -> JsonObject:
        self._effect()
        self._serial += 1
        made = {
            "id": f"{self.name}-{name or 'pause'}-{self._serial}",
            "name": f"mk8s_{name}",
            "type": kind,
            "pod_uid": entry["pod"]["uid"],
            "pod_name": entry["pod"]["name"],
            "pod_namespace": entry["pod"]["namespace"],
            "container": name,
            "attempt": entry["attempt"],
            "state": "created",
            "exit_code": 0,
            "oom_killed": False,
            "error": "",
            "created_at": self._time(),
            "started_at": "",
            "finished_at": "",
            "image": image,
            "image_id": "sha256:" + "1" * 64,
            "ip": "",
        }
        self.containers[made["id"]] = made
        self._event("create", made)
        return made

    def _start(self, one: JsonObject, ip: str = "") -> None:
        self._effect()
        key = self._key(one)
        if any(other["state"] == "running" for other in self._of(key) if one["type"] != "sandbox"):
            self.double_starts += 1
        one |= {"state": "running", "started_at": self._time(), "ip": ip}
        self._event("start", one)

    def _destroy(self, one: JsonObject) -> None:
        self._effect()
        self.containers.pop(one["id"], None)
        self.tell({"op": "event", "node": self.name, "action": "destroy", "id": one["id"], "container": None})

    # what happens on the node by itself

    def die(self, container_id: str, exit_code: int, **more: Any) -> None:
        """End a container."""
        with self._lock:
            one = self.containers[container_id]
            one |= {"state": "exited", "exit_code": exit_code, "finished_at": self._time(), **more}
            self._event("die", one)

    def destroy(self, container_id: str) -> None:
        """Remove a container, as a person with ``docker rm -f`` does."""
        with self._lock:
            self._destroy(self.containers[container_id])

    def event(self, action: str, one: JsonObject) -> None:
        """Tell that something was done to a container."""
        with self._lock:
            self._event(action, one)

    def find(self, container: str, uid: str = "") -> JsonObject:
        """Return the newest attempt of a container; "" is the sandbox."""
        found = [
            one for one in self.containers.values() if one["container"] == container and uid in {"", one["pod_uid"]}
        ]
        return max(found, key=lambda one: int(one["attempt"]))

    def running(self, uid: str = "") -> dict[str, int]:
        """Return the attempt of every running container, the sandbox under ""."""
        return {
            one["container"]: one["attempt"]
            for one in [*self.containers.values()]
            if one["state"] == "running" and uid in {"", one["pod_uid"]}
        }

    def state(self) -> JsonObject:
        """Return the gateway's ``state`` message."""
        with self._lock:
            containers = [dict(one) for one in self.containers.values()]
            return {"op": "state", "node": self.name, "containers": containers, "images": [*self.images]}

    def _event(self, action: str, one: JsonObject) -> None:
        self.tell({"op": "event", "node": self.name, "action": action, "id": one["id"], "container": dict(one)})

    def _time(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _key(self, one: JsonObject) -> str:
        return one["pod_uid"] if one["type"] == "sandbox" else f"{one['pod_uid']}/{one['container']}"

    def _of(self, key: str) -> list[JsonObject]:
        found = [one for one in self.containers.values() if self._key(one) == key]
        return sorted(found, key=lambda one: int(one["attempt"]))

    def _status(self, section: str, key: str, entry: JsonObject | None) -> JsonObject | None:
        if section not in {"sandboxes", "containers"}:
            return {}
        found = self._of(key) if entry is not None else []
        exact = [one for one in found if entry is not None and one["attempt"] == entry["attempt"]]
        return dict((exact or found)[-1]) if found else None

    def _result(self, section: str, declared: JsonObject | None = None, **more: Any) -> JsonObject:
        return {
            "changed": True,
            "diff": {"before": "", "after": ""},
            "differences": {"before": {}, "after": {}},
            "section": section,
            "digest": section_digest(declared or {}),
            "steps": [],
            "status": {},
            "errors": {},
            "due": [],
            "held": [],
            "base_mismatch": False,
            "fenced": False,
            **more,
        }
