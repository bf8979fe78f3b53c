"""Reads manifests: files, folders or standard input; many YAML or JSON documents each.

A manifest without apiVersion is read as ``v1``, as the original MiniK8s reads all of them. What kubectl is to read
becomes canonical here already: its ``apply`` merges with the live object, which must be spelled alike.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson
import yaml

from minik8s_modules.api.defaulting.dialect import ANNOTATION, ORIGINAL, to_canonical
from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.output import warn

SUFFIXES = (".yaml", ".yml", ".json")
LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FETCHED = ("http://", "https://")


class Manifest(NamedTuple):
    """One object of a file, with its kind; ``where`` is the file and the document's number."""

    kind: Kind
    object: JsonObject
    where: str


def read_manifests(
    paths: Sequence[str], namespace: str, *, recursive: bool = False, dialect: str = ""
) -> list[Manifest]:
    """Return all objects of ``paths`` in order; a namespaced one without a namespace gets ``namespace``.

    ``dialect`` ``original`` marks each object as one of the original MiniK8s.

    Raises:
        UsageError: a file cannot be read, is no YAML, or holds something that is no known object.
    """
    found = [manifest for path in paths for manifest in _read(path, recursive=recursive)]
    if not found:
        raise UsageError(f"no objects in {', '.join(paths)}")
    for manifest in found:
        metadata = manifest.object["metadata"]
        if manifest.kind.namespaced:
            metadata.setdefault("namespace", namespace)
        if dialect == ORIGINAL:
            _mark(metadata)
    return found


def in_kubernetes_terms(path: str, text: str | None, *, recursive: bool, dialect: str) -> str | None:
    """Return the documents of ``path`` (of ``text`` where it is standard input) as Kubernetes spells them.

    None where they are so already, or where what is wrong with them is kubectl's to say.

    Raises:
        UsageError: an object names no apiVersion, and v1 has no such kind.
    """
    if path.startswith(_FETCHED):
        return None
    try:
        texts = [("standard input", text)] if text is not None else list(_texts(path, recursive=recursive))
        read = [(name, list(yaml.load_all(each, Loader=LOADER))) for name, each in texts]
    except (UsageError, yaml.YAMLError, UnicodeEncodeError):
        return None
    before = [
        (document, f"{name}, document {number}") for name, found in read for number, document in enumerate(found, 1)
    ]
    after = [_translated(document, where, dialect) for document, where in before if document is not None]
    if after == [document for document, _ in before if document is not None]:
        return None
    # JSON documents, which kubectl reads one after the other: it takes `---` between them for a mistake
    return "\n".join(orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS).decode() for document in after)


def _translated(document: object, where: str, dialect: str) -> object:
    """Return an object, or each of a list, as Kubernetes spells it; what is no object as it is."""
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        return document
    if document["kind"].endswith("List") and isinstance(document.get("items"), list):
        items = [
            _translated(item, f"{where}, item {number}", dialect) for number, item in enumerate(document["items"], 1)
        ]
        return {**document, "items": items}
    obj = copy.deepcopy(document)
    known = KINDS.by_api_version(str(obj["apiVersion"]), obj["kind"]) if obj.get("apiVersion") else None
    known = known or (None if obj.get("apiVersion") else _unversioned(obj, obj["kind"], where))
    if known is None:
        return document
    if dialect == ORIGINAL and isinstance(obj.setdefault("metadata", {}), dict):
        _mark(obj["metadata"])
    return to_canonical(known, obj)


def _mark(metadata: JsonObject) -> None:
    metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION: ORIGINAL}


def kind_of(document: JsonObject, where: str) -> Kind:
    """Return the kind ``document`` names by apiVersion and kind.

    Raises:
        UsageError: there is no kind, or the cluster does not serve it.
    """
    kind, api_version = document.get("kind"), document.get("apiVersion")
    if not isinstance(kind, str) or not kind:
        raise UsageError(f"{where}: kind not found; say what it is, as in `apiVersion: v1` and `kind: Pod`")
    if api_version is None:
        return _unversioned(document, kind, where)
    known = KINDS.by_api_version(str(api_version), kind)
    if known is None:
        raise UsageError(f"{where}: kind {kind} of {api_version} is not served by this cluster{_elsewhere(kind)}")
    return known


def _unversioned(document: JsonObject, kind: str, where: str) -> Kind:
    known = KINDS.by_kind("", "v1", kind)
    if known is None:
        raise UsageError(f"{where}: no apiVersion, and v1 has no kind {kind}{_elsewhere(kind)}")
    warn(f"{where}: no apiVersion; read as v1, as the original MiniK8s does")
    document["apiVersion"] = "v1"
    return known


def _elsewhere(kind: str) -> str:
    """Return where a kind of that name, in whatever case, is served."""
    versions = sorted({f"{at.kind} of {at.api_version}" for at in KINDS.all() if at.kind.lower() == kind.lower()})
    return f"; there is {', '.join(versions)}" if versions else ""


def _read(path: str, *, recursive: bool) -> Iterator[Manifest]:
    for name, text in _texts(path, recursive=recursive):
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
    if str(document.get("kind")).endswith("List") and isinstance(document.get("items"), list):
        for number, item in enumerate(document["items"], 1):
            yield from _expand(item, f"{where}, item {number}")
        return
    kind = kind_of(document, where)
    metadata = document.get("metadata")
    document["metadata"] = metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict):
        raise UsageError(f"{where}: metadata is a mapping, not {type(metadata).__name__}")
    yield Manifest(kind, document, where)


def _texts(path: str, *, recursive: bool) -> Iterator[tuple[str, str]]:
    if path == "-":
        yield "standard input", sys.stdin.read()
        return
    if path.startswith(_FETCHED):
        raise UsageError(f"{path}: manifests are not fetched; download it, look at it, and give the file or `-`")
    place = Path(path)
    inside = place.rglob("*") if recursive else place.iterdir() if place.is_dir() else ()
    files = sorted(file for file in inside if file.suffix in SUFFIXES) if place.is_dir() else [place]
    for file in files:
        try:
            yield str(file), file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {file}: {error}") from error
