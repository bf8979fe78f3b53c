"""Which nodes a process carries is read with care: a wrong row is refused by its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.virtual.contract import NoResources
from minik8s_modules.virtual.provider import InitConfig
from minik8s_modules.virtual.providers.mock import Mock
from minik8s_modules.virtual.wishes import wishes_of


def test_one_row_may_be_many_nodes() -> None:
    found = wishes_of([{"name": "sim-{index}", "provider": "mock", "count": 3}, {"name": "a", "provider": "mock"}], "f")
    assert [wish.name for wish in found] == ["sim-0", "sim-1", "sim-2", "a"]


def test_a_configuration_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "mock.yml"
    file.write_text("cpu: '3'\n")
    (wish,) = wishes_of([{"name": "a", "provider": "mock", "config_file": str(file)}], "f")
    assert (wish.config, wish.config_path) == ({"cpu": "3"}, str(file))


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "must be a list of nodes"),
        (["a"], r"nodes\[0\] must be a mapping"),
        ([{"name": "a"}], r"nodes\[0\]: provider must be a string"),
        ([{"name": "A_b", "provider": "mock"}], "'A_b' cannot be the name of a node"),
        ([{"name": "a", "provider": "mock", "tain": False}], "tain is not known"),
        ([{"name": "a", "provider": "mock", "taint": "no"}], "taint must be true or false"),
        ([{"name": "a", "provider": "mock", "count": 2}], "name hold"),
        ([{"name": "a", "provider": "mock", "config": {}, "config_file": "/never/there"}], "cannot read"),
        ([{"name": "a", "provider": "mock", "labels": {"a": 1}}], "labels must be a mapping of strings"),
        ([{"name": "a", "provider": "mock"}, {"name": "a", "provider": "mock"}], "a is named more than once"),
    ],
)
def test_a_wrong_row_is_refused(rows: list[Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        wishes_of(rows, "f")


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"cpus": "3"}, "cpus is not a setting of the provider mock"),
        ({"latency": {"create": 1}}, r"latency\.create: there are create_pod"),
        ({"failures": {"ping": "often"}}, r"failures\.ping must be a number"),
        ({"cpu": 3}, "cpu must be a string"),
    ],
)
def test_a_wrong_configuration_of_the_mock_is_refused(config: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Mock(InitConfig("a", NoResources(), config))
