"""What a live run reads from its play and its inventory, kept apart from the loop."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ansible import constants
from ansible._internal._templating._engine import TemplateEngine
from ansible.errors import AnsibleParserError, AnsibleValueOmittedError
from ansible.executor import module_common
from ansible.module_utils.common.json import Direction, get_module_decoder, get_module_encoder
from ansible.plugins.loader import action_loader, connection_loader, module_loader, shell_loader
from ansible.template import Templar

from minik8s_modules.base.files import stamp_if_there
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.plugins.live.items import Item
from minik8s_modules.plugins.live.process import die_with_parent

# Keywords that need what a live run leaves out: one fork an item, results that go to callbacks and nowhere else.
UNSUPPORTED = (
    "loop",
    "loop_with",
    "register",
    "notify",
    "delegate_to",
    "until",
    "async_val",
    "run_once",
    "ignore_errors",
    "vars",
)
JOINED = "sections"
"""The task that realizes all sections of a document which an item has."""
# Options that belong to the host: the playbook's expression gives them where an item does not.
HOST_OPTIONS = ("node", "docker_socket", "state_dir", "run_dir")


class Call(NamedTuple):
    """One task that a worker runs, and the sections of the item that it realizes."""

    task: str
    sections: list[str]


def sections_of(blocks: Iterable[Any]) -> dict[str, Any]:
    """Return the play's tasks by name, in play order; their arguments are complete, without module_defaults.

    Raises:
        AnsibleParserError: a task has no name, or the name of another, or a keyword that a live run does not know.
    """
    sections: dict[str, Any] = {}
    for block in blocks:
        for task in block.get_tasks():
            wrong = [keyword for keyword in UNSUPPORTED if getattr(task, keyword)]
            if not task.name or task.name in sections or wrong:
                reason = f"keyword {wrong[0]}" if wrong else "no name, or the name of another task"
                raise AnsibleParserError(f"a live run cannot have this task: {reason}", obj=task.get_ds())
            task.args, task.module_defaults = arguments_of(task), []
            sections[task.name] = task
    return sections


def arguments_of(task: Any) -> dict[str, Any]:
    """Return the arguments of a task, with what the play's module_defaults say of its module."""
    found: dict[str, Any] = {}
    for defaults in task.module_defaults:
        found |= defaults.get(task.resolved_action) or {}
    return {**found, **task.args}


def host_options(task: Any, task_vars: dict[str, Any], loader: Any) -> dict[str, Any]:
    """Return the options of ``task`` that the playbook gives for this host; ``omit`` leaves one out."""
    engine = TemplateEngine(loader=loader, variables=task_vars)
    options = {}
    for name in HOST_OPTIONS:
        with contextlib.suppress(AnsibleValueOmittedError, KeyError):
            options[name] = engine.template(task.args[name])
    return options


def called(tasks: Iterable[str]) -> list[str]:
    """Return the tasks of a play that items are realized by."""
    names = list(tasks)
    return [name for name in names if JOINED not in names or name not in SECTIONS]


def calls_of(tasks: Iterable[str], item: Item) -> list[Call]:
    """Return the calls of an item, in play order: one for all sections of the document, where the play has it."""
    alone = called(tasks)
    joined = [name for name in tasks if name in item.sections and name not in alone]
    calls = [Call(name, [name]) for name in alone if name in item.sections]
    return [Call(JOINED, joined), *calls] if joined else calls


def called_with(tasks: Iterable[str], item: Item, section: str) -> list[str]:
    """Return the sections that the call which realizes ``section`` of an item is for."""
    return next(call.sections for call in calls_of(tasks, item) if section in call.sections)


def results_of(call: Call, result: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the result of each section of a call; where the call failed, that of the first one it lacks is the last.

    A call that was killed or lasted too long tells nothing: its failure names all its sections.
    """
    if call.task != JOINED:
        yield call.sections[0], result
        return
    found = result.pop("sections", None)
    for section in call.sections:
        one = found.get(section) if isinstance(found, dict) else None
        if not isinstance(one, dict):
            failed = {"msg": "the module returned nothing of it", **result, "failed": True}
            if not isinstance(found, dict) and not result.get("unreachable"):
                failed["msg"] = in_one_call(call.sections, failed["msg"])
            yield section, failed
            return
        yield section, one


def in_one_call(sections: list[str], why: str) -> str:
    """Return ``why`` a call failed as a whole, with the sections that it was for."""
    return f"one call for {', '.join(sections)}, any of which may have failed: {why}" if len(sections) > 1 else why


def prepare_task(of_host: dict[str, dict[str, Any]], tasks: dict[str, Any], item: Item, call: Call, task: Any) -> None:
    """Give ``task``, a copy for this item alone, the item's options; ``tasks`` are the play's.

    The options go to the module as they came: they are never templated (and large ones never walked).
    """
    found = {}
    for section in call.sections:
        found[section] = {**of_host[section], **item.sections[section]}
        if item.token and "token" in tasks[section].args:
            found[section].setdefault("token", item.token)
    options: dict[str, Any] = found[call.sections[0]]
    if call.task == JOINED:
        blob = found.get("secrets", {}).pop("blob", None)  # a secret: no part of what the module may log
        options = {"sections": found, "blob": blob}

    def keep_options(_attribute: str, _value: object, _templar: Any) -> dict[str, Any]:
        return options

    # the only place where arguments meet the templating, and where those that the play has by default would be made
    # of templates again: compiling these was a third of a worker's CPU
    if task._finalized:  # noqa: SLF001  it is of one that has its values
        task.post_validate = _leave_values
        task.args = options
    else:
        task._post_validate_args = keep_options  # noqa: SLF001
        task.args = {}
    task.when = []
    task.check_mode = task.diff = item.check


def _leave_values(templar: Any) -> None:
    """Make no values of expressions again; stands in for a task's ``post_validate``."""


def preload(tasks: Iterable[Any], connections: Iterable[str], loader: Any) -> None:
    """Load what every worker would otherwise load for every item, and build the modules' payloads."""
    action_loader.get("ansible.legacy.normal", class_only=True)
    shell_loader.get("sh", class_only=True)
    for name in connections:
        connection_loader.get(name, class_only=True)
    for direction in (Direction.CONTROLLER_TO_MODULE, Direction.MODULE_TO_CONTROLLER):
        get_module_encoder("legacy", direction)
        get_module_decoder("legacy", direction)
    pack = functools.partial(_pack, list(tasks), loader)
    in_child(pack)
    pack()


def _pack(tasks: Iterable[Any], loader: Any) -> None:
    """Build the payload of each task's module, or read it from the run's folder, where it stays."""
    variables = {"ansible_python_interpreter": "/usr/bin/python3"}  # any: it is no part of what is kept
    compression = constants.config.get_config_value("DEFAULT_MODULE_COMPRESSION", variables=variables)
    for task in tasks:
        found = module_loader.find_plugin_with_context(task.action)
        module_common.modify_module(
            module_name=task.action,
            module_path=found.plugin_resolved_path,
            module_args={},
            templar=Templar(loader, variables=variables),
            module_compression=compression,  # part of the name under which a worker looks for it
            task_vars=variables,
        )


def in_child(work: Callable[[], None]) -> None:
    """Do ``work`` in a process that ends with it, so that this one never has the memory it takes.

    Payloads are built from the syntax trees of a hundred files: memory that Python would keep for as long as it runs.
    What fails there, the caller finds out by doing the same.
    """
    parent = os.getpid()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        if die_with_parent(parent):
            work()
    finally:
        os._exit(0)


def fingerprint(sources: Iterable[str]) -> tuple[object, ...]:
    """Return a value that changes when an inventory source (a file, or a directory of files) does."""
    return tuple((str(path), stamp_if_there(path)) for source in sources for path in _files(Path(source)))


def _files(source: Path) -> list[Path]:
    return [source, *sorted(source.iterdir())] if source.is_dir() else [source]
