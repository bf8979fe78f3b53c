"""Termination messages: read the moment a container has died, once each, from its file or from the end of its log.

Limits are kubelet's (pkg/kubelet/container/runtime.go): 4,096 bytes of the file, 80 lines and 2,048 bytes of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import TemporaryError

log = logging.getLogger(__name__)

FILE_BYTES = 4096
LOG_BYTES = 2048
LOG_LINES = 80
_ENDED = frozenset({"exited", "dead"})
ReadFile = Callable[[str], bytes]
ReadLog = Callable[[str, int], bytes]


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
