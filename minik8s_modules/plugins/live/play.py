"""What the strategy reads from its play and its inventory, kept apart from the loop."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleParserError

from minik8s_modules.plugins.live.items import Item

# Keywords that need what this strategy leaves out: one fork an item, results that go to callbacks and nowhere else.
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
# Options that belong to the host: the playbook's expression gives them where an item does not.
HOST_OPTIONS = ("node", "docker_socket", "state_dir", "run_dir")


def sections_of(blocks: Iterable[Any]) -> dict[str, Any]:
    """Return the play's tasks by name, in play order.

    Raises:
        AnsibleParserError: a task has no name, or the name of another, or a keyword this strategy does not know.
    """
    sections: dict[str, Any] = {}
    for block in blocks:
        for task in block.get_tasks():
            wrong = [keyword for keyword in UNSUPPORTED if getattr(task, keyword)]
            if not task.name or task.name in sections or wrong:
                reason = f"keyword {wrong[0]}" if wrong else "no name, or the name of another task"
                raise AnsibleParserError(f"strategy reconcile cannot run this task: {reason}", obj=task.get_ds())
            sections[task.name] = task
    return sections


def prepare_task(item: Item, section: str, task: Any) -> None:
    """Give ``task`` the item's options; call it in the worker, whose copy of the task is its own.

    The options go to the module as they came: they are never templated (and large ones never walked).
    """
    options = dict(item.sections[section])
    if item.token:
        options.setdefault("token", item.token)
    of_host = {name: task.args[name] for name in HOST_OPTIONS if name in task.args and name not in options}
    finalize = task._post_validate_args  # noqa: SLF001  the only place where args meet the templating

    def keep_options(attribute: str, _value: object, templar: Any) -> dict[str, Any]:
        return {**finalize(attribute, of_host, templar), **options}

    task._post_validate_args = keep_options  # noqa: SLF001
    task.args, task.when = {}, []
    task.check_mode = task.diff = item.check


def fingerprint(sources: Iterable[str]) -> tuple[object, ...]:
    """Return a value that changes when an inventory source (a file, or a directory of files) does."""
    return tuple(_stamp(path) for source in sources for path in _files(Path(source)))


def _files(source: Path) -> list[Path]:
    return [source, *sorted(source.iterdir())] if source.is_dir() else [source]


def _stamp(path: Path) -> tuple[str, int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (str(path), 0, 0, 0)
    return (str(path), found.st_mtime_ns, found.st_size, found.st_ino)
