"""Which labels, annotations and finalizers steer the cluster, and who may set them.

``RULES`` is the whole list: whoever reads a key of ours to decide something has a row here (a test looks through the
code for keys). The prefix ``minik8s.io/`` is ours: of a key without a row, people are told so, because what it comes
to mean later must not lie about already. Subdomains (``disks.minik8s.io/``) are their extensions' own. What a write
leaves as it is asks nobody, so an object stored before a rule can still be changed. Templates of pods count as pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.nodes.counted_devices import COUNTED
from minik8s_modules.api.nodes.virtual_nodes import CARRIED_BY
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.interception import INBOUND_PORTS, OUTBOUND_PORTS, OUTBOUND_RANGES
from minik8s_modules.api.pods.mirror_pods import HASH, MIRROR, SEEN, SOURCE
from minik8s_modules.api.pods.mutual_tls import MTLS
from minik8s_modules.api.pods.pod_templates import TEMPLATES, template_of
from minik8s_modules.api.pods.sidecars import INJECT
from minik8s_modules.api.pods.slurm import TAKES_RESULTS

Party = Literal["nodes", "reconciler", "gateway", "controllers", "others"]
"""Who writes: a node, one of three daemons, or anybody else, such as a person or a service account."""
DOMAIN = "minik8s.io/"


class Rule(NamedTuple):
    """Who may set a key.

    Attributes:
        key: of a label, an annotation or a finalizer.
        kind: (group, kind) of the objects it steers; None for any. On other kinds it means nothing, and is free.
        setters: who may set, change and remove it, as far as they may write the object at all.
        when: "creation" is at creation alone; afterwards nobody changes it.
        steers: what it does.
    """

    key: str
    kind: tuple[str, str] | None
    setters: frozenset[Party]
    when: Literal["creation", "always"]
    steers: str


_ANYBODY: frozenset[Party] = frozenset(("nodes", "reconciler", "gateway", "controllers", "others"))
_STEWARDS: frozenset[Party] = frozenset(("controllers", "others"))
_MIRRORING: frozenset[Party] = frozenset(("nodes", "reconciler"))
_STREAMING: frozenset[Party] = frozenset(("nodes", "gateway"))
_CONTROLLERS: frozenset[Party] = frozenset(("controllers",))
_POD, _NODE, _LEASE = ("", "Pod"), ("", "Node"), ("coordination.k8s.io", "Lease")
_VOLUME = ("", "PersistentVolume")
_CONFIG_MAP = ("", "ConfigMap")
_REVISION = ("apps", "ControllerRevision")
_ROLLING_UPDATE = ("", "RollingUpdate")

RULES: tuple[Rule, ...] = (
    Rule(MIRROR, _POD, _MIRRORING, "creation", "whose containers exec, logs and status refer to (mirror_pods.py)"),
    Rule(HASH, _POD, _MIRRORING, "creation", "the manifest of a static pod"),
    Rule(SOURCE, _POD, _MIRRORING, "creation", "where a static pod comes from"),
    Rule(SEEN, _POD, _MIRRORING, "creation", "when a static pod was found"),
    # the plugin RuntimeClass writes it and keeps it, whatever a client sends
    Rule("minik8s.io/runtime-handler", _POD, frozenset(), "creation", "the runtime of a pod's containers"),
    Rule(
        "minik8s.io/dialect",
        None,
        _ANYBODY,
        "always",
        "how the object's own manifest is read; of a Namespace, those in it",
    ),
    # the plugin VirtualNodes writes it and keeps it, as above
    Rule(CARRIED_BY, _NODE, frozenset(), "creation", "who may tell of the node and its pods, and read what they name"),
    Rule("minik8s.io/replaces", _POD, _CONTROLLERS, "creation", "which pod of a removed node this one replaces"),
    Rule("minik8s.io/moved-pod", _REVISION, _CONTROLLERS, "always", "a pod is made of the object, by controllers"),
    Rule("minik8s.io/moved-from", _REVISION, _CONTROLLERS, "always", "the node whose pod is made again"),
    Rule("minik8s.io/updated-by", _POD, _CONTROLLERS, "creation", "which rolling update has made the pod"),
    Rule("minik8s.io/rolling-update", _ROLLING_UPDATE, _STEWARDS, "always", "pods it has deleted are made again first"),
    Rule("minik8s.io/leaving", _NODE, _STEWARDS, "always", "the node is being drained, or its pods are abandoned"),
    Rule(INJECT, None, _ANYBODY, "always", "whether new pods get a sidecar; of a Namespace, those in it"),
    Rule(MTLS, None, _ANYBODY, "always", "whether sidecars speak TLS with the pod; of a Namespace, with those in it"),
    # as in Istio, what a pod's connections pass by is its author's to say
    Rule(INBOUND_PORTS, _POD, _ANYBODY, "always", "whose connections to the pod pass its sidecar by"),
    Rule(OUTBOUND_PORTS, _POD, _ANYBODY, "always", "which of the pod's connections pass its sidecar by"),
    Rule(OUTBOUND_RANGES, _POD, _ANYBODY, "always", "which of the pod's connections pass its sidecar by"),
    # who changes it has the controllers apply what a Gateway runs as once more
    Rule("minik8s.io/gateway-digest", None, _ANYBODY, "always", "whether a part of a Gateway is applied again"),
    # on pods and their templates it is free to whoever may write them
    Rule("minik8s.io/drift", _NODE, _STEWARDS, "always", "whether what somebody changed on the node is put right"),
    Rule("minik8s.io/observe", _NODE, _STEWARDS, "always", "the whole node is observed now"),
    Rule(COUNTED, _NODE, _MIRRORING, "always", "which resources its reconciler counts, and takes away"),
    Rule("minik8s.io/upgrading", _NODE, _STEWARDS, "always", "who has cordoned the node, and will uncordon it"),
    Rule("minik8s.io/stream-endpoint", _LEASE, _STREAMING, "always", "where API servers send streams"),
    Rule("minik8s.io/clock-ahead-seconds", _LEASE, _STREAMING, "always", "what is told of the node's clock"),
    # API servers write it for themselves; who else may have a word in which definitions count as served?
    Rule("minik8s.io/definitions-revision", _LEASE, _CONTROLLERS, "always", "up to where custom kinds are served"),
    # who may write volumes may write their claimRef, too
    Rule("minik8s.io/volume-namespace", _VOLUME, _STEWARDS, "always", "the namespace whose claims may have the volume"),
    Rule("minik8s.io/volume-folder", _VOLUME, _STEWARDS, "always", "the volume waits for its folder to be deleted"),
    Rule("minik8s.io/volume-quota", _VOLUME, _STEWARDS, "always", "how the size of the volume's folder is enforced"),
    # schedulers write it, and count as others; whoever reads it takes it for input (scheduler/profiles/published.py)
    Rule("minik8s.io/scheduler-configuration", _LEASE, _STEWARDS, "always", "how explanations and plans place pods"),
    Rule(TAKES_RESULTS, _CONFIG_MAP, _STEWARDS, "always", "whether Pods have their results copied there"),
    # leaders are of all parties; who may write a Lease may hold it, too
    Rule("minik8s.io/waits", _LEASE, _ANYBODY, "always", "whether the holder renews it more often"),
    Rule("minik8s.io/plan-endpoint", _LEASE, _MIRRORING, "always", "where API servers ask for plans"),
)
_KEPT = frozenset(rule.key for rule in RULES if not rule.setters)
_NAMES: Mapping[Party, str] = {
    "others": "people", "nodes": "nodes", "reconciler": "the reconciler", "gateway": "the gateway",
    "controllers": "controllers",
}  # fmt: skip
_BY_KEY = {rule.key: rule for rule in RULES}


def refusals(kind: tuple[str, str], new: JsonObject, old: JsonObject | None, party: Party) -> list[str]:
    """Return why ``party`` may not write ``new`` over ``old`` (None: there was nothing); [] when it may."""
    found = [*_of_metadata("metadata", kind, new, old, party)]
    if kind in TEMPLATES:
        template, before = template_of(kind, new), template_of(kind, old or {})
        found += _of_metadata(f"{TEMPLATES[kind]}.metadata", _POD, template, before, party, template=True)
    return found


def _of_metadata(
    field: str, kind: tuple[str, str], new: JsonObject, old: JsonObject | None, party: Party, *, template: bool = False
) -> Iterator[str]:
    for marks, key, there in _changed(new, old or {}):
        rule = _BY_KEY.get(key)
        at = f"{field}.{marks}[{key}]"
        if rule is None:
            if there and key.startswith(DOMAIN) and party == "others":
                yield f"{at}: the prefix {DOMAIN} is reserved, and this key is unknown; use a prefix of your own"
        elif rule.kind in {None, kind} and key not in _KEPT:
            if party not in rule.setters:
                yield f"{at}: may be set by {_setters_of(rule)} only"
            elif rule.when == "creation" and old is not None and not template:
                yield f"{at}: may be set only when the object is created"


def _changed(new: JsonObject, old: JsonObject) -> Iterator[tuple[str, str, bool]]:
    """Yield what differs: the field of metadata, the key, and whether it is there now."""
    for marks, read in (("labels", objects.labels), ("annotations", objects.annotations)):
        after, before = read(new), read(old)
        if after != before:
            changed = (key for key in {*after, *before} if after.get(key) != before.get(key))
            yield from ((marks, key, key in after) for key in sorted(changed))
    if objects.finalizers(new) != objects.finalizers(old):
        kept, known = set(objects.finalizers(new)), set(objects.finalizers(old))
        yield from (("finalizers", key, key in kept) for key in sorted(kept ^ known))


def _setters_of(rule: Rule) -> str:
    return " and ".join(party_name for party, party_name in _NAMES.items() if party in rule.setters)
