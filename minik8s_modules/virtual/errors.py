"""What a provider's error means to the controllers, which look for it in the whole chain of causes.

Minik8sError
└── ProviderError
    ├── NotFound        the back end has no such Pod: for a deletion that is success
    ├── InvalidInput    the Pod cannot run here as it is; trying again changes nothing
    └── Unsupported     this provider does not do that (logs, exec, …): answered 501

Every other exception is tried again. The names are virtual-kubelet's (``errdefs``).
"""

from __future__ import annotations

from collections.abc import Iterator

from minik8s_modules.base.errors import Minik8sError


class ProviderError(Minik8sError):
    """Base of what providers raise on purpose."""


class NotFound(ProviderError):
    """The back end has no such Pod, container or port."""


class InvalidInput(ProviderError):
    """What the Pod or the request asks for can never be done here; the message says what to change."""


class Unsupported(ProviderError):
    """This provider does not do that at all."""


def is_not_found(error: BaseException) -> bool:
    """Return whether ``error``, or what it was raised from, is a ``NotFound``."""
    return any(isinstance(one, NotFound) for one in causes(error))


def is_invalid_input(error: BaseException) -> bool:
    """Return whether ``error``, or what it was raised from, is an ``InvalidInput``."""
    return any(isinstance(one, InvalidInput) for one in causes(error))


def is_unsupported(error: BaseException) -> bool:
    """Return whether ``error``, or what it was raised from, is an ``Unsupported``."""
    return any(isinstance(one, Unsupported) for one in causes(error))


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error`` and what it was raised ``from``, each once.

    What was merely being handled (``__context__``) is no cause: who creates a Pod on ``NotFound`` and fails has not
    found it missing.
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__
