"""Patches made of the wrong things, in every place: refused in words or carried out, never a crash."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from minik8s_modules.api.defaulting.dialect import to_canonical
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.merging import patch, strategic_merge

LONG = "9" * 5_000  # Python refuses to read numbers of more than 4,300 digits
ODD: list[Any] = [None, [], {}, [[]], [None], [{}], 1, "x", True, {"a": None}, [1, "a"], [{"name": []}], [{"name": {}}]]
DIRECTIVES = [
    "$patch", "$retainKeys", "$setElementOrder/containers", "$setElementOrder/finalizers", "$setElementOrder/ports",
    "$deleteFromPrimitiveList/finalizers", "$deleteFromPrimitiveList/args",
]  # fmt: skip
LIVE: dict[str, Any] = {
    "metadata": {"name": "x", "labels": {"a": "b"}, "finalizers": ["x"]},
    "spec": {
        "containers": [{"name": "c", "image": "i", "args": ["a"], "ports": [{"containerPort": 80}]}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
}


def outcome(function, *arguments):
    """Return the code of a refusal, or 0; anything but a refusal is the test's failure."""
    try:
        function(*arguments)
    except StatusError as refused:
        return refused.code
    return 0


@pytest.mark.parametrize("op", [[], {}, None, 1, "add", "move", "copy", "test", "replace", "remove"])
def test_operations_of_a_json_patch(op):
    paths: list[Any] = ["/a", f"/b/{LONG}", "/b/0", "/b/-", [], {}, None, 1]
    origins: list[Any] = [[], {}, None, "/x", f"/b/{LONG}"]
    extras: list[dict[str, Any]] = [{}, {"value": 1}, *({"from": origin} for origin in origins)]
    for path, extra in itertools.product(paths, extras):
        code = outcome(patch.json_patch, {"a": 1, "b": [1]}, [{"op": op, "path": path, **extra}])
        assert code in {0, 400, 422}
        assert code or isinstance(op, str)


@pytest.mark.parametrize("directive", DIRECTIVES)
def test_directives_of_a_strategic_merge(directive):
    for odd in ODD:
        fields = {directive: odd}
        bodies = [
            fields,
            {"spec": fields},
            {"spec": odd},
            {"metadata": {**fields, "finalizers": odd}},
            {"spec": {"containers": odd, **fields}},
            {"spec": {"containers": [fields]}},
            {"spec": {"containers": [{"name": "c", **fields}]}},
            {"spec": {"containers": [{"name": odd, "image": "q"}]}},
            {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": odd}]}]}},
            {"spec": {"volumes": [{"name": "v", **fields}]}},
        ]
        for body in bodies:
            assert outcome(strategic_merge.strategic_merge, POD, copy.deepcopy(LIVE), body) in {0, 400}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("field", ["restartPolicy", "containers", "initContainers"])
def test_pods_in_the_originals_dialect(field, odd):
    pod = copy.deepcopy(LIVE)
    pod["metadata"]["annotations"] = {"minik8s.io/dialect": "original"}
    pod["spec"][field] = odd
    assert to_canonical(POD, pod)["metadata"]["name"] == "x"
