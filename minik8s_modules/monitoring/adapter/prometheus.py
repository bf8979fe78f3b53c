"""Questions to Prometheus' HTTP API on this machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import orjson
import urllib3

from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.monitoring.adapter.answers import Sample

TIMEOUT_S = 10.0
_LARGEST = 16 * 1024 * 1024


class PrometheusUnavailable(TemporaryError):
    """Prometheus does not answer, or not in a way that is of use."""


class Prometheus:
    """One Prometheus, at a URL such as ``http://127.0.0.1:9090``; for any thread."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._pool = urllib3.PoolManager(maxsize=4, retries=False, timeout=urllib3.Timeout(connect=3.0, read=TIMEOUT_S))

    def query(self, expression: str) -> list[Sample]:
        """Return the instant vector of an expression. Raises PrometheusUnavailable."""
        found = self._ask("POST", "query", {"query": expression, "timeout": f"{TIMEOUT_S:.0f}s"})
        try:
            return [
                Sample(each["metric"], float(each["value"][0]), float(each["value"][1]))
                for each in found["result"]
                if not math.isnan(float(each["value"][1]))
            ]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise PrometheusUnavailable(f"{self._url}: the answer is not a vector: {error!r}") from error

    def names(self, matcher: str) -> Sequence[str]:
        """Return the metrics that have series matched by ``matcher``, sorted. Raises PrometheusUnavailable."""
        found = self._ask("GET", "label/__name__/values", {"match[]": matcher})
        return sorted(str(each) for each in found)

    def _ask(self, method: str, path: str, fields: dict[str, str]) -> Any:
        # a GET's fields go into the URL, where urllib3 does not know the word
        form: dict[str, Any] = {"encode_multipart": False} if method == "POST" else {}
        try:
            answer = self._pool.request(
                method, f"{self._url}/api/v1/{path}", fields=fields, preload_content=False, **form
            )
            data = answer.read(_LARGEST)
            answer.release_conn()
            body = orjson.loads(data)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise PrometheusUnavailable(f"{self._url}: Prometheus does not answer: {error}") from error
        if not isinstance(body, dict) or body.get("status") != "success":
            message = body.get("error") if isinstance(body, dict) else "no JSON object"
            raise PrometheusUnavailable(f"{self._url}: Prometheus answers {answer.status}: {message}")
        return body["data"]
