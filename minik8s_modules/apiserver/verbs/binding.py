"""The ``binding`` subresource of pods: by it the scheduler says where a pod runs."""

from __future__ import annotations

import orjson

from minik8s_modules.api.errors import Conflict, NotFound
from minik8s_modules.api.lifecycle import strategy
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.validation import validate_update
from minik8s_modules.apiserver.admission import chain, webhook_admission
from minik8s_modules.apiserver.http import incoming
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.store.errors import KeyMissing, StaleWrite


def bind(backend: Backend, target: Target, binding: JsonObject, options: Options) -> None:
    """Assign a pod to the node a v1 Binding names."""
    binding = incoming.readable(incoming.BINDING, binding, options)
    incoming.check_place(target, binding)
    binding = webhook_admission.request(backend, "create", target, incoming.BINDING, binding, options)
    pod_kind, options = target.kind, options._replace(reviewed=True)
    # not through prepare_update: binding changes spec and status at once, and spec.nodeName is nobody else's
    item = backend.get(target)
    for _ in range(writing.CHANGE_ATTEMPTS):
        old = orjson.loads(item.data)
        pod = strategy.bind(pod_kind, old, binding, backend.clock.now())
        chain.run("mutate", backend, "update", target, pod, old, options)
        writing.refuse(pod_kind, pod, validate_update(pod_kind, pod, old, target.subresource))
        chain.run("validate", backend, "update", target, pod, old, options)
        try:
            writing.swap(backend, target, item, pod, options, old)
        except StaleWrite:
            item = backend.latest(target)
        except KeyMissing as error:
            raise NotFound(pod_kind, target.name) from error
        else:
            return
    raise Conflict(pod_kind, target.name)
