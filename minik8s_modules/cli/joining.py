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
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.options import Subparsers, add, add_log_level, add_token
from minik8s_modules.client.api import ApiClient

PROGRAM = "minik8s_modules.reconcile.standalone.startup"
PORT = 6443


def declare(commands: Subparsers) -> None:
    """Declare the command."""
    parser = add(
        commands, "reconciler", run, "make this machine a node that reconciles itself; Ctrl-C removes it again",
        usage="reconciler --node NAME -j SERVER [--token ID.SECRET --ca-hash sha256:HEX] [-c FILE]",
        examples="""
        minik8s token create --print-join-command             on the control plane: prints the line below
        minik8s reconciler --node node1 -j https://192.0.2.10:6443 --token ID.SECRET --ca-hash sha256:HEX -c node.yml
        minik8s reconciler --node node1 -j https://192.0.2.10:6443     a machine that has joined needs no token""",
    )  # fmt: skip
    parser.set_defaults(offline=True)
    parser.add_argument("--node", default="", metavar="NAME", help="the node's name (default: that in the file)")
    parser.add_argument("-j", "--join", required=True, metavar="SERVER", help="the API server: a URL, or an address")
    parser.add_argument("-c", "--config", default="", metavar="FILE", help="a Node: labels, taints, addresses")
    add_token(parser)
    parser.add_argument("--settings", default="", metavar="FILE", help="settings that differ on this machine (YAML)")
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
    fixed = {
        "node": options.node,
        "server": server_url(options.join),
        "config": options.config,
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
    return [sys.executable, "-m", PROGRAM, *words, *(f"--pin={pin}" for pin in pins)]


def server_url(text: str) -> str:
    """Return the URL of an API server that is given as one, as HOST:PORT, or (the original's form) as an address.

    Raises:
        UsageError: it is none of these.
    """
    url = text if "://" in text else f"https://{text}"
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
    return f"https://{host}:{port}"


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
