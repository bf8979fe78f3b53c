"""Admission of Pods that ask for a sidecar, by the label ``minik8s.io/inject`` of theirs or of their Namespace.

It comes before all other plugins, so that the sidecar gets what they give to containers: limits, the account's token.
A Pod that asks for one itself and can have none is refused. One that only lives in a Namespace that asks is let in
without: what needs its node's network must go on running. A warning says why, and ``minik8s why`` does.
"""

from __future__ import annotations

from collections.abc import Mapping

from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import NAMESPACE, POD, SERVICE_ACCOUNT
from minik8s_modules.api.objects import JsonObject, labels, name, spec
from minik8s_modules.api.pods import account_volumes, resources
from minik8s_modules.api.pods.mirror_pods import is_mirror
from minik8s_modules.api.pods.mutual_tls import unguarded
from minik8s_modules.api.pods.sidecars import INJECT, injection
from minik8s_modules.apiserver.http.write import Write
from minik8s_modules.store import readable


def inject_sidecar(write: Write) -> None:
    """Give a new Pod its sidecar. A mirror Pod speaks of what its node runs already, and gets none.

    Raises:
        Forbidden: its own label asks for one, and it can have none.
    """
    pod = write.new
    if is_mirror(pod):
        return
    found = write.backend.cache.get(NAMESPACE.key("", write.target.namespace))
    space = labels(found.object) if found else {}
    _inject(write, space)
    if why := unguarded(pod, space):
        write.options.warn(why)


def _inject(write: Write, space: Mapping[str, str]) -> None:
    pod = write.new
    decided = injection(pod, space, _without_token(write))
    if decided.spec is None and not decided.obstacle:
        return
    if not write.backend.mesh:
        write.options.warn(f"the label {INJECT} has no effect: this cluster has no mesh (minik8s_mesh)")
    elif decided.spec is not None:
        pod["spec"] = decided.spec
        apply_defaults(POD, pod)
        pod["status"]["qosClass"] = resources.qos_class(pod)
    elif decided.own:
        why = f"the label {INJECT} asks for a sidecar, and it can have none: {decided.obstacle}"
        raise Forbidden(write.target.kind, write.target.name or name(pod), why)
    else:
        write.options.warn(f"the Pod gets no sidecar, for which its Namespace asks: {decided.obstacle}")


def _without_token(write: Write) -> str:
    called = spec(write.new).get("serviceAccountName") or "default"
    found = write.backend.cache.get(SERVICE_ACCOUNT.key(write.target.namespace, called))
    account: JsonObject = readable.object_of(SERVICE_ACCOUNT, found) if found else {}
    if account_volumes.wants_token(write.new, account):
        return ""
    return f"its service account {called} gives Pods no token, by which the pilot knows the sidecar"
