"""Two objects that claim one host and path: whoever comes second is refused, with the first's name.

The claims are weighed by the one decision there is (``api/ingress_routes.py``), with the written object as the
youngest. An update is refused only for places it did not ask for before. Two servers that admit claims at the same
moment both see none; then the younger object keeps its condition and Event (``controllers/ingresses.py``), and has no
effect. Sources: the original's ``host H conflicts with existing host`` (400) and ingress-nginx' webhook (400, too).
"""

from __future__ import annotations

from collections.abc import Iterable

from minik8s_modules.api import objects
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.ingress_routes import CONFLICT, Cluster, decide_routes, owner_of
from minik8s_modules.api.kinds import DNS, INGRESS, INGRESS_CLASS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.write import Write


def refuse_taken_places(write: Write) -> None:
    """Refuse a DNS object or Ingress that claims what is another's.

    Raises:
        BadRequest: a host, or a path of it, has an owner already; the message names it.
    """
    if objects.is_deleting(write.new):
        return
    known = set(_conflicts(write, write.old)) if write.old is not None else set[str]()
    taken = [why for why in _conflicts(write, write.new) if why not in known]
    if taken:
        raise BadRequest("; ".join(taken))


def _conflicts(write: Write, obj: JsonObject) -> Iterable[str]:
    """Return why ``obj`` would not get its places if it came now."""
    kind = write.target.kind
    newest = {**obj, "metadata": {**obj["metadata"], "creationTimestamp": "~"}, "status": {}}
    mine = objects.key(obj)
    every = {each: [*_others(write, each, mine if each == kind else None)] for each in (DNS, INGRESS)}
    every[kind].append(newest)
    classes = _others(write, INGRESS_CLASS, None)
    routes = decide_routes(Cluster(every[DNS], every[INGRESS], classes, {}))
    refusals = routes.refused.get(owner_of(kind.kind, obj), ())
    return [one.message for one in refusals if one.reason == CONFLICT]


def _others(write: Write, kind: Kind, but: objects.Key | None) -> Iterable[JsonObject]:
    found = (item.object for item in write.backend.cache.list(kind.prefix)[0])
    return [each for each in found if objects.key(each) != but]
