"""Regular expressions of VirtualServices: RE2's, which are linear in time, searched for anywhere in a path."""

from __future__ import annotations

import re2

LARGEST = 1000
"""Instructions of a compiled pattern; Envoys refuse above (roles/envoy/files/bootstrap.yaml)."""

_COMPILED_BYTES = 64 << 10
"""Of a compiled pattern while its size is not known: RE2's own 8 MB take it more than a second."""


def whole_path(pattern: str) -> str:
    """Return the pattern of whole paths in which ``pattern`` is found: Envoy compares paths from end to end."""
    return f"(?s:.*)(?:{pattern})(?s:.*)"


def pattern_fault(pattern: str) -> str:
    """Return what is wrong with a pattern, "" if nothing is."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _COMPILED_BYTES
    try:
        re2.compile(pattern, options)
        size = re2.compile(whole_path(pattern), options).programsize
    except (re2.error, UnicodeError) as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error.args[0]
        return f"must be a regular expression that RE2 knows: {reason}"
    return f"must come to at most {LARGEST} instructions of RE2, not {size}" if size > LARGEST else ""
