"""``logs``: what a container has printed, and with -f what it goes on printing."""

from __future__ import annotations

import argparse
import sys

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import reading
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.generating import seconds
from minik8s_modules.cli.resources import find_kind
from minik8s_modules.client.api import ApiClient, resource_path, with_query

FOLLOW_S = 86_400


def logs(client: ApiClient, options: argparse.Namespace) -> int:
    """Print the log of a container of each named pod."""
    if not options.words and not options.selector:
        raise UsageError("name a pod, as in `minik8s logs web`, or give --selector")
    names = [_pod_name(word) for word in options.words]
    if not names:
        names = [objects.name(pod) for pod in client.list(POD, options.namespace, options.selector).items]
    if options.follow and len(names) > 1:
        raise UsageError("follow one pod at a time")
    for name in names:
        for container in _containers(client, name, options):
            _copy(client, name, container, options)
    return 0


def _pod_name(word: str) -> str:
    resource, slash, name = word.partition("/")
    if slash and find_kind(resource) is not POD:
        raise UsageError(f'"{word}" is no pod')
    return name if slash else word


def _containers(client: ApiClient, name: str, options: argparse.Namespace) -> list[str]:
    if not options.all_containers:
        return [options.container]
    pod: JsonObject = reading.fetch(client, reading.Place(POD, options.namespace, name), options)[0][1]
    return [container["name"] for _, _, container in objects.all_containers(pod)]


def _copy(client: ApiClient, name: str, container: str, options: argparse.Namespace) -> None:
    query = {
        "container": container,
        "follow": "true" if options.follow else "",
        "previous": "true" if options.previous else "",
        "timestamps": "true" if options.timestamps else "",
        "tailLines": options.tail if options.tail >= 0 else "",
        "sinceSeconds": seconds(options.since) if options.since else "",
        "limitBytes": options.limit_bytes or "",
    }
    path = with_query(resource_path(POD, options.namespace, name, "log"), query)
    response = client.stream(path, timeout_s=FOLLOW_S if options.follow else 60)
    try:
        while data := response.read1():
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    finally:
        response.close()
