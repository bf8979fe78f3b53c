"""JSONPath of columns and scales."""

from __future__ import annotations

import pytest

from minik8s_modules.api.custom import paths

OBJ = {
    "a": {"b": [1, 2], "c.d/e": "x"},
    "conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}],
}


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (".a.b[0]", [1]),
        (".a.b[-1]", [2]),
        (".a.b[*]", [1, 2]),
        (".a.b[5]", []),
        (".a['c.d/e']", ["x"]),
        (r".a.c\.d/e", ["x"]),
        ('.conditions[?(@.type=="Ready")].status', ["True"]),
        (".conditions[?(@.type=='Other')].status", ["False"]),
        (".conditions[?(@.missing)].status", []),
        (".none.at.all", []),
        ("..status", ["True", "False"]),
        (".a..b", [[1, 2]]),
        ("..[0]", [1, {"type": "Ready", "status": "True"}]),
    ],
)
def test_a_path_finds(path, wanted):
    assert list(paths.compile_path(path)(OBJ)) == wanted


@pytest.mark.parametrize("path", ["", "a", ".a[", ".a..", ".a...b", ".a[?(@.b)"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ValueError, match="invalid JSONPath"):
        paths.compile_path(path)


def test_plain_paths_name_fields_only():
    assert paths.fields_of(".spec.replicas") == ("spec", "replicas")
    assert paths.fields_of(".spec['a.b']") == ("spec", "a.b")
    with pytest.raises(ValueError, match="fields only"):
        paths.fields_of(".spec.list[0]")
