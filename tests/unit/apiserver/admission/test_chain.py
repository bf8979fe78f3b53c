"""Which writes the plugins of admission see: nothing is left out by accident."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minik8s_modules.api.defaulting.conversion import stored_kind
from minik8s_modules.api.kind import SUBRESOURCE_VERBS, Kind
from minik8s_modules.api.kinds import KINDS, LEGACY_REPLICA_SET, POD, REPLICA_SET
from minik8s_modules.apiserver.admission.chain import PLUGINS, Plugin

WRITES = {"create", "update", "patch"}
STREAMS = {"exec", "attach", "portforward", "proxy"}
# (plugin, subresource): why what comes through it is none of the plugin's business
LEFT_OUT = {
    ("LimitRanger", "status"): "changes status alone",
    ("LimitRanger", "binding"): "brings no container",
    ("LimitRanger", "ephemeralcontainers"): "they have no resources of their own",
    ("LimitRanger", "eviction"): "changes nothing of a pod but its end",
    ("SidecarInjection", "status"): "changes status alone",
    ("SidecarInjection", "binding"): "comes after creation, where the sidecar is decided",
    ("SidecarInjection", "ephemeralcontainers"): "comes after creation, where the sidecar is decided",
    ("SidecarInjection", "resize"): "leaves all but resources as it is",
    ("SidecarInjection", "eviction"): "changes nothing of a pod but its end",
    ("ServiceAccount", "status"): "changes status alone",
    ("ServiceAccount", "binding"): "comes after creation, where the account is decided",
    ("ServiceAccount", "ephemeralcontainers"): "comes after creation, where the account is decided",
    ("ServiceAccount", "resize"): "leaves all but resources as it is",
    ("ServiceAccount", "eviction"): "changes nothing of a pod but its end",
    ("HostPorts", "status"): "changes status alone",
    ("HostPorts", "binding"): "comes after creation, and ports do not change",
    ("HostPorts", "ephemeralcontainers"): "they have no ports",
    ("HostPorts", "resize"): "leaves all but resources as it is",
    ("HostPorts", "eviction"): "changes nothing of a pod but its end",
    ("DefaultTolerationSeconds", "status"): "changes status alone",
    ("DefaultTolerationSeconds", "binding"): "the pod has its tolerations",
    ("DefaultTolerationSeconds", "ephemeralcontainers"): "the pod has its tolerations",
    ("DefaultTolerationSeconds", "resize"): "leaves all but resources as it is",
    ("DefaultTolerationSeconds", "eviction"): "changes nothing of a pod but its end",
    ("Priority", "status"): "changes status alone",
    ("Priority", "binding"): "the pod has its priority",
    ("Priority", "ephemeralcontainers"): "the pod has its priority",
    ("Priority", "resize"): "leaves all but resources as it is",
    ("Priority", "eviction"): "changes nothing of a pod but its end",
    ("RuntimeClass", "status"): "changes status alone",
    ("RuntimeClass", "ephemeralcontainers"): "leaves metadata as it is",
    ("RuntimeClass", "resize"): "leaves all but resources as it is",
    ("RuntimeClass", "eviction"): "changes nothing of a pod but its end",
    ("DefaultStorageClass", "status"): "comes after creation, where the class is decided",
    ("StorageObjectInUseProtection", "status"): "comes after creation, where finalizers are given",
    ("PersistentVolumeClaimResize", "status"): "changes status alone",
    ("PodSecurity", "status"): "changes status alone",
    ("PodSecurity", "binding"): "brings no container",
    ("PodSecurity", "resize"): "no level has rules for resources",
    ("PodSecurity", "eviction"): "changes nothing of a pod but its end",
    ("PodSecurity", "scale"): "leaves the template as it is",
    ("CertificateRequester", "approval"): "the requester is decided at creation",
    ("CertificateRequester", "status"): "the requester is decided at creation",
    ("CertificateSubjectRestriction", "approval"): "leaves the request as it is",
    ("CertificateSubjectRestriction", "status"): "leaves the request as it is",
    ("CertificateApproval", ""): "the object itself is neither approved nor signed",
    ("HostConflict", "status"): "changes status alone",
    ("IngressAnnotations", "status"): "changes status alone",
    ("ServiceExists", "status"): "changes status alone",
    ("DenyServiceExternalIPs", "status"): "changes status alone",
}


def written(kind: Kind) -> Iterator[str]:
    """Yield the subresources of a kind that write; "" is the object itself."""
    yield from ([""] if WRITES & {*kind.verbs} else [])
    yield from (sub for sub in kind.subresources if WRITES & {*SUBRESOURCE_VERBS[sub]} and sub not in STREAMS)


def seen(plugin: Plugin, kind: Kind, subresource: str) -> bool:
    stored = stored_kind(kind).id
    return any(plugin.sees(plugin.phase, operation, stored, subresource) for operation in plugin.operations)


def cases() -> Iterator[tuple[str, Kind, str]]:
    for kind in KINDS.all():
        for name in sorted({plugin.name for plugin in PLUGINS if seen_at_all(plugin, kind)}):
            yield from ((name, kind, subresource) for subresource in written(kind))


def seen_at_all(plugin: Plugin, kind: Kind) -> bool:
    return any(seen(plugin, kind, subresource) for subresource in ("", *kind.subresources))


@pytest.mark.parametrize(
    ("name", "kind", "subresource"), [*cases()], ids=lambda v: v.plural if isinstance(v, Kind) else v
)
def test_a_plugin_sees_every_way_to_write_an_object_or_says_why_not(name: str, kind: Kind, subresource: str):
    plugins = [plugin for plugin in PLUGINS if plugin.name == name]
    looks = any(seen(plugin, kind, subresource) for plugin in plugins)
    assert looks != ((name, subresource) in LEFT_OUT), LEFT_OUT.get((name, subresource), "neither seen nor explained")


def test_reasons_are_of_writes_that_there_are():
    assert {(name, subresource) for name, _, subresource in cases()} >= LEFT_OUT.keys()


def test_a_view_of_another_kind_is_seen_as_what_is_stored():
    for plugin in PLUGINS:
        assert seen(plugin, LEGACY_REPLICA_SET, "") == seen(plugin, REPLICA_SET, ""), plugin.name


@pytest.mark.parametrize("subresource", ["", "ephemeralcontainers"])
def test_pod_security_sees_every_way_to_a_container(subresource: str):
    (plugin,) = [each for each in PLUGINS if each.name == "PodSecurity" and POD.id in (each.kinds or ())]
    assert seen(plugin, POD, subresource)
