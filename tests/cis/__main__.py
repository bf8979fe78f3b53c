"""``python -m tests.cis [NUMBER...]``: asks the installed cluster about every control and prints a table.

Ends with 1 where one fails that has no explanation. Makes a namespace of its own and removes it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import yaml

import minik8s_modules
from tests.cis.controls import HERE, Control, Verdict, judge, read

LIMIT_S = 120
CONFIG = Path("/etc/minik8s")
KUBECTL = ("/opt/minik8s/bin/kubectl", "--kubeconfig=/etc/minik8s/admin.kubeconfig", "--cache-dir=/run/minik8s/kubectl")


def port(file: str, section: str) -> str:
    """Return the port on which a daemon's section listens, "" where it does not."""
    document = yaml.safe_load((CONFIG / file).read_text(encoding="utf-8"))
    return str((document.get(section) or {}).get("listen", "")).rpartition(":")[2]


def prelude(namespace: str) -> dict[str, str]:
    """Return the environment of all commands: what every one of them needs is looked up once."""
    found = {"NS": namespace, "HERE": str(HERE), "PYTHON": sys.executable, "CODE": minik8s_modules.__path__[0]}
    ports = {"STREAMS": port("gateway.yml", "streams"), "PLANS": port("reconciler.yml", "plan")}
    return {**os.environ, **found, **ports}


def ask(control: Control, environment: Mapping[str, str]) -> Verdict:
    """Return the verdict on a control."""
    if not control.command:
        return judge(control, 0, "")
    script = f'. "$HERE/prelude.sh"\n{control.command}'
    argv = ["bash", "-c", script]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return judge(control, done.returncode, done.stdout + (done.stderr if done.returncode else ""))


def main(numbers: list[str]) -> int:
    """Print the table; return 1 where something fails."""
    namespace = f"cis-{uuid.uuid4().hex[:8]}"
    subprocess.run([*KUBECTL, "create", "namespace", namespace], check=True, stdout=subprocess.DEVNULL)
    label = "pod-security.kubernetes.io/enforce=restricted"
    subprocess.run([*KUBECTL, "label", "namespace", namespace, label], check=True, stdout=subprocess.DEVNULL)
    counted: Counter[str] = Counter()
    failed = False
    environment = prelude(namespace)
    try:
        for control in read():
            if numbers and control.number not in numbers:
                continue
            verdict = ask(control, environment)
            counted[verdict.word] += 1
            failed |= not verdict.good
            explained = textwrap.shorten(verdict.told, 160, placeholder=" …")
            sys.stdout.write(f"{control.number:<7}{verdict.word:<16}{control.title}\n{'':<23}{explained}\n")
            sys.stdout.flush()
    finally:
        subprocess.run(
            [*KUBECTL, "delete", "namespace", namespace, "--wait=false"], check=True, stdout=subprocess.DEVNULL
        )
    sys.stdout.write(", ".join(f"{number} {word}" for word, number in counted.items()) + "\n")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
