"""A job's results: files of its working folder that are copied to a ConfigMap, before its Pod is told as ended.

    the job has ended ─▶ its files are asked for with the next pass ─▶ the ConfigMap has them ─▶ the Pod has ended

Until then the Pod runs, its container ended: whoever waits for the Pod finds its results, and a provider that is killed
on the way finds a Pod that has not ended, and copies once more. What cannot succeed (too large, no file) ends the Pod
with a condition that says so; what may still come (the ConfigMap, a quota, a file system that answers) is tried again.
Nothing is kept but in the cluster.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, Invalid, StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods import slurm
from minik8s_modules.api.pods.scripts import INDEX
from minik8s_modules.api.pods.slurm import COPIED, RESULTS_TO, TAKES_RESULTS, InvalidResults, Wish, takes_results
from minik8s_modules.api.syntax import config_key
from minik8s_modules.api.validation.others import DATA_LIMIT_BYTES, validate_config_map
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.virtual.errors import InvalidInput
from minik8s_modules.virtual.provider import Resources

AT_ONCE = 20
AGAIN = Backoff(initial_s=1.0, maximum_s=60.0)
PATIENCE_S = 120.0
"""For so long files are looked for: the login machine's NFS client may remember a folder as it was before the job."""
COPYING, NO_RESULTS = "CopyingResults", "NoResults"
_ENDED = frozenset({"Succeeded", "Failed"})


class Outcome(NamedTuple):
    """How copying went: a reason and a message where files were not copied, and when that is tried again, if ever.

    ``missed_s`` is when no file was found for the first time.
    """

    reason: str = ""
    message: str = ""
    again_s: float | None = None
    times: int = 0
    missed_s: float | None = None


def wish_of(pod: JsonObject) -> Wish | None:
    """Return what a Pod asks for, None where it has no results.

    Raises:
        InvalidInput: an annotation cannot be understood.
    """
    try:
        return slurm.wish_of(pod)
    except InvalidResults as error:
        raise InvalidInput(str(error)) from error


def obstacle(wish: Wish, namespace: str, config_map: JsonObject | None) -> str:
    """Return why results cannot be copied to a ConfigMap now, "" where they can; it may come."""
    if config_map is None:
        return f"annotation {RESULTS_TO}: there is no ConfigMap {namespace}/{wish.config_map}"
    if not takes_results(config_map):
        asked = f'annotate it with {TAKES_RESULTS}: "true"'
        return f"annotation {RESULTS_TO}: ConfigMap {namespace}/{wish.config_map} does not take results; {asked}"
    return ""


def merged(config_map: JsonObject, files: Mapping[str, bytes], before: str) -> JsonObject:
    """Return a ConfigMap with files: a path's ``/`` becomes ``.``, and ``before`` comes first in each key.

    Raises:
        InvalidInput: two files would have one key, or a file's name is no key.
    """
    data, binary = dict(config_map.get("data") or {}), dict(config_map.get("binaryData") or {})
    paths: dict[str, str] = {}
    for path, content in files.items():
        key = before + path.replace("/", ".")
        if why := "; ".join(config_key(key)):
            raise InvalidInput(f"file {path!r:.80} is not copied, as its key {key!r:.80} in a ConfigMap: {why}")
        if key in paths:
            raise InvalidInput(f"files {paths[key]} and {path} would both have the key {key}")
        paths[key] = path
        data.pop(key, None)
        binary.pop(key, None)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            binary[key] = base64.b64encode(content).decode()
        else:
            data[key] = text
    kept = {field: value for field, value in config_map.items() if field not in {"data", "binaryData"}}
    return {**kept, **({"data": data} if data else {}), **({"binaryData": binary} if binary else {})}


def held(status: JsonObject, before: JsonObject, outcome: Outcome | None, now: str) -> JsonObject:
    """Return the status of a Pod whose job has ended as ``status`` says, and whose results are still to be copied."""
    reason = outcome.reason if outcome is not None else COPYING
    message = outcome.message if outcome is not None else "the job has ended, and its results are being copied"
    conditions = [
        {**one, "status": "False", "reason": reason, "message": message}
        if one["type"] in {"Ready", "ContainersReady"}
        else one
        for one in status["conditions"]
    ]
    kept = {field: value for field, value in status.items() if field not in {"reason", "message"}}
    copied = _condition(before, Outcome(reason, message), now)
    return {**kept, "phase": "Running", "conditions": [*conditions, copied]}


def closed(status: JsonObject, before: JsonObject, outcome: Outcome, now: str) -> JsonObject:
    """Return the status of a Pod whose job has ended as ``status`` says, once its results were dealt with."""
    found = {**status, "conditions": [*status["conditions"], _condition(before, outcome, now)]}
    if outcome.reason:
        said = f"its results were not copied: {outcome.message}"
        found["message"] = f"{status['message']}; {said}" if status.get("message") else said
    return found


def _condition(before: JsonObject, outcome: Outcome, now: str) -> JsonObject:
    holds = "False" if outcome.reason else "True"
    old: JsonObject = next((one for one in before.get("conditions") or [] if one["type"] == COPIED), {})
    since = old.get("lastTransitionTime") if old.get("status") == holds else None
    said = {"reason": outcome.reason, "message": outcome.message}
    words = {name: text for name, text in said.items() if text}
    return {"type": COPIED, "status": holds, "lastTransitionTime": since or now, **words}


class Copies:
    """Whose results were copied, as far as this process knows; its owner locks it."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._outcomes: dict[str, Outcome] = {}

    def forget(self, uid: str) -> None:
        """Know nothing of a Pod any more."""
        self._outcomes.pop(uid, None)

    def asks_anew(self, before: JsonObject, pod: JsonObject) -> bool:
        """Return whether a Pod that has not ended asks for something else than before; how that went is forgotten."""
        if has_same_wish(before, pod) or objects.status(before).get("phase") in _ENDED:
            return False
        self.forget(objects.uid(pod))
        return True

    def due(self, ended: Iterable[JsonObject], now_s: float) -> dict[str, Sequence[str]]:
        """Return for which of the Pods whose jobs have ended files are to be asked for now, and which."""
        found: dict[str, Sequence[str]] = {}
        for pod in ended:
            uid, outcome = objects.uid(pod), self._outcomes.get(objects.uid(pod))
            again_s = 0.0 if outcome is None else outcome.again_s
            wish = _wish(pod) if again_s is not None and again_s <= now_s else None
            if wish is not None and len(found) < AT_ONCE:
                found[uid] = [*wish.patterns]
        return found

    def next_try_s(self, ended: Iterable[JsonObject], now_s: float) -> float | None:
        """Return in how many seconds ``due`` asks again for the files of one of these Pods; None if it does not."""
        outcomes = [self._outcomes.get(objects.uid(pod)) for pod in ended if _wish(pod) is not None]
        waiting = [one.again_s - now_s for one in outcomes if one is not None and one.again_s is not None]
        return max(0.0, min(waiting)) if waiting else None

    def copy(self, pod: JsonObject, told: Mapping[str, Any], now_s: float) -> Outcome:
        """Copy what the login machine ``told`` of a Pod's files; return how it went, which is not noted yet."""
        before = self._outcomes.get(objects.uid(pod), Outcome())
        if "error" in told:
            failed = Outcome(str(told["error"]["reason"]), str(told["error"]["message"]))
            return _again(failed, before, now_s) if told["error"].get("temporary") else failed
        files = {path: base64.b64decode(data) for path, data in told["files"].items()}
        try:
            outcome = self._fill(pod, files)
        except InvalidInput as error:
            return Outcome("InvalidResults", str(error))
        except Invalid as error:
            return Outcome("ConfigMapInvalid", str(error))
        except (StatusError, TemporaryError, LookupError) as error:
            failed = Outcome("ConfigMapNotFilled", str(error.args[0] if error.args else error))
            found = _again(failed, before, now_s)
            return found._replace(again_s=now_s) if isinstance(error, Conflict) and found.times == 1 else found
        return _looked_for(outcome, before, now_s) if outcome.reason == NO_RESULTS else outcome

    def _fill(self, pod: JsonObject, files: Mapping[str, bytes]) -> Outcome:
        wish, namespace = _wish(pod), objects.namespace(pod)
        if wish is None:
            return Outcome()
        if not files:
            return Outcome(NO_RESULTS, f"no file in the job's folder matches {', '.join(wish.patterns)}")
        config_map = self._resources.config_map(namespace, wish.config_map)
        if why := obstacle(wish, namespace, config_map):
            raise LookupError(why)
        index = objects.annotations(pod).get(INDEX)
        filled = merged(config_map or {}, files, f"{index}-" if index is not None else "")
        if validate_config_map(filled):
            text = f"with them, ConfigMap {wish.config_map} would have more than {DATA_LIMIT_BYTES} bytes"
            return Outcome("ResultsTooLarge", text)
        if filled != config_map:
            self._resources.fill_config_map(filled)
        return Outcome()

    def note(self, uid: str, outcome: Outcome) -> None:
        """Note how it went."""
        self._outcomes[uid] = outcome

    def shown(self, pod: JsonObject, status: JsonObject, now: str) -> JsonObject:
        """Return the status of a Pod whose job is as ``status`` says, with its results in mind."""
        if status.get("phase") not in _ENDED or _wish(pod) is None:
            return status
        outcome, before = self._outcomes.get(objects.uid(pod)), objects.status(pod)
        if outcome is not None and outcome.again_s is None:
            return closed(status, before, outcome, now)
        return held(status, before, outcome, now)


def _again(outcome: Outcome, before: Outcome, now_s: float) -> Outcome:
    times = before.times + 1
    return outcome._replace(again_s=now_s + AGAIN.delay_s(times), times=times)


def _looked_for(outcome: Outcome, before: Outcome, now_s: float) -> Outcome:
    """Return ``outcome``, that no file is there, as what is tried again for a while."""
    missed_s = now_s if before.missed_s is None else before.missed_s
    if now_s >= missed_s + PATIENCE_S:
        return outcome
    found = _again(outcome, before, now_s)
    again_s = min(found.again_s or 0.0, missed_s + PATIENCE_S)
    return found._replace(message=f"{outcome.message} yet", again_s=again_s, missed_s=missed_s)


def has_same_wish(pod: JsonObject, other: JsonObject) -> bool:
    """Return whether two states of a Pod ask for the same results."""
    return _wish(pod) == _wish(other)


def _wish(pod: JsonObject) -> Wish | None:
    try:
        return wish_of(pod)
    except InvalidInput:  # it was written after the job had been submitted, and refused
        return None
