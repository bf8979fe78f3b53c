"""What a plugin answers. ``None`` is success, everywhere; other codes say what becomes of the pod.

Source: kubernetes pkg/scheduler/framework/interface.go (Code).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Code(Enum):
    """How a plugin answered."""

    SUCCESS = "Success"
    ERROR = "Error"
    """Something is broken: the attempt ends, and the pod comes again after its back-off."""
    UNSCHEDULABLE = "Unschedulable"
    """It does not fit; taking pods away may help."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """It does not fit, and no preemption would change that."""
    WAIT = "Wait"
    """Permit: the pod waits for somebody to allow it. PreBind: it is not done yet; the plugin is asked again."""
    SKIP = "Skip"
    """PreFilter, PreScore: this plugin has nothing to say of this pod. Bind: another is to bind it."""
    PENDING = "Pending"
    """It waits for something outside the scheduler."""


_REFUSALS = frozenset({Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING})


@dataclass(frozen=True, slots=True)
class Status:
    """An answer other than success; ``plugin`` is filled in by the framework."""

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def message(self) -> str:
        """The reasons in one text."""
        return ", ".join(self.reasons)

    @property
    def refused(self) -> bool:
        """Whether the pod was turned down, other than by an error."""
        return self.code in _REFUSALS

    def by(self, plugin: str) -> Status:
        """Return the answer as one of ``plugin``; one that names its plugin keeps it."""
        return self if self.plugin else replace(self, plugin=plugin)


SKIP = Status(Code.SKIP)


def unschedulable(*reasons: str) -> Status:
    """Return that the pod does not fit."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """Return that the pod does not fit whatever is preempted."""
    return Status(Code.UNRESOLVABLE, reasons)


def error(*reasons: str) -> Status:
    """Return that something is broken."""
    return Status(Code.ERROR, reasons)
