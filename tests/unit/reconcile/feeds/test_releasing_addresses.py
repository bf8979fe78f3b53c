"""An address that is being given back is not asked for a second time."""

from __future__ import annotations

import threading
from typing import Any

from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.reconcile.feeds.address_claims import AddressClaims


class Book:
    """One claim a pod, whose release waits until it is let go."""

    def __init__(self) -> None:
        self.released: list[str] = []
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)
        self.fails = False

    def claims_of(self, uid: str) -> list[str]:
        """Return the pod's claim."""
        return [f"claim of {uid}"]

    def release(self, claim: str) -> None:
        """Give a claim back, once let go."""
        self.begun.release()
        assert self.go.acquire(timeout=60)
        self.released.append(claim)
        if self.fails:
            raise TemporaryError("away")


def test_an_address_is_given_back_once_while_that_is_under_way_and_again_after_a_failure() -> None:
    book: Any = Book()
    claims = AddressClaims(book, lambda _uids: None)
    book.fails = True
    for _ in range(3):
        claims.release_later("a")
    assert book.begun.acquire(timeout=60)
    claims.release_later("a")
    claims.release_later("b")
    book.go.release(2)
    assert book.begun.acquire(timeout=60)
    book.go.release(9)
    for _ in range(1000):
        claims.release_later("a")
        if book.begun.acquire(timeout=0.01):
            break
    claims.stop()
    assert sorted(book.released) == ["claim of a", "claim of a", "claim of b"]


def test_a_claim_that_was_written_during_a_release_is_given_back_by_who_asked_meanwhile() -> None:
    book: Any = Book()
    held = ["first"]
    book.claims_of = lambda _uid: [held.pop()] if held else []
    claims = AddressClaims(book, lambda _uids: None)
    claims.release_later("a")
    assert book.begun.acquire(timeout=60)
    held.append("second")
    for _ in range(3):
        claims.release_later("a")
    book.go.release(2)
    assert book.begun.acquire(timeout=60)
    claims.stop()
    assert book.released == ["first", "second"]


def test_who_removes_the_pod_waits_for_a_release_under_way_and_asks_for_none_of_its_own() -> None:
    book: Any = Book()
    held = ["claim of a"]
    book.claims_of = lambda _uid: [*held]
    give_back = book.release

    def release(claim: str) -> None:
        give_back(claim)
        held.remove(claim)

    book.release = release
    claims = AddressClaims(book, lambda _uids: None)
    claims.release_later("a")
    assert book.begun.acquire(timeout=60)
    removing = threading.Thread(target=claims.release, args=("a",))
    removing.start()
    removing.join(0.05)
    assert removing.is_alive()
    book.go.release(9)
    removing.join(60)
    claims.stop()
    assert book.released == ["claim of a"]


def test_after_the_end_nothing_is_begun() -> None:
    book: Any = Book()
    claims = AddressClaims(book, lambda _uids: None)
    claims.stop()
    claims.release_later("a")
    assert book.released == []
