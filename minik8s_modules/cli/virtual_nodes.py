"""``virtual-node``: carries one virtual node from this machine, for as long as the command runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.logging import configure
from minik8s_modules.base.process import stop_on_signals
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.options import Subparsers, add
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.kubeconfig import find_kubeconfig


def declare(commands: Subparsers) -> None:
    """Declare the command."""
    parser = add(
        commands, "virtual-node", run, "carry a node whose Pods a provider runs elsewhere; Ctrl-C ends it",
        usage="virtual-node --provider NAME --node-name NAME [--config FILE] ...",
        examples="""
        minik8s virtual-node --provider mock --node-name far          Pods that tolerate its taint "run" there
        minik8s virtual-node --provider mock --node-name far --config mock.yml --label zone=b""",
    )  # fmt: skip
    parser.set_defaults(offline=True)
    parser.add_argument("--provider", required=True, metavar="NAME", help="who runs the Pods")
    parser.add_argument("--node-name", "--nodename", required=True, metavar="NAME", help="name of the Node")
    parser.add_argument("--config", default="", metavar="FILE", help="the provider's configuration (YAML)")
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE", help="of the Node (repeatable)")
    parser.add_argument(
        "--disable-taint", action="store_true", help="let Pods come that do not tolerate virtual-kubelet.io/provider"
    )
    parser.add_argument("--internal-ip", default="", metavar="ADDRESS", help="the Node's address")
    parser.add_argument("--cluster-domain", default="cluster.local", metavar="NAME", help="default: %(default)s")
    parser.add_argument("--state-dir", default="", metavar="DIR", help="where the provider may keep files")
    parser.add_argument(
        "--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"), help="default: %(default)s"
    )


def run(_client: ApiClient, options: argparse.Namespace) -> int:
    """Carry the node until a signal comes."""
    from minik8s_modules.virtual.main import serve  # noqa: PLC0415 - one command of many, 200 ms

    if options.context:
        raise UsageError("--context: the daemon takes the kubeconfig's current context; write a kubeconfig of its own")
    configure(options.log_level)
    serve(configuration(options), stop_on_signals())
    return 0


def configuration(options: argparse.Namespace) -> Configuration:
    """Return what the daemon's file would say.

    Raises:
        UsageError: an option cannot be used.
        ConfigurationError: there is no kubeconfig.
    """
    row: dict[str, Any] = {
        "name": options.node_name,
        "provider": options.provider,
        "labels": dict(_label(text) for text in options.label),
        "taint": not options.disable_taint,
    }
    if options.config:
        row["config_file"] = str(Path(options.config).absolute())
    said = {
        "kubeconfig": str(find_kubeconfig(options.kubeconfig).absolute()),
        "cluster_domain": options.cluster_domain,
        "internal_ip": options.internal_ip,
        "state_dir": str(Path(options.state_dir).absolute()) if options.state_dir else "",
        "nodes": [row],
    }
    return Configuration(said, "the command line")


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f"--label {text}: write KEY=VALUE")
    return key, value
