"""What a Pod says to a Slurm partition, and how its node is told from others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minik8s_modules.api import objects

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


def takes_results(config_map: Mapping[str, Any]) -> bool:
    """Return whether results may be copied to a ConfigMap."""
    return objects.annotations(config_map).get(TAKES_RESULTS) == "true"
