"""Reads a list of roles or bindings from standard input and prints the names of those that a control is about.

roles.py resource RESOURCE[.GROUP][/SUBRESOURCE] VERBS  roles with one of the verbs on it; `*`: no resource, or any verb
roles.py verb VERBS                                     roles with one of the verbs on anything
roles.py default-accounts                               bindings of a service account named default, or of all accounts
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

Rule = dict[str, Any]
OF_ALL = "system:serviceaccounts"
HARMLESS = frozenset({"system:service-account-issuer-discovery"})


def has_resource(rule: Rule, named: str, verbs: list[str]) -> bool:
    """Return whether a rule gives one of the verbs on RESOURCE.GROUP/SUBRESOURCE, whatever an object is called."""
    item, slash, subresource = named.partition("/")
    plural, _, group = item.partition(".")
    resources, groups = set(rule.get("resources") or ()), set(rule.get("apiGroups") or ())
    about = plural + slash + subresource in resources
    if plural != "*":
        about = bool((about or resources & {"*", f"*/{subresource}"}) and groups & {"*", group})
    return about and not rule.get("resourceNames") and has_verb(rule, verbs)


def has_verb(rule: Rule, verbs: list[str]) -> bool:
    """Return whether a rule gives one of the verbs."""
    given = set(rule.get("verbs") or ())
    return "*" in given or bool(given & set(verbs)) or (verbs == ["*"] and bool(given))


def roles(items: list[dict[str, Any]], fits: Callable[[Rule], bool]) -> Iterator[str]:
    """Yield the names of roles with a rule that fits."""
    for item in items:
        if any(map(fits, item.get("rules") or ())):
            yield item["metadata"]["name"]


def default_accounts(items: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the bindings that give rights to accounts nobody made for a purpose."""
    for item in items:
        subjects = item.get("subjects") or ()
        default = any(one["kind"] == "ServiceAccount" and one["name"] == "default" for one in subjects)
        everyone = any(one["kind"] == "Group" and one["name"].startswith(OF_ALL) for one in subjects)
        if default or (everyone and item["metadata"]["name"] not in HARMLESS):
            yield item["metadata"]["name"]


def main(what: str, *arguments: str) -> None:
    """Print the names."""
    items = json.load(sys.stdin)["items"]
    verbs = arguments[-1].split() if arguments else []
    found = {
        "resource": lambda: roles(items, lambda rule: has_resource(rule, arguments[0], verbs)),
        "verb": lambda: roles(items, lambda rule: has_verb(rule, verbs) and "*" not in rule["verbs"]),
        "default-accounts": lambda: default_accounts(items),
    }[what]()
    sys.stdout.writelines(f"{name}\n" for name in found)


if __name__ == "__main__":
    main(*sys.argv[1:])
