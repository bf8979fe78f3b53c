"""A task on its way through ansible-core's executor, and its result on the way to callbacks.

Both changed with ansible-core 2.21: the executor takes the task from its context and returns an object, and callbacks
get one. A result is a dictionary everywhere else, so the two forms of ansible-core meet in this file alone.
"""

from __future__ import annotations

from typing import Any

from ansible._internal import _task
from ansible.executor import task_result
from ansible.executor.task_executor import TaskExecutor

RESULTS_ARE_OBJECTS = hasattr(_task, "UnifiedTaskResult")


def executed(task: Any, host: Any, task_vars: dict[str, Any], *through: Any) -> dict[str, Any]:
    """Run a task on a host and return its result; ``through`` is what TaskExecutor takes beside these three."""
    if not RESULTS_ARE_OBJECTS:
        with _task.TaskContext(task):
            result: dict[str, Any] = TaskExecutor(host, task, task_vars, *through).run()
        return result
    with _task.TaskContext.create(task=task, task_vars=task_vars, host_name=host.name):
        return dict(TaskExecutor(host, *through).run().as_result_dict(for_round_trip=True))


def for_callbacks(host: Any, task: Any, result: dict[str, Any]) -> Any:
    """Return what ``send_callback`` takes as the result of a host's task."""
    if not RESULTS_ARE_OBJECTS:
        return task_result._RawTaskResult(host=host, task=task, return_data=result, task_fields={})  # noqa: SLF001
    return _task.HostTaskResult(host=host, task=task, utr=_task.UnifiedTaskResult.from_action_result_dict(result))
