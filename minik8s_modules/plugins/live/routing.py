"""Where Ansible looks for modules that moved to collections, as none of a live run did: 3 MB of the play.

ansible-core reads `config/ansible_builtin_runtime.yml` for every program: 376 KB of YAML, nine tenths of them the old
names of modules and of their utilities. A live run's modules are our own, so these are cut from the text before it is
parsed; what else moved, such as connections, is found as always.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from ansible.utils.collection_loader import _collection_finder as finder

_MOVED = re.compile(r"^  (?:modules|module_utils):\n(?:(?: {3,}.*| *#.*)?\n)*", re.M)
"""A block two spaces deep, with its deeper lines, comments and empty lines."""


def leave_out_modules() -> None:
    """Have this process look for no modules in collections that it is not told by their full names."""
    finder._meta_yml_to_dict = functools.partial(_read, finder._meta_yml_to_dict)  # noqa: SLF001  tools may replace it


def _read(read: Callable[..., Any], text: bytes | str, content_id: tuple[str, str]) -> Any:
    if content_id[0] == "ansible.builtin":
        text = without_modules(text.decode() if isinstance(text, bytes) else text)
    return read(text, content_id)


def without_modules(text: str) -> str:
    """Return the text of a collection's metadata without what it says of modules and their utilities."""
    return _MOVED.sub("", text)
