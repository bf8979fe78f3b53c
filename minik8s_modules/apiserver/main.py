"""``minik8s-apiserver``: a shell with one worker, or gunicorn's arbiter with several (serving/server.py).

Only workers import the application: an arbiter with a copy of it, which fades as both write to their pages, has 20 MB
more.
"""

from __future__ import annotations

import signal
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


def serve(configuration: Configuration, stop: threading.Event) -> None:
    """Run until SIGTERM; gunicorn has handlers of signals itself, and until then a signal ends the process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    if stop.is_set():
        return
    raise_file_limit()
    ApiServer(settings.read(configuration), make_application, lambda: settings.read(configuration.again())).run()


def main() -> int:
    """Run the daemon."""
    return run_daemon("minik8s-apiserver", "The Kubernetes API of a minik8s cluster.", serve)


if __name__ == "__main__":
    sys.exit(main())
