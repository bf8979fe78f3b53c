"""``inject``: manifests with sidecars beside their Pods, for ``kubectl apply``; asks nobody."""

from __future__ import annotations

import argparse
import copy
import sys
from typing import Any

import yaml

from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject, dig
from minik8s_modules.api.pods.pod_templates import TEMPLATES
from minik8s_modules.api.pods.sidecar_images import sidecar_of
from minik8s_modules.api.pods.sidecars import sidecar_obstacle, with_sidecar
from minik8s_modules.api.schema.structural import type_errors
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.original.manifests import documents
from minik8s_modules.cli.output import warn


def inject(options: argparse.Namespace) -> int:
    """Print the manifests, each Pod and template of Pods with a sidecar.

    Raises:
        UsageError: a file cannot be read, or a Pod of one can have no sidecar.
    """
    found = [injected(document, where) for document, where in documents(options.filename, recursive=options.recursive)]
    if not found:
        raise UsageError(f"no objects in {', '.join(options.filename)}")
    yaml.safe_dump_all(found, sys.stdout, sort_keys=False, allow_unicode=True)
    return 0


def injected(document: Any, where: str) -> Any:
    """Return an object, or each of a list, with sidecars; what makes no Pods, or has one already, as it is.

    Raises:
        UsageError: a Pod of it can have none.
    """
    if not isinstance(document, dict):
        return document
    if str(document.get("kind")).endswith("List") and isinstance(document.get("items"), list):
        items = [injected(item, f"{where}, item {number}") for number, item in enumerate(document["items"], 1)]
        return {**document, "items": items}
    path = _place(document)
    parent = document if path == "spec" else dig(document, *path.split(".")) if path else None
    if not isinstance(parent, dict) or not isinstance(parent.get("spec"), dict):
        return document
    spec = parent["spec"]
    if wrong := _wrong(spec):
        raise UsageError(f"{where}: {_named(document)} is not a Pod that can be read: {wrong}")
    if sidecar_of(spec):
        warn(f"{where}: {_named(document)} has a sidecar already, and stays as it is")
        return document
    if obstacle := sidecar_obstacle(spec):
        raise UsageError(f"{where}: {_named(document)} can have no sidecar: {obstacle}")
    made: JsonObject = copy.deepcopy(document)
    target = made if path == "spec" else dig(made, *path.split("."))
    target["spec"] = with_sidecar(spec)
    return made


def _wrong(spec: JsonObject) -> str:
    """Return why what is like a Pod's spec cannot be read, "" if it can."""
    for cause in type_errors(POD, {"spec": spec}):
        return cause.message
    for field in ("initContainers", "containers"):
        if None in (spec.get(field) or []):
            return f"spec.{field} has an item that is null"
    return ""


def _place(document: JsonObject) -> str:
    """Return where an object has what is like a Pod: ``spec`` for a Pod itself, "" where nowhere."""
    group = str(document.get("apiVersion") or "v1").rpartition("/")[0]
    kind = (group, str(document.get("kind")))
    return "spec" if kind == ("", "Pod") else TEMPLATES.get(kind, "")


def _named(document: JsonObject) -> str:
    return f"{document.get('kind')} {dig(document, 'metadata', 'name') or ''}".strip()
