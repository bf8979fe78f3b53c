"""ConfigMap ``kube-root-ca.crt`` of every namespace: the authorities by which pods know the API server.

They are those of this process' own kubeconfig, read again every few seconds: while authorities are exchanged
(playbooks/rotate_ca.yml) it names the old and the new one, and so do all pods.
Source: pkg/controller/certificates/rootcacertpublisher.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CONFIG_MAP
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.account_volumes import ROOT_CA
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.interface import Api
from minik8s_modules.controllers.core.namespace_objects import Create, NamespaceObjects, Replace

log = logging.getLogger(__name__)
LOOK_EVERY_S = 2.0
_KEY = "ca.crt"
_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


def decide_root_ca(namespace: JsonObject, found: JsonObject | None, pem: str) -> Create | Replace | None:
    """Return the ConfigMap to make or to put in place; its other metadata stays as it is."""
    if found is None:
        metadata = {
            "name": ROOT_CA,
            "namespace": objects.name(namespace),
            "annotations": {"kubernetes.io/description": _DESCRIPTION},
        }
        return Create({"metadata": metadata, "data": {_KEY: pem}})
    if found.get("data") == {_KEY: pem} and not found.get("binaryData"):
        return None
    rest = {field: value for field, value in found.items() if field not in {"data", "binaryData"}}
    return Replace({**rest, "data": {_KEY: pem}})


class RootCa:
    """Publishes what ``read`` returns (PEM), and looks at it again every 2 s."""

    def __init__(self, client: Api, read: Callable[[], bytes], clock: Clock | None = None) -> None:
        self._read = read
        self._clock = clock or SystemClock()
        self._pem = ""
        self._stop = threading.Event()
        self._shell = NamespaceObjects(client, CONFIG_MAP, ROOT_CA, self._decide, self._clock)
        self._thread = threading.Thread(target=self._run, name="root-ca", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._refresh()
        self._shell.start()
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._shell.stop()

    def _decide(self, namespace: JsonObject, found: JsonObject | None) -> Create | Replace | None:
        return decide_root_ca(namespace, found, self._pem) if self._pem else None

    def _run(self) -> None:
        while not self._clock.wait(self._stop, LOOK_EVERY_S):
            if self._refresh():
                self._shell.look_again()

    def _refresh(self) -> bool:
        """Read the authorities; return whether they changed. Half a new file is waited out."""
        try:
            pem = self._read().decode()
        except (ConfigurationError, OSError, UnicodeDecodeError) as error:
            log.warning("the authorities cannot be read; keeping the known ones: %s", error)
            return False
        changed, self._pem = pem != self._pem, pem
        return changed
