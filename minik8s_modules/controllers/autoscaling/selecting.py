"""Which autoscalers select a pod: two on one pod would scale against each other, so that neither does. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from minik8s_modules.api import objects
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.selectors import NOTHING, LabelSelector, parse_label_selector

_Term = tuple[str, str, str]


class Selecting:
    """Selectors of autoscalers by one label that they ask for: of hundreds a pod is compared with few."""

    def __init__(self) -> None:
        self._selectors: dict[Key, tuple[str, LabelSelector]] = {}
        self._by_term: defaultdict[_Term, set[Key]] = defaultdict(set)

    def put(self, key: Key, selector: str) -> None:
        """Know the selector of an autoscaler's target, as text."""
        if self._selectors.get(key, (None,))[0] == selector:
            return
        self.forget(key)
        try:
            parsed = parse_label_selector(selector) if selector else NOTHING
        except BadRequest:
            parsed = NOTHING
        self._selectors[key] = (selector, parsed)
        self._by_term[_term(key.namespace, parsed)].add(key)

    def forget(self, key: Key) -> None:
        """Forget an autoscaler."""
        known = self._selectors.pop(key, None)
        if known is not None:
            self._by_term[_term(key.namespace, known[1])].discard(key)

    def of(self, pods: Iterable[JsonObject]) -> tuple[Key, ...]:
        """Return the autoscalers that select any of the pods, sorted."""
        found: set[Key] = set()
        for pod in pods:
            space, labels = objects.namespace(pod), objects.labels(pod)
            terms = [(space, "", ""), *((space, label, value) for label, value in labels.items())]
            near = {key for term in terms for key in self._by_term.get(term, ())} - found
            found |= {key for key in near if self._selectors[key][1].matches(labels)}
        return tuple(sorted(found))


def _term(namespace: str, selector: LabelSelector) -> _Term:
    """Return the namespace with a label and value that the selector asks for, empty where it asks for no single one."""
    for each in selector.requirements:
        if each.operator == "in" and len(each.values) == 1:
            return (namespace, each.key, next(iter(each.values)))
    return (namespace, "", "")
