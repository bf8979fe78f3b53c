"""``imagePullPolicy`` on a compute node: the site's own commands that look for an image and fetch it. Pure.

They run in the job, before the image's program, outside of any container; of what a Pod says, they get the image's name
alone. Without such commands the ``image_command`` decides what is fetched, and a Pod that asks for anything but what
the API sets by itself is refused.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from minik8s_modules.api.defaulting.defaults_pod import pull_policy
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.virtual.errors import InvalidInput

IMAGE_WORD = "{image}"
ALWAYS, IF_NOT_PRESENT, NEVER = "Always", "IfNotPresent", "Never"
FAILED = 125
"""Exit code of a job whose image is not there, as docker run has it for what keeps a program from beginning."""
_ABSENT = "minik8s: image {image} is not on this compute node, and imagePullPolicy Never forbids to fetch it"
_UNFETCHED = "minik8s: image {image} could not be fetched"


class Fetching(NamedTuple):
    """Commands of a site: ``test`` succeeds where an image is there, ``pull`` fetches it; () for none."""

    test: tuple[str, ...] = ()
    pull: tuple[str, ...] = ()


NOTHING = Fetching()


def faults(fetching: Fetching, image_command: Sequence[str]) -> str:
    """Return why the settings cannot be used beside ``image_command``, "" where they can."""
    if any(fetching) and not image_command:
        return "image_test_command and image_pull_command need an image_command: without it, a job runs in no image"
    for name, words in (("image_test_command", fetching.test), ("image_pull_command", fetching.pull)):
        if words and (IMAGE_WORD in words[0] or not any(IMAGE_WORD in word for word in words[1:])):
            return f"{name} must name a program, and {IMAGE_WORD} in a word behind it"
    if fetching.pull and not fetching.test:
        return "image_pull_command needs an image_test_command: most Pods have an image fetched only where it is absent"
    return ""


def lines(container: JsonObject, fetching: Fetching) -> Iterator[str]:
    """Yield the lines of a job's shell that have its image as its policy says.

    Raises:
        InvalidInput: the site has no command for what the Pod asks for.
    """
    image = str(container["image"])
    usual = pull_policy(image)
    policy = container.get("imagePullPolicy") or usual
    test, pull = (_words(words, image) for words in fetching)
    if policy == NEVER and test:
        yield f"{test} >/dev/null 2>&1 || {_ending(_ABSENT, image)}\n"
    elif policy == IF_NOT_PRESENT and pull:
        yield f"{test} >/dev/null 2>&1 || {pull} >&2 || {_ending(_UNFETCHED, image)}\n"
    elif policy == ALWAYS and pull:
        yield f"{pull} >&2 || {_ending(_UNFETCHED, image)}\n"
    elif policy != usual:
        wanted = "image_test_command" if policy == NEVER else "image_pull_command"
        raise InvalidInput(
            f"spec.containers[0].imagePullPolicy {policy}: this partition's image_command decides whether an image is"
            f" fetched ({wanted} of its provider is not set); leave it out"
        )


def _words(command: Sequence[str], image: str) -> str:
    return " ".join(shlex.quote(word.replace(IMAGE_WORD, image)) for word in command)


def _ending(text: str, image: str) -> str:
    return f"{{ echo {shlex.quote(text.format(image=image))} >&2; exit {FAILED}; }}"
