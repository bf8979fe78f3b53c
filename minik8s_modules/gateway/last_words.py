"""What is known of a container's end beside Docker: read the moment it has died, once each.

Termination messages stand in a file or at the end of the log; whether it was killed for memory, in its cgroup.

Limits are kubelet's (pkg/kubelet/container/runtime.go): 4,096 bytes of the file, 80 lines and 2,048 bytes of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.module_utils.minik8s.core import memory_events

log = logging.getLogger(__name__)

FILE_BYTES = 4096
LOG_BYTES = 2048
LOG_LINES = 80
_ENDED = frozenset({"exited", "dead"})
ReadFile = Callable[[str], bytes]
ReadLog = Callable[[str, int], bytes]


def with_cause(observation: JsonObject, read_file: ReadFile) -> JsonObject:
    """Return the observation, which says where a container was killed for memory, though Docker may not know it."""
    if not memory_events.is_open(observation):
        return observation
    try:
        return {**observation, "oom_killed": memory_events.tells_kill(read_file(observation["oom_source"]))}
    except TemporaryError as error:  # its cgroup is gone after a reboot, too
        log.info("container %.12s: what it was killed for cannot be read: %s", observation["id"], error)
        return observation


def with_message(observation: JsonObject, read_file: ReadFile, read_log: ReadLog) -> JsonObject:
    """Return the observation with its message, as it is where the container lives or nothing can be read."""
    policy, _, path = str(observation.get("message_source") or "").partition(":")
    if observation["state"] not in _ENDED or not path:
        return observation
    try:
        data = read_file(path)[:FILE_BYTES]
        if not data and policy == "FallbackToLogsOnError" and observation["exit_code"]:
            data = read_log(observation["id"], LOG_LINES)[-LOG_BYTES:]
    except TemporaryError as error:
        log.info("container %.12s: its termination message cannot be read: %s", observation["id"], error)
        return observation
    return {**observation, "message": data.decode("utf-8", "replace")}
