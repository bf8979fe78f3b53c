"""Counters, gauges and histograms, and their text form (Prometheus exposition format 0.0.4).

A family is made once, at module or object creation, in a ``Registry``; label values are given by position at
each observation, so that counting costs one dictionary access. ``Registry.text()`` renders everything.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

# Kubernetes' apiserver_request_duration_seconds, thinned to what a dashboard's quantiles need
LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

Labels = tuple[str, ...]
F = TypeVar("F", bound="Family")


class Family(Protocol):
    """One named metric with all its label sets."""

    def lines(self) -> Iterator[str]:
        """Yield the family's lines, HELP and TYPE first."""


class Counter:
    """A sum per label set that only grows."""

    def __init__(self, name: str, summary: str, labels: Sequence[str] = ()) -> None:
        self._name, self._summary, self._labels = name, summary, tuple(labels)
        self._values: dict[Labels, float] = {}
        self._lock = threading.Lock()

    def inc(self, *labels: str, by: float = 1.0) -> None:
        """Add ``by`` to the sum of ``labels``."""
        with self._lock:
            self._values[labels] = self._values.get(labels, 0.0) + by

    def value(self, *labels: str) -> float:
        """Return the sum of ``labels``; 0 before the first ``inc``."""
        return self._values.get(labels, 0.0)

    def lines(self) -> Iterator[str]:
        """Yield the family's lines."""
        yield from _head(self._name, self._summary, "counter")
        for labels, value in sorted(self._values.copy().items()):
            yield _sample(self._name, self._labels, labels, value)


class Gauge:
    """Values read at rendering time from ``read``: label values to number."""

    def __init__(
        self,
        name: str,
        summary: str,
        labels: Sequence[str],
        read: Callable[[], dict[Labels, float]],
    ) -> None:
        self._name, self._summary, self._labels, self._read = name, summary, tuple(labels), read

    def lines(self) -> Iterator[str]:
        """Yield the family's lines."""
        yield from _head(self._name, self._summary, "gauge")
        for labels, value in sorted(self._read().items()):
            yield _sample(self._name, self._labels, labels, value)


class Histogram:
    """Observations per label set, counted in buckets of seconds."""

    def __init__(
        self,
        name: str,
        summary: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = LATENCY_BUCKETS_S,
    ) -> None:
        self._name, self._summary, self._labels = name, summary, tuple(labels)
        self._bounds = tuple(buckets)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        self._lock = threading.Lock()

    def observe(self, value: float, *labels: str) -> None:
        """Count ``value`` under ``labels``."""
        with self._lock:
            counts = self._counts.get(labels)
            if counts is None:
                counts = self._counts[labels] = [0] * (len(self._bounds) + 1)
                self._sums[labels] = 0.0
            counts[bisect_left(self._bounds, value)] += 1
            self._sums[labels] += value

    def lines(self) -> Iterator[str]:
        """Yield the family's lines: cumulative buckets, sum and count for each label set."""
        yield from _head(self._name, self._summary, "histogram")
        with self._lock:
            copies = [(labels, list(counts), self._sums[labels]) for labels, counts in self._counts.items()]
        for labels, counts, total in sorted(copies):
            running = 0
            for bound, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
                running += count
                yield _sample(f"{self._name}_bucket", (*self._labels, "le"), (*labels, bound), running)
            yield _sample(f"{self._name}_sum", self._labels, labels, total)
            yield _sample(f"{self._name}_count", self._labels, labels, running)


class Registry:
    """The families of one process."""

    def __init__(self) -> None:
        self._families: list[Family] = []

    def counter(self, name: str, summary: str, labels: Sequence[str] = ()) -> Counter:
        """Make and register a counter."""
        return self._add(Counter(name, summary, labels))

    def gauge(
        self,
        name: str,
        summary: str,
        labels: Sequence[str],
        read: Callable[[], dict[Labels, float]],
    ) -> Gauge:
        """Make and register a gauge that ``read`` answers."""
        return self._add(Gauge(name, summary, labels, read))

    def histogram(self, name: str, summary: str, labels: Sequence[str] = ()) -> Histogram:
        """Make and register a histogram of seconds."""
        return self._add(Histogram(name, summary, labels))

    def text(self) -> str:
        """Return all families in the exposition format."""
        return "".join(f"{line}\n" for family in self._families for line in family.lines())

    def _add(self, family: F) -> F:
        self._families.append(family)
        return family


def _head(name: str, summary: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {summary}"
    yield f"# TYPE {name} {kind}"


def _sample(name: str, names: Sequence[str], labels: Sequence[str], value: float) -> str:
    pairs = ",".join(f'{key}="{_escape(text)}"' for key, text in zip(names, labels, strict=True))
    return f"{name}{{{pairs}}} {value:g}" if pairs else f"{name} {value:g}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
