"""Which Secrets a pilot may read: those that a Gateway of its classes names and may use, and no others.

Its role gives it the verb ``serve`` on gateways, and nothing on secrets. Who has all verbs on gateways is no pilot: he
could name any Secret himself. What counts is what is stored: a Secret of another namespace needs a ReferenceGrant there
(api/network/references.py). Asked after the roles.
"""

from __future__ import annotations

from minik8s_modules.api import objects
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import SECRET
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS, is_ours
from minik8s_modules.api.network.references import secrets_of
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.store.cache import WatchCache

PILOT = "system:minik8s:pilot"
SERVE = Attributes("serve", GATEWAY_KINDS.gateways.group, GATEWAY_KINDS.gateways.plural)


class GatewaySecrets:
    """See the top of this file."""

    def __init__(self, cache: WatchCache, rbac: Rbac) -> None:
        self._cache, self._rbac = cache, rbac

    def why(self, user: User, asked: Attributes) -> str:
        """Return why it may; "" when it may not, or the user serves no Gateways."""
        if asked.path or not asked.name:
            return ""
        if (asked.verb, asked.group, asked.resource) != ("get", SECRET.group, SECRET.plural):
            return ""
        if user.name != PILOT or not self._rbac.why(user, SERVE):
            return ""
        key = Key(asked.namespace, asked.name)
        grants = self._list(GATEWAY_KINDS.grants)
        classes = objects.readable(self._list(GATEWAY_KINDS.classes), is_ours)
        ours = {objects.name(each) for each in classes if is_ours(each)}
        for gateway in objects.readable(self._list(GATEWAY_KINDS.gateways), lambda each: secrets_of([each], grants)):
            if objects.spec(gateway).get("gatewayClassName") in ours and key in secrets_of([gateway], grants):
                return f"Gateway {objects.key(gateway)} names it"
        return ""

    def _list(self, kind: Kind) -> list[JsonObject]:
        return [item.object for item in self._cache.list(kind.prefix).items]
