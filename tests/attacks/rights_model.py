"""A small model of who may see what, and random rights and requests to compare a server with.

Independent of the server's code: rules are compared word by word, selectors are evaluated as the terms they were made
of, and never read from text. ``Case.exact`` says whether the model knows the whole answer; of a mangled selector it
only knows what must not be in one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

GROUPS = {"secrets": "", "configmaps": "", "pods": "", "nodes": "", "deployments": "apps"}
SUBRESOURCES = {"pods": ("status",), "deployments": ("scale", "status"), "nodes": ("status",)}
VERBS = ("get", "list", "watch", "deletecollection")
NAMES = ("a", "b", "mounted")
# as names of rules and values of selectors: nothing is called so
ODD = ("x", "x,metadata.name=a", "a\\", "", "a=b", "metadata.name=mounted")
FIELDS = {
    "secrets": ("metadata.name", "metadata.namespace", "type"),
    "pods": ("metadata.name", "spec.nodeName", "status.phase"),
    "nodes": ("metadata.name", "spec.unschedulable"),
}
_LABELS: Sequence[tuple[str, Callable[[Mapping[str, str]], bool]]] = (
    ("app=x", lambda labels: labels.get("app") == "x"),
    ("app!=x", lambda labels: labels.get("app") != "x"),
    ("app in (x,y)", lambda labels: labels.get("app") in {"x", "y"}),
    ("!app", lambda labels: "app" not in labels),
    ("app,app notin (y)", lambda labels: "app" in labels and labels["app"] != "y"),
)


class Place(NamedTuple):
    """An object's resource, namespace and name."""

    resource: str
    namespace: str
    name: str


class Known(NamedTuple):
    """What the model knows of an object."""

    fields: Mapping[str, str]
    labels: Mapping[str, str]
    named: frozenset[Place] = frozenset()
    """What a pod names."""


World = Mapping[Place, Known]


class Rule(NamedTuple):
    """A rule of a role, and where it holds: a namespace, or "" for everywhere."""

    scope: str
    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]

    def allows(self, verb: str, resource: str, namespace: str, name: str) -> bool:
        """Return whether it allows this; ``resource`` may be ``plural/subresource``."""
        plural, _, sub = resource.partition("/")
        return (
            (not self.scope or self.scope == namespace)
            and bool({verb, "*"} & self.verbs)
            and bool({GROUPS[plural], "*"} & self.groups)
            and bool({resource, "*", *([f"*/{sub}"] if sub else [])} & self.resources)
            and (not self.names or name in self.names)
        )

    def row(self) -> dict[str, Any]:
        """Return it as a PolicyRule."""
        rule = {"verbs": self.verbs, "apiGroups": self.groups, "resources": self.resources, "resourceNames": self.names}
        return {field: sorted(found) for field, found in rule.items() if found}


class Term(NamedTuple):
    """One term of a field selector."""

    field: str
    negated: bool
    value: str

    def text(self, dice: random.Random) -> str:
        """Return it escaped."""
        value = "".join(f"\\{one}" if one in "\\,=" else one for one in self.value)
        return f"{self.field}{'!=' if self.negated else dice.choice(('=', '=='))}{value}"


class Case(NamedTuple):
    """One request."""

    verb: str
    resource: str
    namespace: str
    name: str = ""
    terms: tuple[Term, ...] = ()
    labels: int = -1
    fields: str = ""
    """The field selector as it is sent."""
    exact: bool = True

    @property
    def readable(self) -> bool:
        """Return whether all fields can be selected by."""
        known = FIELDS.get(self.resource, ("metadata.name", "metadata.namespace"))
        return all(term.field in known for term in self.terms)

    @property
    def label_selector(self) -> str:
        """Return the label selector."""
        return _LABELS[self.labels][0] if self.labels >= 0 else ""

    def asked_name(self) -> str:
        """Return the name that authorization goes by."""
        if self.name or self.verb not in {"list", "watch"} or not self.readable:
            return self.name
        return next((term.value for term in self.terms if term.field == "metadata.name" and not term.negated), "")

    def selects(self, place: Place, known: Known) -> bool:
        """Return whether the object is one of those asked for."""
        if place.resource != self.resource.partition("/")[0] or self.namespace not in {"", place.namespace}:
            return False
        if self.name and place.name != self.name:
            return False
        fields = {"metadata.name": place.name, "metadata.namespace": place.namespace, **known.fields}
        if any((fields.get(term.field, "") == term.value) == term.negated for term in self.terms):
            return False
        return self.labels < 0 or _LABELS[self.labels][1](known.labels)


class User(NamedTuple):
    """Somebody with roles."""

    name: str
    rules: tuple[Rule, ...]
    groups: tuple[str, ...] = ()

    def may(self, case: Case, world: World) -> bool:  # noqa: ARG002 - as a node's
        """Return whether the request is allowed."""
        return any(rule.allows(case.verb, case.resource, case.namespace, case.asked_name()) for rule in self.rules)

    def holds(self, verb: str, place: Place, world: World) -> bool:  # noqa: ARG002 - as a node's
        """Return whether any right covers the object, however it is asked for."""
        return any(rule.allows(verb, place.resource, place.namespace, place.name) for rule in self.rules)


class Node(NamedTuple):
    """A node: what its pods name, its pods, and all nodes."""

    node: str

    @property
    def name(self) -> str:
        """Return the user's name."""
        return f"system:node:{self.node}"

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the user's groups."""
        return ("system:nodes",)

    def may(self, case: Case, world: World) -> bool:
        """Return whether the request is allowed."""
        if case.resource == "nodes":
            return case.verb != "deletecollection"
        if case.resource == "nodes/status":
            return (case.verb, case.name) == ("get", self.node)
        if case.resource.startswith("pods") and case.verb == "get":
            found = world.get(Place("pods", case.namespace, case.name))
            return found is not None and found.fields["spec.nodeName"] == self.node
        if case.resource == "pods" and case.verb != "deletecollection":
            return case.readable and Term("spec.nodeName", False, self.node) in case.terms  # noqa: FBT003 - a field
        if case.resource in {"secrets", "configmaps"} and case.verb != "deletecollection":
            return Place(case.resource, case.namespace, case.asked_name()) in self._named(world)
        return False

    def holds(self, verb: str, place: Place, world: World) -> bool:
        """Return whether any right covers the object, however it is asked for."""
        if verb == "deletecollection":
            return False
        if place.resource.startswith("nodes"):
            return True
        if place.resource.startswith("pods"):
            found = world.get(place._replace(resource="pods"))
            return found is not None and found.fields["spec.nodeName"] == self.node
        return place in self._named(world)

    def _named(self, world: World) -> frozenset[Place]:
        pods = [known for place, known in world.items() if place.resource == "pods"]
        return frozenset().union(*(one.named for one in pods if one.fields["spec.nodeName"] == self.node))


def random_rule(dice: random.Random, spaces: Sequence[str]) -> Rule:
    """Return a rule."""
    plural = dice.choice([*GROUPS])
    below = [f"{one}/{sub}" for one, subs in SUBRESOURCES.items() for sub in subs]
    resources = {plural} | set(dice.sample([*GROUPS, *below, "*", "*/scale"], dice.choice((0, 0, 1, 2))))
    groups = {GROUPS[plural]} | set(dice.sample(["", "apps", "*"], dice.choice((0, 0, 1))))
    names = dice.sample([*NAMES, *(one for one in ODD if one)], dice.randint(1, 2)) if dice.random() < 0.5 else []
    verbs = dice.sample([*VERBS, *VERBS, "*"], dice.randint(1, 4))
    scope = dice.choice(["", *spaces, *spaces])
    return Rule(scope, frozenset(verbs), frozenset(groups), frozenset(resources), frozenset(names))


def random_case(dice: random.Random, spaces: Sequence[str], nodes: Sequence[str], asker: User | Node) -> Case:
    """Return a request; mostly one that is near what the asker may do."""
    case = _near(dice, spaces, asker) if dice.random() < 0.6 else _anything(dice, spaces)
    named = [*NAMES, "nobody"] if case.resource != "nodes" else [*nodes, "nobody"]
    name = case.name if case.name in named else dice.choice(named)
    if case.resource == "nodes":
        case = case._replace(namespace="")
    if case.verb == "get":
        sub = dice.choice(["", *SUBRESOURCES.get(case.resource, ())])
        space = case.namespace or ("" if case.resource == "nodes" else dice.choice(spaces))
        return case._replace(resource=f"{case.resource}/{sub}" if sub else case.resource, namespace=space, name=name)
    if case.verb == "deletecollection" and case.resource != "nodes":
        case = case._replace(namespace=case.namespace or dice.choice(spaces))
    in_path = case.verb == "watch" and (case.namespace or case.resource == "nodes") and dice.random() < 0.5
    case = case._replace(name=name if in_path else "", labels=max(dice.randint(-8, len(_LABELS) - 1), -1))
    if dice.random() < 0.3:
        own_pods = isinstance(asker, Node) and case.resource == "pods"
        field, value = (
            ("spec.nodeName", asker.node) if own_pods and isinstance(asker, Node) else ("metadata.name", name)
        )
        return case._replace(fields=dice.choice(_DISGUISES).format(field, value), exact=False)
    terms = tuple(_terms(dice, case.resource, [*spaces, *nodes]))
    case = case._replace(terms=terms, fields=",".join(one.text(dice) for one in terms))
    return case._replace(fields=_mangled(dice, case.fields), exact=False) if dice.random() < 0.2 else case


def _anything(dice: random.Random, spaces: Sequence[str]) -> Case:
    return Case(dice.choice((*VERBS, "list", "watch")), dice.choice([*GROUPS]), dice.choice([*spaces, *spaces, ""]))


def _near(dice: random.Random, spaces: Sequence[str], asker: User | Node) -> Case:
    case = _anything(dice, spaces)
    if isinstance(asker, Node):
        return case._replace(resource=dice.choice(("secrets", "configmaps", "pods")))
    if not asker.rules:
        return case
    rule = dice.choice(asker.rules)
    return Case(
        dice.choice(sorted(rule.verbs & {*VERBS}) or VERBS),
        dice.choice(sorted(rule.resources & {*GROUPS}) or [*GROUPS]),
        rule.scope or case.namespace,
        dice.choice(sorted(rule.names & {*NAMES}) or NAMES),
    )


# what seems to ask for one value of a field, or takes the end of what is put behind it away
_DISGUISES = (
    r"{0}!=x\,{0}={1}",
    r"{0}!=x\,{0}=={1}",
    r"{0}!=\\\,{0}={1}",
    r"{0}!=x\,{0}\={1}",
    "{0}!=x\\",
    "{0}!=x\\\\",
    "{0}!={1}\\",
    "{0}!=={1}",
)


def _terms(dice: random.Random, resource: str, others: Sequence[str]) -> Iterator[Term]:
    for _ in range(dice.choice((0, 1, 1, 1, 2, 3))):
        field = dice.choice(FIELDS.get(resource, ("metadata.name",)) if dice.random() < 0.95 else ("spec.nope",))
        field = dice.choice(("metadata.name", field))
        value = dice.choice((*NAMES, *NAMES, *ODD, *others, *others, "Pending"))
        yield Term(field, dice.random() < 0.35, value)


def _mangled(dice: random.Random, text: str) -> str:
    """Return the text as somebody sends it who wants it to be misread."""
    extra = ["\\", "\\\\", ",", "=", "!=", "==", "metadata.name=a", ",metadata.name=mounted", "\\,metadata.name=a", " "]
    for _ in range(dice.randint(1, 3)):
        at = dice.choice((0, len(text), dice.randint(0, len(text))))
        text = text[:at] + dice.choice(extra) + text[at:]
    return text
