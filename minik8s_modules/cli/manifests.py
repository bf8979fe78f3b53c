"""Reads manifests: files, folders or standard input; many YAML or JSON documents each."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.errors import UsageError

SUFFIXES = (".yaml", ".yml", ".json")


class Manifest(NamedTuple):
    """One object of a file, with its kind; ``where`` is the file and the document's number."""

    kind: Kind
    object: JsonObject
    where: str


def read_manifests(paths: Sequence[str], namespace: str) -> list[Manifest]:
    """Return all objects of ``paths`` in order; a namespaced one without a namespace gets ``namespace``.

    Raises:
        UsageError: a file cannot be read, is no YAML, or holds something that is no known object.
    """
    found = [manifest for path in paths for manifest in _read(path)]
    if not found:
        raise UsageError(f"no objects in {', '.join(paths)}")
    for manifest in found:
        if manifest.kind.namespaced:
            manifest.object["metadata"].setdefault("namespace", namespace)
    return found


def kind_of(document: JsonObject, where: str) -> Kind:
    """Return the kind ``document`` names by apiVersion and kind.

    Raises:
        UsageError: one of them is missing, or the cluster does not serve it.
    """
    api_version, kind = document.get("apiVersion"), document.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        raise UsageError(f"{where}: apiVersion and kind must be given, as in `apiVersion: v1` and `kind: Pod`")
    known = KINDS.by_api_version(api_version, kind)
    if known is None:
        raise UsageError(f"{where}: kind {kind} of {api_version} is not served by this cluster")
    return known


def _read(path: str) -> Iterator[Manifest]:
    for name, text in _texts(path):
        try:
            documents = list(yaml.safe_load_all(text))
        except yaml.YAMLError as error:
            raise UsageError(f"{name} is no valid YAML: {error}") from error
        for number, document in enumerate(documents, 1):
            if document is not None:
                yield from _expand(document, f"{name}, document {number}")


def _expand(document: object, where: str) -> Iterator[Manifest]:
    if not isinstance(document, dict):
        raise UsageError(f"{where}: an object is a mapping, not {type(document).__name__}")
    if document.get("kind") == "List" and isinstance(document.get("items"), list):
        for number, item in enumerate(document["items"], 1):
            yield from _expand(item, f"{where}, item {number}")
        return
    kind = kind_of(document, where)
    metadata = document.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise UsageError(f"{where}: metadata is a mapping, not {type(metadata).__name__}")
    yield Manifest(kind, document, where)


def _texts(path: str) -> Iterator[tuple[str, str]]:
    if path == "-":
        yield "standard input", sys.stdin.read()
        return
    place = Path(path)
    files = sorted(file for file in place.iterdir() if file.suffix in SUFFIXES) if place.is_dir() else [place]
    for file in files:
        try:
            yield str(file), file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {file}: {error}") from error
