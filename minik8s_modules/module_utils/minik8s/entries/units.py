"""Entries of the section ``units``, key ``<uid>``: units of systemd on a machine that is no node."""

from typing import Annotated, Literal, Optional, TypedDict

from ..core.schema import Default


class _RequiredUnit(TypedDict):
    name: str
    """What people call it, such as C(<namespace>/<pod>); in the unit's description."""
    script: str
    """The program, beginning with C(#!)."""
    user: str
    """The Unix user that runs it; the machine has it."""


class UnitEntry(_RequiredUnit, total=False):
    """A unit that is started once; without an entry it is stopped, and its files are deleted."""

    restart: Annotated[Literal["no", "on-failure", "always"], Default("no")]
    """When the program is started again after its end (C(Restart=)). V(always) also starts it after a reboot."""
    directory: Annotated[str, Default("/")]
    """Absolute path where it runs (C(WorkingDirectory=))."""
    cpu_milli: Optional[int]
    """Thousandths of a CPU at most (C(CPUQuota=)); null is no limit."""
    memory_bytes: Optional[int]
    """Memory at most (C(MemoryMax=)); null is no limit."""
    grace_s: Annotated[int, Default(30)]
    """Seconds from SIGTERM to SIGKILL when it is stopped (C(TimeoutStopSec=))."""
    values: Optional[str]
    """Any text that stands for the environment in O(blob): the unit needs it to be started."""
    stopping: Annotated[bool, Default(False)]
    """Whether it is to end now; its files and its status stay."""
