"""The values decisions are made from and made of: a pod's inputs in, its decision out.

Nothing here acts. ``desired.py`` turns ``PodInputs`` into ``PodDecision`` values and those into a document,
``status.py`` turns a decision and what was observed into the pod's status, ``loop.py`` carries both out.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from minik8s_modules.api.network.balancing import Balancing
from minik8s_modules.api.network.cluster_names import CLUSTER_DOMAIN
from minik8s_modules.api.network.dual_stack import SINGLE_STACK, DualStack
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.inventory import Hosts
from minik8s_modules.module_utils.minik8s.entries.network import Peer
from minik8s_modules.module_utils.minik8s.entries.sandboxes import CniPlugin, WeavePlugin
from minik8s_modules.reconcile.values.node_file import Declared, with_devices

Entry = Mapping[str, Any]
"""An entry of any section; what each may hold: ``module_utils/minik8s/entries``."""
Entries = Mapping[str, Entry]
NodeDocument = Mapping[str, Entries]
"""``{section: {key: entry}}``, the sections of ``items.SECTIONS``."""


# Room for a JVM with thousands of threads (CRI-O's former 1,024 were too few for those), and an eighth of the processes
# that a kernel has by default (pid_max 32,768): one pod that forks without end takes none from the others.
POD_PIDS_LIMIT = 4096


class DnsSettings(NamedTuple):
    """How nodes serve names; ``listen`` "" is no cluster DNS. No ``forward``: what each node itself asks."""

    listen: str = ""
    port: int = 53
    forward: tuple[str, ...] = ()
    host_resolver: bool = False


class IngressSettings(NamedTuple):
    """The ports of each node's nginx; ``http_port`` 0 is no path routing. ``templates`` is their directory."""

    http_port: int = 0
    https_port: int = 0
    templates: str = ""
    ipv6: bool = False
    """Whether hosts resolve to IPv6 addresses, where it listens then, too."""


class OverlaySettings(NamedTuple):
    """How nodes reach each other's pods by VXLAN; ``device`` "" is no overlay, ``direct`` no tunnel to neighbours."""

    device: str = ""
    vni: int = 1
    port: int = 8472
    direct: bool = False
    ipv6: bool = False
    """Whether tunnels go from machine to machine by IPv6."""


class PluginSettings(NamedTuple):
    """Whose program attaches pods: ``driver`` cni or weave, "" for ours; the rest is what that driver is told."""

    driver: str = ""
    conf_dir: str = ""
    bin_dirs: tuple[str, ...] = ()
    command: str = ""

    def entry(self) -> CniPlugin | WeavePlugin:
        """Return what a sandbox entry says of it."""
        if self.driver == "cni":
            return {"driver": "cni", "conf_dir": self.conf_dir, "bin_dirs": list(self.bin_dirs)}
        return {"driver": "weave", "command": self.command}


class Settings(NamedTuple):
    """What the installation decides for every pod."""

    cluster_cidr: str = "10.244.0.0/16"
    pause_image: str = "minik8s/pause:1"
    bridge: str = "mk8s-br0"
    mtu: int = 1500
    hmac_key: bytes = b""
    cluster_domain: str = CLUSTER_DOMAIN
    cluster_dns: tuple[str, ...] = ()
    api_address: str = ""
    """HOST:PORT at which pods reach the API server; "" where that is not told."""
    service_cidr: str = "100.0.0.0/24"
    proxy_mode: str = "auto"
    """auto, nftables or ipvs; auto is nftables."""
    dns: DnsSettings = DnsSettings()
    ingress: IngressSettings = IngressSettings()
    overlay: OverlaySettings = OverlaySettings()
    plugin: PluginSettings = PluginSettings()
    pod_pids_limit: int = POD_PIDS_LIMIT
    """Processes and threads that a pod may have at a time; 0: as many as the node can."""
    pod_stop_delay_s: int = 0
    """Seconds between a pod's deletion and its containers' signal, for its endpoints to leave; part of the grace."""
    kubelet_port: int = 0
    """The port of nodes that leads to API servers, which answer there for kubelets; 0: none."""
    balancing: Balancing = Balancing()
    """Who has which addresses from outside."""
    policies_required: bool = True
    """Whether a pod that NetworkPolicies isolate waits where its node cannot make their rules."""
    mesh: bool = False
    """Whether pods get sidecars by label, which plans predict."""
    own_node: bool = False
    """The reconciler is a node's own, with a node's rights: it reads what its pods name one by one."""
    declared: Mapping[str, Declared] = MappingProxyType({})
    """What is declared of nodes beside what their machines tell."""
    service_cidr_ipv6: str = ""
    """The range of Services' IPv6 addresses; "" where they have none."""
    dual_stack: DualStack = SINGLE_STACK
    """The IPv6 addresses of pods."""

    def with_hosts(self, hosts: Hosts) -> Settings:
        """Return the settings with what the inventory says of nodes; raises ConfigurationError."""
        return self._replace(declared=with_devices(self.declared, hosts))


def is_meshed(settings: Settings) -> bool:
    """Return whether a node's network is made of what is known of the others."""
    return bool(settings.overlay.device) or settings.plugin.driver == "weave"


def tells_ipv6(settings: Settings) -> bool:
    """Return whether Nodes tell the IPv6 addresses of their machines: their pods have some, or tunnels go by them."""
    return bool(settings.dual_stack) or settings.overlay.ipv6


class TokenNeed(NamedTuple):
    """A token of the pod's service account: for whom ("" is the API server) and for how many seconds."""

    audience: str
    expiration_s: int


class Tokens(NamedTuple):
    """The tokens a pod has, and why it has no other ones."""

    values: Mapping[TokenNeed, bytes] = {}
    errors: Mapping[TokenNeed, str] = {}

    def __repr__(self) -> str:
        """Return how many there are, not what they are."""
        return f"<{len(self.values)} tokens>"


class PullState(NamedTuple):
    """What became of pulling one image on one node; times are the reconciler's.

    ``failures`` counts failures in a row; ``active`` is True while the gateway pulls.
    """

    active: bool = False
    failures: int = 0
    finished_at: datetime | None = None
    reason: str = ""
    message: str = ""
    image_id: str = ""


class CheckResult(NamedTuple):
    """What the gateway knows of a probe or hook; ``streak`` counts equal results in a row, failures below 0.

    ``took_s`` is how long a hook ran.
    """

    state: str = "unknown"
    streak: int = 0
    message: str = ""
    took_s: float = 0.0


class Health(NamedTuple):
    """A live container by its probes; ``held``: its postStart hook has not ended well yet."""

    started: bool = False
    ready: bool = False
    held: bool = False


class PodInputs(NamedTuple):
    """Everything beside the pod and its observation that decides about it."""

    node: JsonObject
    configmaps: Mapping[str, JsonObject]
    secrets: Mapping[str, JsonObject]
    images: frozenset[str]
    pulls: Mapping[str, PullState]
    address: str | None
    """IP claimed for the pod, None while there is none."""
    errors: Mapping[str, JsonObject]
    """Errors of the node's last pass by ``<section>/<key>``: ``{"reason", "message"}``."""
    settings: Settings
    address_error: str = ""
    """Why no address could be claimed, empty when none was refused."""
    tokens: Tokens = Tokens()
    checks: Mapping[str, CheckResult] = {}
    """Results of the pod's probes and hooks by ``<container id>/<name>``."""
    links: Mapping[str, str] = {}
    """Variables that tell the Services of the pod's namespace."""
    beside: tuple[JsonObject, ...] | None = None
    """The node's pods that this one must fit beside; None where it is not asked whether the node takes it."""
    claims: Mapping[str, JsonObject] = {}
    """PersistentVolumeClaims that the pod names, by ``<namespace>/<name>``."""
    volumes: Mapping[str, JsonObject] = {}
    """PersistentVolumes that those are bound to, by name."""
    drivers: Mapping[str, JsonObject] = {}
    """CSIDrivers of the pod's volumes, by name."""
    attachments: Mapping[str, JsonObject] = {}
    """VolumeAttachments of those volumes to the pod's node, by name."""
    neighbours: tuple[JsonObject, ...] = ()
    """All of the node's pods where this one asks for other resources than it was given."""
    unenforced: str = ""
    """The NetworkPolicy that selects the pod, where its node enforces none; "" for none."""
    confirmed: Mapping[str, Entry] = {}
    """Entries the node confirmed to have, of its section ``containers``."""


class Sealed(dict[str, dict[str, bytes]]):
    """Secret values, ``{"<namespace>/<name>": {key: value}}``; whoever prints or logs it sees none."""

    def __repr__(self) -> str:
        """Return how many there are."""
        return f"<{len(self)} sealed>"

    __str__ = __repr__


class PodEvent(NamedTuple):
    """A Kubernetes Event about the pod; ``key`` is the same as long as it is the same occurrence."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    key: str
    container: str = ""


class Waiting(NamedTuple):
    """Why a container is not running yet."""

    reason: str
    message: str = ""


class Condition(NamedTuple):
    """A condition of the pod that is True."""

    type: str
    reason: str = ""
    message: str = ""


class Resources(NamedTuple):
    """What a container was given, and what it runs with, each as ``resources`` of its spec."""

    allocated: JsonObject
    actual: JsonObject


class PodDecision(NamedTuple):
    """What one pod wants now.

    ``entries`` are its keys per section, ``waiting`` says for each container without a live attempt why.
    ``wake_at`` is the moment at which time alone changes the decision. ``gone`` says that nothing of a
    deleted pod is left on its node. ``phase`` is set once the pod is over (Succeeded or Failed).
    """

    entries: NodeDocument
    secrets: frozenset[str] = frozenset()
    """``<namespace>/<name>`` of the Secret objects whose values the node needs."""
    sealed: Sealed = Sealed()
    """Values made from secrets, which travel like secrets."""
    pulls: frozenset[str] = frozenset()
    wake_at: datetime | None = None
    address_wanted: bool = False
    address_released: bool = False
    gone: bool = False
    phase: str = ""
    waiting: Mapping[str, Waiting] = {}
    events: tuple[PodEvent, ...] = ()
    reason: str = ""
    """``status.reason`` of a pod that failed for another cause than its containers; ``message`` says more."""
    message: str = ""
    checks: tuple[JsonObject, ...] = ()
    """The probes and hooks the gateway is to run, as its socket takes them."""
    health: Mapping[str, Health] = {}
    """The live containers that the decision looked at."""
    resizes: tuple[Condition, ...] = ()
    """The pod's conditions about a resize that is under way."""
    resources: Mapping[str, Resources] = {}
    """What the lasting containers were given and run with; empty where nothing was decided about it."""


class Named(NamedTuple):
    """What every node gets: names and paths as sections, certificates as a decision like a pod's, and other nodes."""

    dns: Entries = MappingProxyType({})
    ingress: Entries = MappingProxyType({})
    certificates: PodDecision = PodDecision({})
    machines: Mapping[str, Peer] = MappingProxyType({})
    """Range and address of each node, where pods are reached by an overlay."""
    folders: Mapping[str, Entries] = MappingProxyType({})
    """Folders of volumes that were made for claims, by the node that has them."""


NOTHING_NAMED = Named()
