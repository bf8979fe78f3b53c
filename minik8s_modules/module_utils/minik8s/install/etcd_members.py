"""The members of one etcd cluster: what is declared, as steps. Pure; ``library/minik8s_etcd_members.py`` takes them.

A cluster begins with one member; every other one joins it, one at a time: it is added as a learner, which does not vote
and so cannot take the quorum from those there are, is started, has copied everything, and is promoted then. So growing
from one to three and making three again are the same way. A member is told by its peer URL: its name is empty until it
has been started once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Member(NamedTuple):
    """A member as etcd lists it."""

    id: str
    name: str
    peers: tuple[str, ...]
    learner: bool = False


class MemberStep(NamedTuple):
    """One effect: ``update`` peers of ``id``, ``remove`` or ``promote`` it, ``add`` a learner with ``peer``."""

    action: str
    id: str
    peer: str
    reason: str


class NoSuchMember(ValueError):
    """The member that is to vote is none."""


def members_of(answer: dict[str, Any]) -> list[Member]:
    """Return the members that etcd's answer to ``/v3/cluster/member/list`` holds."""
    return [
        Member(str(each["ID"]), each.get("name", ""), tuple(each.get("peerURLs", ())), each.get("isLearner", False))
        for each in answer.get("members", ())
    ]


def plan_only(members: Sequence[Member], own_id: str, own_peer: str, declared: Sequence[str]) -> list[MemberStep]:
    """Return the steps after which the member ``own_id`` has ``own_peer``, and no other has an undeclared one."""
    steps = [
        MemberStep("remove", each.id, ",".join(each.peers), "it is no longer declared")
        for each in members
        if each.id != own_id and not set(each.peers) & set(declared)
    ]
    # last: the address of a member that is left alone is its loopback, where those that go could not reach it
    steps += [
        MemberStep("update", each.id, own_peer, f"it is reached as {own_peer} by the others")
        for each in members
        if each.id == own_id and each.peers != (own_peer,)
    ]
    return steps


def plan_joining(members: Sequence[Member], peer: str) -> list[MemberStep]:
    """Return the steps after which a member with ``peer``, whose machine has no data yet, may be started."""
    found = [each for each in members if peer in each.peers]
    # one that has been started has a name; without its data it must not come back as the same member
    lost = [MemberStep("remove", each.id, peer, "its data is lost") for each in found if each.name]
    if found and not lost:
        return []
    return [*lost, MemberStep("add", "", peer, "it joins")]


def plan_voting(members: Sequence[Member], peer: str) -> list[MemberStep]:
    """Return the step after which the member with ``peer`` votes; none when it does.

    Raises:
        NoSuchMember: there is no member with ``peer``.
    """
    found = [each for each in members if peer in each.peers]
    if not found:
        raise NoSuchMember(f"no member has the peer URL {peer}")
    return [MemberStep("promote", each.id, peer, "it has all the data") for each in found if each.learner]


def initial_cluster(members: Sequence[Member], name: str, peer: str) -> str:
    """Return etcd's option ``initial-cluster`` for the member ``name`` with ``peer`` that joins ``members``."""
    others = [f"{each.name}={url}" for each in members if peer not in each.peers for url in each.peers]
    return ",".join([*others, f"{name}={peer}"])
