"""What the administrator says of launchers: the section ``launcher`` of the extension's configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects, quantities
from minik8s_modules.api.nodes.node_affinity import matches_node
from minik8s_modules.api.nodes.taints import tolerates, untolerated
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import ConfigurationError

TUN, KVM = "devices.kubevirt.io/tun", "devices.kubevirt.io/kvm"
KNOWN_DEVICES = (TUN, KVM)
_CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_KEEPING_AWAY = frozenset({"NoSchedule", "NoExecute"})


class Settings(NamedTuple):
    """``devices`` are counted devices that all launchers ask for; without ``TUN`` they mount the node's by its path.

    ``use_emulation`` (KubeVirt's word): a PC without ``/dev/kvm`` is emulated, some ten times slower. It gets the
    device where a node that it may run on counts it. False: it always asks for it, and waits for a node that has it.
    """

    image: str = "minik8s/virt-launcher:1"
    image_pull_policy: str = "IfNotPresent"
    devices: tuple[str, ...] = ()
    overhead: str = "0"
    """Memory of each launcher beyond the formula's."""
    use_emulation: bool = True

    def on_nodes(self, vmi: JsonObject, nodes: Iterable[JsonObject]) -> Settings:
        """Return the settings for a machine, which asks for the processor's virtualization where it can have it."""
        if KVM in self.devices or (self.use_emulation and not any(_has_kvm(vmi, node) for node in nodes)):
            return self
        return self._replace(devices=(*self.devices, KVM))

    @classmethod
    def from_mapping(cls, found: Mapping[str, Any]) -> Settings:
        """Return the settings.

        Raises:
            ConfigurationError: one is not known, or a device is none that launchers use.
        """
        names = {"image": "image", "imagePullPolicy": "image_pull_policy", "devices": "devices",
                 "overhead": "overhead", "useEmulation": "use_emulation"}  # fmt: skip
        unknown = sorted(set(found) - set(names))
        if unknown:
            raise ConfigurationError(f"launcher.{unknown[0]} is not known; there are {', '.join(names)}")
        devices = tuple(found.get("devices") or ())
        if strange := [one for one in devices if one not in KNOWN_DEVICES]:
            known = ", ".join(KNOWN_DEVICES)
            raise ConfigurationError(f"launcher.devices: {strange[0]} is not used; there are {known}")
        if not isinstance(found.get("useEmulation", True), bool):
            raise ConfigurationError(f"launcher.useEmulation must be true or false, not {found['useEmulation']!r}")
        return cls(**{names[name]: value for name, value in found.items()} | {"devices": devices})


def _has_kvm(vmi: JsonObject, node: JsonObject) -> bool:
    """Return whether a node counts the processor's virtualization, and is one that the machine may be placed on."""
    amount = (objects.status(node).get("allocatable") or {}).get(KVM) or 0
    pod = {"spec": objects.spec(vmi)}
    return quantities.parse(amount) > 0 and matches_node(pod, node) and _is_open(pod, node)


def _is_open(pod: JsonObject, node: JsonObject) -> bool:
    """Return whether neither a cordon nor a taint keeps the pod away: it would wait for what it can do without."""
    is_cordoned = bool(objects.spec(node).get("unschedulable")) and not tolerates(pod, _CORDONED)
    return not is_cordoned and not untolerated(pod, node, _KEEPING_AWAY)
