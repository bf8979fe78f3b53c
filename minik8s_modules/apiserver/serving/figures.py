"""The figures of all workers of a server in one answer, each under its label ``worker``.

Whoever asks for metrics reaches one worker, which asks the others (workers.py). One that does not answer in time is
left out, as one is that has ended: a sum over workers would fall then, and look like a counter that began again.
"""

from __future__ import annotations

from minik8s_modules.apiserver.http.board import Place
from minik8s_modules.apiserver.serving.workers import FIGURES, Workers
from minik8s_modules.base.metrics import Registry, joined


def of_all(place: Place | None, workers: Workers, metrics: Registry) -> str:
    """Return the figures of all workers that live, in the exposition format; a lone worker has no ``place``."""
    if place is None:
        return metrics.text()
    told = {str(number): figures for number, figures in workers.asked(FIGURES) if figures is not None}
    return joined({**told, str(place.number): metrics.families()}, "worker")
