"""``minik8s-streams``: serves the streams of one shard's pods to API servers, over connections of the gateway."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.process import raise_file_limit, run_daemon
from minik8s_modules.streams.listener import StreamFiles, StreamServer

log = logging.getLogger(__name__)


def server_of(configuration: Configuration) -> StreamServer:
    """Return the listener, not started.

    Raises:
        ConfigurationError: the configuration cannot be used.
    """
    host, port = configuration.host_and_port("listen")
    files = StreamFiles(*(Path(configuration.text(name)) for name in StreamFiles._fields))
    return StreamServer(host, port, files, configuration.text("gateway_socket"))


def serve(configuration: Configuration, stop: threading.Event) -> None:
    """Run until ``stop`` is set.

    Raises:
        ConfigurationError: the configuration cannot be used.
    """
    raise_file_limit()
    server = server_of(configuration)
    server.start()
    log.info("serving streams on port %d", server.port)
    try:
        stop.wait()
    finally:
        server.stop()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return its exit code."""
    return run_daemon("minik8s-streams", "Carries logs, commands and ports of pods to API servers.", serve, argv)


if __name__ == "__main__":
    raise SystemExit(main())
