"""The table of what steers the cluster: every key of ours that code reads has a row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minik8s_modules.api.access.steering import RULES, refusals
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.core import labels

ROOT = Path(__file__).resolve().parents[4]
CODE = ("minik8s_modules", "library", "roles", "playbooks", "templates", "inventory")
_KEY = re.compile(r"(?<![\w.@/-])(?:minik8s\.io/(?P<ours>[a-z][\w.-]*)|kubernetes\.io/(?P<theirs>config\.[a-z]+))")
NO_METADATA = {
    "minik8s.io/hostpath": "a provisioner's name, in StorageClasses",
    "minik8s.io/nfs": "a provisioner's name, in StorageClasses",
    "minik8s.io/v1": "an API version",
    "minik8s.io/ingress": "the name of a controller in IngressClasses",
    "minik8s.io/gateway-controller": "the name of a controller in GatewayClasses",
    "minik8s.io/mesh": "the name of a signer of certificates",
    "minik8s.io/nodes": "a class of load balancers",
    "minik8s.io/pool": "a class of load balancers",
    "minik8s.io/content": "a label of images",
    "minik8s.io/prober": "a label of images",
    "minik8s.io/asked-by": "an annotation of a dry run, which nobody keeps",
    "minik8s.io/audit-error": "an annotation of audit events",
    "minik8s.io/audit-events-lost": "an annotation of audit events",
    "minik8s.io/audit-events-lost-by-user": "an annotation of audit events",
    "minik8s.io/unreadable": "a finalizer's name, where none that is stored can be read",
    **{value: "a label of containers" for value in vars(labels).values() if str(value).startswith(labels.PREFIX)},
}


def keys_in(text: str) -> set[str]:
    return {match.group(0).rstrip(".") for match in _KEY.finditer(text)}


def keys_of_the_code() -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in CODE:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.is_file() and file.suffix in {".py", ".yml", ".yaml", ".j2", ".json", ".sh", ".ini", ""}:
                text = file.read_text(encoding="utf-8", errors="ignore")
                found |= {key: str(file.relative_to(ROOT)) for key in keys_in(text)}
    return found


def test_every_key_that_code_names_has_a_row():
    known = {rule.key for rule in RULES} | NO_METADATA.keys()
    missing = {key: where for key, where in keys_of_the_code().items() if key not in known}
    assert missing == {}, "add a row to RULES of minik8s_modules/api/access/steering.py: who may set it?"


def test_every_row_is_of_a_key_that_code_names():
    assert {rule.key for rule in RULES} - keys_of_the_code().keys() == set()


def test_keys_are_found_where_they_stand_in_code():
    text = 'A = "minik8s.io/new-key"  # ``minik8s.io/other``, x.minik8s.io/not kubernetes.io/config.mirror'
    assert keys_in(text) == {"minik8s.io/new-key", "minik8s.io/other", "kubernetes.io/config.mirror"}


def obj(**annotations: str) -> JsonObject:
    return {"metadata": {"annotations": {key.replace("_", "-"): value for key, value in annotations.items()}}}


def test_a_key_that_steers_another_kind_means_nothing_and_is_free():
    leaving = {"metadata": {"annotations": {"minik8s.io/leaving": "departed"}}}
    assert refusals(("", "ConfigMap"), leaving, None, "nodes") == []
    assert refusals(("", "Node"), leaving, None, "others") == []
    (result,) = refusals(("", "Node"), leaving, None, "nodes")
    assert result == "metadata.annotations[minik8s.io/leaving]: may be set by people and controllers only"


def test_a_template_counts_as_the_pods_it_makes():
    template = {"metadata": {"annotations": {"kubernetes.io/config.hash": "x"}}}
    made: JsonObject = {"spec": {"jobTemplate": {"spec": {"template": template}}}}
    (result,) = refusals(("batch", "CronJob"), made, None, "others")
    assert result.startswith(
        "spec.jobTemplate.spec.template.metadata.annotations[kubernetes.io/config.hash]: may be set"
    )
    assert refusals(("batch", "CronJob"), made, made, "others") == []


@pytest.mark.parametrize("party", ["nodes", "reconciler", "gateway", "controllers"])
def test_daemons_carry_on_what_nobody_knows(party):
    """A template stored before the rule still makes pods."""
    assert refusals(("", "Pod"), {"metadata": {"labels": {"minik8s.io/unheard-of": "x"}}}, None, party) == []
