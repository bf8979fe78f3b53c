"""Process life of a daemon: options, logging, signals, exit codes."""

from __future__ import annotations

import logging
import resource
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from minik8s_modules.base import config
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.heap import give_back, keep_large_apart
from minik8s_modules.base.logging import configure

log = logging.getLogger(__name__)
_BEGUN_S = 15.0
"""By then a daemon has read all of its settings, and has what it keeps of its start."""


def stop_on_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set; call it from the main thread."""
    stop = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        log.info("stopping: received %s", signal.Signals(number).name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    return stop


def raise_file_limit() -> None:
    """Allow as many open files as the system lets this user have: the default is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _settle(configuration: config.Configuration, file: Path) -> None:
    """Give back what only the start needed; warn of keys that were not looked up: mistakes that would pass unseen."""
    for key in configuration.unread():
        log.warning("%s: %s is not a setting of this daemon and is ignored", file, key)
    give_back()


def _settle_later(configuration: config.Configuration, file: Path) -> None:
    timer = threading.Timer(_BEGUN_S, _settle, (configuration, file))
    timer.daemon = True
    timer.start()


def _options(name: str, summary: str, argv: Sequence[str]) -> tuple[Path, str]:
    """Return the configuration file and the least level to log; where a file is all that is given, without a parser."""
    match argv:
        case ["--config", given] if not given.startswith("-"):
            return Path(given), "INFO"
    import argparse  # noqa: PLC0415 - half a MB with what it needs, and service managers give a file alone

    parser = argparse.ArgumentParser(prog=name, description=summary)
    file = Path(f"/etc/minik8s/{name.removeprefix('minik8s-')}.yml")
    parser.add_argument(
        "--config",
        type=Path,
        default=file,
        metavar="FILE",
        help="YAML; docs/reference/configuration.md has its keys (%(default)s)",
    )
    levels = ["DEBUG", "INFO", "WARNING", "ERROR"]
    parser.add_argument("--log-level", default="INFO", choices=levels, help="minimum level to log (%(default)s)")
    options = parser.parse_args(argv)
    return options.config, options.log_level


def run_daemon(
    name: str,
    summary: str,
    serve: Callable[[config.Configuration, threading.Event], None],
    argv: Sequence[str] | None = None,
) -> int:
    """Parse ``--config`` and ``--log-level``, then call ``serve(configuration, stop)`` until it returns.

    Returns:
        0 after a clean stop; 2 when the configuration cannot be used (the reason is on standard error).
    """
    file, level = _options(name, summary, sys.argv[1:] if argv is None else argv)
    configure(level)
    keep_large_apart()
    try:
        configuration = config.load(file)
        _settle_later(configuration, file)
        serve(configuration, stop_on_signals())
    except ConfigurationError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 2
    return 0
