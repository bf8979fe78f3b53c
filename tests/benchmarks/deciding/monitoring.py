"""What monitoring costs, in ten seconds: CPU of our own parts, not Prometheus'.

2,000 targets, compared with the directory every minute, while one in a hundred changes each second; the figures of a
node's 110 Pods, and what its kubelet would tell, made every 15 seconds while a tenth of the Pods has changed between.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from minik8s_modules.api.kinds import POD
from minik8s_modules.apiserver.nodes.node_metrics import Measured, Node, cadvisor_lines, kubelet_lines, resource_lines
from minik8s_modules.base.metrics import Registry
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.monitoring.object_metrics import ObjectMetrics
from minik8s_modules.monitoring.target_files import COMPARE_S, TargetFiles, TargetKey
from minik8s_modules.runtime.informers import Informers
from tests.benchmarks.figures import Figure
from tests.support.waiting import until

TARGETS, CHANGES_A_SECOND, PODS_A_NODE, SCRAPE_S = 2000, 20, 110, 15
BAR_PERCENT = 1.0


def pod(number: int, node: str = "n1") -> dict[str, Any]:
    """Return a Pod that runs and asks to be scraped."""
    labels = {"app": "web", "monitor": "prometheus", "monitorPort": "8080"}
    requests = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    status = {"name": "app", "ready": True, "restartCount": 0, "image": "web:1", "containerID": "docker://a"}
    return {
        "metadata": {"name": f"p{number}", "namespace": "shop", "uid": f"u{number}", "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "app", "image": "web:1", "resources": requests}]},
        "status": {
            "phase": "Running",
            "podIP": f"10.0.{number // 250}.{number % 250}",
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready")],
            "containerStatuses": [{**status, "state": state}],
        },
    }


def spent(action: Callable[[], object]) -> float:
    """Return the CPU seconds that this thread takes for an action."""
    begun = time.thread_time()
    action()
    return time.thread_time() - begun


def targets(folder: Path) -> Figure:
    """Return the share of a core that keeps the targets."""
    api = FakeApi()
    for number in range(TARGETS):
        api.create(POD, pod(number))
    informers = Informers(api)
    files = TargetFiles(informers, folder, Registry())
    informers.start()
    until(lambda: len(informers.of(POD).list()) == TARGETS)
    (folder / "pods").mkdir()
    keys = [TargetKey("pods", f"u{number}", "shop", f"p{number}") for number in range(TARGETS)]
    write_s = spent(lambda: deque(map(files.sync, keys), 0)) / TARGETS
    same_s = spent(lambda: deque(map(files.sync, keys), 0)) / TARGETS
    api.cut_watches()
    informers.stop()
    assert sum(1 for _ in (folder / "pods").iterdir()) == TARGETS
    share = (TARGETS * same_s / COMPARE_S + CHANGES_A_SECOND * write_s) * 100
    text = f"{CHANGES_A_SECOND} changes a second; {write_s * 1e6:.0f} us to write a file, {same_s * 1e6:.0f} to compare"
    return Figure(f"{TARGETS} targets kept", share, "% of a core", BAR_PERCENT, text)


def scrape() -> Figure:
    """Return the share of a core that the figures of one node cost."""
    api = FakeApi()
    informers = Informers(api)
    metrics = ObjectMetrics(informers)
    pods = [pod(number) for number in range(PODS_A_NODE)]
    (store,) = [each for each in metrics._stores if each.table.kind is POD]
    for each in pods:
        store.change(None, each)
    metrics.text()
    for each in pods[: PODS_A_NODE // 10]:
        store.change(each, each)
    text = ""

    def objects_text() -> None:
        nonlocal text
        text = metrics.text()

    objects_s = spent(objects_text)
    usage = {"timestamp_s": 1.0, "cpu_nanocores": 1, "cpu_nanoseconds": 5, "memory_bytes": 7}
    node = Node(
        "n1", {"status": {"capacity": {"cpu": "4"}}}, usage, tuple(Measured(each, {"app": usage}) for each in pods)
    )
    lines_s = spent(lambda: [*cadvisor_lines(node), *resource_lines(node), *kubelet_lines("n1", pods, 1.0)])
    message = f"{text.count(chr(10))} lines of objects {objects_s * 1e3:.1f} ms, of the node {lines_s * 1e3:.1f} ms"
    name = f"a scrape every {SCRAPE_S} s, of a node with {PODS_A_NODE} Pods"
    return Figure(name, (objects_s + lines_s) / SCRAPE_S * 100, "% of a core", BAR_PERCENT, message)


def measure() -> Iterator[Figure]:
    """Yield both figures."""
    with tempfile.TemporaryDirectory(prefix="targets-") as folder:
        yield targets(Path(folder))
    yield scrape()


def main() -> None:
    """Print the figures."""
    for figure in measure():
        print(figure.line())


if __name__ == "__main__":
    main()
