"""What is created while a quota is counted for the first time is charged by nobody, and counted all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CONFIG_MAP, RESOURCE_QUOTA, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.policy.quotas import QuotaController
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until
from tests.support.workloads import SPACE


class Api(FakeApi):
    """An API in which a ConfigMap comes between the first count and its write."""

    came = False

    def update(self, kind: Kind, obj: Mapping[str, Any], **options: Any) -> JsonObject:
        """Write an object."""
        if kind == RESOURCE_QUOTA and not self.came:
            self.came = True
            self.create(CONFIG_MAP, {"metadata": {"name": "between", "namespace": SPACE}})
        return super().update(kind, obj, **options)


def test_what_comes_between_the_first_count_and_its_write_is_counted():
    api = Api(SystemClock())
    context = Context(api, EventRecorder(api, "test"), Informers(api))
    controller = QuotaController(context)
    context.informers.start()
    controller.start()
    try:
        hard = {"count/configmaps": "2"}
        api.create(RESOURCE_QUOTA, {"metadata": {"name": "all", "namespace": SPACE}, "spec": {"hard": hard}})
        until(lambda: objects.status(api.get(RESOURCE_QUOTA, "all", SPACE)).get("used") == {"count/configmaps": "1"})
    finally:
        controller.stop()
        context.informers.stop()
        context.pool.shutdown()
    assert api.came
