"""What the extension counts, under KubeVirt's names where it has them."""

from __future__ import annotations

from collections import Counter

from minik8s_modules.api import objects
from minik8s_modules.base.metrics import Registry
from minik8s_modules.client.informer import Informer


class Figures:
    """The families of the daemon."""

    def __init__(self, registry: Registry) -> None:
        self._instances: Informer | None = None
        self._answers = registry.counter(
            "minik8s_vm_subresource_requests_total",
            "Requests for subresources, by what and code.",
            ["subresource", "code"],
        )
        registry.gauge(
            "kubevirt_vmi_phase_count", "VirtualMachineInstances by phase and node.", ["phase", "node"], self._phases
        )

    def answered(self, what: str, code: int) -> None:
        """Count a request; ``what`` is a path's part, so unknown ones are one."""
        self._answers.labels(what if code != 404 else "other", str(code)).inc()  # noqa: PLR2004 - Not Found

    def counts(self, instances: Informer | None) -> None:
        """Count these instances from now on; none while another process leads."""
        self._instances = instances

    def _phases(self) -> dict[tuple[str, ...], float]:
        found: Counter[tuple[str, ...]] = Counter()
        for each in self._instances.list() if self._instances is not None else []:
            status = objects.status(each)
            found[(str(status.get("phase") or "Pending"), str(status.get("nodeName") or ""))] += 1
        return {labels: float(count) for labels, count in found.items()}
