"""The data of ControllerRevisions: Kubernetes' bytes, which clients compare, and what was written otherwise before."""

from __future__ import annotations

from typing import Any

import orjson

from minik8s_modules.api.kinds import DAEMON_SET
from minik8s_modules.controllers.workloads import history

TEMPLATE: dict[str, Any] = {
    "spec": {"restartPolicy": "Always", "containers": [{"name": "app", "image": "nginx", "args": ["b", "a"]}]},
    "metadata": {"labels": {"b": "1", "a": "2"}},
}
OWNER = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
    "spec": {"selector": {"matchLabels": {"a": "2"}}, "template": TEMPLATE},
}


def test_the_data_is_what_go_writes_byte_for_byte():
    assert orjson.dumps(history.data_of(OWNER)).decode() == (
        '{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"a":"2","b":"1"}},'
        '"spec":{"containers":[{"args":["b","a"],"image":"nginx","name":"app","resources":{}}],"restartPolicy":"Always"}}}}'
    )


def test_the_template_comes_back_as_it_was():
    assert history.template_of({"data": history.data_of(OWNER)}) == TEMPLATE


def test_a_revision_that_was_written_in_another_way_is_still_that_of_its_template():
    (made,) = history.history(DAEMON_SET, OWNER, []).steps
    former = {**made.obj, "data": {"spec": {"template": {**TEMPLATE, "$patch": "replace"}}}}  # type: ignore[union-attr]
    found = history.history(DAEMON_SET, OWNER, [former])
    assert found.update is former
    assert not found.steps
