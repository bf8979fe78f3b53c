"""Reads manifests: files, folders or standard input; many YAML or JSON documents each.

A manifest without apiVersion is read as ``v1``, as the original MiniK8s reads all of them, and one of its dialect
becomes canonical here already: kubectl's ``apply`` merges with the live object, which must be spelled alike.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml

from minik8s_modules.api.defaulting.dialect import ANNOTATION, to_canonical
from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.manifest_yaml import ManifestLoader
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.original.sources import with_source
from minik8s_modules.cli.output import warn

SUFFIXES = (".yaml", ".yml", ".json")
LOADER: type[yaml.SafeLoader] = ManifestLoader
_FETCHED = ("http://", "https://")


class Manifest(NamedTuple):
    """An object, and where it is written: file and document, in words."""

    object: JsonObject
    where: str


def read_manifests(
    paths: Sequence[str],
    namespace: str,
    *,
    only: bool = False,
    recursive: bool = False,
    dialect: str = "",
    more: Sequence[tuple[str, str]] = (),
) -> list[Manifest]:
    """Return all objects of ``paths`` in order; a namespaced one without a namespace gets ``namespace``.

    ``dialect`` marks each object as one of the original MiniK8s, or of Kubernetes; ``more`` are texts that are in no
    file, with what they are called.

    Raises:
        UsageError: a file cannot be read, is no YAML, or holds something that is no known object, or with ``only``
            one of another namespace.
    """
    texts = chain(*(_texts(path, recursive=recursive) for path in paths), more)
    found = [
        one
        for document, where in _documents(texts)
        for one in objects_of(_translated(document, where, dialect), where, namespace)
    ]
    if not found:
        raise UsageError(f"no objects in {', '.join([*paths, *(name for name, _ in more)])}")
    if only:
        _refuse_others(found, namespace)
    return found


def documents(paths: Sequence[str], *, recursive: bool = False) -> Iterator[tuple[Any, str]]:
    """Yield each document of ``paths`` as it is written but for the original's dialect, and where it stands.

    Raises:
        UsageError: a file cannot be read, or is no YAML.
    """
    for path in paths:
        for document, where in _documents(_texts(path, recursive=recursive)):
            yield _translated(document, where, ""), where


def _refuse_others(found: Iterable[Manifest], namespace: str) -> None:
    for each in found:
        own = each.object["metadata"].get("namespace", namespace)
        if own != namespace:  # kubectl's words (cli-runtime, resource.RequireNamespace)
            raise UsageError(
                f'the namespace from the provided object "{own}" does not match the namespace "{namespace}". '
                f"You must pass '--namespace={own}' to perform this operation."
            )


def in_kubernetes_terms(path: str, text: str | None, *, recursive: bool, dialect: str) -> str | None:
    """Return the documents of ``path`` (of ``text`` where it can be read only once) as Kubernetes spells them.

    None where they are so already, or where what is wrong with them is kubectl's to say.

    Raises:
        UsageError: an object names no apiVersion, and v1 has no such kind.
    """
    texts = _texts(path, recursive=recursive) if text is None else [("standard input" if path == "-" else path, text)]
    try:
        before = [] if path.startswith(_FETCHED) else list(_documents(texts))
    except UsageError:
        return None
    after = [_translated(document, where, dialect) for document, where in before]
    if after == [document for document, _ in before]:
        return None
    # JSON documents, which kubectl reads one after the other: it takes `---` between them for a mistake
    return "\n".join(orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS).decode() for document in after)


def _documents(texts: Iterable[tuple[str, str]]) -> Iterator[tuple[Any, str]]:
    """Yield each document that is not empty, and where it stands."""
    for name, text in texts:
        try:
            documents = list(yaml.load_all(text, Loader=LOADER))
        except (yaml.YAMLError, UnicodeEncodeError) as error:
            raise UsageError(f"{name} is not valid YAML: {error}") from error
        for number, document in enumerate(documents, 1):
            if document is not None:
                yield document, f"{name}, document {number}"


def _texts(path: str, *, recursive: bool) -> Iterator[tuple[str, str]]:
    if path == "-":
        yield "standard input", sys.stdin.read()
        return
    if path.startswith(_FETCHED):
        raise UsageError(f"{path}: manifests are not downloaded; fetch the file, review it, and pass it or `-`")
    place = Path(path)
    inside = place.rglob("*") if recursive else place.iterdir() if place.is_dir() else ()
    files = sorted(file for file in inside if file.suffix in SUFFIXES) if place.is_dir() else [place]
    for file in files:
        try:
            yield str(file), file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"cannot read {file}: {why}") from error


def _items(document: Any) -> list[Any] | None:
    """Return the objects of a list, None for anything else."""
    if not isinstance(document, dict) or not str(document.get("kind")).endswith("List"):
        return None
    return document["items"] if isinstance(document.get("items"), list) else None


def _translated(document: Any, where: str, dialect: str) -> Any:
    """Return an object, or each of a list, as Kubernetes spells it; what is no object as it is."""
    if (items := _items(document)) is not None:
        translated = [_translated(item, f"{where}, item {number}", dialect) for number, item in enumerate(items, 1)]
        return {**document, "items": translated}
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        return document
    obj = copy.deepcopy(document)
    if obj.get("apiVersion") is None:
        known: Kind | None = _unversioned(obj, where)
    else:
        known = KINDS.by_api_version(str(obj["apiVersion"]), obj["kind"])
    if known is None:
        return document
    if dialect and isinstance(metadata := obj.setdefault("metadata", {}), dict):
        metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION: dialect}
    return with_source(known, to_canonical(known, obj), where)


def _unversioned(obj: JsonObject, where: str) -> Kind:
    known = KINDS.by_kind("", "v1", obj["kind"])
    if known is None:
        raise UsageError(f"{where}: no apiVersion, and v1 has no kind {obj['kind']}{_elsewhere(obj['kind'])}")
    warn(f"{where}: no apiVersion; read as v1, as the original MiniK8s does")
    obj["apiVersion"] = "v1"
    return known


def _elsewhere(kind: str) -> str:
    """Return where a kind of that name, in whatever case, is served."""
    versions = sorted({f"{at.kind} of {at.api_version}" for at in KINDS.all() if at.kind.lower() == kind.lower()})
    return f"; there is {', '.join(versions)}" if versions else ""


def objects_of(document: Any, where: str, namespace: str) -> Iterator[Manifest]:
    """Yield a document's objects, each of a kind that is served, with its namespace."""
    if (items := _items(document)) is not None:
        for number, item in enumerate(items, 1):
            yield from objects_of(item, f"{where}, item {number}", namespace)
        return
    if not isinstance(document, dict):
        raise UsageError(f"{where}: an object must be a mapping, not {type(document).__name__}")
    kind, version = document.get("kind"), document.get("apiVersion")
    if not isinstance(kind, str) or not kind:
        if Path(where.partition(", document ")[0]).stem == "kustomization":
            raise UsageError(f"{where}: give a kustomization's folder by -k, or what `kubectl kustomize FOLDER` prints")
        raise UsageError(f"{where}: no kind; add one, such as `apiVersion: v1` and `kind: Pod`")
    known = KINDS.by_api_version(str(version), kind)
    if known is None and not _may_be_custom(str(version)):
        raise UsageError(f"{where}: kind {kind} of {version} is not served by this cluster{_elsewhere(kind)}")
    document["metadata"] = metadata = document.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise UsageError(f"{where}: metadata must be a mapping, not {type(metadata).__name__}")
    if known is None or known.namespaced:  # the server takes it away from what is in none
        metadata.setdefault("namespace", namespace)
    yield Manifest(document, where)


def _may_be_custom(version: str) -> bool:
    """Return whether a CustomResourceDefinition may declare kinds of that ``group/version``: the server knows."""
    group, _, _ = version.rpartition("/")
    return "." in group and group not in KINDS.groups()
