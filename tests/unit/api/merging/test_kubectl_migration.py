"""What client-side apply owned becomes the applier's, or goes."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

from minik8s_modules.api.kinds import CONFIG_MAP
from minik8s_modules.api.merging import managed_fields
from minik8s_modules.api.merging.apply import LAST_APPLIED, annotated
from minik8s_modules.api.merging.kubectl_migration import migrated
from minik8s_modules.api.merging.server_side_apply import Applier, apply
from minik8s_modules.api.objects import JsonObject
from tests.unit.api import samples

CLIENT_SIDE, KUBECTL = "kubectl-client-side-apply", Applier("kubectl")
LATER = samples.NOW + timedelta(hours=1)


def config(**data: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data}


def written(obj: JsonObject, old: JsonObject | None, manager: str, subresource: str = "") -> JsonObject:
    new = copy.deepcopy(obj)
    if old is None:
        new["metadata"]["uid"] = "u"
    writer = managed_fields.Writer(manager, subresource)
    managed_fields.record_update(CONFIG_MAP, CONFIG_MAP, new, old, writer, samples.NOW)
    return new


def client_side(**data: str) -> JsonObject:
    return written(annotated(config(**data)), None, CLIENT_SIDE)


def applied(live: JsonObject, wanted: JsonObject, applier: Applier = KUBECTL) -> JsonObject:
    made = apply(CONFIG_MAP, copy.deepcopy(live), copy.deepcopy(wanted), applier, LATER)
    return migrated(CONFIG_MAP, made, copy.deepcopy(wanted), applier, LATER)


def owners(obj: JsonObject) -> dict[str, Any]:
    return {f"{each['manager']} {each['operation']}": each["fieldsV1"] for each in obj["metadata"]["managedFields"]}


def fields(*keys: str) -> JsonObject:
    return {"f:data": {f"f:{key}": {} for key in keys}}


ANNOTATION: JsonObject = {"f:metadata": {"f:annotations": {f"f:{LAST_APPLIED}": {}}}}


def test_what_was_applied_client_side_is_kubectls_and_the_annotation_is_kept():
    result = applied(client_side(k="v", l="v"), config(k="w"))
    assert result["data"] == {"k": "w"}
    assert owners(result) == {"kubectl Apply": fields("k"), "kubectl-last-applied Apply": ANNOTATION}
    assert '"data":{"k":"w"}' in result["metadata"]["annotations"][LAST_APPLIED]


def test_another_applier_takes_over_and_gives_the_annotation_up():
    result = applied(client_side(k="v", l="v"), config(k="v"), Applier("ci"))
    assert result["data"] == {"k": "v"}
    assert owners(result) == {"ci Apply": fields("k")}
    assert "annotations" not in result["metadata"]


def test_what_others_own_stays():
    live = client_side(k="v")
    live = written({**live, "data": {"k": "v", "l": "theirs"}}, live, "other")
    result = applied(live, config(k="v"))
    assert result["data"] == {"k": "v", "l": "theirs"}
    assert owners(result)["other Update"] == fields("l")


def test_an_apply_of_nothing_takes_all_away():
    nothing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    result = applied(client_side(k="v"), nothing)
    assert "data" not in result
    assert owners(result) == {"kubectl-last-applied Apply": ANNOTATION}


def test_what_was_written_through_a_subresource_stays_its_writers():
    live = written(annotated(config(k="v")), None, "made-it")
    live["metadata"]["managedFields"][0]["subresource"] = "status"
    result = applied(live, config(k="v"))
    assert "made-it Update" in owners(result)


def test_nothing_is_done_where_nobody_applied_client_side():
    made = apply(CONFIG_MAP, {}, config(k="v"), KUBECTL, samples.NOW)
    assert migrated(CONFIG_MAP, made, config(k="v"), KUBECTL, LATER) is made


def test_nothing_is_done_twice():
    done = applied(client_side(k="v", l="v"), config(k="w"))
    assert applied(done, config(k="w")) == done
