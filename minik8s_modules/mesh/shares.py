"""How a weight of a subset becomes weights of its Pods. Pure.

Source: the original's pilot: W_i = w_i * product of the sizes n_j of the other subsets that are not empty, so that the
sum over the Pods of subset i is in the ratio of w_i, whatever the sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

MOST = 2**31 - 1
"""What the weights of all Pods together may come to: an int32; Envoy adds them up in a uint32."""


def pod_weights(weights: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Return the weight of each Pod of each subset; 0 for those of a subset that is empty or has no weight.

    Weights [1, 2] of sizes [2, 1] give [1, 4]: Pods have 1, 1 and 4. Where that came to more than ``MOST``, all are
    made smaller alike, and stay above 0.
    """
    product = math.prod(size for size in sizes if size)
    exact = [weight * product // size if size else 0 for weight, size in zip(weights, sizes, strict=True)]
    total = sum(weight * size for weight, size in zip(exact, sizes, strict=True))
    if total <= MOST:
        return exact
    room = MOST - sum(sizes)
    return [max(weight * room // total, 1) if weight else 0 for weight in exact]
