"""What housekeeping reads and writes in a running shard (``housekeeping.World``), and its part of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.reconcile import eviction, pressure
from minik8s_modules.reconcile.eviction import Eviction
from minik8s_modules.reconcile.garbage import ContainerPolicy
from minik8s_modules.reconcile.housekeeping import Policies
from minik8s_modules.reconcile.image_gc import Image, ImagePolicy
from minik8s_modules.reconcile.observed import ObservedContainer
from minik8s_modules.reconcile.registration import Registrar
from minik8s_modules.reconcile.writer import StatusWriter
from minik8s_modules.runtime.events import EventRecorder

JsonObject = dict[str, Any]
_PERCENTS = range(101)


class Household(NamedTuple):
    """The parts of a shard that housekeeping uses."""

    ready: Callable[[], bool]
    containers: Callable[[str], list[ObservedContainer] | None]
    pods: Callable[[str], list[JsonObject]]
    node: Callable[[str], JsonObject | None]
    recorder: EventRecorder
    writer: StatusWriter
    registrar: Registrar
    static: Callable[[str, list[JsonObject]], None]
    keep_mirrors: Callable[[str], None]

    def tell(self, node: str, kind: str, reason: str, message: str) -> None:
        """Record an Event of the node."""
        found = self.node(node)
        if found is not None:
            self.recorder.event(found, "Warning" if kind == "Warning" else "Normal", reason, message)

    def evict(self, found: Eviction) -> None:
        """Fail the pod and say why."""
        self.writer.fail(objects.uid(found.pod), eviction.REASON, found.message)
        self.recorder.event(found.pod, "Warning", eviction.REASON, found.message)

    def pressed(self, node: str, found: frozenset[str]) -> None:
        """Write the node's conditions and taints, and tell what changed."""
        before = self.registrar.on_pressure(node, found)
        for name in sorted(found ^ before):
            kind = pressure.CONDITIONS[name]
            reason = (kind.bad if name in found else kind.good)[0].replace("Kubelet", "Node")
            self.tell(node, "Normal", reason, f"Node {node} status is now: {reason}")

    def images(self, node: str, images: list[Image]) -> None:
        """Write which images the node has."""
        self.registrar.on_images(node, images)


def read_policies(configuration: Configuration) -> Policies:
    """Return what ``housekeeping`` says; everything is off where it is left out.

    Raises:
        ConfigurationError: a value cannot be used.
    """
    if not configuration.has("housekeeping"):
        return Policies()
    given = configuration.mapping("housekeeping")
    limits = pressure.thresholds(_part(given, "eviction_hard", dict(pressure.KUBELETS)))
    kept = {str(name): str(amount) for name, amount in _part(given, "reserved", {}).items()}
    return Policies(
        containers=_container_policy(_part(given, "container_gc", {})),
        images=_image_policy(_part(given, "image_gc", {})),
        thresholds=limits,
        transition_s=_number(given, "eviction_transition_s", pressure.TRANSITION_S),
        reserved=pressure.reserved(kept, limits),
        manifests=str(given.get("manifests") or ""),
        manifests_every_s=_number(given, "manifests_every_s", 0.0),
    )


def _part(given: Mapping[str, Any], name: str, default: dict[str, Any]) -> dict[str, Any]:
    value = given.get(name, default)
    if not isinstance(value, dict):
        raise ConfigurationError(f"housekeeping.{name} must be a mapping, not {value!r}")
    return value


def _number(given: Mapping[str, Any], name: str, default: float) -> float:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(f"housekeeping: {name} must be a number, not {value!r}")
    return float(value)


def _container_policy(given: Mapping[str, Any]) -> ContainerPolicy:
    default = ContainerPolicy()
    return ContainerPolicy(
        _number(given, "min_age_s", default.min_age_s),
        int(_number(given, "max_per_container", default.max_per_container)),
        int(_number(given, "max_containers", default.max_containers)),
    )


def _image_policy(given: Mapping[str, Any]) -> ImagePolicy:
    default = ImagePolicy()
    high = int(_number(given, "high_percent", default.high_percent))
    low = int(_number(given, "low_percent", default.low_percent))
    if high not in _PERCENTS or low not in _PERCENTS or low > high:
        raise ConfigurationError(f"housekeeping.image_gc: 0 <= low_percent ({low}) <= high_percent ({high}) <= 100")
    return ImagePolicy(high, low, _number(given, "min_age_s", default.min_age_s))
