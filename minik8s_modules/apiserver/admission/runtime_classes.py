"""Admission of pods that name a RuntimeClass: what the class says is put into the pod, with the runtime's name.

The handler stands in an annotation that nobody else may write, so a node needs no look at classes; a class's handler
never changes. Source: kubernetes ``plugin/pkg/admission/runtimeclass``, ``pkg/util/tolerations`` (merging).
"""

from __future__ import annotations

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import RUNTIME_CLASS
from minik8s_modules.api.objects import JsonObject, metadata, name, spec
from minik8s_modules.apiserver.http.write import Write
from minik8s_modules.store import readable

HANDLER = "minik8s.io/runtime-handler"


def runtime_class(write: Write) -> None:
    """Give a new pod its class's handler, overhead, node selector and tolerations; refuse what contradicts them.

    An update keeps the annotation as it is.
    """
    if write.old is not None:
        _keep_handler(write.new, objects.annotations(write.old).get(HANDLER))
        return
    declared = spec(write.new)
    called = declared.get("runtimeClassName")
    if not called:
        _keep_handler(write.new, None)
        if declared.get("overhead"):
            raise _rejected(write, "Pod Overhead set without corresponding RuntimeClass defined Overhead")
        return
    found = write.backend.cache.get(RUNTIME_CLASS.key("", called))
    if found is None:
        raise _rejected(write, f'RuntimeClass "{called}" not found')
    declared_class = readable.object_of(RUNTIME_CLASS, found)
    _keep_handler(write.new, str(declared_class["handler"]))
    _set_overhead(write, declared_class)
    _set_scheduling(write, declared_class.get("scheduling") or {})


def _keep_handler(pod: JsonObject, handler: str | None) -> None:
    known = {key: value for key, value in objects.annotations(pod).items() if key != HANDLER}
    if handler is not None:
        known[HANDLER] = handler
    if known != objects.annotations(pod):
        metadata(pod)["annotations"] = known


def _set_overhead(write: Write, found: JsonObject) -> None:
    declared, fixed = spec(write.new), (found.get("overhead") or {}).get("podFixed")
    if declared.get("overhead") and declared["overhead"] != fixed:
        raise _rejected(write, "Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    if fixed:
        declared["overhead"] = dict(fixed)


def _set_scheduling(write: Write, scheduling: JsonObject) -> None:
    declared = spec(write.new)
    wanted, own = scheduling.get("nodeSelector") or {}, declared.get("nodeSelector") or {}
    for key, value in wanted.items():
        if own.get(key, value) != value:
            why = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = "
            raise _rejected(write, why + str(own[key]))
    if wanted:
        declared["nodeSelector"] = {**own, **wanted}
    more = [one for one in scheduling.get("tolerations") or [] if one not in (declared.get("tolerations") or [])]
    if more:
        declared["tolerations"] = [*(declared.get("tolerations") or []), *(dict(one) for one in more)]


def _rejected(write: Write, why: str) -> Forbidden:
    return Forbidden(write.target.kind, write.target.name or name(write.new), f"pod rejected: {why}")
