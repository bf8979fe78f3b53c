"""Options of a section in a call for several are checked as its own module checks them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from minik8s_modules.module_utils.minik8s import joining
from minik8s_modules.module_utils.minik8s.core.faults import NodeFault
from minik8s_modules.module_utils.minik8s.core.section import Request
from minik8s_modules.module_utils.minik8s.core.shell import ARGUMENTS

ENTRIES = {"b": {"c": 1}}


class FailedError(Exception):
    """The module failed, with its message."""


class Module:
    """What a call is given, as far as it is looked at."""

    check_mode = True

    def __init__(self, options: dict[str, Any]) -> None:
        self.params = {"sections": {"folders": options}, "blob": None}

    def fail_json(self, *, msg: str, sections: dict[str, Any], **_: Any) -> None:
        """End the module."""
        assert sections == {}
        raise FailedError(msg)


@pytest.mark.parametrize("option", ["delete", "token", "mode", "entries", "upsert"])
def test_an_option_of_another_type_fails_the_section(option: str) -> None:
    value: Any = [1] if option in {"entries", "upsert"} else {"a": 1}
    given = {"node": "n0", "entries": {}, "docker_socket": "/nonexistent", option: value}
    with pytest.raises(FailedError, match=f"^minik8s_folders: options that cannot be used: .*{option}"):
        joining.run_sections(Module(given), ArgumentSpecValidator)


@pytest.mark.parametrize(
    "option", [option for option, declared in ARGUMENTS.items() if declared["type"] in {"str", "path"}]
)
def test_a_map_where_a_text_is_declared_is_taken_as_ansible_takes_it(
    monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    requests: list[Request] = []

    def keep(request: Request) -> None:
        requests.append(request)
        raise NodeFault("kept")

    monkeypatch.setattr(joining, "context_for", keep)
    given = {"node": "n0", "entries": ENTRIES, option: {"a": 1}}
    expected = ArgumentSpecValidator(ARGUMENTS).validate(given)
    with pytest.raises(FailedError):
        joining.run_sections(Module(given), ArgumentSpecValidator)
    if expected.error_messages:
        assert requests == []
        return
    (request,) = requests
    assert request.entries is ENTRIES
    assert request._asdict()[option] == expected.validated_parameters[option] == "{'a': 1}"
