"""What the extension counts, under KubeVirt's names where it has them.

What a guest uses is as its launcher said last, when the controllers asked how it is: a minute ago at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from minik8s_modules.api import objects
from minik8s_modules.base.metrics import Registry
from minik8s_modules.client.informer import Informer
from minik8s_virtual_machines.controllers.conditions import Report

_OF_GUESTS = {
    "cpu_seconds": ("cpu_usage_seconds_total", "CPU time of a guest's machine, in seconds, since its launcher began."),
    "resident_bytes": ("memory_resident_bytes", "Memory of the node that a guest's machine has, in bytes."),
    "domain_bytes": ("memory_domain_bytes", "Memory that a guest was given, in bytes."),
    "available_bytes": ("memory_available_bytes", "Memory that a guest sees, in bytes, as its balloon tells."),
    "unused_bytes": ("memory_unused_bytes", "Memory that a guest does not use at all, in bytes, as its balloon tells."),
    "usable_bytes": ("memory_usable_bytes", "Memory that a guest can use without swapping, in bytes, by its balloon."),
}
"""What a guest uses (``launcher/machines/usage.py``), by KubeVirt's names."""


def _silent(_uid: str) -> Report:
    return Report()


class Figures:
    """The families of the daemon."""

    def __init__(self, registry: Registry) -> None:
        self._instances: Informer | None = None
        self._report: Callable[[str], Report] = _silent
        self._answers = registry.counter(
            "minik8s_vm_subresource_requests_total",
            "Requests for subresources, by what and code.",
            ["subresource", "code"],
        )
        registry.gauge(
            "kubevirt_vmi_phase_count", "VirtualMachineInstances by phase and node.", ["phase", "node"], self._phases
        )

        for figure, (name, what) in _OF_GUESTS.items():
            registry.gauge(f"kubevirt_vmi_{name}", what, ["node", "namespace", "name"], partial(self._used, figure))

    def answered(self, what: str, code: int) -> None:
        """Count a request; ``what`` is a path's part, so unknown ones are one."""
        self._answers.labels(what if code != 404 else "other", str(code)).inc()  # noqa: PLR2004 - Not Found

    def counts(self, instances: Informer | None, report: Callable[[str], Report] = _silent) -> None:
        """Count these instances from now on; none while another process leads.

        ``report`` is what the launcher of a pod said last, by the pod's uid.
        """
        self._instances, self._report = instances, report

    def _used(self, figure: str) -> dict[tuple[str, ...], float]:
        found: dict[tuple[str, ...], float] = {}
        for each in self._instances.list() if self._instances is not None else []:
            status = objects.status(each)
            for uid, node in (status.get("activePods") or {}).items() if status.get("phase") == "Running" else ():
                known = self._report(uid).figures
                if figure in known:
                    found[(str(node), objects.namespace(each), objects.name(each))] = known[figure]
        return found

    def _phases(self) -> dict[tuple[str, ...], float]:
        found: Counter[tuple[str, ...]] = Counter()
        for each in self._instances.list() if self._instances is not None else []:
            status = objects.status(each)
            found[(str(status.get("phase") or "Pending"), str(status.get("nodeName") or ""))] += 1
        return {labels: float(count) for labels, count in found.items()}
