"""Keeps copies of the AuthorizationPolicies, while their definition is there. Shared by threads.

Until they are complete nothing is decided for sidecars: a pilot that has just started would leave Pods open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.mesh.reading import readable_policy
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.custom_copies import CustomCopies

Declared = Mapping[str, list[JsonObject]]
"""The policies by namespace, each by name."""
Follower = Callable[[set[str]], None]
"""Told of the namespaces with other policies than before."""


class PolicyCopies(CustomCopies[Declared, Follower]):
    """See the top of this file.

    Args:
        context: of the process.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context, "mesh-policies", [AUTHORIZATION_POLICY], {})

    def get(self) -> Declared:
        """Return the policies as they are; one that cannot be read denies everything."""
        found: dict[str, list[JsonObject]] = {}
        for each in sorted(self.objects(AUTHORIZATION_POLICY), key=objects.name):
            policy, fault = readable_policy(each)
            if fault:
                objects.tell_misread(each, ValueError(fault), "denies everything", traced=False)
            found.setdefault(objects.namespace(each), []).append(policy)
        return found

    def tell(self, followers: Iterable[Follower], before: Declared, now: Declared) -> None:
        """Say in which namespaces they have become others."""
        changed = {each for each in before.keys() | now.keys() if before.get(each) != now.get(each)}
        for each in followers:
            each(changed)
