"""Section ``secrets``: values of Kubernetes Secrets on tmpfs, one file a key, and a sealed last-good copy.

Entries hold names and HMACs only; values come in the request's blob. Beside them, on the tmpfs as well, stands what
was declared (the HMAC) with a keyed hash of the files, so a file changed by hand is seen. After a boot, or when a
value is gone and was not sent, it comes from ``<state_dir>/secrets.sealed``. Nothing here puts a value in a message.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..core.digests import Entries, canonical, digest_of_digests
from ..core.faults import KeyFault
from ..core.files import read_bytes, read_json, remove_file, temporary_for, write_atomically
from ..core.paths import component, secret_dir, secrets_dir, split_key
from ..core.schema import check_fields, check_texts, schema_of
from ..core.sealing import MAC_BYTES, known_key, node_key, seal, unseal
from ..core.section import TIDY, Context, Facets, Plan, Scope, Step
from ..entries.secrets import SecretEntry
from . import hollow, tmpfs

ENTRY = schema_of(SecretEntry)
META, SEALED_MARK, VOLUMES = ".meta", ".sealed", ".volumes"
SEAL_KEY = "secrets.sealed"
Values = dict[str, bytes]


class StoredSecret(NamedTuple):
    """A secret on the tmpfs: its keys, the HMAC it was written for, whether the files are still those."""

    keys: tuple[str, ...]
    hmac: str
    intact: bool


class ObservedSecrets(NamedTuple):
    """Secrets by key, whether the tmpfs is there, the sealed copy's mark, and what the blob holds."""

    found: dict[str, StoredSecret]
    ready: bool
    can_go: bool
    sealed_mark: str
    blob: dict[str, Values]
    sealed_mac: str
    hollow: Sequence[str] = ()  # see hollow.of_secrets


def sealed_path(state_dir: str) -> str:
    """Return the file of the sealed last-good copy."""
    return os.path.join(state_dir, "secrets.sealed")


def _meta_path(run_dir: str, key: str) -> str:
    return os.path.join(secrets_dir(run_dir), META, *split_key(key))


def _mark_path(run_dir: str) -> str:
    return os.path.join(secrets_dir(run_dir), SEALED_MARK)


def _check_hash(key: bytes, values: Mapping[str, bytes]) -> str:
    rows = sorted((name, hmac.new(key, value, "sha256").hexdigest()) for name, value in values.items())
    return hmac.new(key, canonical(rows), "sha256").hexdigest()


def read_values(run_dir: str, key: str) -> Values:
    """Return a secret's values from the tmpfs; {} when it is not there."""
    folder = secret_dir(run_dir, key)
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return {}
    found = {name: read_bytes(os.path.join(folder, name)) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def holds_secrets(run_dir: str) -> bool:
    """Return whether any secret stands on the tmpfs."""
    return bool(_present(run_dir))


def decode_blob(blob: str | None) -> dict[str, Values]:
    """Return the values of a request's blob.

    Raises:
        KeyFault: InvalidBlob; the message does not hold what was sent.
    """
    if not blob:
        return {}
    try:
        rows = json.loads(base64.b64decode(blob, validate=True))
        return {
            secret: {name: base64.b64decode(text, validate=True) for name, text in values.items()}
            for secret, values in rows.items()
        }
    except (ValueError, TypeError, AttributeError, binascii.Error):
        raise KeyFault("InvalidBlob", "blob is not base64 of JSON {secret: {key: base64}}") from None


def sealed_mark(entries: Entries, mac: str) -> str:
    """Return what tells that a sealed copy holds these secrets: the declared HMACs' digest and the copy's MAC."""
    return digest_of_digests({key: str(entry["hmac"]) for key, entry in entries.items()}) + ":" + mac


def _mac(sealed: bytes | None) -> str:
    return (sealed or b"")[-MAC_BYTES:].hex()


class Secrets:
    """The section's observe, plan and apply."""

    name = "secrets"

    def check_entry(self, key: str, entry: Mapping[str, Any]) -> None:
        """Raise KeyFault for an entry that cannot be used."""
        check_fields(key, entry, ENTRY)
        check_texts(f"{key}.keys", entry["keys"])
        if split_key(key)[0].startswith("."):
            raise KeyFault("InvalidName", f"namespace of {key!r} begins with a dot")
        for name in entry["keys"]:
            component(name)

    def observe(self, context: Context, entries: Entries, scope: Scope) -> ObservedSecrets:
        """Return the secrets on the tmpfs and what the blob brings."""
        hashing = known_key(context.state_dir)
        keys = _present(context.run_dir) | set(entries)
        found = {key: _look(context.run_dir, key, hashing) for key in keys if scope.covers(key)}
        mark = read_bytes(_mark_path(context.run_dir)) or b""
        blob = {key: values for key, values in decode_blob(context.blob).items() if scope.covers(key)}
        return ObservedSecrets(
            {
                key: one
                for key, one in found.items()
                if _holds(one) or (key not in entries and os.path.isdir(secret_dir(context.run_dir, key)))
            },
            tmpfs.is_ready(context.run_dir),
            tmpfs.can_go(context.run_dir) and not _list(os.path.join(secrets_dir(context.run_dir), VOLUMES)),
            mark.decode("ascii", "replace"),
            blob,
            _mac(read_bytes(sealed_path(context.state_dir))),
            hollow.of_secrets(secrets_dir(context.run_dir), os.path.join(secrets_dir(context.run_dir), META)),
        )

    def plan(self, context: Context, entries: Entries, observed: ObservedSecrets, scope: Scope) -> Plan:
        """Return the steps; the seal comes last."""
        plan = Plan()
        for key in sorted(set(observed.found) - set(entries)):
            found = observed.found[key]
            if _holds(found):
                plan.steps.append(Step("remove", key, _counted(len(found.keys), "key")))
            else:  # the folder alone: a run was killed before it wrote what belongs there
                plan.closing.append(Step(TIDY, key, "empty folder"))
            plan.differs(key, _facets(found), None)
        for key, entry in entries.items():
            if scope.covers(key):
                _plan_secret(plan, key, entry, observed)
        if entries and not observed.ready:
            plan.opening.append(tmpfs.step_to_mount(context.run_dir))
        used = {key.partition("/")[0] for key in entries}
        if empty := [folder for folder in observed.hollow if os.path.basename(folder) not in used]:
            plan.closing.append(Step(TIDY, tmpfs.KEY, ", ".join(empty), empty))
        _plan_seal(plan, context, entries, observed)
        return plan

    def apply(self, context: Context, step: Step) -> None:
        """Carry out one step."""
        getattr(self, "_" + step.action)(context, step)

    def _mount(self, context: Context, step: Step) -> None:
        tmpfs.make_ready(context)

    def _unmount(self, context: Context, step: Step) -> None:
        tmpfs.take_away(context)

    def _remove(self, context: Context, step: Step) -> None:
        folder, mark = secret_dir(context.run_dir, step.key), _meta_path(context.run_dir, step.key)
        context.checkpoint("remove secret")
        shutil.rmtree(folder, ignore_errors=True)
        context.checkpoint("remove secret's mark")
        remove_file(mark)
        remove_file(temporary_for(mark))
        for empty in (os.path.dirname(folder), os.path.dirname(mark)):
            context.checkpoint("remove empty folder")
            _rmdir(empty)

    def _tidy(self, context: Context, step: Step) -> None:
        if step.key == tmpfs.KEY:
            hollow.remove(context.checkpoint, step.data)
        else:
            self._remove(context, step)

    def _write(self, context: Context, step: Step) -> None:
        entry, values = step.data
        tmpfs.require(context.run_dir)
        if values is None:
            values = _from_seal(context.state_dir, step.key, entry)
        if set(values) != set(entry["keys"]):
            raise KeyFault("InvalidBlob", f"secret {step.key} was sent with other keys than declared {entry['keys']}")
        folder = secret_dir(context.run_dir, step.key)
        context.checkpoint("make folder of secret")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        for name in set(_list(folder)) - set(values):
            context.checkpoint("remove secret key")
            remove_file(os.path.join(folder, name))
        for name, value in values.items():
            context.checkpoint("write secret key")
            write_atomically(os.path.join(folder, name), value, 0o400)
        context.checkpoint("write secret's mark")
        marks = {"hmac": entry["hmac"], "check": _check_hash(node_key(context.state_dir), values)}
        write_atomically(_meta_path(context.run_dir, step.key), canonical(marks))

    def _seal(self, context: Context, step: Step) -> None:
        entries: Entries = step.data
        hashing = node_key(context.state_dir)
        rows = {}
        for key, entry in entries.items():
            if _is_right(entry, _look(context.run_dir, key, hashing)):
                values = read_values(context.run_dir, key)
                rows[key] = {"hmac": entry["hmac"], "data": {name: _text(each) for name, each in values.items()}}
        if len(rows) < len(entries):  # a value is missing: better an older whole copy than a newer one with a hole
            rows = {**_older_rows(context.state_dir), **rows}
        sealed = seal(hashing, canonical({key: row for key, row in rows.items() if key in entries}))
        context.checkpoint("write sealed copy")
        write_atomically(sealed_path(context.state_dir), sealed, sync=True)
        context.checkpoint("mark sealed copy")
        if set(rows) >= set(entries):
            write_atomically(_mark_path(context.run_dir), sealed_mark(entries, _mac(sealed)).encode())

    def _unseal(self, context: Context, step: Step) -> None:
        context.checkpoint("remove sealed copy")
        remove_file(sealed_path(context.state_dir))

    def status(
        self, context: Context, entries: Entries, observed: ObservedSecrets, touched: frozenset[str]
    ) -> dict[str, Any]:
        """Return ``{"state": "present"}`` of each secret whose files are the declared ones, else None."""
        hashing = known_key(context.state_dir)
        found = {key: _look(context.run_dir, key, hashing) for key in entries}
        return {key: {"state": "present"} if _is_right(entry, found[key]) else None for key, entry in entries.items()}


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _list(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _rmdir(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        return  # it holds something else, or is gone


def _present(run_dir: str) -> set[str]:
    root = secrets_dir(run_dir)
    found: set[str] = set()
    for base in (root, os.path.join(root, META)):
        for namespace in _list(base):
            if not namespace.startswith("."):
                found.update(f"{namespace}/{name}" for name in _list(os.path.join(base, namespace)))
    return found


def _look(run_dir: str, key: str, hashing: bytes) -> StoredSecret:
    values, meta = read_values(run_dir, key), read_json(_meta_path(run_dir, key)) or {}
    intact = bool(hashing) and meta.get("check") == _check_hash(hashing, values)
    return StoredSecret(tuple(sorted(values)), str(meta.get("hmac", "")), intact)


def _holds(found: StoredSecret) -> bool:
    return bool(found.keys or found.hmac)


def _is_right(entry: Mapping[str, Any], found: StoredSecret) -> bool:
    return found.intact and found.hmac == entry["hmac"] and found.keys == tuple(sorted(entry["keys"]))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _facets(found: StoredSecret) -> Facets:
    return {"keys": " ".join(found.keys), "hmac": found.hmac[:12], "intact": str(found.intact)}


def _plan_secret(plan: Plan, key: str, entry: Mapping[str, Any], observed: ObservedSecrets) -> None:
    found = observed.found.get(key, StoredSecret((), "", intact=False))
    if observed.ready and _is_right(entry, found):
        return
    values = observed.blob.get(key)
    plan.steps.append(Step("write", key, _counted(len(entry["keys"]), "key"), (entry, values)))
    wanted = StoredSecret(tuple(sorted(entry["keys"])), entry["hmac"], intact=True)
    plan.differs(key, _facets(found) if found.keys else None, _facets(wanted))


def _plan_seal(plan: Plan, context: Context, entries: Entries, observed: ObservedSecrets) -> None:
    if not entries:
        if observed.sealed_mac:
            plan.closing.append(Step("unseal", SEAL_KEY, "no secret is declared"))
        if observed.can_go:
            plan.closing.append(tmpfs.step_to_unmount(context.run_dir))
        return
    if plan.steps or not observed.sealed_mac or observed.sealed_mark != sealed_mark(entries, observed.sealed_mac):
        plan.closing.append(Step("seal", SEAL_KEY, _counted(len(entries), "secret"), dict(entries)))


def _sealed_rows(state_dir: str) -> dict[str, Any]:
    sealed = read_bytes(sealed_path(state_dir))
    return dict(json.loads(unseal(node_key(state_dir), sealed))) if sealed else {}


def _older_rows(state_dir: str) -> dict[str, Any]:
    """Return what the sealed copy holds, nothing when it is broken (then it is replaced, hole or not)."""
    try:
        return _sealed_rows(state_dir)
    except KeyFault:
        return {}


def _from_seal(state_dir: str, key: str, entry: Mapping[str, Any]) -> Values:
    row = _sealed_rows(state_dir).get(key)
    if row is None or row["hmac"] != entry["hmac"]:
        raise KeyFault("SecretMissing", f"the values of secret {key} are not on the node and were not sent")
    return {name: base64.b64decode(text) for name, text in row["data"].items()}
