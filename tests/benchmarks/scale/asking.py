"""A client that GETs one object twenty times a second until its input ends, and then prints how long answers took.

    python -m tests.benchmarks.scale.asking KUBECONFIG

It is a process of its own, so that nothing but the server, and the machine, delays it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import NAMESPACE
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.api import ApiClient

EVERY_S = 0.05


@contextmanager
def asked(kubeconfig: Path) -> Iterator[list[float]]:
    """Ask while the caller does something; the list has the seconds, sorted, once that is over."""
    took_s: list[float] = []
    argv = [sys.executable, "-m", "tests.benchmarks.scale.asking", str(kubeconfig)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as asking:
        try:
            yield took_s
        finally:
            told, _ = asking.communicate()
    took_s += json.loads(told)


def main() -> int:
    """Ask until the input ends."""
    client = ApiClient.from_kubeconfig(sys.argv[1])
    reading = threading.Thread(target=sys.stdin.read, daemon=True)
    reading.start()
    took_s: list[float] = []
    while reading.is_alive():
        time.sleep(EVERY_S)
        began = time.monotonic()
        try:
            client.get(NAMESPACE, "default")
        except (StatusError, TemporaryError) as error:
            print(error, file=sys.stderr)
            continue
        took_s.append(time.monotonic() - began)
    print(json.dumps(sorted(took_s)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
