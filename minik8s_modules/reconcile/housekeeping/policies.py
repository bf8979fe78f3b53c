"""What housekeeping is to keep to: the part ``housekeeping`` of reconciler.yml, read and checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.reconcile.housekeeping import pressure
from minik8s_modules.reconcile.housekeeping.garbage import ContainerPolicy
from minik8s_modules.reconcile.housekeeping.image_gc import ImagePolicy
from minik8s_modules.reconcile.housekeeping.pressure import Threshold

_PERCENTS = range(101)


class Policies(NamedTuple):
    """What the configuration's ``housekeeping`` says; None where a part is off."""

    containers: ContainerPolicy | None = None
    images: ImagePolicy | None = None
    thresholds: tuple[Threshold, ...] = ()
    transition_s: float = pressure.TRANSITION_S
    reserved: Mapping[str, str] = {}
    manifests: str = ""
    manifests_every_s: float = 0.0
    """kubelet's fileCheckFrequency; 0: whenever nodes are observed."""


NO_POLICIES = Policies()


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
