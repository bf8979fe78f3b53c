"""Run one workload against an API server whose scheduler runs already, and print how many pods got a node a second.

    python -m tests.benchmarks.deciding.scheduler_perf KUBECONFIG FOLDER/misc/performance-config.yaml CASE WORKLOAD

FOLDER is test/integration/scheduler_perf of Kubernetes 1.32. Measured is as upstream does: a watch sees pods get their
nodes, and each second is a sample. Operations for dynamic resources and the steady state are refused by name. The
server should be new: nodes and pods that are there already count.
"""

from __future__ import annotations

import sys
from pathlib import Path

from minik8s_modules.client.api import ApiClient
from tests.benchmarks.deciding.scheduler_perf.operations import NotUnderstood, read
from tests.benchmarks.deciding.scheduler_perf.workload import Workload


def main() -> None:
    """Run it."""
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    config, file, name, which = sys.argv[1:]
    try:
        case = read(Path(file), name, which)
        workload = Workload(ApiClient.from_kubeconfig(config), case)
        workload.run()
    except (NotUnderstood, TimeoutError) as error:
        sys.exit(str(error))
    if case.features:
        print(f"{case.name} asks for feature gates, which the scheduler that runs was not asked for: {case.features}")
    for sampler in workload.samplers:
        best = max(sampler.samples, default=sampler.average)
        print(f"{case.name}: {sampler.average:.1f} pods/s on average of {len(sampler.samples)} s, best {best:.1f}")


if __name__ == "__main__":
    main()
