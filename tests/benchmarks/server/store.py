"""Figures of the store on an etcd of its own: ``python -m tests.benchmarks.server.store``, about ten seconds.

CPU is this process's, without etcd's; rates depend on what else the machine does, CPU hardly.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import orjson

from minik8s_modules.store.cache import WatchCache
from minik8s_modules.store.errors import StaleWrite
from minik8s_modules.store.etcd import EtcdStore
from minik8s_modules.store.interface import Store
from tests.support.etcd import EtcdServer

PODS = "/registry/core/pods/default/"
VALUE = orjson.dumps({"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {"text": "x" * 900}})


class Figure(NamedTuple):
    """One measured value."""

    name: str
    value: float
    unit: str


def measure() -> list[Figure]:
    """Start an etcd, measure, stop it."""
    with tempfile.TemporaryDirectory() as directory:
        server = EtcdServer(Path(directory)).start()
        store = EtcdStore([server.endpoint])
        try:
            return [*puts(store), *swaps(store), *ranges(store), *watches(store)]
        finally:
            store.close()
            server.stop()


def puts(store: Store, count: int = 300) -> list[Figure]:
    """Return the median time of a create, one after the other."""
    times = []
    for number in range(count):
        start = time.perf_counter()
        store.create(f"/bench/puts/{number}", VALUE)
        times.append(time.perf_counter() - start)
    return [Figure("create, p50", statistics.median(times) * 1e3, "ms")]


def swaps(store: Store, threads: int = 16, each: int = 60) -> list[Figure]:
    """Return rate and CPU of get + compare-and-swap, each thread on a key of its own."""

    def work(thread: int) -> None:
        key = f"/bench/swaps/{thread}"
        revision = store.create(key, VALUE)
        for _ in range(each):
            try:
                revision = store.update(key, VALUE, revision)
            except StaleWrite as error:
                raise AssertionError("nobody else writes this key") from error

    start, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    count = threads * (each + 1)
    return [
        Figure(f"compare-and-swap, {threads} threads", count / (time.perf_counter() - start), "1/s"),
        Figure("compare-and-swap, CPU", (time.process_time() - cpu) / count * 1e6, "us"),
    ]


def ranges(store: Store, count: int = 5_000) -> list[Figure]:
    """Return the CPU of reading ``count`` objects of 1 KB, by the store and by the cache."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: store.create(f"{PODS}{number:05}", VALUE), range(count)))
    cpu = time.process_time()
    assert len(store.range(PODS).entries) == count
    direct = time.process_time() - cpu
    cpu = time.process_time()
    cache = WatchCache(store)
    cache.start()
    assert cache.wait_ready(30)
    load = time.process_time() - cpu
    cpu = time.process_time()
    body = b",".join(item.data for item in cache.list(PODS).items)
    cached = time.process_time() - cpu
    assert len(body) > count * len(VALUE)
    cache.stop()
    return [
        Figure(f"range of {count} x 1 KB, CPU", direct * 1e3, "ms"),
        Figure(f"cache load of {count} x 1 KB, CPU", load * 1e3, "ms"),
        Figure(f"cache list of {count} x 1 KB, spliced, CPU", cached * 1e3, "ms"),
    ]


def watches(store: Store, count: int = 3_000) -> list[Figure]:
    """Return the CPU per event of a bare watch, and of the cache with a subscriber, for events in stock."""
    after = store.revision()
    revision = store.create(PODS + "watched", VALUE)
    cache = WatchCache(store)
    cache.start()
    assert cache.wait_ready(30)
    seen = threading.Event()
    for _ in range(count - 1):
        revision = store.update(PODS + "watched", VALUE, revision)
    cpu, left = time.process_time(), count
    watch = store.watch(PODS, after)
    for batch in watch:
        left -= len(batch)
        if left == 0:
            break
    watch.cancel()
    bare = (time.process_time() - cpu) / count
    last = revision + 1
    cache.subscribe(PODS, cache.revision, lambda event: seen.set() if event.revision == last else None)
    start = time.perf_counter()
    store.update(PODS + "watched", VALUE, revision)
    assert seen.wait(10)
    delay = time.perf_counter() - start
    cache.stop()
    return [
        Figure("watch, CPU per event", bare * 1e6, "us"),
        Figure("update until a cache's subscriber has it", delay * 1e3, "ms"),
    ]


if __name__ == "__main__":
    for figure in measure():
        print(f"{figure.name:<50} {figure.value:10.2f} {figure.unit}")
