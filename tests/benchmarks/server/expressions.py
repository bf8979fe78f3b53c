"""What a rule of a custom resource costs: ``python -m tests.benchmarks.server.expressions``. CPU, best of five rounds.

The rule of ten terms is compiled once and applied to the same object; the nested loop compares each of 20 listeners
with all of them, as Gateway API's rule for unique names does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from minik8s_modules.cel import Budget, Environment, compile, compile_schema, validate  # noqa: A004 - what is measured
from minik8s_modules.cel.schema.declared import declare
from tests.benchmarks.figures import Figure
from tests.support.cel_cases import cases

TEN_TERMS_US = 10.0
TEN_TERMS = (
    "self.replicas >= self.min && self.replicas <= self.max && self.name != '' && "
    "(self.mode == 'slow' || self.mode == 'fast') && has(self.size) && self.size > 0 && self.size < 100 && "
    "!self.paused && self.name.startsWith('w') && self.min < self.max"
)
UNIQUE = "self.listeners.all(a, self.listeners.exists_one(b, a.name == b.name))"
SCHEMA = {
    "type": "object",
    "properties": {
        **{name: {"type": "integer"} for name in ("replicas", "min", "max", "size")},
        **{name: {"type": "string"} for name in ("name", "mode")},
        "paused": {"type": "boolean"},
        "listeners": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
    },
}
VALUE = {
    "replicas": 3, "min": 1, "max": 5, "size": 10, "name": "web", "mode": "fast", "paused": False,
    "listeners": [{"name": str(number)} for number in range(20)],
}  # fmt: skip
ROUNDS = 5


def _evaluating_us(rule: str, times: int) -> float:
    kind = declare(SCHEMA, "selfType", root=False)
    assert kind is not None
    program, values, budget = compile(rule, Environment({"self": kind})), {"self": VALUE}, Budget(10**15)
    return _best_us(lambda: [program.evaluate(values, budget) for _ in range(times)], times)


def _best_us(work: Any, times: int) -> float:
    found = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        work()
        found.append((time.process_time() - begun) / times * 1e6)
    return min(found)


def measure() -> Iterator[Figure]:
    """Yield what evaluating and compiling costs."""
    yield Figure("a rule of ten terms", _evaluating_us(TEN_TERMS, 5_000), "us", TEN_TERMS_US, "compiled once")
    yield Figure("unique names of 20 items, 400 comparisons", _evaluating_us(UNIQUE, 100), "us")
    routes = next(case["schema"] for case in cases("gateway_api") if case["name"].startswith("httproutes"))
    compiled, _ = compile_schema(routes)
    spec = {"rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/a"}}], "filters": []}]}
    yield Figure("Gateway API's HTTPRoute: its rules compiled", _best_us(lambda: compile_schema(routes), 1) / 1e3, "ms")
    checks = _best_us(lambda: [validate(compiled, {"spec": spec}) for _ in range(200)], 200)
    yield Figure("Gateway API's HTTPRoute: a route validated", checks, "us")


def main() -> None:
    """Print the figures."""
    for figure in measure():
        print(figure.line())


if __name__ == "__main__":
    main()
