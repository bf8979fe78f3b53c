"""``reconciler``: makes this machine a node with a reconciler of its own, the original's form of a node.

The mechanism is told in reconcile/standalone/startup.py.

The command only reads the command line. What it starts takes its place and gets the token through a pipe, so that no
list of processes shows the token while the node lives.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

from minik8s_modules.api.access.bootstrap_tokens import parse_hash, parse_token
from minik8s_modules.base.places import place
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.options import Subparsers, add, add_log_level, add_token
from minik8s_modules.client.api import ApiClient

PROGRAM = "minik8s_modules.reconcile.standalone.startup"
PORT = 6443
POD_CIDR = "10.244.0.0/24"


def declare(commands: Subparsers) -> None:
    """Declare the command."""
    parser = add(
        commands, "reconciler", run, "make this machine a node that reconciles itself; Ctrl-C removes it again",
        usage="reconciler --node NAME (-j SERVER [--token ID.SECRET --ca-hash sha256:HEX] [-c FILE] | --once ...)",
        examples="""
        minik8s token create --print-join-command             on the control plane: prints the line below
        minik8s reconciler --node node1 -j https://192.0.2.10:6443 --token ID.SECRET --ca-hash sha256:HEX -c node.yml
        minik8s reconciler --node node1 -j https://192.0.2.10:6443     a machine that has joined needs no token
        minik8s reconciler --node node1 --once --manifests pods     without a cluster: starts the Pods of a folder""",
        connects=False,
    )  # fmt: skip
    parser.add_argument("--node", default="", metavar="NAME", help="the node's name (default: that in the file)")
    parser.add_argument("-j", "--join", default="", metavar="SERVER", help="the API server: a URL, or an address")
    parser.add_argument("-c", "--config", default="", metavar="FILE", help="a Node: labels, taints, addresses")
    add_token(parser)
    parser.add_argument("--settings", default="", metavar="FILE", help="settings that differ on this machine (YAML)")
    parser.add_argument(
        "--once",
        action="store_true",
        help="without a cluster: start the Pods of --manifests, wait until they run, and end",
    )
    parser.add_argument("--manifests", default="", metavar="FOLDER", help="with --once: files with a Pod each")
    parser.add_argument(
        "--pod-cidr", default=POD_CIDR, metavar="CIDR", help="with --once: addresses of the Pods (default: %(default)s)"
    )
    parser.add_argument("--state-dir", default="/var/lib/minik8s", metavar="DIR", help="default: %(default)s")
    parser.add_argument("--run-dir", default="/run/minik8s", metavar="DIR", help="default: %(default)s")
    parser.add_argument("--docker-socket", default="/var/run/docker.sock", metavar="PATH", help="default: %(default)s")
    add_log_level(parser)


def run(_client: ApiClient, options: argparse.Namespace) -> int:
    """Become the node's program; returns only when the command line is wrong."""
    argv = program(options)
    token = token_text(options)
    if token:
        reading, writing = os.pipe()
        os.write(writing, token.encode())
        os.close(writing)
        os.set_inheritable(reading, True)  # noqa: FBT003 - the standard library's signature
        argv += ["--token-fd", str(reading)]
    os.execv(sys.executable, argv)  # noqa: S606 - a fixed program


def program(options: argparse.Namespace) -> list[str]:
    """Return the command line of the node's program, without a token.

    Raises:
        UsageError: an option cannot be used.
    """
    own = _once(options) if options.once else _joining(options)
    fixed = {
        "node": options.node,
        **own,
        "settings": options.settings,
        "state-dir": options.state_dir,
        "run-dir": options.run_dir,
        "docker-socket": options.docker_socket,
        "log-level": options.log_level,
    }
    try:
        pins = [parse_hash(text) for text in options.pins]
    except ValueError as error:
        raise UsageError(str(error)) from error
    words = [f"--{name}={value}" for name, value in fixed.items() if value]
    once = ["--once"] if options.once else []
    return [sys.executable, "-m", PROGRAM, *once, *words, *(f"--pin={pin}" for pin in pins)]


def _once(options: argparse.Namespace) -> dict[str, str]:
    for name in ("join", "config", "token", "token_file", "pins"):
        if getattr(options, name):
            raise UsageError(
                f"--once belongs to no cluster: leave out --{name.replace('_', '-').replace('pins', 'ca-hash')}"
            )
    if not options.node or not options.manifests:
        raise UsageError("--once needs --node NAME and --manifests FOLDER")
    return {"manifests": str(Path(options.manifests).absolute()), "pod-cidr": options.pod_cidr}


def _joining(options: argparse.Namespace) -> dict[str, str]:
    if not options.join:
        raise UsageError("which cluster? Give -j SERVER, or --once for none")
    if options.manifests:
        raise UsageError("--manifests goes with --once; a node of a cluster has spec.staticPodPath in its file (-c)")
    return {"server": server_url(options.join), "config": options.config}


def server_url(text: str) -> str:
    """Return the URL of an API server that is given as one, as HOST:PORT, or (the original's form) as an address.

    Raises:
        UsageError: it is none of these.
    """
    url = text if "://" in text else f"https://{_bracketed(text)}"
    try:
        parts = urlsplit(url)
        port = parts.port or PORT
    except ValueError as error:
        raise UsageError(f"-j {text}: {error}") from error
    host = parts.hostname or ""
    if parts.scheme != "https" or not host or parts.path.strip("/") or parts.query or parts.username:
        raise UsageError(f"-j {text}: write https://HOST:{PORT}, or the address of the API server")
    if host.replace(".", "").isdigit():
        try:
            ipaddress.IPv4Address(host)
        except ValueError as error:
            raise UsageError(f"-j {text}: invalid ip: {error}") from error
    if ":" in host:
        host = _ipv6(text, host)
    return f"https://{place(host, port)}"


def _bracketed(text: str) -> str:
    """Return an address as it stands in a URL: one of IPv6 may be given without its brackets."""
    return text if text.count(":") < 2 or "[" in text else f"[{text}]"  # noqa: PLR2004 - a port has one


def _ipv6(text: str, host: str) -> str:
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError as error:
        raise UsageError(f"-j {text}: invalid ip: {error}") from error
    if address.is_link_local:
        raise UsageError(f"-j {text}: {host} is link-local: give an address that API servers have everywhere")
    return str(address)


def token_text(options: argparse.Namespace) -> str:
    """Return the token that the options give or name, "" for none. Raises UsageError."""
    text = options.token
    path = options.token_file
    if path:
        try:
            text = Path("/dev/stdin" if path == "-" else path).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot read --token-file {path}: {error.strerror}") from error
    try:
        return str(parse_token(text.strip())) if text.strip() else ""
    except ValueError as error:
        raise UsageError(f"--token: {error}") from error
