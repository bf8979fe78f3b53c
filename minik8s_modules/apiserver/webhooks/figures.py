"""What is counted of webhooks, under Kubernetes' names (apiserver ``pkg/admission/metrics``)."""

from __future__ import annotations

import threading
from collections import Counter

from minik8s_modules.base.metrics import Registry

_PREFIX = "apiserver_admission_webhook_"
_MOST_CODE = 600


class Figures:
    """Counts calls, refusals and failures by webhook; a counter without ``_total`` in its name is shown as a gauge."""

    def __init__(self, metrics: Registry) -> None:
        labels = ("name", "type", "operation", "rejected")
        self._seconds = metrics.histogram(f"{_PREFIX}admission_duration_seconds", "Time a webhook took.", labels)
        more = ("name", "type", "operation", "code", "rejected")
        self._calls = metrics.counter(f"{_PREFIX}request_total", "Calls of webhooks.", more)
        self._lock = threading.Lock()
        self._refusals: Counter[tuple[str, ...]] = Counter()
        self._open: Counter[tuple[str, ...]] = Counter()
        why = ("name", "type", "operation", "error_type", "rejection_code")
        metrics.gauge(f"{_PREFIX}rejection_count", "Writes refused by webhooks.", why, lambda: _read(self._refusals))
        text = "Writes that passed because a webhook could not be asked."
        metrics.gauge(f"{_PREFIX}fail_open_count", text, ("name", "type"), lambda: _read(self._open))

        where = ("name", "kind", "type", "operation")
        said = "apiserver_admission_match_condition_"
        self._unsure = metrics.counter(f"{said}evaluation_errors_total", "Conditions that could not be decided.", where)
        self._excluded = metrics.counter(f"{said}exclusions_total", "Writes that conditions kept from webhooks.", where)

    def unsure(self, hook: str, type_: str, operation: str) -> None:
        """Count conditions that could not be evaluated."""
        self._unsure.labels(hook, "webhook", type_, operation).inc()

    def excluded(self, hook: str, type_: str, operation: str) -> None:
        """Count a write that a condition kept from a webhook."""
        self._excluded.labels(hook, "webhook", type_, operation).inc()

    def called(self, hook: str, type_: str, operation: str, code: int, took_s: float, *, rejected: bool) -> None:
        """Count a call."""
        shown = str(rejected).lower()
        self._seconds.labels(hook, type_, operation, shown).observe(took_s)
        self._calls.labels(hook, type_, operation, str(min(code, _MOST_CODE)), shown).inc()

    def refused(self, hook: str, type_: str, operation: str, error: str, code: int) -> None:
        """Count a refused write."""
        with self._lock:
            self._refusals[hook, type_, operation, error, str(min(code, _MOST_CODE))] += 1

    def failed_open(self, hook: str, type_: str) -> None:
        """Count a write that passed unseen."""
        with self._lock:
            self._open[hook, type_] += 1


class ConversionFigures:
    """Counts what converters of custom kinds were asked (apiextensions-apiserver ``pkg/apiserver/conversion``)."""

    def __init__(self, metrics: Registry) -> None:
        how, prefix = ("result", "failure_type"), "apiserver_conversion_webhook"
        self._calls = metrics.counter(f"{prefix}_request_total", "Calls of converters of custom kinds.", how)
        self._seconds = metrics.histogram(f"{prefix}_duration_seconds", "Time that a converter took.", how)
        labels = ("crd_name", "from_version", "to_version", "succeeded")
        text = "Time that a converter took, by definition."
        self._each = metrics.histogram("apiserver_crd_conversion_webhook_duration_seconds", text, labels)

    def converted(self, definition: str, versions: tuple[str, str], failure: str, took_s: float) -> None:
        """Count a call; ``versions`` are those of before and after, ``failure`` is "" for none."""
        result = "failure" if failure else "success"
        self._calls.labels(result, failure).inc()
        self._seconds.labels(result, failure).observe(took_s)
        before, after = (each.rpartition("/")[2] for each in versions)
        self._each.labels(definition, before, after, str(not failure).lower()).observe(took_s)


def _read(counts: Counter[tuple[str, ...]]) -> dict[tuple[str, ...], float]:
    return {labels: float(count) for labels, count in list(counts.items())}
