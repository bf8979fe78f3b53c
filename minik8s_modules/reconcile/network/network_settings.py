"""How pods reach each other, from the part ``network`` of ``reconciler.yml``: which driver, and what it is told.

``bridge`` leaves other nodes' pods to routes of one's own, ``vxlan`` makes tunnels, ``cni`` and ``weave`` leave each
pod's network to somebody else's program.
"""

from __future__ import annotations

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.module_utils.minik8s.network.network import LEAST_MTU
from minik8s_modules.module_utils.minik8s.network.network_ipv6 import LEAST_MTU as LEAST_MTU_IPV6
from minik8s_modules.module_utils.minik8s.network.network_vxlan import HEADERS, HEADERS_IPV6
from minik8s_modules.reconcile.values.values import OverlaySettings, PluginSettings, Settings

DRIVERS = ("bridge", "vxlan", "cni", "weave")
UNDERLAYS = ("ipv4", "ipv6")
OVERLAY_DEVICE = "mk8s-vx0"
CONF_DIR = "/etc/cni/net.d"
BIN_DIRS = ("/opt/cni/bin", "/usr/lib/cni")
"""Where the reference plugins' own release and Debian's package put them."""


def network_settings(configuration: Configuration, settings: Settings) -> Settings:
    """Return ``settings`` with what the configuration says about pods' network.

    Raises:
        ConfigurationError: a key cannot be used.
    """
    driver = configuration.text("network.driver", "bridge")
    if driver not in DRIVERS:
        raise ConfigurationError(f"network.driver must be one of {', '.join(DRIVERS)}, not {driver!r}")
    declared = _overlay(configuration)  # looked at whatever the driver: what is wrong is told at once
    if declared.ipv6 and driver != "vxlan":
        raise ConfigurationError(f"network.underlay ipv6 is for the driver vxlan: {driver} makes no tunnels of ours")
    overlay = declared if driver == "vxlan" else OverlaySettings()
    plugin = _plugin(configuration, driver)
    required = configuration.flag("network.policies_required", default=True)
    mtu = _mtu(configuration, overlay)
    if settings.dual_stack and plugin.driver:
        raise ConfigurationError(
            f"{_named(settings)} is for the drivers bridge and vxlan: {driver} gives Pods addresses"
        )
    if settings.dual_stack and mtu < LEAST_MTU_IPV6:
        raise ConfigurationError(f"network.mtu is {mtu}: with {_named(settings)} it must be {LEAST_MTU_IPV6} or more")
    if settings.dual_stack.alone and overlay.direct:
        raise ConfigurationError(f"network.direct has no next hop of IPv6: with {_named(settings)} it must be false")
    return settings._replace(overlay=overlay, plugin=plugin, mtu=mtu, policies_required=required)


def _named(settings: Settings) -> str:
    """Return the key that gives Pods IPv6 addresses."""
    return "cluster_cidr of IPv6" if settings.dual_stack.alone else "cluster_cidr_ipv6"


def _overlay(configuration: Configuration) -> OverlaySettings:
    known = OverlaySettings()
    vni, port = configuration.number("network.vni", known.vni), configuration.number("network.port", known.port)
    direct = configuration.flag("network.direct", default=False)
    if not (0 < vni < 1 << 24 and 0 < port < 1 << 16):
        raise ConfigurationError(f"network.vni must be from 1 to 16777215, port from 1 to 65535, not {vni} and {port}")
    underlay = configuration.text("network.underlay", "ipv4")
    if underlay not in UNDERLAYS:
        raise ConfigurationError(f"network.underlay must be one of {', '.join(UNDERLAYS)}, not {underlay!r}")
    if underlay == "ipv6" and direct:
        raise ConfigurationError("network.direct is for tunnels over IPv4: with network.underlay ipv6 it must be false")
    device = configuration.text("network.device", OVERLAY_DEVICE)
    return OverlaySettings(device, vni, port, direct, underlay == "ipv6")


def _plugin(configuration: Configuration, driver: str) -> PluginSettings:
    folder = configuration.text("network.conf_dir", CONF_DIR)
    folders = tuple(configuration.texts("network.bin_dirs", list(BIN_DIRS)))
    for path in (folder, *folders):
        if not path.startswith("/") or ":" in path:
            raise ConfigurationError(
                f"network.conf_dir and bin_dirs must be absolute paths without a colon, not {path!r}"
            )
    command = configuration.text("network.command", "weave")
    if driver == "cni":
        return PluginSettings("cni", conf_dir=folder, bin_dirs=folders)
    return PluginSettings("weave", command=command) if driver == "weave" else PluginSettings()


def _mtu(configuration: Configuration, overlay: OverlaySettings) -> int:
    """Return the pods' mtu; 0 or left out is that of Ethernet, less what a tunnel takes."""
    mtu = configuration.number("network.mtu", 0)
    if mtu and not LEAST_MTU <= mtu < 1 << 16:
        raise ConfigurationError(f"network.mtu must be from {LEAST_MTU} to 65535, or 0, not {mtu}")
    headers = HEADERS_IPV6 if overlay.ipv6 else HEADERS
    return mtu or Settings().mtu - (headers if overlay.device else 0)
