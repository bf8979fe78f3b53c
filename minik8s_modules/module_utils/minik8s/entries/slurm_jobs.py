"""Entries of the section ``slurm_jobs``, key ``<uid>``: jobs of a Slurm, not of a node."""

from typing import Annotated, Optional, TypedDict

from ..core.schema import Default


class _RequiredSlurmJob(TypedDict):
    name: str
    """What people call it, such as C(<namespace>/<pod>); in the job's comment."""
    partition: str
    """The Slurm partition."""
    script: str
    """The program, beginning with C(#!). It is run once by the job, in the folder C(work) of the job's own folder, and
    may write 4,096 bytes to the file that the variable E(MINIK8S_TERMINATION_LOG) names."""


class SlurmJobEntry(_RequiredSlurmJob, total=False):
    """A job that is submitted once; without an entry it is cancelled, and its folder deleted."""

    sources: Optional[dict[str, str]]
    """Files below C(work), by relative path, written with mode 0600."""
    values: Optional[str]
    """Any text that stands for the environment and secret files in O(blob): the job needs them to be submitted."""
    tasks: Annotated[int, Default(1)]
    """Tasks (C(--ntasks))."""
    tasks_per_node: Optional[int]
    """Tasks a node at most (C(--ntasks-per-node)); null leaves it to Slurm."""
    cpus_per_task: Annotated[int, Default(1)]
    """CPUs a task (C(--cpus-per-task))."""
    memory_mb: Optional[int]
    """Memory a node in MiB (C(--mem)); null means what the partition gives by default."""
    gpus: Annotated[int, Default(0)]
    """GPUs a node (C(--gres=gpu:N))."""
    minutes: Optional[int]
    """Time limit in minutes (C(--time)); null means the partition's."""
    after: Optional[dict[str, str]]
    """Jobs of the same O(node), by uid, that it waits for, each with C(after) (it has begun), C(afterany) (it has
    ended), C(afterok) or C(afternotok) (C(--dependency)). It is submitted once they are."""
    requeue: Annotated[bool, Default(False)]
    """Whether Slurm may run it again when its node is lost (C(--requeue))."""
