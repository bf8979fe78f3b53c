"""Which calls realize an item, what each is given, and whose the results are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from minik8s_modules.plugins.live.items import Item
from minik8s_modules.plugins.live.play import JOINED, Call, called_with, calls_of, prepare_task, results_of

TASKS = [JOINED, "network", "secrets", "containers", "facts"]
FAILED = {"failed": True, "msg": "minik8s_secrets: no tmpfs"}


def item(**sections: dict[str, Any]) -> Item:
    return Item("i", "n0", check=False, token=[1, 7], sections=sections)


def options_of(wanted: Item, call: Call, *, token: bool = True) -> Any:
    """Return what a task is given for a call."""
    arguments = {"token": "omit"} if token else {}
    tasks = {name: SimpleNamespace(args=arguments) for name in TASKS}
    task: Any = SimpleNamespace(args=arguments, _finalized=False)
    settled: Any = SimpleNamespace(args=arguments, _finalized=True)  # a copy of one that ran
    of_host = {name: {"node": "n0", "state_dir": "/s"} for name in TASKS}
    for each in (task, settled):
        prepare_task(of_host, tasks, wanted, call, each)
    settled.post_validate(templar=None)
    assert settled.args == task._post_validate_args(None, None, None)
    return settled.args


def test_the_sections_of_a_document_are_one_call_and_what_is_none_has_its_own() -> None:
    wanted = item(facts={}, containers={}, secrets={})
    assert calls_of(TASKS, wanted) == [Call(JOINED, ["secrets", "containers"]), Call("facts", ["facts"])]
    assert calls_of(TASKS, item(facts={})) == [Call("facts", ["facts"])]


def test_a_section_is_called_with_those_of_the_same_call() -> None:
    wanted = item(facts={}, containers={}, secrets={})
    assert called_with(TASKS, wanted, "containers") == ["secrets", "containers"]
    assert called_with(TASKS, wanted, "facts") == ["facts"]


def test_a_play_without_that_task_has_a_call_for_each() -> None:
    wanted = item(containers={}, secrets={})
    assert calls_of(TASKS[1:], wanted) == [Call("secrets", ["secrets"]), Call("containers", ["containers"])]


def test_each_section_has_its_own_options_and_its_hosts() -> None:
    wanted = item(network={"entries": {"a": "{{ 1 }}"}}, containers={"entries": {}, "state_dir": "/t", "token": [9]})
    assert options_of(wanted, Call(JOINED, ["network", "containers"])) == {
        "sections": {
            "network": {"node": "n0", "state_dir": "/s", "entries": {"a": "{{ 1 }}"}, "token": [1, 7]},
            "containers": {"node": "n0", "state_dir": "/t", "entries": {}, "token": [9]},
        },
        "blob": None,
    }
    assert options_of(wanted, Call("network", ["network"]), token=False) == {
        "node": "n0",
        "state_dir": "/s",
        "entries": {"a": "{{ 1 }}"},
    }


def test_values_of_secrets_travel_in_the_option_that_is_never_logged() -> None:
    wanted = item(secrets={"entries": {}, "blob": "c2VjcmV0"}, containers={"entries": {}})
    found = options_of(wanted, Call(JOINED, ["secrets", "containers"]))
    assert found["blob"] == "c2VjcmV0"
    assert "blob" not in found["sections"]["secrets"]
    assert wanted.sections["secrets"]["blob"] == "c2VjcmV0"


def test_each_section_has_its_own_result() -> None:
    call = Call(JOINED, ["secrets", "containers"])
    result = {"changed": True, "sections": {"secrets": {"changed": False}, "containers": {"changed": True}}}
    assert list(results_of(call, result)) == [("secrets", {"changed": False}), ("containers", {"changed": True})]
    assert list(results_of(Call("facts", ["facts"]), {"facts": {}})) == [("facts", {"facts": {}})]


def test_a_call_that_failed_is_the_failure_of_the_first_section_it_does_not_tell() -> None:
    call = Call(JOINED, ["network", "secrets", "containers"])
    done = {"network": {"changed": True}}
    assert list(results_of(call, {**FAILED, "sections": done})) == [("network", done["network"]), ("secrets", FAILED)]
    assert list(results_of(call, {"unreachable": True, "msg": "gone"})) == [
        ("network", {"unreachable": True, "msg": "gone", "failed": True})
    ]


def test_a_call_that_was_ended_names_all_its_sections_as_any_may_have_hung() -> None:
    """The first one was told, whichever it was: of containers that hung, an operator heard that the network failed."""
    ended = {"failed": True, "msg": "Timed out after 180 second(s)."}
    ((section, found),) = results_of(Call(JOINED, ["network", "secrets", "containers"]), ended)
    assert section == "network"
    message = "one call for network, secrets, containers, any of which may have failed: Timed out after 180 second(s)."
    assert found == {"failed": True, "msg": message}
    assert dict(results_of(Call(JOINED, ["containers"]), ended)) == {"containers": ended}


def test_an_answer_without_a_section_is_a_failure_and_never_an_empty_result() -> None:
    for sections in ({"network": 1}, {}, None, [1]):
        ((section, found),) = results_of(Call(JOINED, ["network", "secrets"]), {"sections": sections})
        assert (section, found["failed"]) == ("network", True)
        assert found["msg"].endswith("the module returned nothing of it")
