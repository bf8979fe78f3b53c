"""``minik8s-apiserver``: gunicorn's arbiter with its workers (serving/server.py), which have the application.

Only workers import that: an arbiter with a copy of it, which fades as both write to their pages, has 20 MB more.
"""

from __future__ import annotations

import sys
import threading

from minik8s_modules.apiserver.http import settings
from minik8s_modules.apiserver.http.board import Place
from minik8s_modules.apiserver.serving.server import ApiServer, Closeable
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.process import raise_file_limit, run_daemon
from minik8s_modules.base.seldom import have_no_commands, have_no_templates


def make_application(configured: settings.Settings, place: Place | None) -> Closeable:
    """Return the running application; called in the worker, after the fork."""
    have_no_templates()
    have_no_commands()
    from minik8s_modules.apiserver.serving.application import Application  # noqa: PLC0415 - see the top of this file

    application = Application(configured.of_worker(), place)
    application.start()
    return application


def serve(configuration: Configuration, _stop: threading.Event) -> None:
    """Run until SIGTERM; gunicorn's arbiter replaces the signal handlers by its own."""
    raise_file_limit()
    ApiServer(settings.read(configuration), make_application, lambda: settings.read(configuration.again())).run()


def main() -> int:
    """Run the daemon."""
    return run_daemon("minik8s-apiserver", "The Kubernetes API of a minik8s cluster.", serve)


if __name__ == "__main__":
    sys.exit(main())
