"""Answers requests for custom metrics: which objects are meant, what Prometheus knows of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from urllib.parse import parse_qs, unquote, urlsplit

from minik8s_modules.api import objects
from minik8s_modules.api.errors import BadRequest, NotFound
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.monitoring.adapter import answers
from minik8s_modules.monitoring.adapter.prometheus import Prometheus, PrometheusUnavailable
from minik8s_modules.monitoring.adapter.questions import GROUP, MetricQuery, asked, expression
from minik8s_modules.runtime.informers import BY_NAMESPACE, Informers

log = logging.getLogger(__name__)
_ROOT = f"/apis/{GROUP}"
# Discovery is asked for every half a minute by each API server, and by every kubectl with an empty cache.
_NAMES_S = 30.0
_PODS_WITH_NAMES = '{namespace!="",pod!="",__name__!~"(container_|kube_|kubelet_|machine_|node_|scrape_).*|up"}'
_LARGEST_MATCH = 5000


class Adapter:
    """Answers a GET; for any thread."""

    def __init__(self, informers: Informers, prometheus: Prometheus, clock: Clock | None = None) -> None:
        self._pods = informers.of(POD, BY_NAMESPACE)
        self._prometheus = prometheus
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._names: Sequence[str] = ()
        self._read_s: float | None = None

    def answer(self, target: str) -> JsonObject:
        """Return the body for a path with its query.

        Raises:
            NotFound: there is no such path, object or metric.
            BadRequest: what is asked cannot be understood.
            PrometheusUnavailable: Prometheus does not answer.
        """
        where = urlsplit(target)
        if where.path.rstrip("/") == _ROOT:
            return answers.group()
        parts = [unquote(each) for each in where.path.removeprefix(f"{_ROOT}/").rstrip("/").split("/")]
        if not where.path.startswith(f"{_ROOT}/") or parts[0] not in answers.VERSIONS:
            raise NotFound.path(f"there is only {_ROOT}, in versions {', '.join(answers.VERSIONS)}")
        if len(parts) == 1:
            return answers.resources(parts[0], self._known())
        query = parse_qs(where.query)
        given = [query.get(name, [""])[0] for name in ("labelSelector", "metricLabelSelector")]
        return self._values(parts[0], asked(parts[1:], *given))

    def _values(self, version: str, question: MetricQuery) -> JsonObject:
        names = self._named(question)
        samples = self._prometheus.query(expression(question, names)) if names else []
        if not samples:
            whose = f"{question.resource or 'namespace'} {question.name}"
            raise NotFound.path(f"Prometheus has no metric {question.metric} of {whose} in {question.namespace!r}")
        return answers.values(version, question, samples)

    def _named(self, question: MetricQuery) -> list[str]:
        """Return the names that are meant: of pods those that the selector matches."""
        if question.name != "*":
            return [question.name]
        if question.resource != "pods":
            raise BadRequest(f"{question.resource}: metrics are given of one object, or of all pods that are selected")
        pods = self._pods.by_index(BY_NAMESPACE, question.namespace)
        found = sorted(objects.name(pod) for pod in pods if question.selector.matches(objects.labels(pod)))
        if len(found) > _LARGEST_MATCH:
            raise BadRequest(f"{len(found)} pods match, {_LARGEST_MATCH} are answered at most: give a labelSelector")
        return found

    def _known(self) -> Sequence[str]:
        with self._lock:
            now_s = self._clock.monotonic()
            if self._read_s is None or now_s - self._read_s >= _NAMES_S:
                self._read_s = now_s
                self._names = self._read() or self._names
            return self._names

    def _read(self) -> Sequence[str]:
        """Return the names of metrics; none when Prometheus does not answer: the API is there all the same."""
        try:
            return [name.removesuffix("_total") for name in self._prometheus.names(_PODS_WITH_NAMES)]
        except PrometheusUnavailable as error:
            log.warning("the names of metrics cannot be read: %s", error)
            return ()
