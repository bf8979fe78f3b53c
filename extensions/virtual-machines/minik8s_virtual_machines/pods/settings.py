"""What the administrator says of launchers: the section ``launcher`` of the extension's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from minik8s_modules.base.errors import ConfigurationError

TUN, KVM = "devices.kubevirt.io/tun", "devices.kubevirt.io/kvm"
KNOWN_DEVICES = (TUN, KVM)


class Settings(NamedTuple):
    """``devices`` are the counted devices that launchers ask for; without ``TUN`` they mount the node's by its path."""

    image: str = "minik8s/virt-launcher:1"
    image_pull_policy: str = "IfNotPresent"
    devices: tuple[str, ...] = ()
    overhead: str = "0"
    """Memory of each launcher beyond the formula's."""

    @classmethod
    def from_mapping(cls, found: Mapping[str, Any]) -> Settings:
        """Return the settings.

        Raises:
            ConfigurationError: one is not known, or a device is none that launchers use.
        """
        names = {"image": "image", "imagePullPolicy": "image_pull_policy", "devices": "devices",
                 "overhead": "overhead"}  # fmt: skip
        unknown = sorted(set(found) - set(names))
        if unknown:
            raise ConfigurationError(f"launcher.{unknown[0]} is not known; there are {', '.join(names)}")
        devices = tuple(found.get("devices") or ())
        if strange := [one for one in devices if one not in KNOWN_DEVICES]:
            known = ", ".join(KNOWN_DEVICES)
            raise ConfigurationError(f"launcher.devices: {strange[0]} is not used; there are {known}")
        return cls(**{names[name]: value for name, value in found.items()} | {"devices": devices})
