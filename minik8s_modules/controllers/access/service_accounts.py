"""The account ``default`` of every namespace: what pods run as that name no other.

Source: kubernetes ``pkg/controller/serviceaccount``.
"""

from __future__ import annotations

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import SERVICE_ACCOUNT
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.client.interface import Api
from minik8s_modules.controllers.core.namespace_objects import Create, NamespaceObjects

NAME = "default"


def decide_account(namespace: JsonObject, account: JsonObject | None) -> Create | None:
    """Return the account to make; one that is there stays as its owner has it."""
    if account is not None:
        return None
    return Create({"metadata": {"name": NAME, "namespace": objects.name(namespace)}})


def service_accounts(client: Api, clock: Clock | None = None) -> NamespaceObjects:
    """Return the controller."""
    return NamespaceObjects(client, SERVICE_ACCOUNT, NAME, decide_account, clock)
