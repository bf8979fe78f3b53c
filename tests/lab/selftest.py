"""What a lab's nodes can do, one line an ability; the abilities are data, in ``files/abilities.yml``.

Each is a script for one or every node. One that needs something of the kernel has a probe: where the probe fails, the
node's kernel has none of it, which is said and is no failure; where the probe passes, the script must pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import yaml

from tests.lab.errors import LabNodeFailed
from tests.lab.lab import Lab
from tests.lab.places import FILES

TIMEOUT_S = 90
LAST_LINES = 12


@dataclass(frozen=True)
class Ability:
    """``node`` is a number or ``all``; ``lacking`` says why a kernel cannot; ``needs`` other abilities first."""

    name: str
    node: int | Literal["all"]
    script: str
    probe: str = ""
    lacking: str = ""
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """What came out; ``output`` is the script's where it failed, and says why where there is no such ability."""

    ability: str
    result: Literal["yes", "no", "FAILED"]
    seconds: float
    output: str = ""


def abilities() -> list[Ability]:
    """Return the table."""
    rows = yaml.safe_load((FILES / "abilities.yml").read_text(encoding="utf-8"))
    return [Ability(**{**row, "needs": tuple(row.get("needs", ()))}) for row in rows]


def find(lab: Lab, tell: Callable[[Finding], None] = lambda _: None) -> list[Finding]:
    """Try every ability on the lab's first two nodes and return what came out, in the table's order."""
    found: dict[str, Finding] = {}
    for ability in abilities():
        missing = [name for name in ability.needs if found[name].result != "yes"]
        finding = Finding(ability.name, "no", 0.0, f"needs: {missing[0]}") if missing else _try(lab, ability)
        found[ability.name] = finding
        tell(finding)
    return list(found.values())


def _try(lab: Lab, ability: Ability) -> Finding:
    names = [machine.name for machine in lab.machines()]
    nodes = names if ability.node == "all" else [names[ability.node - 1]]
    begin = time.monotonic()
    if ability.probe:
        try:
            _script(lab, nodes[0], ability.probe)
        except LabNodeFailed:
            return Finding(ability.name, "no", time.monotonic() - begin, ability.lacking)
    try:
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(lambda node: _script(lab, node, ability.script), nodes))
    except LabNodeFailed as error:
        return Finding(ability.name, "FAILED", time.monotonic() - begin, str(error))
    return Finding(ability.name, "yes", time.monotonic() - begin)


def _script(lab: Lab, node: str, text: str) -> str:
    machine = lab.machine(node)
    others = [other for other in lab.machines() if other.name != node]
    settings = {
        "number": machine.node.number,
        "address": machine.address,
        "other_number": others[0].node.number,
        "other_address": others[0].address,
        "subnet": machine.record.subnet,
    }
    variables = "".join(f"{name}={value}\n" for name, value in settings.items())
    return lab.run(node, ["bash", "-eu", "-o", "pipefail", "-s"], text=variables + text, timeout_s=TIMEOUT_S)


def run(lab: Lab, title: str, show: Callable[[str], None]) -> int:
    """Print what the nodes can do, line by line, and return how many abilities failed."""
    release = lab.run(lab.machines()[0].name, ["uname", "-r"]).strip()
    show(f"{title} nodes, kernel {release}")

    def tell(finding: Finding) -> None:
        why = f"  {finding.output}" if finding.result == "no" else ""
        show(f"  {finding.result:<6} {finding.ability:<44} {finding.seconds:5.1f} s{why}")
        if finding.result == "FAILED":
            for line in finding.output.splitlines()[-LAST_LINES:]:
                show(f"         {line}")

    return sum(finding.result == "FAILED" for finding in find(lab, tell))
