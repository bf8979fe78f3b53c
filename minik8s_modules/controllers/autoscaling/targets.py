"""What an autoscaler scales: found by group and kind, read and written by its ``scale`` subresource.

Of workloads that this process has copies of, the scale is read from the copy; of all other kinds it is asked for.
Before a change the server is asked in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from http import HTTPStatus

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kind import Registry
from minik8s_modules.api.kinds import DEPLOYMENT, REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import selector_text
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.api import error_of, resource_path
from minik8s_modules.client.informer import Informer
from minik8s_modules.client.interface import Raw
from minik8s_modules.client.silences import Silences
from minik8s_modules.controllers.autoscaling.autoscalers import Scale
from minik8s_modules.controllers.autoscaling.readings import ASK_S

WORKLOADS = (DEPLOYMENT, REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET)


def kind_of(registry: Registry, reference: JsonObject) -> Kind | str:
    """Return the kind that a reference names, or why there is none; of the version only the group counts."""
    group = str(reference.get("apiVersion") or "").rpartition("/")[0]
    name = str(reference.get("kind"))
    found = registry.by_api_version(str(reference.get("apiVersion") or ""), name)
    if found is None:
        served = [each for each in registry.all() if (each.group, each.kind) == (group, name)]
        found = served[0] if served else None
    return found or (f'no matches for kind "{name}" in group "{group}"')


def scale_in(workload: JsonObject) -> Scale:
    """Return the scale of a workload, as its ``scale`` subresource has it."""
    selector = objects.spec(workload).get("selector")
    return Scale(
        int(objects.spec(workload).get("replicas") or 0),
        int(objects.status(workload).get("replicas") or 0),
        selector_text(selector) if selector else "",
    )


class Targets:
    """Reads and writes scales; of kinds without copies, by whoever serves them, if he does not keep silent."""

    def __init__(self, client: Raw, copies: Mapping[Kind, Informer], silences: Silences) -> None:
        self._client = client
        self._copies = copies
        self._silences = silences

    def scale(self, kind: Kind | str, namespace: str, name: str) -> Scale | str:
        """Return the scale of a target, or why it cannot be read.

        Raises:
            TemporaryError: the API did not answer.
        """
        if isinstance(kind, str):
            return kind
        if kind in self._copies:
            workload = self._copies[kind].get(namespace, name)
            return str(NotFound(kind, name)) if workload is None else scale_in(workload)
        try:
            with self._asking("GET", kind, namespace):
                return _scale(self._get(kind, namespace, name))
        except StatusError as error:
            return str(error)

    def change(self, kind: Kind, namespace: str, name: str, before: int, replicas: int) -> str:
        """Scale a target that has ``before`` replicas; return why it was refused, "" when it was not.

        Raises:
            TemporaryError: the API did not answer, or the target has other replicas by now: decide again.
        """
        try:
            with self._asking("GET", kind, namespace):
                scale = self._get(kind, namespace, name)
            if _scale(scale).replicas != before:
                raise TemporaryError(f"{kind.singular_name} {name} has been scaled by somebody else")
            body = {**scale, "spec": {**objects.spec(scale), "replicas": replicas}}
            path = resource_path(kind, namespace, name, "scale")
            with self._asking("PUT", kind, namespace):
                answer = self._client.raw("PUT", path, orjson.dumps(body), {"Content-Type": "application/json"})
        except StatusError as error:
            return str(error)
        return "" if answer.status == HTTPStatus.OK else str(error_of(answer))

    def _asking(self, verb: str, kind: Kind, namespace: str) -> AbstractContextManager[None]:
        if kind in self._copies:
            return nullcontext()
        return self._silences.asking(kind.api_version, f"{verb} {resource_path(kind, namespace)}")

    def _get(self, kind: Kind, namespace: str, name: str) -> JsonObject:
        if not kind.namespaced:  # nobody may scale by an autoscaler what lies outside its namespace
            raise NotFound.path()
        wait_s = 0.0 if kind in self._copies else ASK_S
        answer = self._client.raw("GET", resource_path(kind, namespace, name, "scale"), wait_s=wait_s)
        if answer.status != HTTPStatus.OK:
            raise error_of(answer)
        found: JsonObject = orjson.loads(answer.data)
        return found


def _scale(scale: JsonObject) -> Scale:
    status = objects.status(scale)
    return Scale(
        int(objects.spec(scale).get("replicas") or 0),
        int(status.get("replicas") or 0),
        str(status.get("selector") or ""),
    )
