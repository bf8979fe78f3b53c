"""A job's results: what a Pod asks for, what becomes of its files, and what its status says meanwhile."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, Forbidden, Invalid
from minik8s_modules.api.kinds import CONFIG_MAP
from minik8s_modules.api.pods.scripts import INDEX
from minik8s_modules.api.pods.slurm import COPIED, IMAGE, RESULTS, RESULTS_TO, TAKES_RESULTS, Wish
from minik8s_modules.virtual.contract import NoResources, new_pod
from minik8s_modules.virtual.errors import InvalidInput
from minik8s_modules.virtual.providers.slurm.entries import asked
from minik8s_modules.virtual.providers.slurm.results import PATIENCE_S, Copies, Outcome, merged, wish_of

TAKEN = {"metadata": {"namespace": "default", "name": "out", "annotations": {TAKES_RESULTS: "true"}}}
ENDED = {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False", "reason": "PodCompleted"}]}
NOW = "2026-11-28T08:00:00Z"


def pod(patterns: str | None = "*.csv", target: str | None = "out", **annotations: str) -> dict[str, Any]:
    container = {"name": "app", "image": IMAGE, "command": ["true"]}
    made = new_pod("job", restartPolicy="Never", containers=[container])
    said = {RESULTS: patterns, RESULTS_TO: target, **annotations}
    made["metadata"]["annotations"] = {key: value for key, value in said.items() if value is not None}
    return made


def told(**files: bytes) -> dict[str, Any]:
    return {"files": {path: base64.b64encode(data).decode() for path, data in files.items()}}


def test_a_pod_names_files_and_a_config_map():
    assert wish_of(pod("*.csv, plots/*.png")) == Wish(("*.csv", "plots/*.png"), "out")
    assert wish_of(pod(None, None)) is None
    assert wish_of(pod("a", "pvc")) == Wish(("a",), "pvc")


@pytest.mark.parametrize(
    ("patterns", "target", "says"),
    [
        ("*.csv", None, "give both"),
        (None, "out", "give both"),
        ("", "out", "give both"),
        ("../secret", "out", "without `..`"),
        ("a/../../b", "out", "without `..`"),
        ("/etc/passwd", "out", "'/etc/passwd' is no path"),
        ("a,", "out", "'' is no path"),
        ("a\nb", "out", "is no path"),
        (",".join("a" * 21), "out", "more than 20"),
        ("a", "pvc/out", "not copied to a PersistentVolumeClaim"),
        ("a", "PersistentVolumeClaim/out", "name a ConfigMap"),
        ("a", "persistentvolumeclaims.v1./out", "not copied to a PersistentVolumeClaim"),
        ("a", "configmap/out", "'configmap/out': give the name of a ConfigMap, without its kind"),
        ("a", "../out", "give the name of a ConfigMap"),
    ],
)
def test_what_is_no_file_of_the_job_is_refused(patterns: str, target: str, says: str):
    with pytest.raises(InvalidInput, match=says):
        wish_of(pod(patterns, target))


def test_a_job_is_not_submitted_before_its_results_have_a_place():
    there = {"default/out": {"metadata": {"name": "out", "annotations": {TAKES_RESULTS: "yes"}}}}
    with pytest.raises(LookupError, match="there is no ConfigMap default/out"):
        asked(pod(), "batch", NoResources())
    with pytest.raises(LookupError, match="does not take results; annotate it"):
        asked(pod(), "batch", NoResources(there))
    assert asked(pod(), "batch", NoResources({"default/out": TAKEN})).entry["name"] == "default/job"


def test_files_become_keys_text_as_text():
    before = {**TAKEN, "data": {"kept": "x", "plots.a": "old"}, "binaryData": {"n.csv": "AAAA"}}
    found = merged(before, {"n.csv": b"1,2\n", "plots/a": b"\xff\x00", "nul": b"a\0"}, "")
    assert found["data"] == {"kept": "x", "n.csv": "1,2\n"}
    assert found["binaryData"] == {"plots.a": "/wA=", "nul": "YQA="}
    assert merged(TAKEN, {"a": b"1"}, "3-")["data"] == {"3-a": "1"}


@pytest.mark.parametrize(
    ("files", "says"),
    [({"a/b": b"", "a.b": b""}, "would both have the key a.b"), ({"a b": b""}, "its key 'a b'"), ({"..x": b""}, "key")],
)
def test_a_name_that_is_no_key_is_told(files: dict[str, bytes], says: str):
    with pytest.raises(InvalidInput, match=says):
        merged(TAKEN, files, "")


def test_a_pod_ends_once_its_results_are_copied():
    resources = NoResources({"default/out": TAKEN})
    copies, one = Copies(resources), pod(**{INDEX: "2"})
    held = copies.shown(one, ENDED, NOW)
    assert (held["phase"], (held["conditions"][0]["reason"])) == ("Running", "CopyingResults")
    assert copies.due([one], 0.0) == {objects.uid(one): ["*.csv"]}
    copies.note(objects.uid(one), copies.copy(one, told(**{"a.csv": b"1\n"}), 0.0))
    assert (resources.config_map("default", "out") or {})["data"] == {"2-a.csv": "1\n"}
    shown = copies.shown(one, ENDED, NOW)
    assert (shown["phase"], (objects.condition({"status": shown}, COPIED) or {})["status"]) == ("Succeeded", "True")
    assert copies.due([one], 99.0) == {}


def test_what_is_the_same_is_not_written_again():
    class Fixed(NoResources):
        """Takes nothing."""

        def fill_config_map(self, config_map: dict[str, Any]) -> None:
            """Fail."""
            raise AssertionError(config_map)

    copies = Copies(Fixed({"default/out": {**TAKEN, "data": {"a.csv": "1"}}}))
    assert copies.copy(pod(), told(**{"a.csv": b"1"}), 0.0) == Outcome()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"error": {"reason": "ResultsTooLarge", "message": "3 files"}}, "ResultsTooLarge"),
        (told(a=b"x" * 600_000, b=b"x" * 600_000), "ResultsTooLarge"),
        (told(**{"a b": b""}), "InvalidResults"),
    ],
)
def test_what_cannot_be_copied_ends_the_pod_and_says_why(answer: dict[str, Any], reason: str):
    copies, one = Copies(NoResources({"default/out": TAKEN})), pod()
    copies.note(objects.uid(one), copies.copy(one, answer, 0.0))
    shown = copies.shown(one, ENDED, NOW)
    condition = objects.condition({"status": shown}, COPIED) or {}
    assert (shown["phase"], condition["status"], condition["reason"]) == ("Succeeded", "False", reason)
    assert shown["message"].startswith("its results were not copied: ")
    assert copies.due([one], 1e9) == {}


def test_files_that_a_file_server_shows_late_are_looked_for_a_while():
    resources = NoResources({"default/out": TAKEN})
    copies, one = Copies(resources), pod()
    uid, now_s, tries = objects.uid(one), 1000.0, 0
    while copies.due([one], now_s):
        copies.note(uid, copies.copy(one, told(), now_s))
        now_s += copies.next_try_s([one], now_s) or 0.0
        tries += 1
        if copies.due([one], now_s):
            assert copies.shown(one, ENDED, NOW)["phase"] == "Running"
    assert (now_s, tries) == (1000.0 + PATIENCE_S, 8)
    shown = copies.shown(one, ENDED, NOW)
    assert shown["message"] == "its results were not copied: no file in the job's folder matches *.csv"
    copies.forget(uid)
    copies.note(uid, copies.copy(one, told(), 2000.0))
    assert copies.copy(one, told(**{"a.csv": b"1"}), 2001.0) == Outcome()


def test_what_cannot_be_read_now_is_asked_for_again():
    copies, one = Copies(NoResources({"default/out": TAKEN})), pod()
    uid = objects.uid(one)
    away = {"error": {"reason": "ResultsNotRead", "message": "a.csv: Stale file handle", "temporary": True}}
    for now_s, again_s in ((0.0, 1.0), (1.0, 2.0)):
        copies.note(uid, copies.copy(one, away, now_s))
        assert copies.next_try_s([one], now_s) == again_s
    held = copies.shown(one, ENDED, NOW)
    assert held["phase"] == "Running"
    assert (objects.condition({"status": held}, COPIED) or {})["reason"] == "ResultsNotRead"


def test_what_a_pod_no_longer_asks_for_is_not_waited_for():
    copies, one = Copies(NoResources()), pod()
    uid, without = objects.uid(one), {**one, "metadata": {**one["metadata"], "annotations": {}}}
    copies.note(uid, copies.copy(one, told(a=b""), 0.0))
    assert copies.next_try_s([one], 0.0) == 1.0
    assert copies.next_try_s([without], 0.0) is None
    assert copies.next_try_s([], 0.0) is None
    other = pod("*.txt")
    other["metadata"]["uid"] = uid
    assert not copies.asks_anew(one, one)
    assert copies.asks_anew(one, other)
    assert copies.due([other], 0.0) == {uid: ["*.txt"]}, "it waits for no retry of the former one"
    ended = {**one, "status": ENDED}
    assert not copies.asks_anew(ended, other)
    # a job that was found after a restart is taken for ended until its Pod is known
    assert copies.shown({**other, "status": ENDED}, ENDED, NOW)["phase"] == "Running"


class Refusing(NoResources):
    """An API that refuses as it is told."""

    error: Exception = Forbidden(CONFIG_MAP, "out", "exceeded quota")

    def fill_config_map(self, config_map: dict[str, Any]) -> None:  # noqa: ARG002
        """Refuse."""
        raise self.error


def test_what_may_come_is_tried_again():
    resources = Refusing({"default/out": TAKEN})
    copies, one = Copies(resources), pod()
    uid = objects.uid(one)
    copies.note(uid, copies.copy(one, told(a=b""), 100.0))
    held = copies.shown(one, ENDED, NOW)
    assert held["phase"] == "Running"
    assert "exceeded quota" in (objects.condition({"status": held}, COPIED) or {})["message"]
    assert (copies.due([one], 100.5), copies.next_try_s([one], 100.5)) == ({}, 0.5)
    assert copies.due([one], 101.0) == {uid: ["*.csv"]}
    resources.error = Conflict(CONFIG_MAP, "out", "changed")
    copies.forget(uid)
    copies.note(uid, copies.copy(one, told(a=b""), 200.0))
    assert copies.due([one], 200.0), "somebody else changed it meanwhile"
    resources.error = Invalid(CONFIG_MAP, "out", [])
    copies.note(uid, copies.copy(one, told(a=b""), 200.0))
    assert copies.shown(one, ENDED, NOW)["phase"] == "Succeeded"
    copies.note(uid, Copies(NoResources()).copy(one, told(a=b""), 300.0))
    assert (
        "there is no ConfigMap"
        in (objects.condition({"status": copies.shown(one, ENDED, NOW)}, COPIED) or {})["message"]
    )
