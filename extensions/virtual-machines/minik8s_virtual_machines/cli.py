"""``kubectl vm``, and so ``minik8s vm``: what kubectl and virtctl do not do.

    kubectl vm screenshot NAME [-n NAMESPACE] [-o FILE.png]

kubectl finds ``kubectl-vm`` on PATH and hands it the words behind ``vm``. The request is kubectl's own, so contexts,
plugins for credentials and proxies count as they always do.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from minik8s_modules.cli import kubectl
from minik8s_modules.cli.errors import UsageError
from minik8s_virtual_machines.api.kinds import SUBRESOURCES, VERSION, VMI

PNG = b"\x89PNG\r\n\x1a\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code."""
    parsed = _parser().parse_args(argv)
    try:
        path = _screenshot(parsed.name, parsed.output or Path(f"{parsed.name}.png"), _given(parsed))
    except (UsageError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if path is not None:
        sys.stdout.write(f"{path}: the screen of {parsed.name}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kubectl vm", description="Virtual machines: what kubectl lacks.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    screenshot = commands.add_parser("screenshot", help="write what a machine's screen shows into a file")
    screenshot.add_argument("name", help="of the machine")
    screenshot.add_argument("-o", "--output", type=Path, help="file (PNG; default: NAME.png); - for standard output")
    for words in (("-n", "--namespace"), ("--context",), ("--kubeconfig",)):
        screenshot.add_argument(*words, help="as kubectl's")
    return parser


def _given(parsed: argparse.Namespace) -> dict[str, str]:
    names = ("namespace", "context", "kubeconfig")
    return {name: found for name in names if (found := getattr(parsed, name))}


def _screenshot(name: str, output: Path, given: dict[str, str]) -> Path | None:
    """Write the screen into ``output``, "-" for standard output; raises UsageError, and leaves no half a file."""
    options = [f"--{key}={value}" for key, value in given.items() if key != "namespace"]
    chosen = (
        given.get("namespace") or _ask(options, "config", "view", "--minify", "-o", "jsonpath={..namespace}").decode()
    )
    space = quote(chosen, safe="") or "default"
    at = f"/apis/{SUBRESOURCES}/{VERSION}/namespaces/{space}/{VMI.plural}/{quote(name, safe='')}/vnc/screenshot"
    screen = _ask(options, "get", "--raw", at)
    if not screen.startswith(PNG):
        raise UsageError(f"the answer is not a PNG; it begins with {screen[:40]!r}")
    if output == Path("-"):
        sys.stdout.buffer.write(screen)
        return None
    output.write_bytes(screen)
    return output


def _ask(options: list[str], *words: str) -> bytes:
    done = subprocess.run(
        [kubectl.find(), *words, *options], env=kubectl.environment(), capture_output=True, check=False
    )
    if done.returncode:
        raise UsageError(done.stderr.decode(errors="replace").strip().removeprefix("Error from server").lstrip(": "))
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
