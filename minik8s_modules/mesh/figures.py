"""What the pilot counts."""

from __future__ import annotations

import time

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
        self.certificates = registry.counter(
            "minik8s_pilot_certificates_total", "Certificates that sidecars were given for mutual TLS."
        )
        self.ends: dict[object, float] = {}
        """When the certificate of each stream ends, by Unix time."""
        registry.gauge(
            "minik8s_pilot_certificate_end_seconds",
            "Until the first certificate of a connected sidecar ends; each is renewed at half of its life.",
            (),
            lambda: {(): min(ends) - time.time()} if (ends := [*self.ends.values()]) else {},
        )
        registry.gauge("minik8s_pilot_sidecars", "Sidecars that are connected.", (), lambda: {(): self.streams})
