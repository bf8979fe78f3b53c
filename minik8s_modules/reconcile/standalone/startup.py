"""``minik8s reconciler --node NAME -j SERVER``: a node with a reconciler of its own, the original's form of a node.

    join (once)     the cluster shows itself, a token buys a certificate: joining.py
    settings        what all reconcilers have in common: shared_settings.py; the node's file: node_file.py
    three daemons   gateway, streams, reconciler of the shard ``node.NAME``, over a local connection; they end with us
    leave           SIGTERM or Ctrl-C: the Node goes, then what is on the machine; kill -9 leaves both as they are

The daemons are the same programs as on a control plane, and know no more of this than their configuration files say. A
machine that has joined starts from its own files, so that it comes back while no API server is there. What is left to
do on an API that does not answer is tried for a minute, then told.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from minik8s_modules.api.access import bootstrap_tokens
from minik8s_modules.api.access.bootstrap_tokens import BootstrapToken
from minik8s_modules.api.syntax import dns1123_subdomain
from minik8s_modules.base import release
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.logging import configure
from minik8s_modules.base.process import stop_on_signals
from minik8s_modules.module_utils.minik8s.core.docker import Docker, DockerError
from minik8s_modules.reconcile.standalone import once_run
from minik8s_modules.reconcile.standalone.agent import Agent, Given
from minik8s_modules.reconcile.standalone.daemon_configs import check_own
from minik8s_modules.reconcile.standalone.joining import Stopped
from minik8s_modules.reconcile.values.node_file import NodeFile, parse_node_file
from minik8s_modules.reconcile.values.values import Settings

log = logging.getLogger(__name__)
_PROGRAMS = ("nft", "ip")
_MOST_TOKEN = 256


def build_parser() -> argparse.ArgumentParser:
    """Return the command line, which the command ``minik8s reconciler`` fills in."""
    parser = argparse.ArgumentParser(prog="minik8s reconciler")
    for option in ("node", "server", "config", "state-dir", "run-dir", "docker-socket", "settings", "log-level"):
        parser.add_argument(f"--{option}", default="")
    parser.add_argument("--once", action="store_true")
    for option in ("manifests", "pod-cidr"):
        parser.add_argument(f"--{option}", default="")
    parser.add_argument("--token-fd", type=int, default=-1)
    parser.add_argument("--pin", action="append", default=[])
    return parser


def read_given(options: argparse.Namespace) -> Given:
    """Return what the command line asks for.

    Raises:
        ConfigurationError: a part cannot be used.
    """
    file = _node_file(options.config)
    node = options.node or file.name
    if not node:
        raise ConfigurationError("which node is this? Give --node NAME, or a file (-c) with metadata.name")
    for why in dns1123_subdomain(node):
        raise ConfigurationError(f"--node {node!r} is not the name of a node: {why}")
    if file.name not in {"", node}:
        log.warning("%s names the node %s; it is %s, as the command line says", options.config, file.name, node)
    return Given(
        node,
        options.server,
        _token(options.token_fd),
        tuple(options.pin),
        file,
        Path(options.state_dir).absolute(),
        Path(options.run_dir).absolute(),
        options.docker_socket,
        _project_dir(),
        _own_settings(options.settings),
    )


def read_once(options: argparse.Namespace) -> once_run.Asked:
    """Return what ``--once`` asks for. Raises ConfigurationError."""
    for why in dns1123_subdomain(options.node):
        raise ConfigurationError(f"--node {options.node!r} is not the name of a node: {why}")
    return once_run.Asked(
        options.node,
        Path(options.manifests).absolute(),
        options.pod_cidr,
        Path(options.state_dir).absolute(),
        Path(options.run_dir).absolute(),
        options.docker_socket,
        _project_dir(),
        _mapping(options.settings),
    )


def _node_file(path: str) -> NodeFile:
    if not path:
        return parse_node_file("{apiVersion: v1, kind: Node}", "")
    return parse_node_file(_text(path), path)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from error


def _own_settings(path: str) -> dict[str, Any]:
    found = _mapping(path)
    check_own(found, path)
    return found


def _mapping(path: str) -> dict[str, Any]:
    if not path:
        return {}
    try:
        found = yaml.safe_load(_text(path))
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path} must hold a mapping: keys of reconciler.yml that differ on this machine")
    return {str(key): value for key, value in found.items()}


def _token(fd: int) -> BootstrapToken | None:
    """Return the token that the command has put into a pipe, so that it stands in no list of processes."""
    if fd < 0:
        return None
    with os.fdopen(fd, "rb") as pipe:
        text = pipe.read(_MOST_TOKEN).decode(errors="replace").strip()
    try:
        return bootstrap_tokens.parse_token(text)
    except ValueError as error:
        raise ConfigurationError(f"--token: {error}") from error


def _project_dir() -> Path:
    """Return where playbooks and modules are. Raises ConfigurationError."""
    found = release.project()
    if found is None:
        raise ConfigurationError("no playbooks beside this program; install minik8s by its wheel or playbooks")
    return found


def check_machine(docker_socket: str, pause_image: str) -> None:
    """Look for what no pod can run without, before the cluster hears of this machine.

    Raises:
        ConfigurationError: something is missing; the message names it and says what to do.
    """
    if os.geteuid() != 0:
        raise ConfigurationError("a node's reconciler makes networks and mounts: run it as root")
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        raise ConfigurationError(f"{', '.join(missing)} not found; install the packages nftables and iproute2")
    docker = Docker(docker_socket, timeout_s=10.0)
    try:
        docker.call("GET", "/version")
        docker.call("GET", f"/images/{pause_image}/json")
    except DockerError as error:
        if error.status == 404:  # noqa: PLR2004 - HTTP
            text = f"image {pause_image} is not on this machine; playbooks/reconciler.yml makes it"
            raise ConfigurationError(text) from error
        raise ConfigurationError(f"Docker at {docker_socket} does not answer: {error}") from error
    finally:
        docker.close()


def run(given: Given, stop: threading.Event, clock: Clock) -> int:
    """Be the node until ``stop``; return the exit code."""
    agent = Agent(given, clock)
    agent.home.open()
    try:
        pause = str(given.own.get("pause_image") or agent.known_settings().get("pause_image") or Settings().pause_image)
        check_machine(given.docker_socket, pause)
        return agent.run(stop)
    except Stopped:
        return 0
    finally:
        agent.home.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code: 0 after a clean leave, 1 where the Node stayed, 2 for wrong use."""
    options = build_parser().parse_args(argv)
    configure(options.log_level or "INFO")
    try:
        if options.once:
            return once_run.main(read_once(options), check_machine, SystemClock(), stop_on_signals())
        return run(read_given(options), stop_on_signals(), SystemClock())
    except ConfigurationError as error:
        sys.stderr.write(f"minik8s reconciler: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
