"""One shape for what is known of a container, whoever saw it: the node's modules or the gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import labels, memory_events
from .messages import message_source

ZERO_TIME = "0001-01-01"  # Go's zero time: Docker's "never"


def _moment(text: str | None) -> str:
    return "" if not text or text.startswith(ZERO_TIME) else text


def _address(inspect: Mapping[str, Any], marks: Mapping[str, str]) -> str:
    return marks.get(labels.IP) or (inspect.get("NetworkSettings") or {}).get("IPAddress") or ""


def observation_from_inspect(inspect: Mapping[str, Any]) -> dict[str, Any]:
    """Return the observation of one container from Docker's ``GET /containers/<id>/json``.

    Times are RFC 3339 as Docker gives them, or "" for never; ``ip`` is the declared address of a sandbox
    (Docker does not know it), "" for other containers. ``message`` is the termination message, None where it was not
    read: only the gateway does, from ``message_source`` (``<policy>:<file of the node>``). ``oom_killed`` is what
    Docker says; where it does not know, the file ``oom_source`` does ("" for none), see memory_events.py.
    """
    state = inspect.get("State") or {}
    config = inspect.get("Config") or {}
    marks = config.get("Labels") or {}
    return {
        "id": inspect["Id"],
        "name": str(inspect.get("Name") or "").lstrip("/"),
        "type": marks.get(labels.TYPE, ""),
        "pod_uid": marks.get(labels.POD_UID, ""),
        "pod_name": marks.get(labels.POD_NAME, ""),
        "pod_namespace": marks.get(labels.POD_NAMESPACE, ""),
        "container": marks.get(labels.CONTAINER, ""),
        "attempt": labels.attempt_of(marks),
        "state": state.get("Status", ""),
        "exit_code": int(state.get("ExitCode") or 0),
        "oom_killed": bool(state.get("OOMKilled")),
        "error": state.get("Error") or "",
        "created_at": _moment(inspect.get("Created")),
        "started_at": _moment(state.get("StartedAt")),
        "finished_at": _moment(state.get("FinishedAt")),
        "image": config.get("Image") or "",
        "image_id": inspect.get("Image") or "",
        "ip": _address(inspect, marks),
        "message": None,
        "message_source": message_source(inspect),
        "oom_source": memory_events.events_file(inspect),
    }
