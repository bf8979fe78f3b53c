"""``patch``, ``scale``, ``label`` and ``annotate``: changes of objects that are there."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import output, printing, reading
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.reading import Place
from minik8s_modules.cli.resources import name_of
from minik8s_modules.cli.writing import CONFLICT_TRIES, DRY, is_dry
from minik8s_modules.client.api import ApiClient, error_of, resource_path

Change = Callable[[Place], tuple[str, JsonObject]]


def _each(wanted: Sequence[Place], options: argparse.Namespace, change: Change) -> int:
    """Change each object and print what came of it; returns 1 when one was refused, after trying all."""
    form, found, failed = printing.form_of(options.output), [], False
    for place in wanted:
        try:
            verb, obj = change(place)
        except (StatusError, UsageError) as error:
            failed = True
            output.fail(error)
            continue
        found.append((place.kind, obj))
        if form.is_table and verb:
            print(f"{name_of(place.kind, place.name)} {verb}{DRY.get(options.dry_run, '')}")
    if found and not form.is_table:
        shown = [(kind, printing.printable(obj)) for kind, obj in found]
        print(printing.documents(form, shown, single=len(wanted) == 1))
    return int(failed)


def _named(client: ApiClient, options: argparse.Namespace) -> list[Place]:
    """Return the objects that words, files or a selector name, one place each."""
    found = []
    for place in reading.places(client, options):
        if place.name:
            found.append(place)
            continue
        if not (options.selector or options.field_selector or getattr(options, "all", False)):
            raise UsageError(f"name which {place.kind.plural}, or give --selector or --all")
        listed = reading.fetch(client, place, options)
        found += [Place(kind, objects.namespace(obj), objects.name(obj)) for kind, obj in listed]
    if not found:
        raise UsageError("nothing was found that it could be done to")
    return found


# --- patch ----------------------------------------------------------------------------------------


def patch(client: ApiClient, options: argparse.Namespace) -> int:
    """Patch the named objects with the patch of -p or --patch-file."""
    body = _patch_body(options)

    def change(place: Place) -> tuple[str, JsonObject]:
        kind, namespace, name = place
        before = client.get(kind, name, namespace)
        after = client.patch(
            kind,
            name,
            namespace,
            body,
            patch_type=options.type,
            subresource=options.subresource,
            dry_run=is_dry(options),
            field_manager=options.field_manager,
        )
        same = objects.resource_version(before) == objects.resource_version(after) and not is_dry(options)
        return "patched (no change)" if same else "patched", after

    return _each(_named(client, options), options, change)


def _patch_body(options: argparse.Namespace) -> Any:
    if bool(options.patch) == bool(options.patch_file):
        raise UsageError("give the patch, either with --patch or with --patch-file")
    text = options.patch
    if options.patch_file:
        try:
            text = Path(options.patch_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {options.patch_file}: {error}") from error
    try:
        body = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"the patch is neither JSON nor YAML: {error}") from error
    wanted = list if options.type == "json" else dict
    if not isinstance(body, wanted):
        form = "a list of operations" if wanted is list else "a mapping"
        raise UsageError(f"a patch of type {options.type} is {form}, not {type(body).__name__}")
    return body


# --- scale ----------------------------------------------------------------------------------------


def scale(client: ApiClient, options: argparse.Namespace) -> int:
    """Set the number of replicas of workloads, through their scale."""
    if options.replicas < 0:
        raise UsageError("--replicas must be 0 or more")

    def change(place: Place) -> tuple[str, JsonObject]:
        kind, namespace, name = place
        if "scale" not in kind.subresources:
            raise UsageError(f"{kind.plural} cannot be scaled")
        wanted: JsonObject = {"spec": {"replicas": options.replicas}}
        if options.current_replicas is not None:
            wanted["metadata"] = {"resourceVersion": _checked_scale(client, place, options.current_replicas)}
        dry_run, manager = is_dry(options), options.field_manager
        after = client.patch(kind, name, namespace, wanted, subresource="scale", dry_run=dry_run, field_manager=manager)
        return "scaled", after

    return _each(_named(client, options), options, change)


def _checked_scale(client: ApiClient, place: Place, expected: int) -> str:
    """Return the version of a scale that has ``expected`` replicas."""
    answer = client.raw("GET", resource_path(place.kind, place.namespace, place.name, "scale"))
    if answer.status >= 400:  # noqa: PLR2004 - the class of refusals
        raise error_of(answer)
    found = orjson.loads(answer.data)
    replicas = objects.spec(found).get("replicas", 0)
    if replicas != expected:
        raise UsageError(
            f"{name_of(place.kind, place.name)} has {replicas} replicas, not {expected}; nothing was changed"
        )
    return objects.resource_version(found)


# --- label and annotate ---------------------------------------------------------------------------


def label(client: ApiClient, options: argparse.Namespace) -> int:
    """Set (``KEY=VALUE``) or remove (``KEY-``) labels, or list them."""
    return _mark(client, options, "labels", "labeled")


def annotate(client: ApiClient, options: argparse.Namespace) -> int:
    """Set (``KEY=VALUE``) or remove (``KEY-``) annotations, or list them."""
    return _mark(client, options, "annotations", "annotated")


def _mark(client: ApiClient, options: argparse.Namespace, field: str, done: str) -> int:
    options.words, marks = split_marks(options.words)
    wanted = _named(client, options)
    if options.list:
        return _list_marks(client, wanted, field)
    if not marks:
        raise UsageError(f"say which {field}: KEY=VALUE sets one, KEY- removes one")

    def change(place: Place) -> tuple[str, JsonObject]:
        for _ in range(CONFLICT_TRIES):
            before = client.get(place.kind, place.name, place.namespace)
            body = marks_patch(before, field, marks, overwrite=options.overwrite)
            if body is None:
                return f"not {done}", before
            try:
                return done, _patch_marks(client, place, body, options)
            except Conflict:
                continue
        raise UsageError(f"{name_of(place.kind, place.name)} was changed by others {CONFLICT_TRIES} times meanwhile")

    return _each(wanted, options, change)


def _patch_marks(client: ApiClient, place: Place, body: JsonObject, options: argparse.Namespace) -> JsonObject:
    kind, namespace, name = place
    return client.patch(kind, name, namespace, body, dry_run=is_dry(options), field_manager=options.field_manager)


def split_marks(words: Sequence[str]) -> tuple[list[str], dict[str, str | None]]:
    """Return the words that name objects, and the marks to set, or to remove (None).

    Raises:
        UsageError: one is both set and removed.
    """
    names: list[str] = []
    marks: dict[str, str | None] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            new: str | None = value
        elif len(names) > 0 and word.endswith("-") and len(word) > 1:
            key, new = word[:-1], None
        else:
            names.append(word)
            continue
        if key in marks and marks[key] != new:
            raise UsageError(f"{key} cannot be given twice")
        marks[key] = new
    return names, marks


def marks_patch(obj: JsonObject, field: str, marks: dict[str, str | None], *, overwrite: bool) -> JsonObject | None:
    """Return the merge patch that sets and removes ``marks`` of this very version; None when all is so already.

    Raises:
        UsageError: one has another value, and ``overwrite`` is off.
    """
    present: dict[str, str] = obj["metadata"].get(field) or {}
    for key, value in marks.items():
        if value is not None and key in present and present[key] != value and not overwrite:
            raise UsageError(f"'{key}' already has a value ({present[key]}), and --overwrite is not given")
    if all(present.get(key) == value for key, value in marks.items()):
        return None
    return {"metadata": {"resourceVersion": objects.resource_version(obj), field: marks}}


def _list_marks(client: ApiClient, wanted: Sequence[Place], field: str) -> int:
    for kind, namespace, name in wanted:
        if len(wanted) > 1:
            print(f"{name_of(kind, name)}:")
        found = client.get(kind, name, namespace)["metadata"].get(field) or {}
        for key, value in sorted(found.items()):
            print(f"{key}={value}")
    return 0
