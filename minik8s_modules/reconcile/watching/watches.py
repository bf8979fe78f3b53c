"""Stock programs that tell of changes on nodes, one channel a node: of links, neighbours, rules, mounts, files.

The gateway tells the way to a node (its ssh master, which is there anyway; none for this very machine), and the one
sudoers command makes the programs root's, as it does the modules. Nothing of ours runs on the node: Python becomes the
shell that starts them. They end by themselves after ``LIFE_S``, so that a lost connection leaves none behind for long,
and are started again; what happens in between the next full observation sees. A reset of the node ends them at once,
by the mark in their environment.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.clock import Clock
from minik8s_modules.module_utils.minik8s.core.paths import WATCH_MARK
from minik8s_modules.reconcile.watching.reading import (
    FILE,
    NO_DEVICE,
    NO_INOTIFYWAIT,
    NOTHING_SAID,
    Places,
    Said,
    gone_link,
    sections_of,
)

log = logging.getLogger(__name__)

LIFE_S = 300
_PROGRAMS = f"""
limited() {{ exec timeout --foreground {LIFE_S} "$@"; }}
state=$1 run=$2 bridge=$3 tunnel=$4
limited ip -o monitor label link address route &
limited ip -o monitor label neigh |
  grep --line-buffered -E -e " dev ($tunnel|$bridge) .*(FAILED|PERMANENT)" \\
    -e " dev $tunnel .*(REACHABLE|STALE|DELAY|PROBE)" |
  sed -u -n -E -e '/^.NEIGH.*FAILED *$/!{{h;p;d;}}' -e '/^.NEIGH.Deleted /!{{h;d;}}' \\
    -e 'H;x;/^(.NEIGH.)(.*)\\n.NEIGH.Deleted \\2$/p' &
limited nft monitor &
limited findmnt --poll --raw --noheadings --output ACTION,TARGET &
set --
for each in "$state"/nginx "$state"/nginx/hosts "$state"/dns "$state"/dns/hosts "$run"/secrets/*/* \\
  "$state"/pods/*/volumes/*/..data "$run"/secrets/.volumes/*/*/..data; do
  [ ! -d "$each" ] || set -- "$@" "$each/"
  [ "${{each%/..data}}" = "$each" ] || [ ! -d "$each" ] || set -- "$@" "${{each%..data}}"
done
if ! command -v inotifywait >/dev/null; then
  echo "{NO_INOTIFYWAIT.decode()}"
elif [ $# -gt 0 ]; then
  limited inotifywait -m -q -e close_write,attrib,move,create,delete,delete_self --format '{FILE}%w%f' "$@" &
fi
wait
"""
"""Ordinary neighbours come and go with what pods send: what is said of them ends on the node. All else that ip says is
told: a ``sed`` that waits for no block reads byte by byte.

``sed`` passes a failure on only together with the deletion that follows at once, which is what a deleted entry looks
like: a pod may send to any number of addresses that do not answer, by the last IPv6 route into a tunnel, too.

Volumes of files are told from those that pods write into by their link ``..data`` (volume_files.py).
"""
_ROOT = 'if [ "$(id -u)" = 0 ]; then exec /usr/bin/python3 -I -; else exec sudo -n /usr/bin/python3 -I -; fi'

_AGAIN = Backoff(initial_s=1.0, maximum_s=60.0)
_SOUND_S = 30.0
"""Programs that ran for as long are started again at once."""

_BURST_S = 0.05
"""A pod's start and end are 160 lines each, mostly of rules: one reads them together. The first is read at once."""
_READ_BYTES = 1 << 16
"""What a pipe holds."""

OnLines = Callable[[str, Places, Iterable[tuple[Said, bytes]]], None]
"""A node, its places, and lines, each after what was said before it."""
OnChange = Callable[[str, frozenset[str], str], None]
Alive = Callable[[str], bool | None]


def script(places: Places) -> str:
    """Return what the interpreter is given; it is none any more when the programs run."""
    named = (places.state_dir, places.run_dir, places.bridge, places.tunnel)
    argv = ["sh", "-c", _PROGRAMS, "sh", *(each.decode() for each in named)]
    return f"import os\nos.environ[{WATCH_MARK!r}] = '1'\nos.execv('/bin/sh', {argv!r})\n"


class Watches:
    """The watches of a shard's nodes; ``on_change(node, sections, gone link)`` is called from their threads.

    ``bridge`` and ``tunnel`` are the names of nodes' devices; without tunnels the latter is empty.
    """

    def __init__(self, bridge: str, tunnel: str, on_change: OnChange, alive: Alive, clock: Clock) -> None:
        self._bridge, self._tunnel = bridge.encode(), tunnel.encode() or NO_DEVICE
        self._without: set[str] = set()
        self._on_change = on_change
        self._alive = alive
        self._clock = clock
        self._lock = threading.Lock()
        self._watches: dict[str, Watch] = {}

    def on_gateway(self, message: JsonObject, names: Sequence[str]) -> bool:
        """Follow a way to one of ``names``; return whether the message tells one."""
        if message.get("op") != "way":
            return False
        node, argv = str(message["node"]), [str(word) for word in message["argv"]]
        state_dir, run_dir = str(message["state_dir"]).encode(), str(message["run_dir"]).encode()
        places = Places(self._bridge, state_dir, run_dir, self._tunnel)
        with self._lock:
            known = self._watches.get(node)
            if node not in names or (known is not None and (known.argv, known.places) == (argv, places)):
                return True
            made = self._watches[node] = Watch(node, argv, places, self._on_lines, self._alive, self._clock)
        if known is not None:
            known.stop()
        made.start()
        return True

    def use(self, names: Iterable[str]) -> None:
        """Go on with the nodes ``names`` alone."""
        kept = set(names)
        with self._lock:
            gone = [self._watches.pop(name) for name in [*self._watches] if name not in kept]
        for watch in gone:
            watch.stop()

    def stop(self) -> None:
        """End all."""
        self.use(())

    def _on_lines(self, node: str, places: Places, lines: Iterable[tuple[Said, bytes]]) -> None:
        told: dict[tuple[frozenset[str], str], None] = {}
        for said, line in lines:
            if line.startswith(NO_INOTIFYWAIT) and node not in self._without:
                self._without.add(node)
                log.warning(
                    "%s: no inotifywait (inotify-tools): changed files are found by full observations alone", node
                )
            if sections := sections_of(line, places, said):
                told[sections, gone_link(line)] = None
        for sections, link in told:
            self._on_change(node, sections, link)


class Watch:
    """The programs of one node; ``argv`` reaches a shell there, none is this machine's."""

    def __init__(
        self,
        node: str,
        argv: Sequence[str],
        places: Places,
        on_lines: OnLines,
        alive: Alive,
        clock: Clock,
    ) -> None:
        self.argv, self.places = [*argv], places
        self._node = node
        self._on_lines = on_lines
        self._alive = alive
        self._clock = clock
        self._stop = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch-{node}", daemon=True)

    def start(self) -> None:
        """Start the programs, and again whenever they end."""
        self._thread.start()

    def stop(self) -> None:
        """End them, or our connection to them; those of root that we may not end do so themselves."""
        self._stop.set()
        process = self._process
        if process is not None:
            _end(process)

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            began = self._clock.monotonic()
            if self._alive(self._node):
                self._once()
            failures = 0 if self._clock.monotonic() - began > _SOUND_S else failures + 1
            self._clock.wait(self._stop, _AGAIN.delay_s(failures) if failures else 0)

    def _once(self) -> None:
        """Run the programs to their end."""
        command = [*self.argv, _ROOT] if self.argv else ["/bin/sh", "-c", _ROOT]
        try:
            process = self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            log.warning("%s: its changes are not watched: %s", self._node, error)
            return
        try:
            self._follow(process)
        except OSError as error:
            log.info("%s: watching its changes: %s", self._node, error)
        finally:
            _end(process)
            process.wait()
            self._process = None

    def _follow(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is None or process.stdout is None:
            return
        with process.stdin as source, process.stdout as lines:
            source.write(script(self.places).encode())
            source.close()
            said, rest = NOTHING_SAID, b""
            while data := os.read(lines.fileno(), _READ_BYTES):
                if self._stop.is_set():
                    return
                *complete, rest = (rest + data).split(b"\n")
                *before, said = itertools.accumulate(complete, Said.then, initial=said)
                self._on_lines(self._node, self.places, zip(before, complete, strict=True))
                if len(data) < _READ_BYTES:
                    self._clock.wait(self._stop, _BURST_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it started, as far as it is ours to end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
