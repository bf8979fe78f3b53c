"""May the caller do that? The API server has asked this for the path; we ask it again for the subresource itself.

So a server that passes something on unchecked, or checks ``vnc`` where ``vnc/screenshot`` is meant, opens nothing.
"""

from __future__ import annotations

from http import HTTPStatus

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import SUBJECT_ACCESS_REVIEW
from minik8s_modules.client.interface import Api
from minik8s_virtual_machines.api.kinds import SUBRESOURCES, VERSION
from minik8s_virtual_machines.server.asked import Caller, Target


def authorize(api: Api, caller: Caller, verb: str, target: Target) -> None:
    """Return if the caller may. Raises StatusError (403) if not, TemporaryError where nobody says."""
    wanted = {
        "group": SUBRESOURCES,
        "version": VERSION,
        "resource": target.resource,
        "namespace": target.namespace,
        "verb": verb,
        **({"name": target.name} if target.name else {}),
        **({"subresource": target.right} if target.subresource else {}),
    }
    spec = {"user": caller.name, "groups": [*caller.groups], "resourceAttributes": wanted}
    if caller.extra:
        spec["extra"] = {**caller.extra}
    answer = objects.status(api.create(SUBJECT_ACCESS_REVIEW, {"spec": spec}))
    if answer.get("allowed") is True:
        return
    what = f"{target.resource}/{target.right}" if target.subresource else target.resource
    text = f'User "{caller.name}" cannot {verb} resource "{what}" in API group "{SUBRESOURCES}" in the namespace '
    raise StatusError(
        HTTPStatus.FORBIDDEN,
        "Forbidden",
        f'{what}.{SUBRESOURCES} "{target.name}" is forbidden: {text}"{target.namespace}"',
    )
