"""What the pilot counts."""

from __future__ import annotations

from minik8s_modules.base.metrics import Registry


class Figures:
    """The families; made once a process."""

    def __init__(self, registry: Registry) -> None:
        self.streams = 0
        self.answers = registry.counter(
            "minik8s_pilot_answers_total", "Answers of sidecars to their configuration.", ("type", "answer")
        )
        self.pushes = registry.counter(
            "minik8s_pilot_pushes_total", "Messages that sidecars and Gateways were sent.", ("type",)
        )
        self.convergence = registry.histogram(
            "minik8s_pilot_convergence_seconds", "From a change to a sidecar's or Gateway's acknowledgement of it."
        )
        self.strangers = registry.counter(
            "minik8s_pilot_strangers_total", "Streams that were refused because they had no valid token of a Pod."
        )
        registry.gauge("minik8s_pilot_sidecars", "Sidecars that are connected.", (), lambda: {(): self.streams})
