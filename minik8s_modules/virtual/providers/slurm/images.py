"""A Pod's image on a compute node: the site's own command that runs a program in it, as words of a shell. Pure.

A container may be all that keeps a Pod from the submitting user's files. So an image's name cannot lead out of the
folder of images, and of the job's folder the container gets ``work`` alone: what lies beside it is run outside of the
container, and again where Slurm requeues the job. The Pod's variables have other names outside of the container, as a
PATH, LD_PRELOAD or APPTAINER_BIND of a Pod would decide there what the shell and the site's command do.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.slurm import IMAGE
from minik8s_modules.virtual.errors import InvalidInput
from minik8s_modules.virtual.providers.slurm.fetching import IMAGE_WORD, NOTHING, Fetching, lines

FOLDER, WORKDIR, SOURCE, TARGET = "{folder}", "{workdir}", "{source}", "{target}"
PLACES = (IMAGE_WORD, FOLDER, WORKDIR, SOURCE, TARGET)
"""What stands for the image, the job's working folder, and the Pod's workingDir (by default that folder).

A word with the last two is repeated for each volume with an absolute mountPath: where its files are, and that path.
"""
VOLUMES = ".volumes"
"""Folder below ``work`` with those volumes."""
OUTSIDE = "MINIK8S_ENV_"
"""What a Pod's variables have before their names until a shell in the container gives them their own."""
# Words before "--" are names that _environment has checked. As words, as many fit as variables do. With "command", bash
# passes over a name that is its own, such as UID, instead of ending.
_RENAME = (
    f'while [ "$1" != -- ]; do eval "command export $1=\\"\\${OUTSIDE}$1\\""; unset "{OUTSIDE}$1"; shift; done; '
    'shift; exec "$@"'
)
_PLACE = re.compile(r"(\{[a-z_]*\})")
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}\Z")
_TARGET = re.compile(
    r"(/[A-Za-z0-9_.-]+)+\Z"
)  # no word of a shell, and neither ":" nor ",", which part a bind's fields
_WHERE = "spec.containers[0]"
# the job's termination log lies beside the folder: a hard link shows it to the container, which cannot exchange it
_LOG = (
    ": >> ../termination-log\n"
    'ln -fn ../termination-log .termination-log && MINIK8S_TERMINATION_LOG="$PWD/.termination-log"\n'
)
_MISSING = "minik8s: this compute node has no {program}, with which the image_command of its virtual node runs images"


class Bind(NamedTuple):
    """A volume in a container: its folder below the job's working folder, and the absolute path of its mount."""

    path: str
    target: str


class InImage(NamedTuple):
    """A shell's lines before a program, the words that it is given to, and what variables' names begin with there."""

    enter: str = ""
    before: str = ""
    prefix: str = ""


def faults(image_command: Sequence[str]) -> str:
    """Return why the setting ``image_command`` cannot be used, "" where it can."""
    unknown = {place for word in image_command for place in _PLACE.findall(word)} - {*PLACES}
    if unknown:
        return f"image_command: {min(unknown)} stands for nothing; there are {', '.join(PLACES)}"
    if image_command and (_PLACE.search(image_command[0]) or not _has(image_command, IMAGE_WORD)):
        return f"image_command must name a program, and {IMAGE_WORD} in a word behind it"
    if any((SOURCE in word) != (TARGET in word) for word in image_command):
        return f"image_command must have {SOURCE} and {TARGET} in the same word, such as --bind={SOURCE}:{TARGET}"
    return ""


def in_image(
    container: JsonObject, image_command: Sequence[str], binds: Sequence[Bind] = (), fetching: Fetching = NOTHING
) -> InImage:
    """Return how a program is run in the container's image, with ``binds``.

    Raises:
        InvalidInput: it cannot be; the message names the field.
    """
    image, workdir = str(container.get("image", "")), str(container.get("workingDir") or "")
    if workdir and not workdir.startswith("/"):
        raise InvalidInput(f"{_WHERE}.workingDir {workdir!r}: give an absolute path, or leave it out")
    has_image = image.partition(":")[0] != IMAGE
    if has_image:
        _check(image, workdir, image_command)
    _check_binds(binds, can_bind=has_image and _has(image_command, TARGET))
    if not has_image:
        return InImage(f"cd {shlex.quote(workdir)} || exit 72\n" if workdir else "")
    given = {IMAGE_WORD: shlex.quote(image), FOLDER: '"$PWD"', WORKDIR: shlex.quote(workdir) if workdir else '"$PWD"'}
    words = [*_words(image_command, given, binds), *_naming(one["name"] for one in container.get("env") or [])]
    enter = [*_before(image_command, binds), *lines(container, fetching)]
    return InImage("".join(enter), " ".join(words), OUTSIDE)


def _naming(names: Iterable[str]) -> list[str]:
    """Return the words of a shell in the container that gives variables their names; none where there are none.

    Raises:
        InvalidInput: two could not be told apart.
    """
    if not (names := sorted({*names})):
        return []
    if taken := next((name for name in names if name.startswith(OUTSIDE)), ""):
        raise InvalidInput(f"env {taken}: no variable of a Pod with an image begins with {OUTSIDE}; rename it")
    return ["/bin/sh", "-c", shlex.quote(_RENAME), "sh", *names, "--"]


def _before(image_command: Sequence[str], binds: Sequence[Bind]) -> Iterator[str]:
    program, missing = shlex.quote(image_command[0]), _MISSING.format(program=image_command[0])
    yield f"command -v {program} >/dev/null || {{ echo {shlex.quote(missing)} >&2; exit 127; }}\n"
    if _has(image_command, FOLDER):
        yield _LOG
    if binds:
        yield f"mkdir -p {' '.join(bind.path for bind in binds)} || exit 72\n"


def _words(image_command: Sequence[str], given: Mapping[str, str], binds: Sequence[Bind]) -> Iterator[str]:
    for word in image_command:
        if TARGET in word:
            yield from (_filled(word, {**given, SOURCE: f'"$PWD"/{path}', TARGET: target}) for path, target in binds)
        else:
            yield _filled(word, given)


def _check(image: str, workdir: str, image_command: Sequence[str]) -> None:
    if not image_command:
        raise InvalidInput(
            f"{_WHERE}.image {image}: this partition runs no container images (image_command of its provider): with the"
            f" image {IMAGE}, command and args run on the compute node itself"
        )
    if not _REFERENCE.match(image) or {"", ".", ".."} & {*image.split("/")}:
        raise InvalidInput(
            f"{_WHERE}.image {image!r:.80} must match {_REFERENCE.pattern}, and have no part that is empty, . or .."
        )
    if workdir and not _has(image_command, WORKDIR):
        raise InvalidInput(
            f"{_WHERE}.workingDir: this partition has none for images ({WORKDIR} in image_command of its provider);"
            " leave it out, and have the program change its folder"
        )


def _check_binds(binds: Sequence[Bind], *, can_bind: bool) -> None:
    for _, target in binds:
        if not can_bind:
            raise InvalidInput(
                f"{_WHERE}.volumeMounts: mountPath {target!r:.80}: without an image, or with one on this partition"
                f" ({TARGET} in image_command of its provider), nothing can be put at an absolute path; give one below"
                " the job's working folder, such as `src`"
            )
        if not _TARGET.match(target) or {".", ".."} & {*target.split("/")}:
            raise InvalidInput(
                f"{_WHERE}.volumeMounts: mountPath {target!r:.80} must match {_TARGET.pattern}, and have no part that"
                " is . or .."
            )


def _has(image_command: Sequence[str], place: str) -> bool:
    return any(place in word for word in image_command[1:])


def _filled(word: str, given: Mapping[str, str]) -> str:
    parts = (given.get(part) or shlex.quote(part) for part in _PLACE.split(word) if part)
    return "".join(parts) or "''"
