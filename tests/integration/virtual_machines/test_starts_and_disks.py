"""A guest of User-Mode Linux that starts paused, with disks made of a ConfigMap and a Secret."""

from __future__ import annotations

import base64
import json

from minik8s_modules.api.kinds import CONFIG_MAP, SECRET
from minik8s_modules.api.objects import JsonObject
from tests.integration.virtual_machines.conftest import BOOT_S, Guests


def status(guests: Guests, name: str) -> JsonObject:
    done = guests.ctl(name, "status", check=False)
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {}


def test_a_guest_starts_paused_and_reads_a_configmap_and_a_secret(guests: Guests):
    admin, meta = guests.cluster.admin, {"namespace": "default"}
    admin.create(CONFIG_MAP, {"metadata": {"name": "words", **meta}, "data": {"greeting": "from-a-configmap\n"}})
    secret = base64.b64encode(b"from-a-secret\n").decode()
    admin.create(SECRET, {"metadata": {"name": "key", **meta}, "data": {"password": secret}})
    volumes = ({"name": "words", "configMap": {"name": "words"}}, {"name": "key", "secret": {"secretName": "key"}})
    name = guests.create(guests.vmi("held", *volumes, startStrategy="Paused"))

    guests.cluster.until(lambda: status(guests, name).get("paused") or guests.ended(name), BOOT_S)
    assert not guests.ended(name), guests.told(name)
    found = status(guests, name)
    assert (found["phase"], found["figures"]["domain_bytes"]) == ("Running", 64 << 20)
    assert found["figures"]["resident_bytes"] > 1 << 20
    assert guests.http(name) is None

    guests.ctl(name, "unpause")
    guests.cluster.until(lambda: guests.http(name) == "guest\n", BOOT_S)
    assert not status(guests, name)["paused"]
    for device, words in (("ubdb", "from-a-configmap"), ("ubdc", "from-a-secret")):
        line = f"read-iso /dev/{device} /tmp/{device}; cat /tmp/{device}/*"
        guests.cluster.until(lambda line=line, words=words: words in guests.type(name, line), BOOT_S)  # type: ignore[misc]
    assert status(guests, name)["figures"]["cpu_seconds"] > 0
