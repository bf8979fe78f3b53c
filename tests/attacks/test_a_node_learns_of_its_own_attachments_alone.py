"""A node reads the VolumeAttachments to itself, and none to another, whether they are there or still to come.

The attack: a node had a volume, so it knows the volume's handle, and with it the name of the attachment to any other
node, a digest of handle, driver and node. It watches that name before the volume moves there: one that there is not was
allowed, and the watch then showed what the driver's controller says of the other node's device.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from minik8s_modules.api.kinds import PERSISTENT_VOLUME, VOLUME_ATTACHMENT
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.storage.attachments import attachment_name
from minik8s_modules.apiserver.access.node_access import NodeAuthorizer
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.store.cached import CachedObject

VOLUME = {"metadata": {"name": "pv"}, "spec": {"csi": {"driver": "d.example.com", "volumeHandle": "h"}}}
NFS = {"metadata": {"name": "nfs"}, "spec": {"nfs": {"server": "s", "path": "/p"}}}
NODE = User("system:node:n1", ("system:nodes",))


class Cache:
    """What of the store's cache the authorizer looks at here."""

    def __init__(self, *attached: str) -> None:
        self._objects: dict[bytes | str, JsonObject] = {PERSISTENT_VOLUME.key("", "pv"): VOLUME}
        self._objects[PERSISTENT_VOLUME.key("", "nfs")] = NFS
        for node in attached:
            self._objects[VOLUME_ATTACHMENT.key("", attachment_name(VOLUME, node))] = {"spec": {"nodeName": node}}

    def get(self, key: Any) -> Any:
        """Return an object as the cache has it, None for none."""
        return self._cached(key) if key in self._objects else None

    def list(self, prefix: Any) -> Any:
        """Return the objects of a kind."""
        return SimpleNamespace(items=[self._cached(key) for key in self._objects if key.startswith(prefix)])

    def _cached(self, key: Any) -> CachedObject:
        return CachedObject(str(key), orjson.dumps(self._objects[key]), 1, {})


def allowed(verb: str, name: str, *attached: str) -> bool:
    cache: Any = Cache(*attached)
    asked = Attributes(verb, VOLUME_ATTACHMENT.group, VOLUME_ATTACHMENT.plural, name=name)
    return bool(NodeAuthorizer(cache).why(NODE, asked))


@pytest.mark.parametrize("verb", ["get", "list", "watch"])
@pytest.mark.parametrize("attached", [(), ("n1", "n2")])
def test_only_what_is_or_would_be_its_own(verb: str, attached: tuple[str, ...]):
    assert allowed(verb, attachment_name(VOLUME, "n1"), *attached)
    assert not allowed(verb, attachment_name(VOLUME, "n2"), *attached)
    assert not allowed(verb, attachment_name(NFS, "n1"), *attached)
    assert not allowed(verb, "any", *attached)
    assert not allowed(verb, "", *attached)


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete"])
def test_it_writes_none(verb: str):
    assert not allowed(verb, attachment_name(VOLUME, "n1"), "n1")
