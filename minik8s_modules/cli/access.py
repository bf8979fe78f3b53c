"""``auth``: who one is, and what one may do."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from minik8s_modules.api.kinds import (
    SELF_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
    Kind,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import output, printing
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.resources import find_kind
from minik8s_modules.client.api import ApiClient


def _asked(client: ApiClient, kind: Kind, spec: JsonObject) -> JsonObject:
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, **({"spec": spec} if spec else {})}
    return client.create(kind, body)


def whoami(client: ApiClient, options: argparse.Namespace) -> int:
    """Print user name, groups and what else the server knows of the one who asks."""
    review = _asked(client, SELF_SUBJECT_REVIEW, {})
    form = printing.form_of(options.output)
    if not form.is_table:
        print(printing.documents(form, [(SELF_SUBJECT_REVIEW, review)], single=True))
        return 0
    user = review["status"]["userInfo"]
    rows = [["Username", user.get("username", "")], ["Groups", f"[{' '.join(user.get('groups') or [])}]"]]
    rows += [["UID", user["uid"]]] if user.get("uid") else []
    rows += [[f"Extra: {key}", f"[{' '.join(values)}]"] for key, values in sorted((user.get("extra") or {}).items())]
    print(output.aligned(["ATTRIBUTE", "VALUE"], rows, output.Paint()))
    return 0


def can_i(client: ApiClient, options: argparse.Namespace) -> int:
    """Print ``yes`` or ``no``; returns 1 for no, as kubectl does. With --list print all that is allowed."""
    if options.list:
        return _list(client, options)
    spec = (
        {"nonResourceAttributes": _path(options)}
        if _is_path(options)
        else {"resourceAttributes": _what(client, options)}
    )
    status = _asked(client, SELF_SUBJECT_ACCESS_REVIEW, spec)["status"]
    if not options.quiet:
        reason = f" - {status['reason']}" if status.get("reason") and not status["allowed"] else ""
        print(output.Paint()("yes", output.GREEN) if status["allowed"] else output.Paint()("no", output.RED) + reason)
    return int(not status["allowed"])


def _is_path(options: argparse.Namespace) -> bool:
    return len(options.words) == 2 and options.words[1].startswith("/")  # noqa: PLR2004 - verb and path


def _path(options: argparse.Namespace) -> JsonObject:
    verb, path = options.words
    return {"verb": verb, "path": path}


def _what(client: ApiClient, options: argparse.Namespace) -> JsonObject:
    """Return the resource attributes of ``VERB TYPE[/NAME]`` or ``VERB TYPE NAME``."""
    if len(options.words) not in {2, 3}:
        raise UsageError("write VERB TYPE [NAME], as in `minik8s auth can-i create pods`")
    verb, resource, *names = options.words
    resource, slash, name = resource.partition("/")
    if slash and names:
        raise UsageError("a name is given twice")
    asked: JsonObject = {"verb": verb, "subresource": options.subresource, "name": name or "".join(names)}
    if resource == "*":
        asked |= {"group": "*", "resource": "*", "namespace": "" if options.all_namespaces else options.namespace}
    else:
        kind = _known(client, resource)
        everywhere = options.all_namespaces or not kind.namespaced
        namespace = "" if everywhere else options.namespace
        asked |= {"group": kind.group, "version": kind.version, "resource": kind.plural, "namespace": namespace}
    return {field: value for field, value in asked.items() if value}


def _known(client: ApiClient, resource: str) -> Kind:
    try:
        return find_kind(resource, client)
    except UsageError as error:
        output.warn(str(error))
        plural, _, group = resource.partition(".")
        return Kind(group, "", plural, plural, "")


def _list(client: ApiClient, options: argparse.Namespace) -> int:
    review = _asked(client, SELF_SUBJECT_RULES_REVIEW, {"namespace": options.namespace})
    if review["status"].get("incomplete"):
        output.warn(f"the list is incomplete: {review['status'].get('evaluationError', '')}")
    header = ["RESOURCES", "NON-RESOURCE URLS", "RESOURCE NAMES", "VERBS"]
    print(output.aligned([] if options.no_headers else header, list(_rows(review["status"])), output.Paint()))
    return 0


def _rows(status: JsonObject) -> Iterator[list[str]]:
    for rule in status.get("resourceRules") or []:
        named, verbs = _bracketed(rule.get("resourceNames")), _bracketed(rule.get("verbs"))
        for group in rule.get("apiGroups") or [""]:
            for resource in rule.get("resources") or []:
                yield [f"{resource}.{group}" if group else resource, "[]", named, verbs]
    for rule in status.get("nonResourceRules") or []:
        yield ["", _bracketed(rule.get("nonResourceURLs")), "[]", _bracketed(rule.get("verbs"))]


def _bracketed(values: list[str] | None) -> str:
    return f"[{' '.join(values or [])}]"
