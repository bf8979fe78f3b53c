"""The controls of ``make cis`` as data, and what is said of an answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cis.controls import Control, judge, read
from tests.cis.pods import pod
from tests.cis.roles import has_resource, has_verb

PARTS = ("1.1", "1.2", "1.3", "1.4", "2", "3.1", "3.2", "4.1", "4.2", "4.3", "5.1", "5.2", "5.3", "5.4", "5.5", "5.6")


def test_each_part_of_the_benchmark_has_its_controls_without_a_gap_in_their_numbers():
    numbers = [control.number for control in read()]
    assert {number.rpartition(".")[0] for number in numbers} == set(PARTS)
    for part in PARTS:
        found = [int(number.rpartition(".")[2]) for number in numbers if number.rpartition(".")[0] == part]
        assert found == list(range(1, len(found) + 1))


def test_each_control_says_in_a_sentence_what_holds():
    for control in read():
        assert re.fullmatch(r"(etcd|[A-Z]).*[^.]", control.title), control


@pytest.mark.parametrize(
    ("control", "code", "word", "good"),
    [
        (Control("1", "t", command="true"), 0, "pass", True),
        (Control("1", "t", command="false"), 1, "FAIL", False),
        (Control("1", "t", command="false", gap="why"), 1, "not met", True),
        (Control("1", "t", command="true", gap="why"), 0, "FAIL", False),
        (Control("1", "t", not_applicable="why"), 0, "not applicable", True),
        (Control("1", "t", manual="what"), 0, "manual", True),
    ],
)
def test_what_is_said_of_an_answer(control: Control, code: int, word: str, good: bool):  # noqa: FBT001 - a case
    verdict = judge(control, code, "first\nlast\n")
    assert (verdict.word, verdict.good) == (word, good)


@pytest.mark.parametrize(
    "text", ['"1": {title: t}', '"1": {title: t, command: a, manual: b}', '"1": {title: t, manual: b, gap: c}']
)
def test_a_control_without_one_answer_is_refused(tmp_path: Path, text: str):
    path = tmp_path / "controls.yml"
    path.write_text(text)
    with pytest.raises(ValueError, match="control 1 needs one of"):
        read(path)


def test_rules_are_read_as_they_are_meant():
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    approval = {"verbs": ["update"], "apiGroups": ["certs"], "resources": ["*/approval"]}
    secret = {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]}
    assert has_resource(everything, "secrets", ["get"])
    assert has_resource(everything, "*", ["create"])
    assert has_resource(approval, "requests.certs/approval", ["update"])
    assert not has_resource(approval, "requests/approval", ["update"])
    assert has_resource({**secret, "resourceNames": []}, "secrets", ["get"])
    assert not has_resource(secret, "secrets", ["get"])
    assert not has_resource({**everything, "apiGroups": ["custom.metrics.k8s.io"]}, "secrets", ["get"])
    assert not has_resource({"verbs": ["create"], "apiGroups": [""], "resources": ["pods"]}, "*", ["create"])
    assert has_verb({"verbs": ["get"]}, ["*"])
    assert not has_verb({"verbs": ["get"]}, ["bind"])


def test_a_pod_differs_from_the_restricted_one_in_what_it_is_asked_for():
    plain = pod("plain")["spec"]
    assert pod("hostPID")["spec"] == {**plain, "hostPID": True}
    assert pod("net_raw")["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] == ["NET_RAW"]
    assert plain["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
