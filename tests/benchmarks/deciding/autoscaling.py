"""What 500 autoscalers cost: ``python -m tests.benchmarks.deciding.autoscaling``, half a minute.

CPU of the controller alone.

The controller of the product decides on an API in memory, whose answers are prepared, so that only its own work is
counted: the list of PodMetrics is parsed, statuses are made; sending them is not in it. Time is simulated: samples come
every ten seconds, as gateways take them, a tick as often as in the product.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from datetime import datetime

from urllib3.response import HTTPResponse

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER
from minik8s_modules.base.metrics import Registry
from minik8s_modules.controllers.autoscaling.controller import TICK_S, AutoscalerController
from minik8s_modules.controllers.autoscaling.figures import AutoscalerFigures
from minik8s_modules.controllers.autoscaling.readings import Readings
from minik8s_modules.runtime.controller import Context
from tests.benchmarks.figures import Figure
from tests.support.servers.autoscaled import Server, Shop, answer

AUTOSCALERS, PODS_EACH, SAMPLE_S, MINUTES = 500, 2, 10, 1
BAR_CORE_PERCENT, BAR_LATENCY_S = 5.0, 5.0


class Prepared:
    """Answers the list of PodMetrics from what was made before; all else by a ``Server``."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.sampled: datetime | None = None
        self._body = b""

    def sample(self) -> None:
        """Take samples: what pods use changes a little each time."""
        self.sampled = self._server.clock.now()
        percent = 48 + self.sampled.second // SAMPLE_S % 5
        self._server.cpu = dict.fromkeys(self._server.cpu, f"{percent}m")
        self._body = self._server.raw("GET", "/apis/metrics.k8s.io/v1beta1/pods").data

    def raw(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,  # noqa: ARG002 - nothing is waited for
    ) -> HTTPResponse:
        """Answer."""
        if path.startswith("/apis/metrics.k8s.io"):
            return HTTPResponse(self._body, status=200)
        return self._server.raw(method, path, body, headers) if self._body else answer(503, json.loads("{}"))


def _cluster() -> tuple[Shop, list[Prepared]]:
    made: list[Prepared] = []

    def controller(context: Context, server: Server) -> AutoscalerController:
        made.append(Prepared(server))
        figures = AutoscalerFigures(Registry())
        return AutoscalerController(context, made[0], Readings(made[0], context.clock), figures)

    shop = Shop(DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, controller)
    for number in range(AUTOSCALERS):
        shop.workload(PODS_EACH, *["50m"] * PODS_EACH, name=f"w{number}")
        shop.autoscaler(name=f"h{number}", target=f"w{number}")
    shop.api.compact()
    shop.begin()
    made[0].sample()
    shop.tick()
    return shop, made


def measure() -> Iterator[Figure]:
    """Yield the CPU of 500 autoscalers, and the longest time from a sample to the decision on it."""
    shop, (prepared,) = _cluster()
    used_s, decided, latest_s = 0.0, 0, 0.0
    for second in range(1, MINUTES * 60 + 1):
        shop.clock.advance(1.0)
        if second % SAMPLE_S == 0:
            prepared.sample()
        if second % TICK_S:
            continue
        shop.settle(HORIZONTAL_POD_AUTOSCALER)
        shop.api.compact()  # a watch of it looks through all that has happened
        begun = time.thread_time()
        due = shop.controller.due()
        for key in due:
            shop.controller.sync(key)
        used_s += time.thread_time() - begun
        decided += len(due)
        if due and prepared.sampled is not None:
            latest_s = max(latest_s, (shop.clock.now() - prepared.sampled).total_seconds())
    shop.end()
    assert objects.status(shop.api.get(HORIZONTAL_POD_AUTOSCALER, "h0", "shop"))["currentMetrics"]
    text = (
        f"{PODS_EACH} pods each, {decided / MINUTES / 60:.0f} decisions a second, {used_s / decided * 1e6:.0f} us each"
    )
    share = used_s / (MINUTES * 60) * 100
    yield Figure(f"{AUTOSCALERS} autoscalers: CPU of the controller", share, "% of a core", BAR_CORE_PERCENT, text)
    yield Figure(
        "from a sample to the decision on it, at most", latest_s, "s", BAR_LATENCY_S, f"a tick each {TICK_S:g} s"
    )


def main() -> None:
    """Print the figures."""
    for figure in measure():
        print(figure.line())


if __name__ == "__main__":
    main()
