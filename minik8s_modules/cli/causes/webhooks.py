"""Why webhooks hold up writes: what API servers told of them lately, in Events about their configurations."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes.faults import Fault, kubectl, moment, resource
from minik8s_modules.cli.causes.surroundings import Around

_REASONS = frozenset({"FailedCallingWebhook", "SlowWebhook"})
LATELY = timedelta(minutes=10)


def webhook_faults(configuration: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield the webhooks that could not be asked, or were slow, the last first."""
    for event in reversed(around.events(configuration)):
        at = moment(event.get("lastTimestamp"))
        if event.get("reason") in _REASONS and at is not None and around.now - at < LATELY:
            times = int(event.get("count") or 1)
            text = " ".join(str(event.get("message")).split())
            yield Fault(
                f"{text} ({times} times)" if times > 1 else text, kubectl("", "describe", resource(configuration))
            )
