"""Brings API objects to what is declared: ask the server what a write would do, then write, then wait.

``plan`` compares the live object with the answer of a dry run, so defaults, admission and the ownership of fields
(server-side apply) are the server's own; nothing is written where nothing would change. ``Step.before`` and ``after``
are what a person is shown: without what every write changes, and without the values of Secrets. The module
``library/minik8s_object.py`` is the shell around this.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Expired, NotFound
from minik8s_modules.api.field_selectors import exactly
from minik8s_modules.api.kinds import KINDS, NAMESPACE, Kind
from minik8s_modules.api.merging.shown import pair_shown
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.manifest_yaml import ManifestLoader
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.interface import PatchType
from minik8s_modules.client.readiness import Condition, Unready, judge

State = Literal["present", "absent", "patched"]
_WATCH_S = 30.0
_PAUSE_S = 0.5


class DeclaredObject(NamedTuple):
    """One declared object and its kind."""

    kind: Kind
    object: JsonObject

    @property
    def name(self) -> str:
        """Return the object's name."""
        return objects.name(self.object)

    @property
    def namespace(self) -> str:
        """Return its namespace, "" for cluster-scoped kinds."""
        return objects.namespace(self.object)

    @property
    def key(self) -> str:
        """Return how people are told of it: ``pods default/web``."""
        return (
            f"{self.kind.resource} {self.namespace}/{self.name}"
            if self.namespace
            else f"{self.kind.resource} {self.name}"
        )


@dataclass(frozen=True)
class Manner:
    """How objects are written; ``force`` takes fields over that others own."""

    state: State = "present"
    field_manager: str = "ansible"
    force: bool = False
    patch_type: PatchType = "strategic"
    propagation: str | None = None
    grace_s: int | None = None


class DeclaredWrite(NamedTuple):
    """One write: ``created``, ``applied``, ``patched`` or ``deleted``; before and after as shown, None where absent."""

    action: str
    wanted: DeclaredObject
    uid: str
    before: JsonObject | None
    after: JsonObject | None


# --- what is declared ---------------------------------------------------------------------------


Find = Callable[[str, str], Kind | None]
"""Returns the kind of an ``apiVersion`` and ``kind``, None for one that is not served."""


def read(definition: Any, namespace: str, where: str, find: Find = KINDS.by_api_version) -> list[DeclaredObject]:
    """Return the objects of a mapping, a list of them, or YAML text; ``namespace`` is for those that name none.

    ``find`` may know kinds that are not built in (``discovery.kind_at``).

    Raises:
        ConfigurationError: a document is no object of a known kind with a name; or an object stands there twice.
    """
    documents = _parsed(definition, where) if isinstance(definition, str) else definition
    documents = documents if isinstance(documents, list) else [documents]
    found = [
        each
        for number, document in enumerate(documents, 1)
        for each in _read(document, namespace, f"{where}, document {number}", find)
    ]
    seen: set[str] = set()
    for each in found:
        if each.key in seen:
            raise ConfigurationError(f"{where}: {each.key} is declared twice; the two would overwrite each other")
        seen.add(each.key)
    if not found:
        raise ConfigurationError(f"{where}: there is no object in it")
    return found


def _parsed(text: str, where: str) -> list[Any]:
    try:
        return [document for document in yaml.load_all(text, Loader=ManifestLoader) if document is not None]
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{where} is not valid YAML: {error}") from error


def _read(document: Any, namespace: str, where: str, find: Find) -> Iterator[DeclaredObject]:
    if not isinstance(document, Mapping):
        raise ConfigurationError(f"{where}: an object must be a mapping, not {type(document).__name__}")
    if str(document.get("kind")).endswith("List") and isinstance(document.get("items"), list):
        for number, item in enumerate(document["items"], 1):
            yield from _read(item, namespace, f"{where}, item {number}", find)
        return
    api_version, kind_name = document.get("apiVersion"), document.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind_name, str):
        raise ConfigurationError(f"{where}: say what it is, as in `apiVersion: v1` and `kind: Pod`")
    kind = find(api_version, kind_name)
    if kind is None:
        raise ConfigurationError(f"{where}: kind {kind_name} of {api_version} is not known")
    yield DeclaredObject(kind, _placed(kind, copy.deepcopy(dict(document)), namespace, where))


def _placed(kind: Kind, obj: JsonObject, namespace: str, where: str) -> JsonObject:
    metadata = obj.setdefault("metadata", {})
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise ConfigurationError(
            f"{where}: {kind.kind} needs metadata.name; generateName would create a new object each time"
        )
    if kind.namespaced:
        metadata.setdefault("namespace", namespace)
    elif metadata.get("namespace"):
        raise ConfigurationError(
            f"{where}: {kind.kind} {metadata['name']} is in no namespace; leave metadata.namespace out"
        )
    return obj


# --- what would change --------------------------------------------------------------------------


def plan(
    client: ApiClient, wanted: DeclaredObject, manner: Manner, coming: Sequence[DeclaredObject] = ()
) -> DeclaredWrite | None:
    """Return the write that brings ``wanted`` about, None when it is so already.

    ``coming`` are objects that will be there by then: in one of their namespaces the server cannot be asked yet, and
    the object is shown as declared.

    Raises:
        StatusError: the server would refuse the write.
        ApiUnreachable: it did not answer.
    """
    live = _live(client, wanted)
    uid = objects.uid(live) if live else ""
    if manner.state == "absent":
        if live is None or objects.is_deleting(live):
            return None
        return DeclaredWrite("deleted", wanted, uid, shown(wanted.kind, live), None)
    try:
        after = _write(client, wanted, manner, dry_run=True)
    except NotFound:
        if live is not None or not _is_coming(wanted, coming) or manner.state == "patched":
            raise
        after = wanted.object
    before_shown, after_shown = pair_shown(wanted.kind, live, after, manner.field_manager)
    if before_shown == after_shown:
        return None
    action = "patched" if manner.state == "patched" else "applied" if live else "created"
    return DeclaredWrite(action, wanted, uid, *_for_people(before_shown, after_shown))


def _for_people(before: JsonObject | None, after: JsonObject) -> tuple[JsonObject | None, JsonObject]:
    """Return both without who owns which field, unless nothing else changes."""
    pair = None if before is None else _unowned(before), _unowned(after)
    return (before, after) if pair[0] == pair[1] else pair


def _unowned(obj: JsonObject) -> JsonObject:
    return {**obj, "metadata": {name: value for name, value in obj["metadata"].items() if name != "managedFields"}}


def _live(client: ApiClient, wanted: DeclaredObject) -> JsonObject | None:
    try:
        return client.get(wanted.kind, wanted.name, wanted.namespace)
    except NotFound:
        return None


def _is_coming(wanted: DeclaredObject, coming: Sequence[DeclaredObject]) -> bool:
    return any(each.kind is NAMESPACE and each.name == wanted.namespace for each in coming)


def _write(client: ApiClient, wanted: DeclaredObject, manner: Manner, *, dry_run: bool) -> JsonObject:
    patch_type: PatchType = "apply" if manner.state == "present" else manner.patch_type
    return client.patch(
        wanted.kind,
        wanted.name,
        wanted.namespace,
        wanted.object,
        patch_type=patch_type,
        dry_run=dry_run,
        field_manager=manner.field_manager,
        force=manner.force and patch_type == "apply",
    )


def result_of(done: Sequence[DeclaredWrite]) -> dict[str, Any]:
    """Return ``changed``, ``steps`` and ``diff`` as Ansible is told them."""
    before = {step.wanted.key: step.before for step in done if step.before is not None}
    after = {step.wanted.key: step.after for step in done if step.after is not None}
    steps = [{"action": step.action, "key": step.wanted.key} for step in done]
    return {"changed": bool(done), "steps": steps, "diff": {"before": before, "after": after}}


def outcome(
    client: ApiClient, wanted: Sequence[DeclaredObject], planned: Sequence[DeclaredWrite] = ()
) -> list[JsonObject]:
    """Return the objects as they are, those of ``foreseen`` steps as they would be, without absent ones."""
    coming = {step.wanted.key: step.after for step in planned}
    found = (coming[each.key] if each.key in coming else current(client, each) for each in wanted)
    return [obj for obj in found if obj is not None]


def current(client: ApiClient, wanted: DeclaredObject) -> JsonObject | None:
    """Return the object as it is, with its status, as a person is shown it; None where there is none."""
    live = _live(client, wanted)
    return None if live is None else {**shown(wanted.kind, live), "status": objects.status(live)}


def shown(kind: Kind, obj: JsonObject) -> JsonObject:
    """Return what a person is shown of an object: no status, nothing of its owners, no values of Secrets."""
    return _unowned(pair_shown(kind, None, obj)[1])


# --- doing it -----------------------------------------------------------------------------------


def carry_out(client: ApiClient, step: DeclaredWrite, manner: Manner) -> None:
    """Do what ``plan`` found; a deletion is of the very object that was seen.

    Raises:
        StatusError: the server refuses.
        ApiUnreachable: no answer; whether it was written is unknown.
    """
    wanted = step.wanted
    if step.action != "deleted":
        _write(client, wanted, manner, dry_run=False)
        return
    try:
        client.delete(
            wanted.kind,
            wanted.name,
            wanted.namespace,
            grace_s=manner.grace_s,
            uid=step.uid,
            propagation=manner.propagation,
        )
    except NotFound:
        return


def wait_all(
    client: ApiClient,
    wanted: Sequence[DeclaredObject],
    manner: Manner,
    conditions: Sequence[Condition],
    timeout_s: float,
) -> str:
    """Wait as ``wait`` does for each object, ``timeout_s`` in all; return what is missing, "" when nothing is."""
    deadline = time.monotonic() + timeout_s
    for each in wanted:
        if lack := wait(client, each, manner, conditions, deadline):
            over = "" if lack.hopeless else f" after {timeout_s:g} s"
            return f"{each.key} is not in the declared state{over}: {lack.missing}"
    return ""


def wait(
    client: ApiClient, wanted: DeclaredObject, manner: Manner, conditions: Sequence[Condition], deadline: float
) -> Unready | None:
    """Wait until the object is ready (or gone, when it is to be absent) or ``deadline`` (``time.monotonic``) has come.

    Returns what is missing then, None when nothing is. A server that does not answer is asked again until the deadline.
    """
    while True:
        try:
            found = _watched(client, wanted, manner, conditions, deadline)
        except (ApiUnreachable, Expired) as error:
            found = Unready(str(error))
        if found is None or found.hopeless or time.monotonic() >= deadline:
            return found
        time.sleep(min(_PAUSE_S, max(0.0, deadline - time.monotonic())))


def _watched(
    client: ApiClient, wanted: DeclaredObject, manner: Manner, conditions: Sequence[Condition], deadline: float
) -> Unready | None:
    """List the object, then follow its changes until it will do, the watch ends, or it is hopeless."""
    selector = exactly(metadata__name=wanted.name)
    page = client.list(wanted.kind, wanted.namespace, field_selector=selector)
    found = _verdict(page.items[0] if page.items else None, manner, conditions)
    left_s = deadline - time.monotonic()
    if found is None or found.hopeless or left_s <= 0:
        return found
    events = client.watch(
        wanted.kind,
        wanted.namespace,
        resource_version=page.resource_version,
        field_selector=selector,
        bookmarks=False,
        timeout_s=max(1, int(min(left_s, _WATCH_S))),
    )
    try:
        for event in events:
            found = _verdict(None if event.type == "DELETED" else event.object, manner, conditions)
            if found is None or found.hopeless:
                break
    finally:
        events.close()
    return found


def _verdict(obj: JsonObject | None, manner: Manner, conditions: Sequence[Condition]) -> Unready | None:
    if manner.state != "absent":
        return judge(obj, conditions)
    if obj is None:
        return None
    held = objects.finalizers(obj)
    return Unready(f"it is waiting for its finalizers {', '.join(held)}" if held else "it is still there")
