"""A CD-ROM image of a few files in one folder: ISO 9660 with Joliet names. Pure.

Written here, as each program that does it (genisoimage, xorriso, mtools) brings more than the rest of the launcher.
Source: ECMA-119 (volume descriptors 8, directory records 9.1, path tables 9.4) and Microsoft's Joliet specification.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from minik8s_virtual_machines.launcher.errors import Unusable

_SECTOR = 2048
_FIRST = 16  # what comes before belongs to boot loaders
_WHEN = b"\0" * 7
_NO_DATE = b"0" * 16 + b"\0"
_LONGEST = 64  # characters of a Joliet name
# Sectors: two descriptors and the terminator, then four path tables of a sector each
_TABLES = _FIRST + 3
_FOLDERS = _TABLES + 4


def image(files: Mapping[str, bytes], label: str) -> bytes:
    """Return the image; names are of one folder, without a slash.

    Raises:
        Unusable: a name is longer than 64 characters, or two differ in case alone.
    """
    if any(len(name) > _LONGEST for name in files):
        raise Unusable(f"{max(files, key=len)}: a file's name on a disk has at most {_LONGEST} characters")
    if len({name.upper() for name in files}) < len(files):
        raise Unusable("two files on one disk have names that differ in case alone")
    plain = {name: name.upper().encode("ascii", "replace") + b";1" for name in files}
    joliet = {name: name.encode("utf-16-be") for name in files}
    lengths = [_folder_sectors(names) for names in (plain, joliet)]
    roots = [_FOLDERS, _FOLDERS + lengths[0]]
    extents, at = {}, roots[1] + lengths[1]
    for name in files:
        extents[name] = (at, len(files[name]))
        at += _sectors(len(files[name]))
    parts = [bytes(_FIRST * _SECTOR)]
    for kind, number in ((1, 0), (2, 1)):
        parts.append(_descriptor(kind, label, at, roots[number], lengths[number], _TABLES + 2 * number))
    parts.append(_padded(b"\xffCD001\x01"))
    for number in (0, 1):
        parts += [_padded(struct.pack(f"{order}BBIHBx", 1, 0, roots[number], 1, 0)) for order in "<>"]
    for number, names in enumerate((plain, joliet)):
        parts.append(_folder(names, extents, roots[number], lengths[number]))
    parts += [_padded(files[name]) for name in files if files[name]]
    return b"".join(parts)


def _sectors(size: int) -> int:
    return -(-size // _SECTOR)


def _padded(data: bytes) -> bytes:
    return data.ljust(_sectors(len(data)) * _SECTOR, b"\0")


def _both(form: str, value: int) -> bytes:
    return struct.pack(f"<{form}", value) + struct.pack(f">{form}", value)


def _record(name: bytes, extent: tuple[int, int], *, folder: bool = False) -> bytes:
    fields = _both("I", extent[0]) + _both("I", extent[1]) + _WHEN + bytes((2 if folder else 0, 0, 0)) + _both("H", 1)
    body = bytes((0,)) + fields + bytes((len(name),)) + name
    body += b"" if len(body) % 2 else b"\0"  # with the byte of its length, a record has an even one
    return bytes((len(body) + 1,)) + body


def _records(names: Mapping[str, bytes], extents: Mapping[str, tuple[int, int]]) -> list[bytes]:
    return [_record(names[name], extents[name]) for name in sorted(names, key=names.__getitem__)]


def _folder_sectors(names: Mapping[str, bytes]) -> int:
    return len(_packed([bytes(34), bytes(34), *_records(names, dict.fromkeys(names, (0, 0)))])) // _SECTOR


def _packed(records: list[bytes]) -> bytes:
    """Return the records one after the other, none across the end of a sector."""
    found = b""
    for record in records:
        if len(found) % _SECTOR + len(record) > _SECTOR:
            found = _padded(found)
        found += record
    return _padded(found)


def _folder(names: Mapping[str, bytes], extents: Mapping[str, tuple[int, int]], root: int, sectors: int) -> bytes:
    own = (root, sectors * _SECTOR)
    return _packed([_record(b"\0", own, folder=True), _record(b"\1", own, folder=True), *_records(names, extents)])


def _descriptor(kind: int, label: str, sectors: int, root: int, root_sectors: int, tables: int) -> bytes:
    def text(value: str, size: int) -> bytes:
        if kind == 1:
            return value.encode("ascii").ljust(size)
        return (value.encode("utf-16-be") + b"\0 " * size)[:size]

    escapes = (b"%/E" if kind == 2 else b"").ljust(32, b"\0")  # noqa: PLR2004 - UCS-2 level 3
    found = bytes((kind,)) + b"CD001\x01\0" + text("LINUX", 32) + text(label, 32) + bytes(8)
    found += _both("I", sectors) + escapes + _both("H", 1) + _both("H", 1) + _both("H", _SECTOR) + _both("I", 10)
    found += struct.pack("<II", tables, 0) + struct.pack(">II", tables + 1, 0)
    found += _record(b"\0", (root, root_sectors * _SECTOR), folder=True)
    found += text("", 128) * 4 + text("", 37) * 3 + _NO_DATE * 4 + b"\x01\0"
    return _padded(found)
