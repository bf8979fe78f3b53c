"""Registers CSI drivers: asks a node whose Pods have registrars which drivers they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minik8s_modules.api import objects, syntax
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.module_utils.minik8s.core.paths import KUBELET, PLUGINS_REGISTRY
from minik8s_modules.reconcile.housekeeping.job import Job, World

LOOK_S, EVERY_S = 5.0, 60.0
_RETRY = Backoff(initial_s=LOOK_S, maximum_s=EVERY_S)
_ABOVE = frozenset({PLUGINS_REGISTRY, KUBELET})


class DriverRegistration(Job):
    """Asks when containers of registrars come and go, and every minute; nodes without any are never asked.

    A registrar that does not answer is asked again after 5 s, and then ever less often.
    """

    section = "plugins"

    def __init__(self, node: str, world: World) -> None:
        super().__init__()
        self._node = node
        self._world = world
        self._asked: frozenset[str] = frozenset()
        self._again_s, self._failed = 0.0, 0
        self._known: frozenset[str] | None = None
        """Drivers whose registrars were told; None until the node was asked once."""
        self._last_message = ""

    def begin(self, now_s: float) -> JsonObject | None:
        """Ask for the drivers, if they may be others than before."""
        self.due_s = now_s + LOOK_S
        pods = {objects.uid(pod) for pod in self._world.pods(self._node) if registers(pod)}
        containers = self._world.containers(self._node)
        if containers is None:
            return None
        if not pods and not self._known:
            if self._known is None:
                self._known = frozenset()
                self._world.drivers(self._node, {})
            return None
        running = frozenset(one.id for one in containers if one.pod_uid in pods and one.alive)
        if running == self._asked and now_s < self._again_s:
            return None
        fresh = running == self._asked
        self._failed = self._failed if fresh else 0
        self._asked = running
        return {"known": sorted(self._known or ()) if fresh else []}

    def end(self, result: Mapping[str, Any], now_s: float) -> None:
        """Take over what the drivers say of the node; one that does not answer is an Event, once."""
        drivers = {str(name): said for name, said in (result.get("drivers") or {}).items() if isinstance(said, dict)}
        errors = {str(name): str(why) for name, why in (result.get("errors") or {}).items()}
        for name, why in [(name, why) for name, said in drivers.items() if (why := _fault(name, said))]:
            errors[name] = why
            del drivers[name]  # the others are registered all the same
        self._known = frozenset(drivers)
        self._failed = self._failed + 1 if errors or not drivers else 0
        # what drivers that died leave behind fails for ever, as do Pods that look there and are no registrars
        self._again_s = now_s + (_RETRY.delay_s(self._failed) if self._failed else EVERY_S)
        message = "; ".join(f"{name}: {why}" for name, why in sorted(errors.items()))
        if message and message != self._last_message:
            self._world.tell(
                self._node, "Warning", "FailedDriverRegistration", f"CSI drivers in {PLUGINS_REGISTRY}: {message}"
            )
        self._last_message = message
        self._world.drivers(self._node, drivers)


def registers(pod: JsonObject) -> bool:
    """Return whether the Pod can put a socket where registrars do."""
    paths = (str(objects.dig(one, "hostPath", "path") or "") for one in objects.spec(pod).get("volumes") or [])
    return any(path.rstrip("/") in _ABOVE or path.startswith(f"{PLUGINS_REGISTRY}/") for path in paths)


def _fault(name: str, said: Mapping[str, Any]) -> str:
    """Return why the API would refuse what a driver says, and with it what all others of the node say; "" if not."""
    # with the validation of all kinds, 4 MB: for nodes that have CSI drivers
    from minik8s_modules.api.validation.csi import validate_node  # noqa: PLC0415

    topology = said.get("topology") or {}
    row = {"name": name, "nodeID": str(said.get("node_id") or ""), "topologyKeys": sorted(topology)}
    causes = [f"{cause.field}: {cause.message}" for cause in validate_node({"spec": {"drivers": [row]}})]
    for key, value in sorted(topology.items()):
        causes += [f"topology {key}: {why}" for why in syntax.label_value(str(value))]
    return "; ".join(causes)
