"""Docker's multiplexed streams: an 8-byte head (1 = stdout, 2 = stderr, three zeros, length), then that many bytes.

Source: Docker Engine API, "ContainerAttach", stream format. Containers with a TTY send plain bytes instead.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from struct import Struct

STDIN, STDOUT, STDERR, ERROR, RESIZE = 0, 1, 2, 3, 4
_HEAD = Struct(">B3xI")
_NEWLINE = 10
_STAMPED = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z").fullmatch
_STAMP, _TICK = len("2026-11-20T07:22:59.487834343Z"), len("2026-11-20T07:22:59.48")
# dockerd does not write a file of 10 MB within this time
FILE_S = 0.02
# a follower is trusted over pauses for as long, and while it is not later than before by this
TRUSTED_BYTES, LATE_S = 256 * 1024, 0.1


class Demultiplexer:
    """Takes a multiplexed stream apart as its bytes come."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the (stream, bytes) that are complete, neighbours of one stream put together.

        A log has a frame a line, so this loop is the cost of reading logs: 0.3 µs a frame.
        """
        buffer = self._rest + data if self._rest else data
        found: list[tuple[int, bytes]] = []
        run: list[bytes] = []
        stream, at, end = -1, 0, len(buffer)
        unpack = _HEAD.unpack_from
        while at + 8 <= end:
            kind, size = unpack(buffer, at)
            stop = at + 8 + size
            if stop > end:
                break
            if kind != stream:
                if run:
                    found.append((stream, b"".join(run)))
                    run = []
                stream = kind
            run.append(buffer[at + 8 : stop])
            at = stop
        if run:
            found.append((stream, b"".join(run)))
        self._rest = buffer[at:]
        return found


class Progress:
    """How far a followed log was passed on, whichever connection it came by.

    Docker's timestamps tell, and are of fixed width, so they compare as text. Those of one stream ascend, unless a
    clock is set back; the parts of a line longer than 16 KiB share one.

    Args:
        stamped: whether timestamps stay before the lines.
        streams: the streams that are passed on.

    Attributes:
        last: stream and timestamp of the last frame; (-1, b"") before the first.
        first: those of the first one, which may be some part of a long line.
        error: what Docker said last about the log itself.
    """

    def __init__(self, *, stamped: bool, streams: Collection[int] = (STDOUT, STDERR)) -> None:
        self.cut = 8 if stamped else 8 + _STAMP + 1
        self.streams = frozenset(streams)
        self.places: dict[int, Place] = {}
        self.last = self.first = (-1, b"")
        self.error = b""
        self._before = b""

    @property
    def newest(self) -> bytes:
        """Return the newest timestamp so far; after a clock was set back that is not the last one."""
        return max(self._before, *(place.last for place in self.places.values()), b"")

    def take(self, kind: int, stamp: bytes, *, ended: bool) -> None:
        """Note a frame that is passed on; ``ended``: it ends a line."""
        if not self.places:
            self.first = (kind, stamp)
        place = self.places.setdefault(kind, Place())
        if stamp < place.last:
            self._before = max(self._before, place.last)
        place.frames = place.frames + 1 if stamp == place.last else 1
        place.last, place.ended = stamp, ended
        self.last = (kind, stamp)

    def apart(self, kind: int, data: bytes) -> list[tuple[int, bytes]]:
        """Return a frame without a timestamp, which has no place in the log; an error Docker repeats is told once."""
        if kind == ERROR and data == self.error:
            return []
        self.error = data if kind == ERROR else self.error
        return [(kind, data)]


@dataclass(slots=True)
class Place:
    """The last frame of a stream: its timestamp, how many frames have had it, and whether it ends a line."""

    last: bytes = b""
    frames: int = 0
    ended: bool = True


class Again(Demultiplexer):
    """Takes apart a log that Docker tells once more, and returns what was not passed on before.

    Args:
        progress: what was passed on; goes on with what is returned.
        whole: the log from its beginning on, as far as Docker has it. Otherwise it may begin too late.

    Attributes:
        gap: it does; nothing is returned.
        later: it begins with a timestamp newer than all that were passed on.
        blind: at its end, nothing was new, but Docker could not read all, or what was passed on last is not in it.
        first: stream and timestamp of the first frame that was returned.
        size: how many bytes were.
    """

    def __init__(self, progress: Progress, *, whole: bool) -> None:
        super().__init__()
        self._progress, self._whole = progress, whole
        self._search = _Search(progress, whole=whole)
        self.gap = self.later = self.blind = self._broken = False
        self.first: tuple[int, bytes] | None = None
        self.size = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the (stream, bytes) that are complete and new."""
        buffer, progress = self._rest + data if self._rest else data, self._progress
        found: list[tuple[int, bytes]] = []
        at, end, cut, streams, places = 0, len(buffer), progress.cut, progress.streams, progress.places
        tick, unpack = b"", _HEAD.unpack_from
        while at + 8 <= end and not self.gap:
            kind, size = unpack(buffer, at)
            stop = at + 8 + size
            if stop > end:
                break
            stamp = buffer[at + 8 : at + 8 + _STAMP]
            place = places.get(kind)
            if place is not None and stamp > place.last and stamp[:_TICK] == tick and self.first:
                place.last, place.frames, place.ended = stamp, 1, buffer[stop - 1] == _NEWLINE
                progress.last = kind, stamp
                new = True
            elif not is_line(kind, stamp):
                self._broken = True
                found += progress.apart(kind, buffer[at + 8 : stop])
                new = False
            else:
                tick = stamp[:_TICK]
                new = self._search.done or self._is_new(kind, stamp)
                if new:
                    self.first = self.first or (kind, stamp)
                    progress.take(kind, stamp, ended=buffer[stop - 1] == _NEWLINE)
            if new:
                self.size += size
                if kind in streams:
                    found.append((kind, buffer[at + cut : stop]))
            at = stop
        self._rest = buffer[at:]
        return found

    def end(self) -> None:
        """Note that this is all there is."""
        self.gap = not self._whole and not self._search.met
        self.blind = not self.size and (self._broken or not self._search.met)

    def _is_new(self, kind: int, stamp: bytes) -> bool:
        if self._search.begins:
            self.later = stamp > self._progress.newest
        passed_on = self._search.has_passed(kind, stamp)
        if passed_on is None and self._whole:
            self._search.done = True
        self.gap = passed_on is None and not self._whole
        return not passed_on and not self.gap


class _Search:
    """Looks on a new connection for the frame that was passed on last.

    Attributes:
        done: all that comes now is new.
        begins: nothing has come yet.
    """

    def __init__(self, progress: Progress, *, whole: bool = False) -> None:
        self._newest, self._last = progress.newest, progress.last
        self._place = progress.places.get(progress.last[0], Place())
        self._frames = self._place.frames
        self._met, self._whole, self.begins = 0, whole, True
        # which part of a long line a frame is, is not known; but all of them were passed on
        self._inside = self._last == progress.first and self._place.ended
        self.done = not self._frames

    @property
    def met(self) -> bool:
        """Return whether the frame was found, so that all before it was passed on and all behind it is new."""
        return self.done or (self._inside and self._met > 0)

    def has_passed(self, kind: int, stamp: bytes) -> bool | None:
        """Return whether a frame was passed on before; None: what comes begins too late to tell."""
        first, self.begins = self.begins and not self._whole, False
        if (kind, stamp) != self._last:
            self.done = self._inside and self._met > 0
            if self.done:
                return False
            if kind == self._last[0]:  # it was met in what Docker gives twice
                self._met = 0
            return True if stamp <= self._newest else None
        if first:  # some part of a long line, or the whole of a short one
            if not self._place.ended:
                return None
            self._inside = True
        self._met += 1
        self.done = not self._inside and self._met == self._frames
        return True


class Follower(Demultiplexer):
    """Takes apart what comes from one follower of Docker's, and says when it is not to be trusted.

    Docker (20.10) begins a new file every 10 MB. Its follower then gives part of the new one twice; and one that is
    late, or was just beginning, leaves out whole files, because it opens the one that is current by then. So what is
    lost took as long to write as a file takes. Parts of a long line that begins a file are not known to come twice.

    Args:
        progress: what was passed on; goes on with what is returned.

    Attributes:
        doubted: stream and timestamp of a frame before which lines may be missing, or which may be no new one. It and
            what follows wait until ``resume``.
        gone: the log cannot be asked any more, so all that the follower gives is passed on.
    """

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress
        self._search = _Search(progress)
        self._volume = 0
        # frames that were left out on the way to the last one, and are passed on if it is nowhere
        self._held: list[bytes] = []
        self._trusted = self.gone = False
        # it was woken by a line, and nothing was missing before that: it waits for the right file
        self._tried = self._woken = self._unfound = False
        self.doubted: tuple[int, bytes] | None = None

    @property
    def lost(self) -> bool:
        """Return whether frames were left out before the one that was passed on last has come."""
        return bool(self._held)

    def feed(self, data: bytes, waited: float = 0.0) -> list[tuple[int, bytes]]:
        """Return the (stream, bytes) that are complete and new; ``waited``: how long nothing came, in seconds."""
        buffer, progress = self._rest + data if self._rest else data, self._progress
        found: list[tuple[int, bytes]] = []
        at, end, cut, streams, places = 0, len(buffer), progress.cut, progress.streams, progress.places
        tick, unpack = progress.last[1][:_TICK], _HEAD.unpack_from
        while at + 8 <= end:
            kind, size = unpack(buffer, at)
            stop = at + 8 + size
            if stop > end:
                break
            stamp = buffer[at + 8 : at + 8 + _STAMP]
            place = places.get(kind)
            if place is not None and stamp > place.last and stamp[:_TICK] == tick and self._search.done:
                place.last, place.frames, place.ended = stamp, 1, buffer[stop - 1] == _NEWLINE
                progress.last = kind, stamp
                new = True
            elif not is_line(kind, stamp):
                found += progress.apart(kind, buffer[at + 8 : stop])
                new = False
            else:
                new = self._is_new(kind, stamp, waited, self._volume + at)
                if self.doubted:
                    break
                if new:
                    progress.take(kind, stamp, ended=buffer[stop - 1] == _NEWLINE)
                    tick = stamp[:_TICK]
                self._hold(buffer[at:stop])
            if new and kind in streams:
                found.append((kind, buffer[at + cut : stop]))
            waited = 0.0
            at = stop
        self._volume += at
        self._rest, self._trusted = buffer[at:], self.gone
        return found

    def _hold(self, frame: bytes) -> None:
        if self._search.met:
            self._held.clear()
        else:
            self._held.append(frame)

    def resume(self, again: Again) -> bool:
        """Go on behind ``again``, with which the log was passed on from the doubt; return whether that is possible."""
        # what is newer than all that was passed on is new for certain, even if the log does not have it
        trusted = again.blind or (self._unfound and not again.size)
        if self._unfound:
            stands = again.size > 0 and self._progress.places[self._progress.last[0]].ended
        else:
            stands = again.first in {None, self.doubted}
        self._tried = self._tried or self._woken
        self.restart(trusted=trusted)
        return stands or trusted

    def restart(self, *, trusted: bool) -> None:
        """Look for what was passed on last by now; ``trusted``: pass on all that waits instead."""
        self._search = _Search(self._progress)
        if trusted:
            self._rest = b"".join([*self._held, self._rest])
            self._search.done = self._trusted = True
        self._held.clear()
        self._volume, self.doubted = 0, None

    def let_go(self) -> None:
        """Pass on all from now on, since there is no log any more that could be asked."""
        self.gone = True
        self.restart(trusted=True)

    def _is_new(self, kind: int, stamp: bytes, waited: float, volume: int) -> bool:
        """Return whether a frame is new, unless it is doubted."""
        if self._trusted:
            return True
        passed_on = False if self._search.done else self._search.has_passed(kind, stamp)
        if passed_on:
            return False
        self._unfound = passed_on is None
        place = self._progress.places.get(kind)
        last = self._progress.newest if place is None else place.last
        repeated = stamp < last or (place is not None and stamp == last and place.ended)
        if self._unfound or repeated or self._may_miss_a_file(stamp, waited, volume):
            self.doubted = kind, stamp
        return self.doubted is None

    def _may_miss_a_file(self, stamp: bytes, waited: float, volume: int) -> bool:
        """Return whether a file may have been written since the last line without the follower's noticing."""
        last = self._progress.last[1]
        if not last or stamp[:_TICK] == last[:_TICK]:
            return False
        passed = seconds_of(stamp) - seconds_of(last)
        self._woken = waited >= passed / 2
        return passed >= FILE_S and (not self._tried or volume >= TRUSTED_BYTES or passed - waited >= LATE_S)


def seconds_of(stamp: bytes) -> float:
    """Return a timestamp as seconds since 1970, 0 for what is none."""
    try:
        return datetime.fromisoformat(stamp.decode()).timestamp()
    except ValueError:
        return 0.0


def is_line(kind: int, stamp: bytes) -> bool:
    """Return whether a frame is of the log: Docker's errors are of a stream of their own and have no timestamp."""
    return STDIN < kind < ERROR and _STAMPED(stamp) is not None


class Plain:
    """The stream of a container with a TTY: all is stdout."""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the bytes as they are."""
        return [(STDOUT, data)]


def demultiplexer(*, tty: bool) -> Demultiplexer | Plain:
    """Return what takes the output of a container apart."""
    return Plain() if tty else Demultiplexer()
