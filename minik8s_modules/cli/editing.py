"""``edit``: an object in the person's editor, written back when it was changed.

What was typed is never lost: text that cannot be read or that the server refuses is opened again with the reason above
it, as kubectl does; a copy stays in a file when the person gives up. When somebody else changed the object meanwhile,
the person's changes are put onto the newer one, which is opened again to be looked at.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from minik8s_modules.api.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound, StatusError
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.merging.patch import merge_patch
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import output, printing, reading
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.resources import name_of
from minik8s_modules.cli.writing import DRY, is_dry
from minik8s_modules.client.api import ApiClient

HEAD = """\
# Please edit the object below. Lines beginning with a '#' will be ignored, and an empty file aborts the edit.
# If the object cannot be saved, it is opened again with the reason.
#
"""
_FIXED = ("apiVersion", "kind")


class _Refused(NamedTuple):
    """A text that was not saved, and why."""

    text: str
    why: str


def edit(client: ApiClient, options: argparse.Namespace) -> int:
    """Open each named object in an editor and save what was changed; returns 1 when one was not saved."""
    failed = False
    for place in reading.places(client, options):
        if not place.name:
            raise UsageError(f"name what to edit, as in `minik8s edit {place.kind.singular_name} web`")
        for kind, obj in reading.fetch(client, place, options):
            failed = _edit(client, kind, obj, options) != 0 or failed
    return int(failed)


def _edit(client: ApiClient, kind: Kind, obj: JsonObject, options: argparse.Namespace) -> int:
    live, refused = printing.printable(obj), None
    text = output.as_yaml(live) + "\n"
    while True:
        shown = HEAD + _commented(refused.why if refused else "") + text
        edited = _without_comments(opened(shown))
        if edited == _without_comments(text) and (refused is None or edited == refused.text):
            return _cancelled(edited, refused)
        if not edited.strip():
            return _cancelled(refused.text if refused else "", refused)
        text = edited
        try:
            changed = _parsed(edited, live)
            if changed == live:
                return _cancelled(edited, refused)
            print(_saved(client, kind, live, changed, options))
        except Conflict:
            live, text, refused = _rebased(client, kind, live, _parsed(edited, live))
        except (BadRequest, Forbidden, Invalid, UsageError) as error:
            refused = _Refused(edited, str(error))
        except (StatusError, NotFound) as error:
            _keep(edited)
            raise UsageError(f"{name_of(kind, live['metadata']['name'])} was not saved: {error}") from error
        else:
            return 0


def _saved(client: ApiClient, kind: Kind, live: JsonObject, changed: JsonObject, options: argparse.Namespace) -> str:
    after = client.update(kind, changed, dry_run=is_dry(options), field_manager=options.field_manager)
    same = after["metadata"].get("resourceVersion") == live["metadata"].get("resourceVersion")
    verb = "skipped" if same and not is_dry(options) else "edited"
    return f"{name_of(kind, live['metadata']['name'])} {verb}{DRY.get(options.dry_run, '')}"


def _rebased(client: ApiClient, kind: Kind, live: JsonObject, changed: JsonObject) -> tuple[JsonObject, str, _Refused]:
    """Return the newer object, the text with the person's changes put onto it, and why it is opened again."""
    newer = printing.printable(client.get(kind, changed["metadata"]["name"], changed["metadata"].get("namespace", "")))
    changes = difference(live, changed)
    changes.get("metadata", {}).pop("resourceVersion", None)
    text = output.as_yaml(merge_patch(newer, changes)) + "\n"
    why = "the object was changed by others meanwhile; your changes stand on the newer one here: look, and save again"
    return newer, text, _Refused("", why)


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> JsonObject:
    """Return the JSON merge patch that makes ``new`` of ``old`` (RFC 7386)."""
    patch: JsonObject = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := difference(before, value):
                patch[name] = inner
        elif value != before or name not in old:
            patch[name] = value
    return patch


def _parsed(text: str, live: JsonObject) -> JsonObject:
    try:
        obj = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"this is no valid YAML: {error}") from error
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
        raise UsageError("an object is a mapping with metadata")
    fixed = {**{field: live.get(field) for field in _FIXED}, "name": live["metadata"].get("name")}
    found = {**{field: obj.get(field) for field in _FIXED}, "name": obj["metadata"].get("name")}
    if wrong := [f"{field} must stay {fixed[field]}" for field in fixed if fixed[field] != found[field]]:
        raise UsageError("; ".join(wrong))
    return obj


def _commented(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines()) + ("#\n" if text else "")


def _without_comments(text: str) -> str:
    """Return the text without the comments at its beginning; later ones may be part of a value."""
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith("#"):
        del lines[0]
    return "".join(lines)


def _cancelled(text: str, refused: _Refused | None) -> int:
    if refused is None:
        print("Edit cancelled, no changes made.")
        return 0
    output.fail("Edit cancelled, no valid changes were saved.")
    _keep(text or refused.text)
    return 1


def _keep(text: str) -> None:
    with tempfile.NamedTemporaryFile("w", prefix="minik8s-edit-", suffix=".yaml", delete=False) as kept:
        kept.write(text)
    output.warn(f"a copy of your changes is in {kept.name}")


def opened(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return ``text`` as the person's editor leaves it ($MINIK8S_EDITOR, $KUBE_EDITOR, $VISUAL, $EDITOR, else vi).

    Raises:
        UsageError: there is no editor, or it failed.
    """
    names = ("MINIK8S_EDITOR", "KUBE_EDITOR", "VISUAL", "EDITOR")
    editor = next((environ[name] for name in names if environ.get(name)), "vi")
    with tempfile.TemporaryDirectory(prefix="minik8s-edit-") as folder:  # readable by its owner alone
        file = Path(folder) / "object.yaml"
        file.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run([*shlex.split(editor), str(file)], check=False)
        except OSError as error:
            raise UsageError(f"cannot start the editor {editor!r}: {error.strerror}; set $EDITOR") from error
        if done.returncode:
            raise UsageError(f"the editor {editor!r} failed with {done.returncode}; nothing was saved")
        return file.read_text(encoding="utf-8")
