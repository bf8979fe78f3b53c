"""The seam for sharded controllers: which of several processes answers for which namespace.

Today one process leads and owns everything. With several, each led under a Lease of its own, a namespace
belongs to the shard its name hashes to; what has no namespace belongs to shard 0.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from minik8s_modules.api.objects import Key


class Shard(NamedTuple):
    """Shard ``number`` of ``shards``."""

    number: int = 0
    shards: int = 1

    def owns(self, key: Key) -> bool:
        """Return whether this shard answers for ``key``."""
        return self.shards == 1 or zlib.crc32(key.namespace.encode()) % self.shards == self.number


WHOLE = Shard()
