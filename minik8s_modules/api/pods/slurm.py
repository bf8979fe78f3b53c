"""What a Pod says to a Slurm partition, and how its node is told from others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.syntax import dns1123_subdomain

IMAGE = "minik8s/host"
"""What stands for "no image": the program of the compute node itself."""
GPU = "nvidia.com/gpu"
PARTITION = "slurm.minik8s.io/partition"
"""Label of the node."""
TASKS = "slurm.minik8s.io/tasks"
TASKS_PER_NODE = "slurm.minik8s.io/tasks-per-node"
SOURCES = "slurm.minik8s.io/sources"
"""Annotation of a Pod: files of the job's working folder, as JSON of texts by relative path."""
DEPENDENCY = "slurm.minik8s.io/dependency"
"""Annotation of a Pod: for which Pods of its namespace and node its job waits: ``afterok:NAME:NAME,afterany:NAME``."""
SUFFIXES = (".cu", ".c", ".cc", ".cpp", ".cxx", ".sh", ".py")
"""Of programs that a Job of the original may have."""
SOURCE_BYTES = 200 << 10
"""An object's annotations have 256 KiB."""
RESULTS = "slurm.minik8s.io/results"
"""Annotation of a Pod: which files of the job's working folder are its results: ``*.csv,plots/*.png``."""
RESULTS_TO = "slurm.minik8s.io/results-to"
"""Annotation of a Pod: the ConfigMap of its namespace that its results are copied to."""
TAKES_RESULTS = "minik8s.io/takes-results"
"""Annotation of a ConfigMap, ``true``: Pods of its namespace may have their results copied there.

Who may write the ConfigMap says so. Whoever creates Pods need have no right to ConfigMaps, and gets none by this.
"""
COPIED = "slurm.minik8s.io/ResultsCopied"
"""Condition of a Pod that has results."""
UNAVAILABLE = "SlurmUnavailable"
"""Condition of the node: what is told of its Pods is as old as that. It stays Ready, so that no job is cancelled."""

PATTERNS = 20
_BOTH = f"annotations {RESULTS} and {RESULTS_TO}: give both, files such as '*.csv,plots/*.png' and a ConfigMap's name"
_PART = re.compile(r"[^\x00-\x1f\x7f/]{1,253}\Z")
_CLAIMS = frozenset({"persistentvolumeclaim", "persistentvolumeclaims", "pvc"})


class InvalidResults(ValueError):
    """What a Pod says of its results cannot be understood, or not be done."""


class Wish(NamedTuple):
    """What a Pod says of its results: patterns of files, and the ConfigMap."""

    patterns: tuple[str, ...]
    config_map: str


def wish_of(pod: Mapping[str, Any]) -> Wish | None:
    """Return what a Pod asks for, None where it has no results.

    Raises:
        InvalidResults: an annotation cannot be understood.
    """
    said = objects.annotations(pod)
    patterns, target = said.get(RESULTS), said.get(RESULTS_TO)
    if patterns is None and target is None:
        return None
    if not patterns or not target:
        raise InvalidResults(_BOTH)
    found = tuple(one.strip() for one in patterns.split(","))
    wrong = next((one for one in found if not _is_pattern(one)), None)
    if wrong is not None or len(found) > PATTERNS:
        text = f"{wrong!r:.80} is no path" if wrong is not None else f"there are more than {PATTERNS}"
        raise InvalidResults(f"annotation {RESULTS}: {text}; name files below the job's working folder, without `..`")
    _check_target(target)
    return Wish(found, target)


def _check_target(target: str) -> None:
    if target.partition("/")[0].partition(".")[0].lower() in _CLAIMS and "/" in target:
        raise InvalidResults(
            f"annotation {RESULTS_TO} {target!r:.80}: results are not copied to a PersistentVolumeClaim, as neither "
            "the login machine nor the compute nodes mount the cluster's volumes; name a ConfigMap, or have the "
            "program write to a file system that the site shares with you"
        )
    if why := dns1123_subdomain(target):
        raise InvalidResults(
            f"annotation {RESULTS_TO} {target!r:.80}: give the name of a ConfigMap, without its kind: {why[0]}"
        )


def _is_pattern(text: str) -> bool:
    return all(_PART.match(part) and part not in {".", ".."} for part in text.split("/"))


def takes_results(config_map: Mapping[str, Any]) -> bool:
    """Return whether results may be copied to a ConfigMap."""
    return objects.annotations(config_map).get(TAKES_RESULTS) == "true"
