"""``virtual-node``: carries one virtual node from this machine, for as long as the command runs.

It reaches the cluster by a kubeconfig, or joins it by a token as machines do, and then also serves the kubelet's API.
Once it has joined it starts over without the token, which stands in lists of processes.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minik8s_modules.api.access.bootstrap_tokens import parse_hash, parse_token
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.logging import configure
from minik8s_modules.base.process import stop_on_signals
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.joining import server_url, token_text
from minik8s_modules.cli.options import Subparsers, add, add_log_level, add_token
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.kubeconfig import find_kubeconfig

PROGRAM = "minik8s_modules.cli.main"


def declare(commands: Subparsers) -> None:
    """Declare the command."""
    parser = add(
        commands, "virtual-node", run, "run a virtual node, whose Pods a provider runs elsewhere; Ctrl-C ends it",
        usage="virtual-node --provider NAME --node-name NAME [--config FILE] ...",
        examples="""
        minik8s virtual-node --provider mock --node-name far          Pods that tolerate its taint "run" there
        minik8s virtual-node --provider mock --node-name far --config mock.yml --label zone=b
        minik8s virtual-node --provider mock --node-name far -j https://192.0.2.10:6443 \\
          --token ID.SECRET --ca-hash sha256:HEX --state-dir /var/lib/far""",
    )  # fmt: skip
    parser.set_defaults(offline=True)
    parser.add_argument("--provider", required=True, metavar="NAME", help="who runs the Pods")
    parser.add_argument("--node-name", "--nodename", required=True, metavar="NAME", help="name of the Node")
    parser.add_argument("--config", default="", metavar="FILE", help="the provider's configuration (YAML)")
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE", help="of the Node (repeatable)")
    parser.add_argument(
        "--disable-taint", action="store_true", help="accept Pods that do not tolerate virtual-kubelet.io/provider"
    )
    parser.add_argument("--internal-ip", default="", metavar="ADDRESS", help="the Node's address")
    parser.add_argument("--cluster-domain", default="cluster.local", metavar="NAME", help="default: %(default)s")
    parser.add_argument(
        "--state-dir", default="", metavar="DIR", help="directory for files of the provider and for certificates"
    )
    parser.add_argument("-j", "--join", default="", metavar="SERVER", help="join by a token instead of a kubeconfig")
    add_token(parser)
    parser.add_argument(
        "--listen", default="0.0.0.0:10250", metavar="HOST:PORT",
        help="where to answer for logs and exec, with -j (default: %(default)s)",
    )  # fmt: skip
    add_log_level(parser)


def run(_client: ApiClient, options: argparse.Namespace) -> int:
    """Carry the node until a signal comes."""
    if not options.join and (options.token or options.token_file or options.pins):
        options.refuse("--token, --token-file and --ca-hash are for a node that joins: give -j SERVER, too")
    from minik8s_modules.virtual.main import serve  # noqa: PLC0415 - one command of many, 200 ms

    if options.context:
        raise UsageError("--context: the daemon takes the kubeconfig's current context; write a kubeconfig of its own")
    configure(options.log_level)
    stop = stop_on_signals()
    if options.join:
        return _as_member(options, stop)
    serve(configuration(options), stop)
    return 0


def _as_member(options: argparse.Namespace, stop: threading.Event) -> int:
    from minik8s_modules.reconcile.standalone.joining import Stopped  # noqa: PLC0415 - see run
    from minik8s_modules.virtual.joining import Given, Member, attend  # noqa: PLC0415 - see run
    from minik8s_modules.virtual.main import serve  # noqa: PLC0415 - see run

    if not options.state_dir:
        raise UsageError("-j: --state-dir DIR is needed, for the node's certificates")
    try:
        pins = tuple(parse_hash(text) for text in options.pins)
    except ValueError as error:
        raise UsageError(str(error)) from error
    text = token_text(options)
    token = parse_token(text) if text else None
    state = Path(options.state_dir).absolute()
    member = Member(Given(options.node_name, server_url(options.join), token, pins, state))
    try:
        member.join(stop)
        if options.token:
            member.close()
            os.execv(sys.executable, [sys.executable, "-m", PROGRAM, *without_token(options.argv)])  # noqa: S606
        attend(member, stop, lambda ended: serve(configuration(options, member.home.folder), ended))
    except Stopped:
        return 0
    finally:
        member.close()
    return 0


def without_token(argv: Sequence[str]) -> list[str]:
    """Return the command line without the token."""
    kept, skip = [], False
    for word in argv:
        if not skip and word != "--token" and not word.startswith("--token="):
            kept.append(word)
        skip = word == "--token"
    return kept


def configuration(options: argparse.Namespace, agent: Path | None = None) -> Configuration:
    """Return what the daemon's file would say; ``agent`` is the folder of a node that has joined.

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
        "kubeconfig": str(agent / "kubeconfig" if agent else find_kubeconfig(options.kubeconfig).absolute()),
        "cluster_domain": options.cluster_domain,
        "internal_ip": options.internal_ip,
        "state_dir": str(Path(options.state_dir).absolute() / "nodes") if options.state_dir else "",
        "nodes": [row],
    }
    if agent is not None:
        pair = str(agent / "serving.pem")
        said["serving"] = {"listen": options.listen, "cert": pair, "key": pair, "client_ca": str(agent / "ca.crt")}
    return Configuration(said, "the command line")


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f"--label {text}: write KEY=VALUE")
    return key, value
