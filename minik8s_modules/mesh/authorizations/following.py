"""Keeps copies of the AuthorizationPolicies, while their definition is there. Shared by threads.

Until they are complete nothing is decided for sidecars: a pilot that has just started would leave Pods open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY
from minik8s_modules.api.network.readable_policies import denying, readable_policy
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.reading import with_readable_status
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.custom_copies import CustomCopies

Declared = Mapping[str, list[JsonObject]]
"""The policies by namespace, each by name."""
Follower = Callable[[set[str]], None]
"""Told of the namespaces with other policies than before."""
Builds = Callable[[JsonObject], object]
"""Makes what an Envoy would be told of a policy; whatever it raises, the policy is one that nobody can enforce."""
_FAULT_MOST = 300


class PolicyCopies(CustomCopies[Declared, Follower]):
    """See the top of this file.

    Args:
        context: of the process.
        builds: called with each policy, so that one that ends in an exception ends no stream.
    """

    def __init__(self, context: Context, builds: Builds) -> None:
        super().__init__(context, "mesh-policies", [AUTHORIZATION_POLICY], {})
        self._builds = builds
        self._kept: Mapping[Key, tuple[JsonObject, JsonObject, str]] = {}

    def get(self) -> Declared:
        """Return the policies as they are; one that cannot be read denies everything."""
        found: dict[str, list[JsonObject]] = {}
        before, now = self._kept, dict[Key, tuple[JsonObject, JsonObject, str]]()
        for each in sorted(self.objects(AUTHORIZATION_POLICY), key=objects.name):
            key = objects.key(each)
            kept = before.get(key)
            now[key] = kept if kept is not None and kept[0] is each else (each, *self._enforceable(each))
            found.setdefault(key.namespace, []).append(now[key][1])
        self._kept = now
        return found

    def fault_of(self, policy: JsonObject) -> str:
        """Return why a policy that ``get`` has returned is not enforced as it is, in words; "" where it is."""
        kept = self._kept.get(objects.key(policy))
        return kept[2] if kept is not None else ""

    def _enforceable(self, declared: JsonObject) -> tuple[JsonObject, str]:
        policy, fault = readable_policy(with_readable_status(declared))
        error: Exception = ValueError(fault)
        if not fault:
            try:
                self._builds(policy)
            except Exception as raised:  # noqa: BLE001 - the edge of what one policy may end
                policy, error = denying(policy), raised
            else:
                return policy, ""
        objects.tell_misread(declared, error, "denies everything", traced=not fault)
        text = fault or f"no Envoy can be told of it: {error!r}"
        # of what others wrote: it may be long, and have halves of characters, which no server would take
        return policy, text.encode("ascii", "backslashreplace").decode()[:_FAULT_MOST]

    def tell(self, followers: Iterable[Follower], before: Declared, now: Declared) -> None:
        """Say in which namespaces they have become others."""
        changed = {each for each in before.keys() | now.keys() if before.get(each) != now.get(each)}
        for each in followers:
            each(changed)
